"""Large raw bodies come in through a sink: the same answers, the same bytes in the log, and none of them kept twice."""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.event_loop.turns import Turns
from app.fast_path import dispatcher
from app.http.bodies.body_sink import SINK_BYTES_MIN, BodyBuffers
from log_model.clock import ManualClock
from rollway.records import Record, columns_from_records, encode_batch, split_batches
from tests.http.test_long_poll import until as eventually_true
from tests.support.edge_server import Answer, Connection, KeptTurns
from tests.support.servers import ThreadedServer, http_client
from tests.support.writers import record_batch

pytestmark = pytest.mark.needs_local("it tests the fast path of plain requests")

RAW = "application/vnd.kafka.record-batch.v2"
SMALL = record_batch(b"small")
LARGE = encode_batch(columns_from_records([Record(place, 5, None, bytes([place % 251]) * 997) for place in range(900)]))
LIMIT_BYTES = 8 * 1024 * 1024


def post(body: bytes, topic: str = "t", length: int | None = None) -> bytes:
    lines = [f"POST /v1/topics/{topic}/partitions/0/records HTTP/1.1", "Host: a", f"Content-Type: {RAW}"]
    head = [*lines, f"Content-Length: {len(body) if length is None else length}", "", ""]
    return "\r\n".join(head).encode() + body


def post_and_close(body: bytes) -> bytes:
    """The last request of its connection, which goes through the application."""
    return post(body).replace(b"Host: a", b"Host: a\r\nConnection: close")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedServer]:
    settings: dict[str, Any] = {"request_bodies_bytes_max": LIMIT_BYTES, "request_body_bytes_max": 3_000_000}
    with ThreadedServer(tmp_path_factory.mktemp("service"), clock=ManualClock(), **settings) as running:
        with http_client(running.url) as client:
            for name, config in {
                "t": {"flush.policy": "interval"},
                "group": {},
                "large": {"flush.policy": "interval", "max.message.bytes": 10_000_000},
            }.items():
                assert client.put(f"/v1/topics/{name}", json={"partitions": 1, "config": config}).status_code == 201
        yield running


def connect(server: ThreadedServer, topic: str = "t") -> Connection:
    """A connection that knows the head of produce requests."""
    connection = connect_anew(server)
    for _ in range(2):
        connection.send(post(SMALL, topic))
        assert connection.read_answer().status == 200
    return connection


def connect_anew(server: ThreadedServer) -> Connection:
    return Connection(int(server.url.rpartition(":")[2]))


def stored(server: ThreadedServer, topic: str, offset: int) -> bytes:
    with http_client(server.url) as client:
        answer = client.get(
            f"/v1/topics/{topic}/partitions/0/records",
            params={"offset": offset, "max_bytes": 10_000_000},
            headers={"Accept": RAW},
        )
        return answer.content


def result_of(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200, answer.body
    result: dict[str, Any] = json.loads(answer.body)
    return result


def held_bytes(server: ThreadedServer) -> int:
    return server.service.parts.body_budget.held_bytes


def check_stored(server: ThreadedServer, topic: str, result: dict[str, Any], sent: bytes) -> None:
    offset = result["base_offset"]
    (batch, *_) = split_batches(stored(server, topic, offset))
    expected = bytearray(sent)
    struct.pack_into(">q", expected, 0, offset)
    expected[12:16] = bytes(batch.buffer[12:16])
    assert bytes(batch.buffer) == expected


@pytest.mark.parametrize("topic", ["t", "group"])
@pytest.mark.parametrize("first", [0, 1, 70_000, len(LARGE) - 1])
def test_a_large_body_is_stored_as_it_came(server: ThreadedServer, topic: str, first: int) -> None:
    with connect(server, topic) as connection:
        before = server.fast_path_count
        request = post(LARGE, topic)
        cut = len(request) - len(LARGE) + first
        connection.send(request[:cut])
        connection.send(request[cut:])
        result = result_of(connection.read_answer())
        assert server.fast_path_count == before + 1
        check_stored(server, topic, result, LARGE)
        connection.send(post(SMALL, topic))
        assert result_of(connection.read_answer())["base_offset"] == result["last_offset"] + 1
    eventually_true(lambda: held_bytes(server) == 0)


HEAD_BYTES = len(post(LARGE)) - len(LARGE)


@pytest.mark.parametrize("topic", ["t", "group"])
@pytest.mark.parametrize("first", [-50, 0, 1, 70_000, len(LARGE) - 1])
def test_the_first_body_of_a_connection_is_stored_as_it_came(server: ThreadedServer, topic: str, first: int) -> None:
    with connect_anew(server) as connection:
        before = server.fast_path_count
        request = post(LARGE, topic)
        cut = len(request) - len(LARGE) + first
        connection.send(request[:cut])
        if first >= 0:
            eventually_true(lambda: held_bytes(server) == len(LARGE))
        connection.send(request[cut:])
        results = [result_of(connection.read_answer())]
        # The parser is as good as new.
        for body in (SMALL, LARGE, SMALL):
            connection.send(post(body, topic))
            results.append(result_of(connection.read_answer()))
        connection.send(b"GET /v1/topics HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.read_answer().status == 200
        # A head that comes in pieces is httptools', and its request the application's; both pieces may come at once.
        counts = {before + 4} if first >= 0 else {before + 3, before + 4}
        assert server.fast_path_count in counts
    for result, body in zip(results, [LARGE, SMALL, LARGE, SMALL], strict=True):
        check_stored(server, topic, result, body)
    eventually_true(lambda: held_bytes(server) == 0)


def test_the_first_body_of_a_connection_may_come_whole_with_others_behind_it(server: ThreadedServer) -> None:
    middling = encode_batch(columns_from_records([Record(place, 5, None, bytes(1000)) for place in range(220)]))
    assert len(middling) > SINK_BYTES_MIN
    with connect_anew(server) as connection:
        connection.send(post(middling) + post(SMALL))
        results = [result_of(connection.read_answer()) for _ in range(2)]
        check_stored(server, "t", results[0], middling)
        check_stored(server, "t", results[1], SMALL)
    eventually_true(lambda: held_bytes(server) == 0)


@pytest.mark.parametrize("sent", [HEAD_BYTES, HEAD_BYTES + 10, HEAD_BYTES + 500_000])
def test_a_client_that_goes_away_with_its_first_body_leaves_nothing(server: ThreadedServer, sent: int) -> None:
    connection = connect_anew(server)
    connection.send(post(LARGE)[:sent])
    eventually_true(lambda: held_bytes(server) == len(LARGE))
    connection.socket.close()
    eventually_true(lambda: held_bytes(server) == 0)


def test_a_first_body_that_is_late_is_refused(tmp_path: Path) -> None:
    with ThreadedServer(tmp_path, request_body_grace_ms=100) as server:
        with http_client(server.url) as client:
            assert client.put("/v1/topics/t", json={"partitions": 1}).status_code == 201
        with connect_anew(server) as connection:
            connection.send(post(LARGE)[: HEAD_BYTES + 100])
            answer = connection.read_answer()
            assert (answer.status, json.loads(answer.body)["code"]) == (408, "request_timeout")
        eventually_true(lambda: held_bytes(server) == 0)


def test_a_body_whose_sink_waits_for_its_turn_can_go_on_or_be_late_or_lose_its_client(tmp_path: Path) -> None:
    # Long enough for the one that goes on, on a busy machine.
    with ThreadedServer(tmp_path, request_body_grace_ms=2_000) as server:
        with http_client(server.url) as client:
            assert client.put("/v1/topics/t", json={"partitions": 1}).status_code == 201
        starts = server.connection_class.starts = KeptTurns()
        with connect_anew(server) as late, connect_anew(server) as lost, connect_anew(server) as patient:
            its_turns = []
            for connection in (late, lost, patient):
                connection.send(post(LARGE)[: HEAD_BYTES + 1_000])
                its_turns.append(starts.next())
            server.call(its_turns.pop())
            patient.send(LARGE[1_000:])
            result = result_of(patient.read_answer())
            lost.socket.close()
            assert json.loads(late.read_answer().body)["code"] == "request_timeout"
            for its_turn in its_turns:
                server.call(its_turn)
        server.connection_class.starts = Turns(1)
        check_stored(server, "t", result, LARGE)
        eventually_true(lambda: held_bytes(server) == 0)


def test_what_follows_a_large_body_is_the_next_request(server: ThreadedServer) -> None:
    with connect(server) as connection:
        connection.send(post(LARGE) + post(SMALL) + post(LARGE) + post(SMALL))
        results = [result_of(connection.read_answer()) for _ in range(4)]
        assert [result["record_count"] for result in results] == [900, 1, 900, 1]
        for result, sent in zip(results, [LARGE, SMALL, LARGE, SMALL], strict=True):
            check_stored(server, "t", result, sent)


def test_a_connection_takes_turns_between_partitions(server: ThreadedServer) -> None:
    """As writers of many partitions do: each head it has seen is known, though another came between."""
    topics = ["t", "group", "large"]
    with connect(server) as connection:
        for topic in topics[1:]:
            connection.send(post(SMALL, topic))
            assert connection.read_answer().status == 200
        before = server.fast_path_count
        results = []
        for topic in topics * 2:
            connection.send(post(LARGE, topic))
            results.append(result_of(connection.read_answer()))
        assert server.fast_path_count == before + len(topics) * 2
        for topic, result in zip(topics * 2, results, strict=True):
            check_stored(server, topic, result, LARGE)
        connection.send(b"".join(post(SMALL, topic) for topic in topics))
        assert [connection.read_answer().status for _ in topics] == [200, 200, 200]


def test_targets_that_are_resolved_are_bounded(server: ThreadedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that had to make room is resolved again, and answered here all the same."""
    monkeypatch.setattr(dispatcher, "TARGETS_MAX", 2)
    targets = server.app.state.fast_path.targets
    targets.clear()
    with connect(server) as connection:
        for topic in ("group", "large", "t", "group", "large"):
            before = server.fast_path_count
            connection.send(post(SMALL, topic))
            assert connection.read_answer().status == 200
            assert (server.fast_path_count, len(targets) <= 2) == (before + 1, True)


def test_larger_bodies_are_checked_in_a_thread(server: ThreadedServer) -> None:
    body = LARGE * 3
    with connect(server, "large") as connection:
        before = server.fast_path_count
        connection.send(post(body, "large"))
        result = result_of(connection.read_answer())
        assert (result["record_count"], server.fast_path_count) == (2700, before + 1)
        assert [len(batch.buffer) for batch in split_batches(stored(server, "large", result["base_offset"]))] == [
            len(LARGE)
        ] * 3


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (LARGE[:-1] + b"?", 400),
        (LARGE[:30] + b"\xff" + LARGE[31:], 400),
        (LARGE[:-1], 400),
        (b"x" * 300_000, 422),
        (record_batch(b"v" * 1_100_000), 413),
        (b"x" * 3_100_000, 413),
    ],
)
def test_what_is_wrong_with_a_large_body_is_said_as_ever(server: ThreadedServer, body: bytes, status: int) -> None:
    with connect(server) as connection, connect_anew(server) as other, connect_anew(server) as last:
        answers = []
        for each, request in ((connection, post(body)), (other, post(body)), (last, post_and_close(body))):
            each.send(request)
            answers.append(each.read_answer())
        assert len({answer.status for answer in answers}) == 1
        documents = [json.loads(answer.body) for answer in answers]
        assert documents[0] == documents[1] == documents[2]
        assert answers[0].status >= 400, status
    eventually_true(lambda: held_bytes(server) == 0)


def test_a_client_that_goes_away_leaves_nothing(server: ThreadedServer) -> None:
    connection = connect(server)
    connection.send(post(LARGE[:500_000], length=len(LARGE)))
    eventually_true(lambda: held_bytes(server) == len(LARGE))
    connection.socket.close()
    eventually_true(lambda: held_bytes(server) == 0)
    with connect(server) as another:
        another.send(post(LARGE))
        assert result_of(another.read_answer())["record_count"] == 900


def test_sinks_take_half_of_what_bodies_may_hold(server: ThreadedServer) -> None:
    waiting = [connect(server) for _ in range(6)]
    for connection in waiting:
        connection.send(post(LARGE[:300_000], length=len(LARGE)))
    in_sinks = LIMIT_BYTES // 2 // len(LARGE)
    assert in_sinks < len(waiting)
    eventually_true(lambda: in_sinks * len(LARGE) < held_bytes(server) <= LIMIT_BYTES)
    for connection in waiting:
        connection.send(LARGE[300_000:])
    counts = [result_of(connection.read_answer())["record_count"] for connection in waiting]
    assert counts == [900] * len(waiting)
    for connection in waiting:
        connection.socket.close()
    eventually_true(lambda: held_bytes(server) == 0)


def test_no_copy_is_made_of_a_large_body(server: ThreadedServer) -> None:
    with connect(server) as connection:
        for _ in range(2):
            connection.send(post(LARGE))
            connection.read_answer()
        request = post(LARGE)
        tracemalloc.start()
        try:
            for _ in range(3):
                connection.send(request)
                connection.read_answer()
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    # What is read together with the head comes in a piece of its own.
    assert peak_bytes < len(LARGE) // 2


def test_buffers_are_used_again_when_nobody_looks() -> None:
    buffers = BodyBuffers(kept_bytes_max=2 * 1024 * 1024)
    first = buffers.take(SINK_BYTES_MIN)
    part = first[10:20]
    owner = first.obj
    second = buffers.take(SINK_BYTES_MIN)
    assert second.obj is not owner
    del first, owner
    assert buffers.take(SINK_BYTES_MIN).obj is not part.obj, "a part is looked at"
    place = id(part.obj)
    del part
    assert id(buffers.take(SINK_BYTES_MIN).obj) == place
    assert len(buffers.take(5 * 1024 * 1024)) == 5 * 1024 * 1024
    held = [buffers.take(1024 * 1024) for _ in range(5)]
    assert len({id(view.obj) for view in held}) == 5
    assert buffers.kept_bytes <= 2 * 1024 * 1024
