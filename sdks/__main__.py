"""``make sdks``: every generator, or those that are named; an error if one of them does not do all that it should."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from app.openapi import PATH
from sdks.generators import GENERATORS
from sdks.growing_proxy import GrowingProxy, Growth
from sdks.live_service import LiveService, live_service
from sdks.running import Outcome, Workshop, run
from sdks.steps import STEPS


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0 if every client that could be made did every step."""
    options = _options().parse_args(arguments)
    chosen = [each for each in GENERATORS if not options.only or each.slug in options.only]
    if options.quick:
        chosen = [each for each in chosen if each.is_quick]
    options.directory.mkdir(parents=True, exist_ok=True)
    workshop = Workshop(options.directory.resolve(), PATH.resolve())
    scratch = Path(tempfile.mkdtemp(prefix="rollway-sdks-"))
    outcomes = []
    try:
        with live_service(scratch) as today, GrowingProxy(today.url, Growth(json.loads(PATH.read_text()))) as proxy:
            for generator in chosen:
                outcome = run(generator, workshop, today, LiveService(proxy.url, today.api_key), "sdk.")
                print(_line(outcome), flush=True)
                outcomes.append(outcome)
    finally:
        shutil.rmtree(scratch)
    return int(any(outcome.failures for outcome in outcomes))


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sdks", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[each.slug for each in GENERATORS], help="these alone")
    parser.add_argument("--quick", action="store_true", help="those that CI runs")
    parser.add_argument("--directory", type=Path, default=Path(".venv/sdks"), help="where tools and clients are made")
    return parser


def _line(outcome: Outcome) -> str:
    name = outcome.generator.name
    if outcome.missing:
        return f"{name}: not run, without {', '.join(outcome.missing)}"
    if outcome.failures:
        return f"{name}: FAILED\n" + "\n".join(f"  {each}" for each in outcome.failures)
    steps = ", ".join(f"{count} of {len(STEPS)} ({name})" for name, count in outcome.passed.items())
    return f"{name}: works, {steps}, {outcome.seconds:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
