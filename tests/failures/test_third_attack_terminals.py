"""``rollway-spark`` shows names, values and errors that come from outside without a character that moves a cursor."""

from __future__ import annotations

import io
import json
import logging
import threading
from unittest.mock import MagicMock

import pytest

from rollway.spark.jobs.command import cli
from rollway.spark.jobs.command.explaining import escape_warnings
from rollway.spark.jobs.errors import JobError
from rollway.spark.jobs.progress import ConsoleProgress
from rollway.spark.jobs.reports import JobReport

NASTY = "a\x1b[2J\x9b2J\x7f\u202e\u2028\r\nrollway-spark: all is well\udcff"
SHOWN = r"a\x1b[2J\x9b2J\x7f\u202e\u2028\x0d\x0arollway-spark: all is well\udcff"

# Each puts text of the command line into the sentence that it is refused with.
LINES = [
    ["export", "t", "--to", "/tmp/x", "--from", NASTY],
    ["load", "in.csv", "--topic", "t", "--config", NASTY],
    ["load", NASTY, "--topic", "t"],
    ["compare", "t", "u", "--ignore", NASTY],
    ["copy", NASTY, NASTY],
    ["replay", "t", "u", "--timestamps", NASTY],
    [NASTY],
]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[0][:6].encode("unicode_escape").decode())
def test_an_error_is_one_line_of_printable_text(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(line, is_beside_driver=False) == 2
    told = capsys.readouterr().err
    assert told.endswith("\n")
    assert told[:-1].isprintable()


def test_text_of_others_in_an_error_is_shown_escaped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise JobError(f"{NASTY} cannot be read: 漢.")

    monkeypatch.setattr(cli, "submit", refuse)
    assert cli.run(["export", "t", "--to", "/tmp/x"], is_beside_driver=False) == 1
    assert capsys.readouterr().err == f"rollway-spark: {SHOWN} cannot be read: 漢.\n"
    assert cli.run(["export", "t", "--to", "/tmp/x", "--json"], is_beside_driver=False) == 1
    document = capsys.readouterr().err.removesuffix("\n")
    assert document.isprintable()
    assert json.loads(document)["error"] == f"{NASTY} cannot be read: 漢."


def test_a_report_has_as_many_lines_as_it_was_given() -> None:
    report = JobReport(job="compare", outcome="done", summary=f"Loaded {NASTY}.", lines=(NASTY, "漢"))
    assert report.text().split("\n") == [f"Loaded {SHOWN}.", f"  {SHOWN}", "  漢"]


def test_progress_is_shown_escaped() -> None:
    stream = io.StringIO()
    ConsoleProgress(stream).say(NASTY)
    assert stream.getvalue() == f"{SHOWN}\n"


def test_warnings_are_shown_escaped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted first: without the formatter the warning is shown as it is."""
    last_resort = type(logging.lastResort)(logging.WARNING)  # type: ignore[misc]
    monkeypatch.setattr(logging, "lastResort", last_resort)
    logger = logging.Logger("rollway.spark")
    logger.warning("option %s does nothing", "\x1b[2J")
    assert "\x1b[2J" in capsys.readouterr().err
    escape_warnings()
    logger.warning("option %s does nothing", NASTY)
    assert capsys.readouterr().err == f"option {SHOWN} does nothing\n"
    try:
        raise ValueError(NASTY)
    except ValueError:
        logger.exception("failed")
    told = capsys.readouterr().err
    assert all(line.isprintable() for line in told.split("\n"))
    assert len(told.splitlines()) > 3


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_job_beside_the_driver_shows_no_unprintable_character(
    options: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "lastResort", type(logging.lastResort)(logging.WARNING))  # type: ignore[misc]
    monkeypatch.setattr(cli, "SparkSession", MagicMock())

    def job(*_: object, progress: ConsoleProgress, **__: object) -> JobReport:
        progress.say(NASTY)
        logging.Logger("rollway.spark").warning("option %s does nothing", NASTY)
        return JobReport(job="export", outcome="done", summary=NASTY, details={"name": NASTY})

    monkeypatch.setattr(cli, "export", job)
    assert cli.run(["export", "t", "--to", "/tmp/x", *options], is_beside_driver=True) == 0
    told = capsys.readouterr()
    assert told.err == f"{SHOWN}\noption {SHOWN} does nothing\n"
    assert told.out.removesuffix("\n").isprintable()
    if options:
        assert json.loads(told.out)["summary"] == NASTY
    else:
        assert told.out == f"{SHOWN}\n"


@pytest.mark.parametrize("stream", [io.StringIO(), _Terminal()], ids=["pipe", "terminal"])
def test_steps_are_shown_escaped(stream: io.StringIO) -> None:
    looked = threading.Event()

    def look() -> str:
        if stream.getvalue():
            looked.set()
        return NASTY

    with ConsoleProgress(stream, interval_seconds=0.001).during(NASTY, look):
        assert looked.wait(10)
    step = f"{SHOWN}: {SHOWN}"
    lines = stream.getvalue()
    expected = f"\r{step}\x1b[K" if stream.isatty() else f"{step}\n"
    assert lines.startswith(expected)
    assert lines.replace(step, "").strip("\r\n\x1b[K") == ""
