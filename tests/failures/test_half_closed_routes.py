"""A client that closes its sending side behind its request is answered, on every route and in every stream."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest

from app.http.connection.protocol import EdgeProtocol
from tests.http.test_error_shape import OPERATIONS, body_of, filled, over, required
from tests.support.edge_server import Connection
from tests.support.servers import ThreadedServer

JSON = "application/json"
NDJSON = "application/x-ndjson"
LINES = b'{"value":"a"}\n{"value":"b"}\n'


def answer_to(server: ThreadedServer, head: list[str], body: bytes = b"") -> tuple[int, bytes]:
    """Send a request, say that no more comes, and read to the end; the last status, and all behind its head."""
    request = "\r\n".join([head[0], "Host: 127.0.0.1", *head[1:], "", ""]).encode() + body
    with Connection(server.port) as connection:
        connection.send(request)
        connection.socket.shutdown(socket.SHUT_WR)
        content = connection.read_to_end()
    status = 0
    while status < 200:
        found, _, content = content.partition(b"\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 "), "the connection ended without an answer"
        status = int(found.split(b" ", 2)[1])
    return status, content


@over(OPERATIONS)
def test_every_route_answers(server: ThreadedServer, method: str, path: str, operation: dict[str, Any]) -> None:
    query = str(httpx.QueryParams(required(operation)))
    body = body_of(operation)
    content = body.get("content") or (json.dumps(body.get("json", {})).encode() if "requestBody" in operation else b"")
    media_type = body.get("headers", {}).get("Content-Type", JSON)
    length = [f"Content-Type: {media_type}", f"Content-Length: {len(content)}"] if content else []
    target = filled(path) + (f"?{query}" if query else "")
    status, _ = answer_to(server, [f"{method} {target} HTTP/1.1", *length], content)
    assert status < 500


def framed(is_chunked: bool, body: bytes) -> tuple[str, bytes]:
    if is_chunked:
        return "Transfer-Encoding: chunked", b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    return f"Content-Length: {len(body)}", body


@pytest.mark.parametrize("place", ["partitions/0/records", "records", "partitions/0/record-lines", "record-lines"])
@pytest.mark.parametrize("is_chunked", [False, True], ids=["sized", "chunked"])
@pytest.mark.parametrize("more", [[], ["Expect: 100-continue"]], ids=["", "expects 100"])
def test_a_stream_of_lines_is_stored_and_answered_to_its_end(
    server: ThreadedServer, topic: str, place: str, is_chunked: bool, more: list[str]
) -> None:
    framing, body = framed(is_chunked, LINES)
    head = [f"POST {topic}/{place} HTTP/1.1", f"Content-Type: {NDJSON}", framing, *more]
    status, content = answer_to(server, head, body)
    assert status == 200
    assert content.endswith(b"\r\n0\r\n\r\n"), "the answer has its end"
    lines = [json.loads(line) for line in content.splitlines() if line.startswith(b"{")]
    assert sum(line["record_count"] for line in lines) == 2


def test_a_body_that_the_end_cuts_off_is_no_record(server: ThreadedServer, client: httpx.Client, topic: str) -> None:
    head = [f"POST {topic}/partitions/0/records HTTP/1.1", f"Content-Type: {NDJSON}", f"Content-Length: {len(LINES)}"]
    request = "\r\n".join([head[0], "Host: 127.0.0.1", *head[1:], "", ""]).encode()
    with Connection(server.port) as connection:
        connection.send(request + LINES[:-3])
        connection.socket.shutdown(socket.SHUT_WR)
        connection.read_to_end()
    assert client.get(f"{topic}/partitions/0").json()["log_end_offset"] <= 1


@pytest.mark.parametrize("max_wait_ms", [0, 60_000])
def test_a_fetch_of_many_partitions_is_answered_at_once(
    server: ThreadedServer, client: httpx.Client, topic: str, max_wait_ms: int
) -> None:
    """One that waits for records is answered with those that there are."""
    client.post(f"{topic}/partitions/0/records", json={"records": [{"value": "a"}]}).raise_for_status()
    part = {"topic": topic.rpartition("/")[2], "partition": 0, "fetch_offset": 0 if not max_wait_ms else 1}
    document = {"partitions": [part], "max_wait_ms": max_wait_ms, "min_bytes": 1}
    framing, body = framed(False, json.dumps(document).encode())
    status, content = answer_to(server, ["POST /v1/fetch HTTP/1.1", f"Content-Type: {JSON}", framing], body)
    assert status == 200
    (found,) = json.loads(content)["partitions"]
    assert [record["value"] for record in found["records"]] == ([] if max_wait_ms else ["a"])


def test_the_check_finds_a_connection_that_ends_with_the_request(
    server: ThreadedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the rule as it was; nobody who has closed is there any more."""
    monkeypatch.setattr(EdgeProtocol, "eof_received", lambda _: None)
    with pytest.raises(AssertionError, match="without an answer"):
        answer_to(server, ["GET /metrics HTTP/1.1"])
