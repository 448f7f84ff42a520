"""Every bit of a small directory flips once; every file is lost and garbled.

See docs/explanation/durability.md#promises-under-faults.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage.disk.file_names import LOCK
from tests.crash.damaged_directory import DamageCheck, StoppedDirectory
from tests.crash.ledger import ViolationError

STOPS = {"clean stop": True, "killed": False}
SHOWN = 12
TOPIC_FILE = "topic.json"
BALLAST = "ballast"


def stopped_files(*left_out: str) -> list[object]:
    """Every file of both kinds of stop, by its name and in an order that does not depend on random ids."""
    parameters = []
    for stop, clean in STOPS.items():
        names = {path.name if path.suffix != ".json" else TOPIC_FILE for path in StoppedDirectory(clean=clean).files()}
        parameters += [pytest.param(clean, name, id=f"{stop}-{name}") for name in sorted(names - {LOCK, *left_out})]
    return parameters


def find(stopped: StoppedDirectory, name: str) -> tuple[Path, bytes]:
    """The file; topics' files are named by a random id."""
    for path, content in stopped.files().items():
        if path.name == name or (name == TOPIC_FILE and path.suffix == ".json"):
            return path, content
    raise FileNotFoundError(name)


def check_all(stopped: StoppedDirectory, path: Path, variants: Iterator[tuple[str, bytes | None]]) -> DamageCheck:
    """Run every variant, then fail with the first few that went wrong."""
    check = DamageCheck(stopped)
    problems = []
    for what, content in variants:
        try:
            check.run(stopped.with_damage(path, content))
        except Exception as error:  # noqa: BLE001 - any other error than the engine's refusal is what is looked for
            problems.append(f"{what}: {type(error).__name__}: {error}")
    if problems:
        shown = "\n".join(problems[:SHOWN])
        raise ViolationError(f"{len(problems)} of {len(problems) + check.outcomes.total()} with {path.name}:\n{shown}")
    return check


def flips(content: bytes) -> Iterator[tuple[str, bytes | None]]:
    for place in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            yield f"byte {place} bit {bit}", bytes(flipped)


def garbled(content: bytes) -> Iterator[tuple[str, bytes | None]]:
    source = random.Random(len(content))
    half = len(content) // 2
    yield "deleted", None
    yield "emptied", b""
    yield "cut in half", content[:half]
    yield "cut by a byte", content[:-1]
    yield "random bytes", source.randbytes(len(content))
    yield "random second half", content[:half] + source.randbytes(len(content) - half)
    yield "zeros", bytes(len(content))
    yield "zeros in the second half", content[:half] + bytes(len(content) - half)
    yield "ones", b"\xff" * len(content)
    yield "garbage behind", content + source.randbytes(700)
    yield "zeros behind", content + bytes(700)
    yield "itself behind", content + content
    yield "twisted", content[half:] + content[:half]


@pytest.mark.parametrize(("clean", "name"), stopped_files(BALLAST))
def test_every_flipped_bit(clean: bool, name: str, record_property: Callable[[str, object], None]) -> None:
    stopped = StoppedDirectory(clean=clean)
    path, content = find(stopped, name)
    check = check_all(stopped, path, flips(content))
    record_property("flipped bits", check.outcomes.total())
    assert check.outcomes.total() == 8 * len(content)
    if path.suffix == ".log" and path.name.startswith("0" * 20) and not clean:
        assert check.outcomes["refused in part"] > 4 * len(content), "flips in a log must be noticed"


@pytest.mark.parametrize(("clean", "name"), stopped_files())
def test_every_file_lost_and_garbled(clean: bool, name: str) -> None:
    stopped = StoppedDirectory(clean=clean)
    path, content = find(stopped, name)
    check_all(stopped, path, garbled(content))


@pytest.mark.parametrize("clean", STOPS.values(), ids=STOPS)
def test_without_damage_all_is_there(clean: bool) -> None:
    stopped = StoppedDirectory(clean=clean)
    path, content = find(stopped, "meta.properties")
    check = check_all(stopped, path, iter([("nothing", content)]))
    assert check.outcomes == {"all there": 1}
