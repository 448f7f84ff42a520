"""The service of tomorrow: what grows in its answers, and what must not change."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest

from app.openapi.document import PATH
from sdks.growing_proxy import MEMBER, WORD, GrowingProxy, Growth

MORE = {MEMBER: {"of": [1, None, "tomorrow"]}}
GROWTH = Growth(json.loads(PATH.read_text("utf-8")))


# What grows


def test_every_object_has_one_more_member() -> None:
    answer = {"records": [{"offset": 0, "headers": [{"name": "a", "value": "b"}]}], "next_offset": 1}
    assert GROWTH.grown(answer) == {
        "records": [{"offset": 0, "headers": [{"name": "a", "value": "b", **MORE}], **MORE}],
        "next_offset": 1,
        **MORE,
    }


def test_the_names_of_maps_are_data() -> None:
    config = {"config": {"retention.ms": {"value": 1, "source": "a source"}}}
    assert GROWTH.grown(config) == {"config": {"retention.ms": {"value": 1, "source": "a source", **MORE}}, **MORE}


def test_a_map_of_maps_has_no_member_more_whatever_its_names_are() -> None:
    positions = {"readings": {"0": 17}, "value": {"1": 2}, "config": {"0": 1}}
    assert GROWTH.grown({"group_id": "g", "positions": positions}) == {"group_id": "g", "positions": positions, **MORE}


def test_words_of_enumerations_are_new() -> None:
    grown = GROWTH.grown({"data": [{"state": "open", "mode": "idempotent", "job_id": "open"}], "operations": ["READ"]})
    assert grown["data"][0] == {"state": WORD, "mode": WORD, "job_id": "open", **MORE}
    assert grown["operations"] == [WORD]


def test_words_that_are_none_of_the_enumeration_stay() -> None:
    assert GROWTH.grown({"state": "another", "reason": None}) == {"state": "another", "reason": None, **MORE}


@pytest.mark.parametrize("member", ["key", "value"])
@pytest.mark.parametrize("data", [{"state": "open"}, [{"a": 1}], "open", 1.5, None, True])
def test_what_users_stored_is_theirs(member: str, data: object) -> None:
    grown = GROWTH.grown({"records": [{member: data}]})
    assert grown["records"] == [{member: data, **MORE}]


def test_each_line_grows() -> None:
    grown = GROWTH.body("application/x-ndjson", b'{"offset":0,"value":{"a":1}}\n{"offset":1}\n')
    assert [json.loads(line) for line in grown.splitlines()] == [
        {"offset": 0, "value": {"a": 1}, **MORE},
        {"offset": 1, **MORE},
    ]
    assert grown.endswith(b"\n")
    assert GROWTH.body("application/x-ndjson", b"") == b""


@pytest.mark.parametrize("media_type", ["application/octet-stream", "text/plain", "application/vnd.kafka.record-batch"])
def test_bytes_stay(media_type: str) -> None:
    content = bytes(range(256)) + b'{"state":"open"}\r\n'
    assert GROWTH.body(media_type, content) == content
    assert GROWTH.body("application/json", b"") == b""


# Passing on


class Upstream(BaseHTTPRequestHandler):
    """Answers with the status of the path, and in JSON or in bytes with what it was sent."""

    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        _, status, form = self.path.split("?")[0].split("/")
        if form == "json":
            seen = {"method": self.command, "path": self.path, "sent": content.decode()}
            content = json.dumps({**seen, "header": self.headers.get("Idempotency-Key")}).encode()
        self.send_response(int(status))
        self.send_header("Content-Type", {"json": "application/problem+json"}.get(form, "application/octet-stream"))
        self.send_header("Idempotent-Replayed", "true")
        if status not in ("204", "304"):
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if status not in ("204", "304"):
            self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - the names are http.server's

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name is http.server's
        """Requests are not news."""


@pytest.fixture(scope="module")
def proxy() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as upstream:
        thread = threading.Thread(target=upstream.serve_forever, daemon=True)
        thread.start()
        with GrowingProxy(f"http://127.0.0.1:{upstream.server_address[1]}", GROWTH) as found:
            yield urlsplit(found.url).netloc
        upstream.shutdown()
        thread.join()


@pytest.fixture
def connection(proxy: str) -> Iterator[http.client.HTTPConnection]:
    found = http.client.HTTPConnection(proxy, timeout=60)
    yield found
    found.close()


def ask(connection: http.client.HTTPConnection, method: str, path: str, **more: Any) -> tuple[int, bytes, str | None]:
    connection.request(method, path, **more)
    answer = connection.getresponse()
    return answer.status, answer.read(), answer.headers["Idempotent-Replayed"]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("status", [200, 404, 410, 503])
def test_requests_and_statuses_pass_and_their_json_grows(
    connection: http.client.HTTPConnection, method: str, status: int
) -> None:
    path, headers = f"/{status}/json?a=%2F1", {"Idempotency-Key": "k"}
    got, content, replayed = ask(connection, method, path, body=b"sent", headers=headers)
    assert (got, replayed) == (status, "true")
    assert json.loads(content) == {"method": method, "path": path, "sent": "sent", "header": "k", **MORE}


@pytest.mark.parametrize("status", [200, 404])
def test_raw_bodies_pass_unchanged(connection: http.client.HTTPConnection, status: int) -> None:
    body = bytes(range(256)) * 1_000
    assert ask(connection, "POST", f"/{status}/bytes", body=body) == (status, body, "true")


def test_chunked_bodies_pass_unchanged(connection: http.client.HTTPConnection) -> None:
    parts = [b"\r\n0\r\n\r\n", bytes(range(256)), b"end"]
    sent = ask(connection, "POST", "/200/bytes", body=iter(parts), encode_chunked=True)
    assert sent == (200, b"".join(parts), "true")
    assert ask(connection, "GET", "/200/bytes")[:2] == (200, b""), "the connection is good for another request"


@pytest.mark.parametrize("status", [204, 304])
def test_answers_without_a_body_stay_so(connection: http.client.HTTPConnection, status: int) -> None:
    assert ask(connection, "GET", f"/{status}/json") == (status, b"", "true")
    assert ask(connection, "GET", "/200/bytes")[:2] == (200, b""), "the connection is good for another request"
