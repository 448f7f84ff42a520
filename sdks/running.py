"""Runs generators, one after another, and says what each of them came to."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sdks.generators import Command, Generator
from sdks.live_service import LiveService
from sdks.steps import STEPS, contents_document
from tests.support.every_value import CONTENTS, Content

PROGRAMS = Path(__file__).parent
REQUIREMENTS = PROGRAMS.parent / "requirements"
_STEP = re.compile(r"^(ok|failed) ([a-z0-9 ]+?)(?:: (.*))?$", re.MULTILINE)
_SHOWN = re.compile(r"(\d+) .*\bkitchen\b.*\b21\.5\b")
"""How examples show their record: its offset, its key, and a value with that number."""
_WARNING = re.compile(r"\b(warn|warning|error|exception)s?\b", re.IGNORECASE)
_NEWS = re.compile(r"\[\w+\] INFO ")
"""How lines of openapi-generator begin that warn of nothing; they name files, which may be called ``exceptions.py``."""
_TIMEOUT_SECONDS = 1_800
_LAST_LINES = 60


class SdkError(Exception):
    """A generator, a compiler or a program that did not do what it should."""


@dataclass
class Outcome:
    """What came of one generator.

    Attributes:
        missing: programs that this machine does not have; then nothing was run.
        failures: what went wrong, in the order in which it was found.
        passed: how many steps of the program worked, against today's service and against tomorrow's.
        failed: the steps that did not, if the program came to its end.
    """

    generator: Generator
    missing: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    passed: dict[str, int] = field(default_factory=dict)
    failed: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0


class Workshop:
    """A folder in which clients are made. Tools stay there; clients are rebuilt each time.

    ``contents`` are what programs send and compare: all of them, or those that are small.
    """

    def __init__(self, directory: Path, document: Path, contents: Mapping[str, Content] = CONTENTS) -> None:
        self._directory = directory
        self._document = document
        self._contents = contents

    def build(self, generator: Generator) -> None:
        """Installs the generator, makes the client, and compiles it with our program.

        Raises:
            SdkError: a command failed, or there was a warning that is not allowed.
        """
        self.install(generator)
        work = self._work(generator)
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(PROGRAMS / generator.slug, work)
        for command in generator.generate:
            printed, _ = self._run(generator, command, work)
            if unknown := _warnings(printed, generator.allowed):
                raise SdkError("warnings of the generator:\n" + "\n".join(unknown))
        for command in generator.compile:
            self._run(generator, command, work)

    def steps(self, generator: Generator, service: LiveService, prefix: str) -> dict[str, str]:
        """Runs the program: each step that it named, with why it failed, or nothing.

        Raises:
            SdkError: the program did not say once of each step what came of it.
        """
        with tempfile.NamedTemporaryFile("w", suffix=".json") as contents:
            contents.write(contents_document(self._contents))
            contents.flush()
            environment = {
                "ROLLWAY_URL": service.url,
                "ROLLWAY_API_KEY": service.api_key,
                "ROLLWAY_PREFIX": prefix,
                "ROLLWAY_CONTENTS": contents.name,
            }
            printed, status = self._run(generator, generator.run, self._work(generator), environment, may_fail=True)
        found = told(printed)
        if status and not any(found.values()):
            raise SdkError(f"the program said ok of every step, and ended with status {status}:\n{_end_of(printed)}")
        return found

    def example(self, generator: Generator, service: LiveService) -> None:
        """Runs the example twice: the last line shows its record, the second time with the next offset.

        Raises:
            SdkError: it failed, or did not show a record that it appended.
        """
        environment = {"ROLLWAY_URL": service.url, "ROLLWAY_API_KEY": service.api_key}
        offsets = []
        for _ in range(2):
            printed, _ = self._run(generator, generator.example, self._work(generator), environment)
            shown = _SHOWN.match((printed.splitlines() or [""])[-1])
            if shown is None:
                raise SdkError(f"the last line of the example does not show its record:\n{_end_of(printed)}")
            offsets.append(int(shown[1]))
        first, second = offsets
        if second != first + 1:
            raise SdkError(f"the example did not append one record each time: it shows {first}, then {second}")

    def install(self, generator: Generator) -> None:
        """Installs the generator and what its client needs, unless they are there.

        Raises:
            SdkError: a command failed.
        """
        if self.has_installed(generator):
            return
        tools = self._tools(generator)
        shutil.rmtree(tools, ignore_errors=True)
        tools.mkdir(parents=True)
        for command in generator.tools:
            self._run(generator, command, tools)
        self._stamp(generator).write_text(_what_is_installed(generator))

    def has_installed(self, generator: Generator) -> bool:
        """Whether the generator is there, in the version of today."""
        stamp = self._stamp(generator)
        return stamp.exists() and stamp.read_text() == _what_is_installed(generator)

    def _stamp(self, generator: Generator) -> Path:
        return self._tools(generator) / "installed"

    def _tools(self, generator: Generator) -> Path:
        return self._directory / "tools" / (generator.toolbox or generator.slug)

    def _work(self, generator: Generator) -> Path:
        return self._directory / "clients" / generator.slug

    def _run(
        self,
        generator: Generator,
        command: Command,
        directory: Path,
        environment: Mapping[str, str] | None = None,
        *,
        may_fail: bool = False,
    ) -> tuple[str, int]:
        names = {
            "document": str(self._document),
            "tools": str(self._tools(generator)),
            "requirements": str(REQUIREMENTS),
            "python": sys.executable,
        }
        words = [word.format(**names) for word in command]
        tools = self._tools(generator)
        paths = [str(tools / "bin"), str(tools / "node_modules" / ".bin"), os.environ["PATH"]]
        try:
            done = subprocess.run(
                words,
                cwd=directory,
                env={**os.environ, "PATH": os.pathsep.join(paths), **(environment or {})},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SdkError(f"{' '.join(words)}: {error}") from error
        if done.returncode and not may_fail:
            raise SdkError(f"{' '.join(words)}: exit status {done.returncode}\n{_end_of(done.stdout)}")
        return done.stdout, done.returncode


def _what_is_installed(generator: Generator) -> str:
    return f"{generator.tools!r}\n{lock_text(generator)}"


def run(generator: Generator, workshop: Workshop, today: LiveService, tomorrow: LiveService, prefix: str) -> Outcome:
    """Makes, compiles and runs one client, against both services, and its example against today's."""
    outcome = Outcome(generator)
    outcome.missing = missing_programs(generator)
    if outcome.missing:
        return outcome
    start = time.monotonic()
    try:
        workshop.build(generator)
        for name, service in (("today", today), ("tomorrow", tomorrow)):
            found = workshop.steps(generator, service, f"{prefix}{generator.slug}.{name}.")
            outcome.failed[name] = [step for step in STEPS if found[step]]
            outcome.passed[name] = len(STEPS) - len(outcome.failed[name])
            outcome.failures += _surprises(found, dict(generator.defects), name)
        if generator.example:
            workshop.example(generator, today)
    except SdkError as error:
        outcome.failures.append(str(error))
    outcome.seconds = time.monotonic() - start
    return outcome


def told(printed: str) -> dict[str, str]:
    """What a program said of each step: why it failed, or nothing.

    Raises:
        SdkError: it said nothing of a step, or said something of it twice, or of a step that there is not.
    """
    found: dict[str, str] = {}
    for state, step, why in _STEP.findall(printed):
        if step not in STEPS:
            raise SdkError(f"the program speaks of a step that there is not: {step}")
        if step in found:
            raise SdkError(f"the program speaks twice of {step}")
        found[step] = (why or "it failed") if state == "failed" else ""
    if missing := [step for step in STEPS if step not in found]:
        raise SdkError(f"the program did not come to {', '.join(missing)}:\n{_end_of(printed)}")
    return found


def missing_programs(generator: Generator) -> list[str]:
    """What the generator needs and this machine does not have."""
    return [program for program in generator.needs if shutil.which(program) is None]


def lock_text(generator: Generator) -> str:
    """The pins of the generator's tools; nothing if its commands name them."""
    return (REQUIREMENTS / f"{generator.lock}.lock").read_text("utf-8") if generator.lock else ""


def _surprises(found: Mapping[str, str], defects: Mapping[str, str], service: str) -> list[str]:
    """Steps that failed and should not have, and known defects that are gone."""
    failed = [f"{step} ({service}): {why}" for step, why in found.items() if why and step not in defects]
    gone = [f"{step} ({service}) works: its defect is gone" for step in defects if not found[step]]
    return failed + gone


def _warnings(printed: str, allowed: Sequence[str]) -> list[str]:
    """Lines that warn, but for those that are allowed."""
    lines = (line for line in printed.splitlines() if _WARNING.search(line) and not _NEWS.match(line))
    return [line for line in lines if not any(each in line for each in allowed)]


def _end_of(printed: str) -> str:
    return "\n".join(printed.splitlines()[-_LAST_LINES:])
