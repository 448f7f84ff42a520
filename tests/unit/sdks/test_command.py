"""``python -m sdks``: its exit status, what it says of stale rows, and what it records."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from sdks import __main__ as command
from sdks import results
from sdks.generators import Generator
from sdks.running import Outcome, Workshop
from tests.unit.sdks.conftest import generator

ONE, OTHER = generator(is_quick=True), generator(slug="another", name="another", needs=("no-such-compiler",))
NO_STEP_FAILED: dict[str, list[str]] = {"today": [], "tomorrow": []}
Write = Callable[[str], Path]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: Write) -> dict[str, Outcome]:
    """What comes of each generator, by its slug; nothing is run."""
    program("")
    (tmp_path / "programs" / "another").mkdir()
    outcomes = {
        ONE.slug: Outcome(ONE, failed=NO_STEP_FAILED),
        OTHER.slug: Outcome(OTHER, missing=["no-such-compiler"]),
    }

    def run(chosen: list[Generator], *_: object) -> list[Outcome]:
        return [outcomes[each.slug] for each in chosen]

    monkeypatch.setattr(command, "GENERATORS", (ONE, OTHER))
    monkeypatch.setattr(command, "_run", run)
    monkeypatch.setattr(results, "PATH", tmp_path / "results.json")
    monkeypatch.chdir(tmp_path)
    return outcomes


def test_a_run_that_is_recorded_is_no_longer_stale(ran: dict[str, Outcome], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 1
    assert "sdks.md, a-generator: not run\n" in capsys.readouterr().out
    assert not results.PATH.exists(), "only --record writes"
    assert command.main(["--record"]) == 0
    assert list(results.recorded(results.PATH)) == ["a-generator"]
    assert command.main([]) == 0


def test_a_row_that_did_not_run_is_named_and_is_no_failure(
    ran: dict[str, Outcome], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--record"]) == 0
    assert "sdks.md, another: not run\n" in capsys.readouterr().out
    assert command.main(["--only", "another"]) == 0


def test_another_entry_fails_until_it_is_recorded(
    ran: dict[str, Outcome], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--record"]) == 0
    newer = generator(version="1.1")
    monkeypatch.setattr(command, "GENERATORS", (newer, OTHER))
    ran[newer.slug] = Outcome(newer, failed=NO_STEP_FAILED)
    assert command.main([]) == 1
    said = capsys.readouterr().out
    assert "sdks.md, a-generator: run with an earlier version or other options\n" in said
    assert "--record writes what came of those that ran" in said
    assert command.main(["--only", "another"]) == 0, "a run of one generator needs no toolchain of another"
    assert command.main(["--record"]) == 0


def test_a_failure_is_recorded_and_is_one(ran: dict[str, Outcome]) -> None:
    ran[ONE.slug] = Outcome(ONE, failed={**NO_STEP_FAILED, "tomorrow": ["gone"]}, failures=["gone (tomorrow): 404"])
    assert command.main(["--record"]) == 1
    row = results.recorded(results.PATH)[ONE.slug]
    assert (row.works, row.today, row.tomorrow) == (False, [], ["gone"])
    # Digests are hexadecimal, and may have any number in them.
    assert "404" not in repr(dataclasses.replace(row, digests={}))
    assert "(tomorrow)" not in results.PATH.read_text()


def test_a_run_that_came_to_something_else_than_is_recorded_fails(
    ran: dict[str, Outcome], capsys: pytest.CaptureFixture[str]
) -> None:
    ran[ONE.slug] = Outcome(ONE, failed={**NO_STEP_FAILED, "today": ["gone"]}, failures=["gone (today): 404"])
    assert command.main(["--record"]) == 1
    ran[ONE.slug] = Outcome(ONE, failed=NO_STEP_FAILED)
    capsys.readouterr()
    assert command.main([]) == 1
    assert "sdks.md, a-generator: this run came to something else\n" in capsys.readouterr().out
    assert command.main(["--record"]) == 0
    assert command.main([]) == 0


def test_installing_names_what_is_missing(
    ran: dict[str, Outcome], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--install"]) == 0
    assert capsys.readouterr().out == "another: not installed, without no-such-compiler\n"
    assert (tmp_path / ".venv/sdks/tools/a-generator/installed").exists()
    assert not (tmp_path / ".venv/sdks/tools/another").exists()


def test_installing_goes_on_behind_what_cannot_be_had(
    ran: dict[str, Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = generator(slug="gone", name="gone", tools=(("{python}", "-c", "raise SystemExit('no such registry')"),))
    monkeypatch.setattr(command, "GENERATORS", (gone, ONE))
    assert command.main(["--install"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("gone: not installed: ")
    assert "no such registry" in printed
    workshop = Workshop(tmp_path / ".venv/sdks", tmp_path / "openapi.json")
    assert [workshop.has_installed(each) for each in (gone, ONE)] == [False, True]


def test_the_quick_ones_are_those_that_are_marked(ran: dict[str, Outcome], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--quick", "--record"]) == 0
    assert command.main(["--quick", "--install"]) == 0
    assert "not installed" not in capsys.readouterr().out
