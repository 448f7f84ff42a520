"""Log lines: one each, whatever the message holds."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from app.problems import request_context
from app.server import log_output


@pytest.fixture(autouse=True)
def _leave_logging_alone() -> object:
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    yield
    root.handlers[:], root.level = before


def test_a_control_character_cannot_begin_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    log_output.configure("info", access_log=False)
    logging.getLogger("app").warning("one\ntwo\r\x1b[31m")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(r"one\x0atwo\x0d\x1b[31m")


def test_json_holds_what_is_known_of_the_request(capsys: pytest.CaptureFixture[str]) -> None:
    log_output.configure("info", access_log=False, log_format="json")
    number = request_context.request_id.set("17")
    name = request_context.principal.set("alice")
    try:
        logging.getLogger("app").error('say "hello"\n')
    finally:
        request_context.request_id.reset(number)
        request_context.principal.reset(name)
    entry = json.loads(capsys.readouterr().err)
    assert entry["message"] == 'say "hello"\n'
    assert (entry["request_id"], entry["principal"], entry["level"]) == ("17", "alice", "error")


def test_json_keeps_a_traceback_in_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    log_output.configure("info", access_log=False, log_format="json")
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("app").error("failed", exc_info=sys.exc_info())
    (line,) = capsys.readouterr().err.splitlines()
    assert "ValueError: why" in json.loads(line)["exception"]


def test_outside_of_requests_nothing_is_added(capsys: pytest.CaptureFixture[str]) -> None:
    log_output.configure("info", access_log=False, log_format="json")
    logging.getLogger("app").info("hello")
    assert json.loads(capsys.readouterr().err).keys() == {"time", "level", "logger", "message"}
