"""Ask a real service 10,000 requests made of each document, and check every answer: ``make openapi-test``."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from app.main import whole_document
from app.openapi.document import PATH, render
from schemas.load_jobs import JOB_TIMEOUT_MS_MAX
from schemas.producers import INT_MAX
from tests.conformance.deviations import read_deviations
from tests.support.access import JwtIssuer
from tests.support.servers import ServerProcess

DIRECTORY = Path(__file__).parent
SUPER_USER = "conformance"
DRAWN = 100
"""Requests drawn for each operation and each way, those that keep to the document and those that do not."""
ROUNDS_MAX = 20
OPERATIONS = {f"{method.upper()} {path}" for path, each in whole_document()["paths"].items() for method in each}


@dataclass(slots=True)
class Tally:
    """What came of all runs against one document.

    Attributes:
        cases: requests whose answers were checked, by operation.
        failures: what schemathesis counts, by kind and operation.
        met: how often each deviation was needed, by its place in the file.
    """

    cases: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    met: Counter[int] = field(default_factory=Counter)

    def add(self, directory: Path) -> None:
        """Add the reports of one run."""
        for line in (directory / "events.ndjson").read_text(encoding="utf-8").splitlines():
            scenario = json.loads(line).get("ScenarioFinished")
            if scenario:
                recorder = scenario["recorder"]
                # Requests that a check sends itself have no checks of their own.
                for number in recorder.get("checks", {}):
                    case = recorder["cases"][number]
                    sent = f"{case['value']['method']} {case['value']['path']}"
                    # A method that a path does not have is asked for with one of its operations.
                    self.cases[sent if sent in OPERATIONS else recorder["label"]] += 1
        report = json.loads((directory / "report.json").read_text(encoding="utf-8"))
        for failure in report["failures"]:
            self.failures[f"{failure['title']}: {', '.join(failure['operations'])}"] += failure["count"]
        for error in report["errors"]:
            self.failures[error["title"]] += error["count"]
        self.failures["a request that was not answered"] += report["test_cases"]["errored"]
        if not report["complete"]:
            self.failures[f"the run ended early: {report['stop_reason']}"] += 1
        met = directory / "met"
        self.met.update(int(line) for line in met.read_text().split() if met.exists())


def ask(name: str, document: Path, url: str, token: str, directory: Path, *, seed: int) -> int:
    """Run schemathesis once; its exit status."""
    (directory / "met").touch()
    command = [
        str(Path(sys.executable).parent / "st"),
        "--config-file",
        str(DIRECTORY / "schemathesis.toml"),
        "run",
        str(document),
        "--url",
        url,
        "--seed",
        str(seed),
        "--max-examples",
        str(DRAWN),
        "--report",
        "ndjson,json",
        "--report-ndjson-path",
        str(directory / "events.ndjson"),
        "--report-json-path",
        str(directory / "report.json"),
        "--no-color",
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(DIRECTORY.parent.parent),
        "CONFORMANCE_DOCUMENT": name,
        "CONFORMANCE_MET": str(directory / "met"),
        "CONFORMANCE_TOKEN": token,
    }
    return subprocess.run(command, env=environment, cwd=directory, check=False).returncode


def check_document(name: str, directory: Path, *, seed: int, cases_min: int) -> Tally:
    """Ask fresh services, with one seed after the other, until there were ``cases_min`` requests."""
    document = PATH
    if name == "whole":
        document = directory / "whole.json"
        document.write_text(render(whole_document()), encoding="utf-8")
    tally = Tally()
    for number in range(ROUNDS_MAX):
        if tally.cases.total() >= cases_min:
            break
        place = directory / f"{name}-{number}"
        place.mkdir()
        issuer = JwtIssuer(place)
        with ServerProcess(place / "data", environment=_settings(issuer), from_nothing=True) as server:
            token = issuer.token(SUPER_USER)
            _fill(server.url, token)
            status = ask(name, document, server.url, token, place, seed=seed + number)
            errors = server.errors()
            if "Traceback" in errors:
                sys.stdout.write(errors)
                tally.failures["the service wrote a traceback"] += 1
        tally.add(place)
        if status and not tally.failures.total():
            tally.failures[f"st ended with {status}"] += 1
    return tally


def _settings(issuer: JwtIssuer) -> dict[str, str]:
    """Authentication is on: by a JWT, which no request can delete."""
    return {
        "ROLLWAY_AUTHENTICATION": "true",
        "ROLLWAY_SUPER_USERS": f"Jwt:{SUPER_USER}",
        "ROLLWAY_JWT_KEYS_FILE": str(issuer.file),
        "ROLLWAY_JWT_ISSUER": str(issuer.settings()["jwt_issuer"]),
        "ROLLWAY_JWT_AUDIENCE": str(issuer.settings()["jwt_audience"]),
        "ROLLWAY_AUTHENTICATION_FAILURES_PER_MINUTE": "1000000",
        # The document has the limits of the settings, not their defaults.
        "ROLLWAY_TRANSACTION_MAX_TIMEOUT_MS": str(INT_MAX),
        "ROLLWAY_LOAD_JOB_MAX_TIMEOUT_MS": str(JOB_TIMEOUT_MS_MAX),
    }


def _fill(url: str, token: str) -> None:
    """A topic with records, under the name that schemathesis tries first."""
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, trust_env=False) as client:
        client.put("/v1/topics/0", json={"partitions": 2}).raise_for_status()
        records = [{"value": str(number), "key": str(number)} for number in range(20)]
        client.post("/v1/topics/0/records", json={"records": records}).raise_for_status()


def _show(name: str, tally: Tally) -> None:
    fewest = min(OPERATIONS, key=lambda each: tally.cases[each])
    lines = [f"{name} document: {tally.cases.total()} requests, fewest of {fewest}: {tally.cases[fewest]}"]
    for place, deviation in enumerate(read_deviations()):
        status = "/".join(map(str, deviation.statuses))
        lines.append(f"  {tally.met[place]} times {deviation.check} {status}: {deviation.reason}")
    lines += [f"  FAILED {count} times: {what}" for what, count in tally.failures.items() if count]
    lines.append(f"  failures: {tally.failures.total()}")
    sys.stdout.write("\n".join(lines) + "\n")


def main() -> int:
    """0 when no check failed for any document."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default: %(default)s)")
    parser.add_argument("--cases", type=int, default=10_000, help="least requests for each document (%(default)s)")
    parser.add_argument("--document", choices=["published", "whole"], action="append", help="only this one")
    parser.add_argument("--keep", type=Path, help="write the reports here")
    options = parser.parse_args()
    tallies: dict[str, Tally] = {}
    with tempfile.TemporaryDirectory() as temporary:
        directory = options.keep or Path(temporary)
        directory.mkdir(exist_ok=True)
        for name in options.document or ["published", "whole"]:
            tallies[name] = check_document(name, directory, seed=options.seed, cases_min=options.cases)
    for name, tally in tallies.items():
        _show(name, tally)
    return 1 if any(tally.failures.total() for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
