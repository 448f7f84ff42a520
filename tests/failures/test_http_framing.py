"""One opinion about where a request ends, whatever its head looks like."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from itertools import count

import httpx
import pytest

from tests.support.edge_server import Answer, Connection
from tests.support.servers import ThreadedServer
from tests.support.writers import record_batch

RAW = "application/vnd.kafka.record-batch.v2"
NDJSON = "application/x-ndjson"
MESSAGE_SET = "application/vnd.kafka.message-set"
JSON = "application/json"
_numbers = count()


def connect(server: ThreadedServer) -> Connection:
    return Connection(server.port)


def end_of(client: httpx.Client, topic: str) -> int:
    return int(client.get(f"{topic}/partitions/0").json()["log_end_offset"])


# White space around a length


@pytest.mark.parametrize(
    "line",
    [
        *("Content-Length:\t{}", "Content-Length: {} ", "Content-Length: {}\t", "Content-Length: \t{}"),
        "content-length:{}",
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_a_body_is_never_run_as_a_request(
    server: ThreadedServer, client: httpx.Client, topic: str, line: str, method: str
) -> None:
    victim = f"/v1/topics/victim-{next(_numbers)}"
    assert client.put(victim, json={}).status_code == 201
    # What the fast path knows of the target is not what goes wrong here.
    assert client.post(f"{topic}/partitions/0/records", json={"records": [{"value": "x"}]}).status_code == 200
    body = f"DELETE {victim} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    query, kind = ("", f"Content-Type: {JSON}") if method == "POST" else ("?offset=0", f"Accept: {JSON}")
    target = f"{topic}/partitions/0/records{query}"
    head = f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n{kind}\r\n{line.format(len(body))}\r\n\r\n"
    for _ in range(3):
        with connect(server) as connection:
            connection.send(head.encode() + body + head.encode() + body)
            connection.socket.shutdown(socket.SHUT_WR)
            connection.read_to_end()
    assert client.get(victim).status_code == 200


# Offers of another protocol


@pytest.mark.parametrize("offer", ["h2c", "websocket", "TLS/1.2"])
@pytest.mark.parametrize("connection_header", ["Upgrade", "Upgrade, HTTP2-Settings", "keep-alive, upgrade"])
@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("kind", [JSON, NDJSON, RAW])
def test_an_offer_of_another_protocol_is_ignored(
    server: ThreadedServer,
    client: httpx.Client,
    topic: str,
    offer: str,
    connection_header: str,
    is_chunked: bool,
    kind: str,
) -> None:
    body = {JSON: b'{"records":[{"value":"a"}]}', NDJSON: b'{"value":"a"}\n', RAW: record_batch(b"a")[:]}[kind]
    framing = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {len(body)}"
    head = (
        f"POST {topic}/partitions/0/records HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: {connection_header}\r\n"
        f"Upgrade: {offer}\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
        f"Content-Type: {kind}\r\n{framing}\r\n\r\n"
    ).encode()
    sent = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if is_chunked else body
    before = end_of(client, topic)
    another = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with connect(server) as connection:
        # In one piece, with the head alone, and byte by byte: the connection goes on as if nothing had been offered.
        for pieces in (
            [head + sent + another],
            [head, sent, another],
            [bytes([each]) for each in head + sent + another],
        ):
            for piece in pieces:
                connection.send(piece)
            status, headers = connection.read_head()
            assert status == 200
            if "content-length" in headers:
                connection._rest += _missing(connection, int(headers["content-length"]))
                connection._rest = connection._rest[int(headers["content-length"]) :]
            else:
                _read_chunks(connection)
            assert connection.read_answer().status == 200
    assert end_of(client, topic) > before + 2


def _missing(connection: Connection, length: int) -> bytes:
    found = b""
    while len(connection._rest) + len(found) < length:
        found += connection.socket.recv(65536)
    return found


def _read_chunks(connection: Connection) -> None:
    rest = connection._rest
    while b"0\r\n\r\n" not in rest:
        rest += connection.socket.recv(65536)
    connection._rest = rest.partition(b"0\r\n\r\n")[2]


def test_other_routes_ignore_an_offer_too(server: ThreadedServer, client: httpx.Client) -> None:
    name = f"/v1/topics/offered-{next(_numbers)}"
    body = b'{"partitions":4,"config":{"retention.ms":-1}}'
    head = (
        f"PUT {name} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Type: {JSON}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with connect(server) as connection:
        connection.send(head.encode() + body)
        assert connection.read_answer().status == 201
    assert len(client.get(name).json()["partitions"]) == 4


def test_connect_is_answered_and_nothing_behind_it(server: ThreadedServer) -> None:
    with connect(server) as connection:
        connection.send(
            b"CONNECT a:80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        )
        answers = connection.read_to_end()
        assert answers.startswith(b"HTTP/1.1 400")
        assert b"HTTP/1.1 200" not in answers


# HTTP/1.0


@pytest.mark.parametrize("path", ["{topic}/partitions/0/records", "{topic}/records"])
@pytest.mark.parametrize("extra", ["", "Connection: keep-alive\r\n"])
def test_no_answer_to_http_1_0_is_chunked(server: ThreadedServer, topic: str, path: str, extra: str) -> None:
    body = b'{"value":"a"}\n{"value":"b"}\n'
    head = (
        f"POST {path.format(topic=topic)} HTTP/1.0\r\nHost: 127.0.0.1\r\n{extra}Content-Type: {NDJSON}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with connect(server) as connection:
        connection.send(head.encode() + body)
        head_bytes, _, content = connection.read_to_end().partition(b"\r\n\r\n")
    assert head_bytes.startswith(b"HTTP/1.1 200")
    assert b"transfer-encoding" not in head_bytes.lower()
    lines = [json.loads(line) for line in content.splitlines()]
    assert sum(line["record_count"] for line in lines) == 2


# Accept


@pytest.mark.parametrize(
    "accept",
    [
        *("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", "*/*;q=.8", "application/json;q=.9, text/plain;q=.1"),
        *("*/*; q=0.2", "*/*;q=1.", "*/*"),
    ],
)
@pytest.mark.parametrize("path", ["/partitions/0/records?offset=0", "", "/partitions/0/offsets?timestamp=0"])
def test_every_route_reads_accept_alike(client: httpx.Client, topic: str, accept: str, path: str) -> None:
    assert client.get(f"{topic}{path}", headers={"Accept": accept}).status_code == 200


# Half-closed connections


def half_closed(server: ThreadedServer, request: bytes, *, pieces: int = 1) -> Answer:
    with connect(server) as connection:
        for place in range(pieces):
            connection.send(request[place * len(request) // pieces : (place + 1) * len(request) // pieces])
        connection.socket.shutdown(socket.SHUT_WR)
        answer = connection.read_answer()
        assert connection.read_to_end() == b""
        return answer


def _requests(topic: str) -> Iterator[tuple[str, bytes]]:
    batch = record_batch(b"a")

    def post(path: str, kind: str, body: bytes) -> bytes:
        fields = f"Host: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        return f"POST {path} HTTP/1.1\r\n{fields}".encode() + body

    def get(path: str, accept: str = "*/*") -> bytes:
        return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {accept}\r\n\r\n".encode()

    records = f"{topic}/partitions/0/records"
    yield "raw produce", post(records, RAW, batch)
    yield "JSON produce", post(records, JSON, b'{"records":[{"value":"a"}]}')
    yield "to a topic", post(f"{topic}/records", JSON, b'{"records":[{"value":"a"}]}')
    yield "large produce", post(records, RAW, record_batch(b"x" * 300_000))
    yield "fetch", get(f"{records}?offset=0")
    yield "raw fetch", get(f"{records}?offset=0", RAW)
    yield "long poll", get(f"{records}?offset=latest&wait_ms=60000")
    yield "raw long poll", get(f"{records}?offset=latest&wait_ms=60000", RAW)
    partition = {"partition": 0, "fetch_offset": 0}
    parts = json.dumps({"topics": [{"topic": topic.rpartition("/")[2], "partitions": [partition]}]})
    yield "multi-fetch", post("/v1/fetch", JSON, parts.encode())
    yield "health", get("/healthz")
    yield "topics", get("/v1/topics")
    yield "metrics", get("/metrics")
    yield "document", get("/openapi.json")
    yield "nothing", get("/nothing")
    yield "producers", post("/v1/producers", JSON, b"{}")


@pytest.mark.parametrize("name", [name for name, _ in _requests("/v1/topics/t")])
@pytest.mark.parametrize("pieces", [1, 3])
def test_a_client_that_half_closes_is_answered(server: ThreadedServer, topic: str, name: str, pieces: int) -> None:
    expected = {"nothing": 404, "multi-fetch": (200, 422)}.get(name, 200)
    answer = half_closed(server, dict(_requests(topic))[name], pieces=pieces)
    assert answer.status == expected if isinstance(expected, int) else answer.status in expected


def test_all_that_was_asked_before_the_end_is_answered_in_order(server: ThreadedServer, topic: str) -> None:
    # Nothing is read while requests wait, so an end behind one that waits for records is seen once it is the last.
    requests = [request for name, request in _requests(topic) if "poll" not in name]
    requests.append(dict(_requests(topic))["long poll"])
    with connect(server) as connection:
        connection.send(b"".join(requests))
        connection.socket.shutdown(socket.SHUT_WR)
        statuses = [connection.read_answer().status for _ in requests]
        assert connection.read_to_end() == b""
    assert statuses.count(404) == 1
    assert not [status for status in statuses if status >= 500]


def test_a_request_that_is_cut_off_by_the_end_is_not_carried_out(
    server: ThreadedServer, client: httpx.Client, topic: str
) -> None:
    before = end_of(client, topic)
    request = dict(_requests(topic))["JSON produce"]
    whole = dict(_requests(topic))["topics"]
    for cut in (len(request) - 1, request.index(b"\r\n\r\n") + 4, request.index(b"\r\n\r\n"), 10):
        with connect(server) as connection:
            connection.send(whole + request[:cut])
            connection.socket.shutdown(socket.SHUT_WR)
            assert connection.read_answer().status == 200
            assert connection.read_to_end() == b""
    assert end_of(client, topic) == before
