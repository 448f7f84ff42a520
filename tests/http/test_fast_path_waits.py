"""Plain requests that wait for an fsync: in order behind each other, left by their clients, late, and at a stop."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tests.http.test_fast_path_agrees import BATCH, HAS_PARSER, RAW, Case, _topics, connect
from tests.support.edge_server import Answer, Connection
from tests.support.held_flushes import HeldFlush
from tests.support.servers import ThreadedServer, http_client

pytestmark = pytest.mark.needs_local("it tests the fast path of plain requests")


def _held_flush(server: ThreadedServer) -> tuple[threading.Event, threading.Event]:
    """Hold the fsyncs of the topic ``group``: one is under way, let it end."""
    engine = server.service.parts.engine
    held = HeldFlush(engine.manager, engine.manager.partition("group", 0))
    return held.reached, held.go_on


def _one_waits(server: ThreadedServer, connection: Connection) -> threading.Event:
    """Send two appends to the topic ``group``: the first is answered, the second waits for an fsync until the event."""
    slow = Case("slow", True, topic="group").encode()
    connection.send(slow)
    assert connection.read_answer().status == 200
    reached, go_on = _held_flush(server)
    connection.send(slow)
    assert reached.wait(30)
    return go_on


def test_pipelined_requests_wait_for_the_one_that_waits_for_its_fsync(tmp_path: Path) -> None:
    with ThreadedServer(tmp_path / "data") as server:
        with http_client(server.url) as client:
            _topics(client)
        slow, fast = Case("slow", True, topic="group").encode(), Case("fast", True).encode()
        with connect(server) as connection:
            for each in (slow, fast):
                connection.send(each)
                assert connection.read_answer().status == 200
            reached, go_on = _held_flush(server)
            connection.send(slow + fast + b"GET /v1/topics/t HTTP/1.1\r\nHost: a\r\n\r\n" + fast)
            assert reached.wait(30)
            go_on.set()
            answers = [connection.read_answer() for _ in range(4)]
        assert [answer.status for answer in answers] == [200] * 4
        assert [json.loads(answer.body).get("base_offset") for answer in answers] == [2, 2, None, 4]


def test_a_client_that_leaves_takes_nothing_back(tmp_path: Path) -> None:
    with ThreadedServer(tmp_path / "data") as server, http_client(server.url) as client:
        _topics(client)
        with connect(server) as connection:
            go_on = _one_waits(server, connection)
        go_on.set()
        answer = client.post("/v1/topics/group/partitions/0/records", content=BATCH, headers={"Content-Type": RAW})
        assert answer.json()["base_offset"] == 4


def test_a_timeout_is_answered_as_by_the_application(tmp_path: Path) -> None:
    with ThreadedServer(tmp_path / "data") as server:
        with http_client(server.url) as client:
            _topics(client)
        case = Case("slow", True, topic="group", query="?timeout_ms=50")
        with connect(server) as connection:
            # The fast path takes heads it has seen. On a busy machine the first ones may time out too.
            known = Answer(504, {}, b"")
            while known.status == 504:
                connection.send(case.encode())
                known = connection.read_answer()
            assert known.status == 200
            _, go_on = _held_flush(server)
            before = server.fast_path_count
            connection.send(case.encode())
            answer = connection.read_answer()
            go_on.set()
        document = json.loads(answer.body)
        following = json.loads(known.body)["base_offset"] + 2
        assert (answer.status, document["code"], document["base_offset"]) == (504, "request_timed_out", following)
        assert server.fast_path_count == before + HAS_PARSER


def test_a_stop_waits_for_what_waits_for_its_fsync(tmp_path: Path) -> None:
    with ThreadedServer(tmp_path / "data") as server:
        with http_client(server.url) as client:
            _topics(client)
        with connect(server) as connection:
            go_on = _one_waits(server, connection)
            stopping = threading.Thread(target=server.stop)
            stopping.start()
            go_on.set()
            answer = connection.read_answer()
            assert (answer.status, json.loads(answer.body)["base_offset"]) == (200, 2)
            assert connection.is_closed()
        stopping.join(30)


def test_a_stop_that_waited_long_enough_says_so(tmp_path: Path) -> None:
    with ThreadedServer(tmp_path / "data", shutdown_grace_ms=1_000) as server:
        with http_client(server.url) as client:
            _topics(client)
        with connect(server) as connection:
            go_on = _one_waits(server, connection)
            stopping = threading.Thread(target=server.stop)
            stopping.start()
            answer = connection.read_answer()
            document = json.loads(answer.body)
            assert (answer.status, document["code"], document["applied"]) == (503, "shutting_down", "unknown")
            go_on.set()
        stopping.join(30)
