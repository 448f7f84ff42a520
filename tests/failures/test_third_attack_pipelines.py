"""Requests that came together on one connection take turns with everybody else, and are answered in order."""

from __future__ import annotations

import math
from typing import Any

import httpx
import pytest

from app.fast_path import plain_requests
from app.fast_path.declarations import FAST_PATH
from tests.support.edge_server import Connection
from tests.support.servers import ThreadedServer
from tests.support.writers import record_batch

BURST = 200
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
BATCHES = "application/vnd.kafka.record-batch.v2"


def fetch(topic: str, number: int, headers: str = "") -> bytes:
    target = f"{topic}/partitions/0/records?offset=0&max_records=1"
    if headers:
        target = f"{topic}/partitions/0/records?offset=0"
    return f"GET {target} HTTP/1.1\r\nHost: a\r\nX-Request-Id: {number}\r\n{headers}\r\n".encode()


def produce(topic: str, number: int, query: str) -> bytes:
    body = record_batch(b"one")
    head = f"POST {topic}/partitions/0/records{query} HTTP/1.1\r\nHost: a\r\nX-Request-Id: {number}\r\n"
    return f"{head}Content-Type: {BATCHES}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def served_before_another(server: ThreadedServer, topic: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many requests of a burst are answered before another client's that came when the first of them was."""
    fast_path = getattr(server.app.state, FAST_PATH)
    served: list[bytes] = []
    another = fetch(topic, 0).replace(b"max_records=1", b"max_records=2")
    with Connection(server.port) as crowd, Connection(server.port) as other:
        crowd.send(fetch(topic, 0))
        assert crowd.read_answer().status == 200
        other.send(another)
        assert other.read_answer().status == 200
        serve = fast_path.serve

        def serve_and_note(target: Any, head: Any, *rest: Any) -> Any:
            if not served:
                other.send(another)
            served.append(head.target)
            return serve(target, head, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(fast_path, "serve", serve_and_note)
            crowd.send(b"".join(fetch(topic, number) for number in range(BURST)))
            assert other.read_answer().status == 200
            for _ in range(BURST):
                assert crowd.read_answer().status == 200
    return next(place for place, target in enumerate(served) if target.endswith(b"=2"))


def test_a_burst_of_requests_lets_others_have_their_turn(
    server: ThreadedServer, client: httpx.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """256 KiB of fetches of a millisecond each, with little to say, were answered in one turn of the loop: others
    waited for seconds."""
    assert client.post(f"{topic}/partitions/0/records", json={"records": [{"value": "v"}]}).status_code == 200
    # Planted: no turn ends.
    monkeypatch.setattr(plain_requests, "TURN_SECONDS", math.inf)
    assert served_before_another(server, topic, monkeypatch) == BURST
    monkeypatch.setattr(plain_requests, "TURN_SECONDS", 0.0)
    assert served_before_another(server, topic, monkeypatch) < BURST // 2


@pytest.mark.parametrize("piece_bytes", [997, 100_000])
def test_answers_come_in_order_whatever_waits_for_its_turn(
    server: ThreadedServer, client: httpx.Client, topic: str, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    """Requests that are answered in Python, in C, at the end of a turn, after an fsync, and by the application."""
    assert client.post(f"{topic}/partitions/0/records", json={"records": [{"value": "v"}]}).status_code == 200
    monkeypatch.setattr(plain_requests, "TURN_SECONDS", 0.0)
    requests: list[bytes] = []
    while len(requests) < 120:
        number = len(requests)
        requests += [
            fetch(topic, number),
            fetch(topic, number + 1, f"Accept: {BATCHES}\r\n"),
            produce(topic, number + 2, "?acks=1"),
            produce(topic, number + 3, "?acks=all"),
            fetch(topic, number + 4, "Expires: 0\r\n") if number % 25 == 0 else fetch(topic, number + 4),
        ]
    content = b"".join(requests)
    with Connection(server.port) as connection:
        for start in range(0, len(content), piece_bytes):
            connection.send(content[start : start + piece_bytes])
        answers = [connection.read_answer() for _ in requests]
        assert [answer.headers["x-request-id"] for answer in answers] == [str(place) for place in range(len(requests))]
        assert {answer.status for answer in answers} == {200}
        # All was taken: the next is answered at once.
        connection.send(HEALTH)
        assert connection.read_answer().status == 200


def test_what_waits_for_its_turn_is_answered_when_its_client_has_said_all(
    server: ThreadedServer, client: httpx.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.post(f"{topic}/partitions/0/records", json={"records": [{"value": "v"}]}).status_code == 200
    monkeypatch.setattr(plain_requests, "TURN_SECONDS", 0.0)
    with Connection(server.port) as connection:
        connection.send(fetch(topic, 0))
        assert connection.read_answer().status == 200
        connection.send(b"".join(fetch(topic, number) for number in range(BURST)))
        connection.socket.shutdown(1)
        assert connection.read_to_end().count(b"HTTP/1.1 200 ") == BURST
