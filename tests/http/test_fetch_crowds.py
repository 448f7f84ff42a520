"""Fetches that wait in a crowd are answered exactly as those that wait in the application, whatever happens to them.

Each test sends the same fetches both ways to one service: plain ones, and ones with a header that is not plain.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import app.fast_path.fetch_crowds
from app.engine.transactions import ProducerIdentity
from app.engine_local.partitions.crowds import Crowds
from app.http.connection.fast_path_interface import plain_heads
from rollway.records import Codec, Record, columns_from_records, encode_batch
from tests.support.access import bearer, make_keys
from tests.support.edge_server import Answer, Connection
from tests.support.servers import ThreadedServer, http_client
from tests.support.transactions import transactional_batch

pytestmark = [
    pytest.mark.needs_local("it tests the fast path of plain requests"),
    pytest.mark.skipif(
        plain_heads is None, reason="without the parser of plain heads all fetches wait in the application"
    ),
]

RAW = "application/vnd.kafka.record-batch.v2"
OCTETS = "application/octet-stream"
JSON = "application/json"
NDJSON = "application/x-ndjson"
WAIT = "wait_ms=60000"
# What is another one in each answer.
VARYING = ("date", "x-request-id")
PLAIN_COUNT, OTHER_COUNT = 3, 2

FORMS = [("records", RAW), ("record-batches", OCTETS), ("records", JSON), ("record-lines", NDJSON)]


class Stand:
    """A service with a topic, and clients that wait both ways."""

    def __init__(self, server: ThreadedServer, client: httpx.Client, stack: contextlib.ExitStack) -> None:
        self.server = server
        self.client = client
        self.plain: list[Connection] = []
        self.others: list[Connection] = []
        self._stack = stack
        self.headers: dict[str, str] = {}
        self.partitions: Any = server.service.parts.engine.partitions  # type: ignore[attr-defined]
        self.crowds: Crowds = self.partitions.crowds

    @property
    def in_crowds(self) -> int:
        return sum(len(crowd.members) for crowd in tuple(self.crowds._crowds.values()))

    @property
    def waiting_count(self) -> int:
        return len(self.partitions.waiters)

    def connect(self) -> Connection:
        return self._stack.enter_context(Connection(self.server.port))

    def request(self, query: str, place: str = "records", accept: str = RAW, *, is_plain: bool = True) -> bytes:
        lines = [f"GET /v1/topics/t/partitions/0/{place}?{query} HTTP/1.1", "Host: a", f"Accept: {accept}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if not is_plain:
            lines.append("Upgrade-Insecure-Requests: 1")
        return "\r\n".join([*lines, "", ""]).encode()

    def until(self, condition: Any) -> None:
        deadline = threading.Event()
        for _ in range(30_000):
            if condition():
                return
            deadline.wait(0.001)
        raise AssertionError("it does not come")

    def wait(self, query: str, place: str = "records", accept: str = RAW, *, in_crowd: bool = True) -> None:
        """Let clients of both ways wait. The first lets the service know the query, and goes."""
        with Connection(self.server.port) as first:
            first.send(self.request(query, place, accept))
            self.until(lambda: self.waiting_count == 1)
            reset(first)
        self.until(lambda: self.waiting_count == 0)
        for _ in range(PLAIN_COUNT):
            self.plain.append(self.connect())
            self.plain[-1].send(self.request(query, place, accept))
        for _ in range(OTHER_COUNT):
            self.others.append(self.connect())
            self.others[-1].send(self.request(query, place, accept, is_plain=False))
        self.until(lambda: self.waiting_count == PLAIN_COUNT + OTHER_COUNT)
        assert self.in_crowds == (PLAIN_COUNT if in_crowd else 0)

    def answers(self) -> list[Answer]:
        return [connection.read_answer() for connection in (*self.plain, *self.others)]

    def agreed(self) -> Answer:
        """The answer that all got."""
        answers = self.answers()
        told = [comparable(answer) for answer in answers]
        assert told == [told[-1]] * len(told)
        assert len({answer.headers["x-request-id"] for answer in answers}) == len(answers)
        self.until(lambda: self.waiting_count == self.in_crowds == len(self.crowds) == 0)
        return answers[-1]

    def append(self, size_bytes: int = 10, topic: str = "t", **fields: Any) -> None:
        batch = encode_batch(columns_from_records([Record(0, 5, b"k", b"v" * size_bytes)]), codec=Codec.NONE, **fields)
        path = f"/v1/topics/{topic}/partitions/0/records"
        answer = self.client.post(path, content=batch, headers={"Content-Type": RAW, **self.headers})
        assert answer.status_code == 200, answer.text

    def counted(self, status: int, place: str) -> int:
        route = f"/v1/topics/{{topic}}/partitions/{{partition}}/{place}"
        return self.server.service.metrics.requests.of("GET", route).statuses.get(status, 0)

    @property
    def fetched_bytes(self) -> dict[str, int]:
        return dict(self.server.service.metrics.fetched_bytes.values)


def comparable(answer: Answer) -> tuple[int, dict[str, str], bytes]:
    return answer.status, {name: value for name, value in answer.headers.items() if name not in VARYING}, answer.body


def reset(connection: Connection) -> None:
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.socket.close()


@contextlib.contextmanager
def standing(data_dir: Path, **settings: Any) -> Iterator[Stand]:
    with (
        contextlib.ExitStack() as stack,
        ThreadedServer(data_dir, **settings) as server,
        http_client(server.url) as client,
    ):
        yield Stand(server, client, stack)


@pytest.fixture
def stand(twin: str, tmp_path: Path) -> Iterator[Stand]:
    with standing(tmp_path / "data") as made:
        assert made.client.put("/v1/topics/t", json={"partitions": 2}).status_code == 201
        yield made


@pytest.mark.parametrize(("place", "accept"), FORMS)
@pytest.mark.parametrize("size_bytes", [0, 10, 15_000, 17_000, 200_000])
def test_an_append(stand: Stand, place: str, accept: str, size_bytes: int) -> None:
    """Also one that is too large for an answer from memory, and one that comes in several."""
    stand.append()
    stand.wait(f"offset=1&{WAIT}&max_bytes=1000000", place, accept)
    before, counted = stand.fetched_bytes, stand.counted(200, place)
    stand.append(size_bytes)
    answer = stand.agreed()
    assert (answer.status, answer.headers["next-offset"] if accept != JSON else "2") == (200, "2")
    assert len(answer.body) > size_bytes
    name = {JSON: "json", NDJSON: "ndjson"}.get(accept, "raw")
    both = PLAIN_COUNT + OTHER_COUNT
    stand.until(lambda: stand.counted(200, place) == counted + both)
    assert stand.fetched_bytes[name] - before.get(name, 0) == both * len(answer.body)


@pytest.mark.parametrize(("place", "accept"), FORMS)
@pytest.mark.parametrize("offset", ["latest", "1", "0&on_truncated=earliest", "earliest"])
def test_nothing_in_time(stand: Stand, place: str, accept: str, offset: str) -> None:
    if offset in ("1", "latest"):
        stand.append()
    with Connection(stand.server.port) as first:
        query = f"offset={offset}&wait_ms=300"
        for _ in range(2):
            first.send(stand.request(query, place, accept))
            first.read_answer()
    for is_plain, connections in ((True, stand.plain), (False, stand.others)):
        connections += [stand.connect() for _ in range(2)]
        for connection in connections:
            connection.send(stand.request(query, place, accept, is_plain=is_plain))
    assert stand.agreed().status == 200


@pytest.mark.parametrize(("place", "accept"), FORMS)
def test_min_bytes(stand: Stand, place: str, accept: str) -> None:
    stand.append()
    stand.wait(f"offset=latest&{WAIT}&min_bytes=300", place, accept)
    stand.append(50)
    stand.append(50)
    assert stand.waiting_count == PLAIN_COUNT + OTHER_COUNT
    stand.append(500)
    assert stand.agreed().body.count(b"v" * 50 if accept != JSON else b'"offset"') >= 3


@pytest.mark.parametrize("on_truncated", ["error", "earliest"])
@pytest.mark.parametrize(("place", "accept"), FORMS)
def test_a_passed_log_start(stand: Stand, place: str, accept: str, on_truncated: str) -> None:
    stand.append()
    stand.wait(f"offset=1&{WAIT}&min_bytes=100000&on_truncated={on_truncated}", place, accept)
    for _ in range(3):
        stand.append()
    answer = stand.client.post("/v1/topics/t/partitions/0/delete-records", json={"offset": 3})
    assert answer.status_code == 200, answer.text
    assert stand.agreed().status == (410 if on_truncated == "error" else 200)


@pytest.mark.parametrize(("place", "accept"), FORMS)
def test_a_deleted_topic(stand: Stand, place: str, accept: str) -> None:
    """Also if one of its name is made in the same turn."""
    stand.wait(f"offset=0&{WAIT}", place, accept)
    assert stand.client.delete("/v1/topics/t").status_code == 204
    assert stand.client.put("/v1/topics/t", json={"partitions": 2}).status_code == 201
    assert stand.agreed().status == 404


def test_a_failed_disk(stand: Stand) -> None:
    stand.append()
    stand.wait(f"offset=1&{WAIT}")
    log = stand.server.service.parts.engine.manager.partition("t", 0)
    stand.server.call(lambda: stand.partitions.partition_failed(log, OSError("no disk")))
    assert stand.agreed().status == 200


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("how", ["commit", "abort"])
@pytest.mark.parametrize(("place", "accept"), FORMS)
def test_a_transaction(stand: Stand, place: str, accept: str, isolation: str, how: str) -> None:
    """Fetches of committed records wait for its end. Aborted ones are listed, or left out."""
    stand.append()
    producer = ProducerIdentity(**stand.client.post("/v1/producers", json={"transactional_id": "it"}).json())
    # The text forms of committed records are the application's.
    in_crowd = accept in (RAW, OCTETS) or isolation == "read_uncommitted"
    stand.wait(f"offset=1&{WAIT}&isolation={isolation}", place, accept, in_crowd=in_crowd)
    batch = transactional_batch(producer, 0, b"in it")
    path = "/v1/topics/t/partitions/0/records"
    assert stand.client.post(path, content=batch, headers={"Content-Type": RAW}).status_code == 200
    if isolation == "read_committed":
        assert stand.waiting_count == PLAIN_COUNT + OTHER_COUNT
        assert stand.client.post(f"/v1/transactions/it/{how}", json=producer._asdict()).status_code == 200
    assert stand.agreed().status == 200


@pytest.mark.parametrize("query", ["max_records=1", "end_offset=9", "until=9000000000000"])
def test_what_is_not_plain_enough_waits_in_the_application(stand: Stand, query: str) -> None:
    stand.append()
    stand.wait(f"offset=1&{WAIT}&{query}", in_crowd=False)
    stand.append()
    assert stand.agreed().status == 200


@pytest.mark.parametrize("limit", [{"consumer_byte_rate": 1}, {"consumer_byte_rate": 10**9}, {"request_rate": 1000}])
def test_quotas_that_came_meanwhile(stand: Stand, limit: dict[str, int]) -> None:
    """All are charged; a client that fetched too much gets no records, and is told to pause."""
    stand.append()
    stand.wait(f"offset=1&{WAIT}")
    changed = stand.client.put("/v1/quotas", params={"user": "<default>"}, json=limit)
    assert changed.status_code == 200, changed.text
    stand.append(5_000)
    answers = stand.answers()
    assert {answer.status for answer in answers} == {200}
    throttled = [answer for answer in answers if "throttle-time-ms" in answer.headers]
    assert [answer for answer in answers if not answer.body] == throttled
    # The first one breaks the quota.
    assert len(throttled) == (PLAIN_COUNT + OTHER_COUNT - 1 if limit == {"consumer_byte_rate": 1} else 0)
    if throttled:
        return
    with Connection(stand.server.port) as later:
        later.send(stand.request(f"offset=2&{WAIT}"))
        stand.until(lambda: stand.waiting_count == 1)
        assert stand.in_crowds == 0


def test_a_client_that_has_closed_its_direction_is_answered_at_once(stand: Stand) -> None:
    stand.wait(f"offset=0&{WAIT}")
    for connection in (stand.plain[0], stand.others[0]):
        connection.socket.shutdown(socket.SHUT_WR)
    first, second = stand.plain[0].read_answer(), stand.others[0].read_answer()
    assert comparable(first) == comparable(second)
    assert (first.status, first.headers["next-offset"], first.headers["connection"]) == (200, "0", "close")
    assert stand.plain[0].is_closed()
    assert stand.others[0].is_closed()
    assert (stand.in_crowds, stand.waiting_count) == (PLAIN_COUNT - 1, PLAIN_COUNT + OTHER_COUNT - 2)


def test_a_client_that_goes_away_leaves_its_crowd(stand: Stand) -> None:
    before = stand.counted(499, "records")
    stand.wait(f"offset=0&{WAIT}")
    reset(stand.plain.pop())
    reset(stand.others.pop())
    stand.until(lambda: stand.waiting_count == PLAIN_COUNT + OTHER_COUNT - 2)
    assert stand.in_crowds == PLAIN_COUNT - 1
    # And the one that told the service the query.
    stand.until(lambda: stand.counted(499, "records") == before + 3)
    stand.append()
    assert stand.agreed().status == 200


def test_the_last_one_that_goes_away_leaves_no_crowd(stand: Stand) -> None:
    stand.wait(f"offset=0&{WAIT}")
    for connection in (*stand.plain, *stand.others):
        reset(connection)
    stand.until(lambda: stand.waiting_count == 0)
    stand.until(lambda: not len(stand.crowds))


def test_requests_behind_a_waiting_one_keep_their_order(stand: Stand) -> None:
    """Plain ones, others, and ones that wait again."""
    stand.append()
    stand.wait(f"offset=1&{WAIT}")
    for connection in (*stand.plain, *stand.others):
        connection.send(stand.request("offset=0&max_bytes=1"))
        connection.send(stand.request("offset=0&max_bytes=1", is_plain=False) + stand.request(f"offset=2&{WAIT}"))
    stand.append()
    for connection in (*stand.plain, *stand.others):
        assert [connection.read_answer().headers["next-offset"] for _ in range(3)] == ["2", "1", "1"]
    stand.until(lambda: stand.waiting_count == PLAIN_COUNT + OTHER_COUNT)
    stand.append()
    assert stand.agreed().headers["next-offset"] == "3"


def test_a_client_with_requests_behind_it_that_goes_away(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service reads nothing from it meanwhile, so it must look whether the client is there."""
    monkeypatch.setattr("app.http.connection.crowd_member.CLIENT_LOOK_SECONDS", 0.01)
    monkeypatch.setattr("app.http.connection.response_cycle.CLIENT_LOOK_SECONDS", 0.01)
    stand.wait(f"offset=0&{WAIT}")
    for connection in (*stand.plain, *stand.others):
        connection.send(stand.request("offset=0&max_bytes=1") * 2)
        reset(connection)
    stand.until(lambda: stand.waiting_count == 0)
    stand.until(lambda: not len(stand.crowds))


@pytest.mark.parametrize(("place", "accept"), FORMS)
def test_the_stop(stand: Stand, place: str, accept: str) -> None:
    stand.append()
    stand.wait(f"offset=1&{WAIT}", place, accept)
    stand.server.stop()
    assert stand.agreed().status == 200
    assert all(connection.is_closed() for connection in (*stand.plain, *stand.others))


@contextlib.contextmanager
def one_turn(stand: Stand) -> Iterator[None]:
    """What is sent inside comes to the loop at once."""
    reached, go_on = threading.Event(), threading.Event()
    loop = stand.server.service.loop
    assert loop is not None

    def hold() -> None:
        reached.set()
        assert go_on.wait(30)

    loop.call_soon_threadsafe(hold)
    assert reached.wait(30)
    try:
        yield
    finally:
        go_on.set()


def test_an_append_and_the_end_of_the_topic_in_one_turn(stand: Stand) -> None:
    """Either may come first. Each member gets exactly one answer."""
    stand.wait(f"offset=0&{WAIT}")
    with contextlib.ExitStack() as opened, one_turn(stand):
        deleting, appending = (opened.enter_context(Connection(stand.server.port)) for _ in range(2))
        batch = encode_batch(columns_from_records([Record(0, 5, b"k", b"v")]), codec=Codec.NONE)
        head = f"POST /v1/topics/t/partitions/0/records HTTP/1.1\r\nHost: a\r\nContent-Type: {RAW}\r\n"
        appending.send(head.encode() + b"Content-Length: %d\r\n\r\n" % len(batch) + batch)
        deleting.send(b"DELETE /v1/topics/t HTTP/1.1\r\nHost: a\r\n\r\n")
    assert {answer.status for answer in stand.answers()} <= {200, 404}
    with one_turn(stand):
        for connection in (*stand.plain, *stand.others):
            connection.send(b"GET /healthz/live HTTP/1.1\r\nHost: a\r\n\r\n")
    assert all("next-offset" not in answer.headers for answer in stand.answers())


def test_clients_that_vanish_while_the_crowd_is_answered(stand: Stand) -> None:
    """Each request is counted once: answered, or its client gone."""
    stand.append()
    stand.wait(f"offset=1&{WAIT}")
    more = [stand.connect() for _ in range(60)]
    for connection in more:
        connection.send(stand.request(f"offset=1&{WAIT}"))
    stand.until(lambda: stand.in_crowds == PLAIN_COUNT + len(more))
    before = stand.counted(200, "records") + stand.counted(499, "records")
    with one_turn(stand):
        appender = threading.Thread(target=stand.append)
        appender.start()
        for connection in more[::2]:
            reset(connection)
    appender.join()
    assert {comparable(answer) == comparable(stand.plain[0].read_answer()) for answer in [more[1].read_answer()]} == {
        True
    }
    for connection in (*stand.plain[1:], *stand.others, *more[3::2]):
        assert connection.read_answer().status == 200
    total = PLAIN_COUNT + OTHER_COUNT + len(more)
    stand.until(lambda: stand.counted(200, "records") + stand.counted(499, "records") == before + total)
    assert stand.waiting_count == stand.in_crowds == 0


def test_too_many_wait(twin: str, tmp_path: Path) -> None:
    """Each of a crowd counts, and who comes late is refused as in the application."""
    with standing(tmp_path / "data", waiter_count_max=PLAIN_COUNT + OTHER_COUNT) as stand:
        stand.client.put("/v1/topics/t", json={"partitions": 1})
        stand.wait(f"offset=0&{WAIT}")
        refusals = []
        for is_plain in (True, False):
            with Connection(stand.server.port) as late:
                late.send(stand.request(f"offset=0&{WAIT}", is_plain=is_plain))
                refusals.append(comparable(late.read_answer()))
        assert refusals[0] == refusals[1]
        assert refusals[0][0] == 503
        stand.append()
        assert stand.agreed().status == 200


def test_an_answer_behind_bytes_that_the_client_has_not_taken(stand: Stand) -> None:
    """They come first, and the connection goes on behind both."""
    with Connection(stand.server.port, receive_buffer_bytes=4096) as slow:
        stand.append(900_000)
        stand.wait(f"offset=1&{WAIT}")
        text = stand.request("offset=0", "records", JSON)
        slow.send(text)
        slow.read_answer()
        slow.send(text + stand.request(f"offset=1&{WAIT}"))
        slow.send(stand.request("offset=0&max_bytes=1"))
        stand.append()
        assert slow.read_answer().headers["content-type"] == JSON
        assert slow.read_answer().headers["next-offset"] == "2"
        assert slow.read_answer().headers["next-offset"] == "1"
    assert stand.agreed().status == 200


@pytest.mark.parametrize(("taken", "status"), [("nothing", 200), ("right", 404), ("key", 401)])
def test_rights_that_were_taken_meanwhile(twin: str, tmp_path: Path, taken: str, status: int) -> None:
    """The rights at the time of the answer count."""
    admin, reader = make_keys(tmp_path / "data", "User:admin", "User:reader")
    entry = {"principal": "User:reader", "operation": "READ", "resource_type": "topic", "resource_name": "t"}
    settings: dict[str, Any] = {"authentication": True, "super_users": ["User:admin"]}
    with standing(tmp_path / "data", **settings) as stand:
        stand.client.headers.update(bearer(admin))
        assert stand.client.put("/v1/topics/t").status_code == 201
        assert stand.client.post("/v1/acls", json={"acls": [entry]}).status_code == 200
        stand.headers = bearer(reader)
        stand.wait(f"offset=0&{WAIT}")
        if taken == "right":
            assert stand.client.delete("/v1/acls", params={"principal": "User:reader"}).status_code == 200
        elif taken == "key":
            keys = stand.client.get("/v1/keys").json()["data"]
            (number,) = [key["key_id"] for key in keys if key["principal"] == "User:reader"]
            assert stand.client.delete(f"/v1/keys/{number}").status_code == 204
        stand.headers = {}
        stand.append()
        assert stand.agreed().status == status


def test_an_access_log_names_each(tmp_path: Path, twin: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "uvicorn.access")
    with standing(tmp_path / "data", access_log=True) as stand:
        stand.client.put("/v1/topics/t", json={"partitions": 1})
        stand.wait(f"offset=0&{WAIT}")
        stand.append()
        assert stand.agreed().status == 200
        stand.until(lambda: len(_lines(caplog)) >= PLAIN_COUNT + OTHER_COUNT)
        lines = _lines(caplog)
        assert len(lines) == PLAIN_COUNT + OTHER_COUNT
        assert len({line.partition(" - ")[2] for line in lines}) == 1


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if WAIT in record.getMessage()]


def test_a_defect_in_the_common_answer_leaves_each_to_the_application(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.append()
    stand.wait(f"offset=1&{WAIT}")
    (crowd,) = stand.crowds._crowds.values()
    monkeypatch.setattr(crowd, "_wanted", crowd._wanted._replace(make=None))  # type: ignore[attr-defined]
    stand.append()
    assert stand.agreed().status == 200


def test_a_defect_in_one_answer_takes_no_other(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of that one is told, or cut off behind what it has."""
    stand.append()
    stand.wait(f"offset=1&{WAIT}")
    (crowd,) = stand.crowds._crowds.values()
    failing = next(iter(crowd.members)).call.target
    calls = []

    def count(status: int, seconds: float) -> None:
        calls.append(status)
        if len(calls) == 2:
            raise ValueError("a defect")

    failing.count = count
    monkeypatch.setattr(app.fast_path.fetch_crowds.logger, "error", lambda *_, **__: None)
    stand.append()
    answers = []
    for connection in (*stand.plain, *stand.others):
        with contextlib.suppress(ConnectionError):
            answers.append(connection.read_answer().status)
    assert answers.count(200) >= PLAIN_COUNT + OTHER_COUNT - 1
    assert stand.waiting_count == 0
