"""Answers that are cut, or cannot be read, are no success: of the command line as of the library."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from app.cli import run
from rollway.client import ClientSettings, InvalidAnswerError, RollwayClient, ServiceUnavailableError

TOPIC = json.dumps({"name": "t", "topic_id": "AAAAAAAAAAAAAAAAAAAAAA", "partitions": [{"partition": 0}], "config": {}})
RECORD = b'{"partition":0,"offset":0,"timestamp":1,"key":null,"value":"v","headers":[]}\n'
CHUNKED = ("Transfer-Encoding", "chunked")


@contextmanager
def serving(content: bytes, *headers: tuple[str, str]) -> Iterator[str]:
    """The address of a service that answers requests for records like this, and has a topic with one partition."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            has_records = "/record" in self.path or self.path.startswith("/v1/topics?")
            body = content if has_records else TOPIC.encode()
            self.send_response(200)
            # Said, so that no request is sent on a connection that is about to be closed.
            self.send_header("Connection", "close")
            for name in ("Next-Offset", "High-Watermark", "Last-Stable-Offset", "Log-Start-Offset"):
                self.send_header(name, "10")
            for header in headers if has_records else [("Content-Length", str(len(body)))]:
                self.send_header(*header)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("command", [["fetch", "t"], ["fetch", "t", "--format", "value"], ["tail", "t", "-o", "0"]])
def test_an_answer_that_only_the_connection_ends_is_no_success(
    command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(RECORD + RECORD[:20]) as server:
        assert run([*command, "--server", server]) == 1
    out, error = capfd.readouterr()
    assert out == ""
    assert "does not say where it ends, so it may be cut" in error


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"value":5}', b'{"key":null}', b"\xff", b"[" * 100_000])
def test_a_line_that_is_no_record_is_one_sentence(line: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(line, ("Content-Length", str(len(line)))) as server:
        assert run(["fetch", "t", "--format", "value", "--server", server]) == 1
    assert "has a line that is no record" in capfd.readouterr().err


@pytest.mark.parametrize("size", [b"-5", b"ffffffffffffffffffff"])
def test_a_chunk_of_an_impossible_length_is_an_error_of_the_library(size: bytes) -> None:
    with serving(size + b"\r\nabc\r\n0\r\n\r\n", CHUNKED) as server:
        client = RollwayClient(ClientSettings(server, retries=0))
        with pytest.raises(ServiceUnavailableError, match=r"the answer cannot be read|IncompleteRead"):
            client.fetch("t", 0, offset=0, max_bytes=1, isolation="read_committed")


def test_a_list_that_goes_on_without_saying_where_is_not_whole() -> None:
    page = b'{"data":[],"has_more":true,"next_cursor":null}'
    with serving(page, ("Content-Length", str(len(page)))) as server:
        client = RollwayClient(ClientSettings(server, retries=0))
        with pytest.raises(InvalidAnswerError, match="does not say where"):
            client.list_topics()
