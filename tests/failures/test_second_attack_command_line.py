"""What listens at the address may be anything: the command line says so in one sentence, and reports no success."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from app.cli import run
from app.cli.command_errors import ServiceError
from app.cli.http_session import error_of_problem

COMMANDS = [
    ["topics", "list"],
    ["topics", "describe", "t"],
    ["topics", "create", "t"],
    ["topics", "create", "t", "--json"],
    ["topics", "alter", "t", "--config", "retention.ms=1"],
    ["topics", "delete", "t", "--yes"],
    ["fetch", "t"],
    ["fetch", "t", "--partition", "0"],
    ["produce", "t", "/dev/null"],
    ["tail", "t"],
    ["tail", "t", "--partition", "0"],
    ["offsets", "t"],
    ["retention", "plan", "t"],
    ["retention", "run", "t"],
    ["transactions", "list"],
    ["transactions", "describe", "a"],
    ["transactions", "abort", "a"],
    ["jobs", "list"],
    ["jobs", "describe", "x"],
    ["positions", "show", "g"],
    ["keys", "list"],
    ["acls", "list"],
    ["acls", "remove", "--principal", "User:a", "--operation", "read", "--topic", "t"],
    ["tokens", "list"],
    ["tokens", "revoke", "x"],
    ["keys", "revoke", "x"],
    ["positions", "delete", "g"],
]
ANSWERS = {
    "a web page": ("text/html", b"<html>sign in</html>"),
    "nothing": ("text/plain", b""),
    "null": ("application/json", b"null"),
    "a list": ("application/json", b"[]"),
    "another service's object": ("application/json", b'{"status": "ok"}'),
    "no UTF-8": ("application/json", b'{"detail":"\xff"}'),
    "deep": ("application/json", b"[" * 100_000),
}


@contextmanager
def answering(content_type: str, body: bytes) -> Iterator[str]:
    """The address of a server that is not Rollway and answers everything like this."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            # What is left unread at the end resets the connection, which may take the answer with it.
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815 - the names that the base class calls

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("what", ANSWERS)
def test_another_server_is_one_sentence_for_every_command(what: str, capfd: pytest.CaptureFixture[str]) -> None:
    with answering(*ANSWERS[what]) as address:
        for command in COMMANDS:
            assert run([*command, "--server", address]) == 1, command
            shown = capfd.readouterr()
            assert shown.out == "", command
            assert "Rollway service" in shown.err, command
            assert len(shown.err.splitlines()) == 1, shown.err


def test_a_list_without_an_end_is_given_up(capfd: pytest.CaptureFixture[str]) -> None:
    body = json.dumps({"data": [], "has_more": True, "next_cursor": "a"}).encode()
    with answering("application/json", body) as address:
        for command in (["topics", "list"], ["transactions", "list"], ["jobs", "list"]):
            assert run([*command, "--server", address]) == 1
            assert "without an end" in capfd.readouterr().err


def test_records_that_another_server_says_to_have_are_of_unknown_fate(
    capfd: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines = tmp_path_factory.mktemp("lines") / "lines"
    lines.write_text("a\nb\n")
    with answering("application/json", b'{"name": "t", "partitions": [{"partition": 0}], "config": {}}') as address:
        assert run(["produce", "t", str(lines), "--server", address, "--json"]) == 1
    shown = capfd.readouterr()
    assert "Traceback" not in shown.err
    assert '"unknown' in shown.out + shown.err


@pytest.mark.parametrize("retry_after_ms", ["soon", -5, 1.5, None, True])
def test_a_problem_document_with_members_of_other_types(retry_after_ms: object) -> None:
    document = {
        "type": 7,
        "detail": ["x"],
        "code": {},
        "status": "five",
        "errors": 7,
        "retryable": True,
        "retry_after_ms": retry_after_ms,
        "log_start_offset": "a",
    }
    error = error_of_problem(document, 503)
    assert isinstance(error, ServiceError)
    assert error.status == 503
    assert error.retry_after_ms is None


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "ascii:strict"])
def test_a_terminal_that_cannot_show_a_name_shows_an_escape(encoding: str) -> None:
    page = {"data": [{"name": "日本", "partition_count": 1, "topic_id": "x"}], "has_more": False, "next_cursor": None}
    with answering("application/json", json.dumps(page).encode()) as address:
        shown = _in_a_process(["topics", "list", "--server", address], PYTHONIOENCODING=encoding)
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert b"\\u65e5\\u672c" in shown.stdout


def test_an_argument_that_is_not_utf_8_is_one_sentence() -> None:
    shown = _in_a_process(["transactions", "describe", "\udcff", "--server", "http://127.0.0.1:1"])
    assert shown.returncode == 2
    assert shown.stderr.startswith(b"rollway: The argument ")
    assert shown.stderr.endswith(b" is not UTF-8.\n")


def _in_a_process(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", "from app.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, timeout=60, env={**os.environ, **environment}, check=False)
