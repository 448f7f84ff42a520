"""``make sdks``: every generator, or those that are named; an error if one of them does not do all that it should."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from app.openapi.document import PATH
from sdks import results
from sdks.generators import GENERATORS, Generator
from sdks.growing_proxy import GrowingProxy, Growth
from sdks.live_service import LiveService, live_service
from sdks.running import Outcome, SdkError, Workshop, missing_programs, run
from sdks.steps import STEPS


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0 if every client that could be made did every step, and the results say so."""
    options = _options().parse_args(arguments)
    chosen = [each for each in GENERATORS if not options.only or each.slug in options.only]
    if options.quick:
        chosen = [each for each in chosen if each.is_quick]
    options.directory.mkdir(parents=True, exist_ok=True)
    workshop = Workshop(options.directory.resolve(), PATH.resolve())
    if options.install:
        return _install(chosen, workshop)
    document = json.loads(PATH.read_text("utf-8"))
    outcomes = _run(chosen, workshop, Growth(document))
    if options.record:
        results.record(outcomes, document, GENERATORS, results.PATH)
        print(f"recorded in {results.PATH.name}; `make docs` writes the page")
    ran = {each.generator.slug for each in outcomes if not each.missing}
    outdated = results.surprises(outcomes, document, results.PATH) | results.stale(GENERATORS, document, results.PATH)
    for slug, why in outdated.items():
        print(f"docs/reference/sdks.md, {slug}: {', '.join(why)}")
    if outdated.keys() & ran:
        print("--record writes what came of those that ran")
    return int(any(outcome.failures for outcome in outcomes) or bool(outdated.keys() & ran))


def _run(chosen: Sequence[Generator], workshop: Workshop, growth: Growth) -> list[Outcome]:
    scratch = Path(tempfile.mkdtemp(prefix="rollway-sdks-"))
    outcomes = []
    try:
        with live_service(scratch) as today, GrowingProxy(today.url, growth) as proxy:
            for generator in chosen:
                outcome = run(generator, workshop, today, LiveService(proxy.url, today.api_key), "sdk.")
                print(line(outcome), flush=True)
                outcomes.append(outcome)
    finally:
        shutil.rmtree(scratch)
    return outcomes


def _install(chosen: Sequence[Generator], workshop: Workshop) -> int:
    """Installs what can be had. What cannot, such as packages of a registry that is out of reach, is named."""
    for generator in chosen:
        if missing := missing_programs(generator):
            print(f"{generator.name}: not installed, without {', '.join(missing)}")
            continue
        try:
            workshop.install(generator)
        except SdkError as error:
            print(f"{generator.name}: not installed: {error}")
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sdks", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[each.slug for each in GENERATORS], help="these alone")
    parser.add_argument("--quick", action="store_true", help="those that CI runs")
    parser.add_argument("--install", action="store_true", help="install the tools, and run nothing")
    parser.add_argument("--record", action="store_true", help="write what came of it into sdks/results.json")
    parser.add_argument("--directory", type=Path, default=Path(".venv/sdks"), help="where tools and clients are made")
    return parser


def line(outcome: Outcome) -> str:
    """What came of a generator, for a reader."""
    name = outcome.generator.name
    if outcome.missing:
        return f"{name}: not run, without {', '.join(outcome.missing)}"
    if outcome.failures:
        return f"{name}: FAILED\n" + "\n".join(f"  {each}" for each in outcome.failures)
    steps = ", ".join(f"{count} of {len(STEPS)} ({service})" for service, count in outcome.passed.items())
    return f"{name}: works, {steps}, {outcome.seconds:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
