"""Plain requests on real connections: alone, many in a turn of the loop, and what comes between; compiled and not."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.engine_local.partitions.flush_pace import FlushPace
from rollway.records import Codec, Record, columns_from_records, encode_batch
from storage.journal.journal_files import JournalFiles
from storage.segment.segment import Segment
from tests.support.edge_server import Answer, Connection
from tests.support.servers import ThreadedServer, http_client

pytestmark = pytest.mark.needs_local("it tests the fast path of plain requests")

RAW = "application/vnd.kafka.record-batch.v2"
CLIENTS = 40
GROUP_MAX = 64  # batches in one write, at most
POLICIES = ("interval", "group")


@pytest.fixture
def server(twin: str, tmp_path: Path) -> Iterator[ThreadedServer]:
    with ThreadedServer(tmp_path / "data") as running:
        with http_client(running.url) as client:
            for policy in POLICIES:
                config = {"flush.policy": policy, "index.interval.bytes": 1000}
                assert client.put(f"/v1/topics/{policy}", json={"partitions": 1, "config": config}).status_code == 201
        trust_the_disk(running)
        yield running


def trust_the_disk(server: ThreadedServer) -> None:
    """Let fsyncs be waited for on the loop, as after many that were quick."""
    pace = server.service.parts.engine.partitions._flush_pace
    for _ in range(pace._needed_count):
        pace.note_in_thread(0.0)


def batch(value: bytes, count: int = 2, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(place, 1_700_000_000_000 + place, b"k", value) for place in range(count)]
    return encode_batch(columns_from_records(records), codec=codec)


def post(topic: str, body: bytes, query: str = "") -> bytes:
    head = f"POST /v1/topics/{topic}/partitions/0/records{query} HTTP/1.1\r\nHost: a\r\nContent-Type: {RAW}\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


def get(topic: str, query: str) -> bytes:
    return f"GET /v1/topics/{topic}/partitions/0/records?{query} HTTP/1.1\r\nHost: a\r\nAccept: {RAW}\r\n\r\n".encode()


def for_the_application(request: bytes) -> bytes:
    """The same request with a header that makes no difference but that its head is not plain."""
    return request.replace(b"Host: a\r\n", b"Host: a\r\nUpgrade-Insecure-Requests: 1\r\n")


def connect(server: ThreadedServer) -> Connection:
    return Connection(int(server.url.rpartition(":")[2]))


def offset_of(answer: Answer) -> int:
    assert answer.status == 200, answer.body
    return int(json.loads(answer.body)["base_offset"])


@contextlib.contextmanager
def one_turn(server: ThreadedServer) -> Iterator[None]:
    """What is sent inside comes to the loop at once."""
    reached, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        assert go_on.wait(30)

    loop = server.service.loop
    assert loop is not None
    loop.call_soon_threadsafe(hold)
    assert reached.wait(30)
    try:
        yield
    finally:
        go_on.set()


@contextlib.contextmanager
def clients(server: ThreadedServer, topic: str, count: int = CLIENTS) -> Iterator[list[Connection]]:
    """Connections to a topic where several requests come in a turn."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(connect(server)) for _ in range(count)]
        for _ in range(6):
            with one_turn(server):
                for connection in opened:
                    connection.send(post(topic, batch(b"first")))
            for connection in opened:
                assert connection.read_answer().status == 200
        yield opened


def group_sizes(server: ThreadedServer) -> tuple[float, int]:
    distribution = server.service.metrics.group_requests.distribution
    return distribution.sum, sum(distribution.counts)


def produced(server: ThreadedServer) -> tuple[float, float]:
    """Records and bytes that were acknowledged."""
    metrics = server.service.metrics
    return metrics.produced_records.value, metrics.produced_bytes.value


def stored(server: ThreadedServer, topic: str) -> dict[int, bytes]:
    """Every record by its offset, as the JSON route tells."""
    found: dict[int, bytes] = {}
    with http_client(server.url) as client:
        offset = 0
        while True:
            answer = client.get(
                f"/v1/topics/{topic}/partitions/0/records?offset={offset}", headers={"Accept": "application/json"}
            ).json()
            if not answer["records"]:
                return found
            for record in answer["records"]:
                found[record["offset"]] = record["value"].encode()
            offset = answer["next_offset"]


@pytest.fixture
def no_disk_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy this machine is: behind a slow write batches are written one by one, by a thread."""
    monkeypatch.setattr("app.engine_local.partitions.partition_writer.STALL_SECONDS", math.inf)


@pytest.mark.usefixtures("no_disk_is_slow")
@pytest.mark.parametrize("topic", POLICIES)
def test_batches_of_one_turn_are_one_write_and_each_has_its_own_answer(
    server: ThreadedServer, twin: str, topic: str
) -> None:
    with clients(server, topic) as opened:
        requests, groups = group_sizes(server)
        values = [b"value %d" % number for number in range(CLIENTS)]
        with one_turn(server):
            for connection, value in zip(opened, values, strict=True):
                connection.send(post(topic, batch(value, 1 + len(value) % 3)))
        offsets = [offset_of(connection.read_answer()) for connection in opened]
        written, made = group_sizes(server)
    assert written - requests == CLIENTS
    assert twin == "plain" or made - groups <= 2
    records = stored(server, topic)
    for offset, value in zip(offsets, values, strict=True):
        assert [records[offset + place] for place in range(1 + len(value) % 3)] == [value] * (1 + len(value) % 3)
    assert sorted(records) == list(range(len(records)))


@pytest.mark.usefixtures("no_disk_is_slow")
@pytest.mark.parametrize("topic", POLICIES)
def test_a_crowd_larger_than_one_write_takes_few(server: ThreadedServer, twin: str, topic: str) -> None:
    count, each = 140, 3
    with clients(server, topic, count) as opened:
        requests, groups = group_sizes(server)
        for _ in range(2):
            with one_turn(server):
                for connection in opened:
                    connection.send(post(topic, batch(b"x")) * each)
            offsets = [[offset_of(connection.read_answer()) for _ in range(each)] for connection in opened]
            assert all(sorted(row) == row for row in offsets)
        written, made = group_sizes(server)
    assert written - requests == 2 * count * each
    assert twin == "plain" or made - groups <= 2 * each * math.ceil(count / GROUP_MAX)
    assert sorted(stored(server, topic)) == list(range(2 * int(written)))


@pytest.mark.parametrize("topic", POLICIES)
def test_those_that_are_not_plain_are_judged_alone(server: ThreadedServer, topic: str) -> None:
    broken = bytearray(batch(b"broken"))
    broken[-1] ^= 1
    bodies = [batch(b"a"), bytes(broken), batch(b"b", codec=Codec.GZIP), batch(b"c"), b"", batch(b"d") + batch(b"e")]
    with clients(server, topic, len(bodies)) as opened:
        before = len(stored(server, topic))
        with one_turn(server):
            for connection, body in zip(opened, bodies, strict=True):
                connection.send(post(topic, body))
        answers = [connection.read_answer() for connection in opened]
        assert [answer.status for answer in answers] == [200, 400, 200, 200, answers[4].status, 200]
        assert answers[4].status < 500
        values = list(stored(server, topic).values())[before:]
    assert sorted(values) == sorted([b"a", b"a", b"b", b"b", b"c", b"c", b"d", b"d", b"e", b"e"])


@pytest.mark.parametrize("topic", POLICIES)
@pytest.mark.parametrize("in_pieces", [False, True])
def test_what_comes_behind_a_request_that_waits_is_answered_in_order(
    server: ThreadedServer, topic: str, in_pieces: bool
) -> None:
    other = b"GET /v1/topics/group HTTP/1.1\r\nHost: a\r\n\r\n"
    with clients(server, topic, 8) as opened:
        first = opened[0]
        row = [
            post(topic, batch(b"x")),
            post(topic, batch(b"y", 1)),
            other,
            post(topic, batch(b"z")),
            get(topic, "offset=0"),
        ]
        with one_turn(server):
            for connection in opened[1:]:
                connection.send(post(topic, batch(b"w")))
            for each in row if in_pieces else [b"".join(row)]:
                first.send(each)
        answers = [first.read_answer() for _ in row]
        assert [answer.status for answer in answers] == [200] * 5
        x, y, z = (offset_of(answers[place]) for place in (0, 1, 3))
        assert x < y < z
        for connection in opened[1:]:
            assert connection.read_answer().status == 200
        records = stored(server, topic)
    assert [records[x], records[x + 1], records[y], records[z]] == [b"x", b"x", b"y", b"z"]


@pytest.mark.parametrize("topic", POLICIES)
def test_a_client_that_sends_more_than_is_answered_has_to_wait(server: ThreadedServer, topic: str) -> None:
    with clients(server, topic) as opened:
        first, count = opened[0], 1500
        ours = first.socket.getsockname()
        (protocol,) = (each for each in list(server.connections) if each.client == ours)
        row = post(topic, batch(b"x" * 1000, 1)) * count
        sending = threading.Thread(target=first.send, args=(row,))
        loop = server.service.loop
        assert loop is not None
        seen = [0]

        def look() -> None:
            """In every turn of the loop."""
            seen.append(len(protocol._stash))
            if seen[0] == 0:
                loop.call_soon(look)

        loop.call_soon_threadsafe(look)
        with one_turn(server):
            sending.start()
            for connection in opened[1:]:
                connection.send(post(topic, batch(b"y")))
        offsets = [offset_of(first.read_answer()) for _ in range(count)]
        seen[0] = 1
        sending.join(30)
        assert sorted(offsets) == offsets
        assert len(set(offsets)) == count
        assert max(seen) <= 64 * 1024 + 256 * 1024


def test_a_client_that_has_said_all_reads_its_answer(server: ThreadedServer) -> None:
    with clients(server, "interval") as opened:
        with one_turn(server):
            for connection in opened:
                connection.send(post("interval", batch(b"last")))
                connection.socket.shutdown(socket.SHUT_WR)
        assert len({offset_of(connection.read_answer()) for connection in opened}) == CLIENTS


@pytest.mark.parametrize("topic", POLICIES)
def test_clients_that_leave_in_the_same_turn_take_nothing_from_the_others(server: ThreadedServer, topic: str) -> None:
    with clients(server, topic, 8) as opened:
        with one_turn(server):
            for connection in opened:
                connection.send(post(topic, batch(b"kept")))
            for connection in opened[::2]:
                connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                connection.socket.close()
        assert len({offset_of(connection.read_answer()) for connection in opened[1::2]}) == 4


@pytest.mark.parametrize("topic", POLICIES)
def test_a_stop_in_the_same_turn_lets_them_be_answered(server: ThreadedServer, topic: str) -> None:
    with clients(server, topic, 8) as opened:
        loop = server.service.loop
        assert loop is not None
        stop = threading.Thread(target=server.stop)
        with one_turn(server):
            for connection in opened:
                connection.send(post(topic, batch(b"late")))
            stop.start()
        statuses = {connection.read_answer().status for connection in opened}
        stop.join(30)
    assert statuses <= {200, 503}


def test_what_the_disk_refuses_is_told_to_all(server: ThreadedServer) -> None:
    log = server.service.parts.engine.manager.partition("interval", 0)
    with clients(server, "interval", 8) as opened:
        end = log.snapshot.log_end_offset
        file: Any = log.snapshot.segments[-1].file
        descriptor, reading = file.descriptor, os.open(file.path, os.O_RDONLY)
        file.descriptor = reading
        with one_turn(server):
            for connection in opened:
                connection.send(post("interval", batch(b"refused")))
        statuses = {connection.read_answer().status for connection in opened}
        file.descriptor = descriptor
        os.close(reading)
        assert statuses == {503}
        assert log.snapshot.log_end_offset == end
        assert log.offline_reason is not None


class FullDisk:
    """A file on a disk that takes nothing more."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, *_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")


@pytest.mark.parametrize("topic", POLICIES)
def test_a_full_disk_leaves_the_log_as_it_was(
    server: ThreadedServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = server.service.parts.engine.manager.partition(topic, 0)
    with clients(server, topic, 8) as opened:
        end, size_bytes = log.snapshot.log_end_offset, log.snapshot.segments[-1].size_bytes

        index = log.snapshot.segments[-1].offset_index.get().file
        with monkeypatch.context() as patch:
            patch.setattr(index, "opened", FullDisk(index.opened))
            with one_turn(server):
                for connection in opened:
                    connection.send(post(topic, batch(b"x" * 1200)))
            statuses = [connection.read_answer().status for connection in opened]
            # Alone, some are due for no entry.
            assert {507} <= set(statuses) <= {200, 507}
        kept = statuses.count(200)
        assert log.snapshot.log_end_offset == end + 2 * kept
        assert log.snapshot.segments[-1].size_bytes == size_bytes + kept * len(batch(b"x" * 1200))
        opened[0].send(post(topic, batch(b"again")))
        assert offset_of(opened[0].read_answer()) == end + 2 * kept
    records = stored(server, topic)
    assert sorted(records) == list(range(len(records)))


def test_an_fsync_that_fails_is_told_to_all(server: ThreadedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    log = server.service.parts.engine.manager.partition("group", 0)
    pipe = os.pipe()
    with clients(server, "group", 8) as opened, contextlib.ExitStack() as stack:
        for descriptor in pipe:
            stack.callback(os.close, descriptor)

        def refuse(*_: object) -> None:
            raise OSError(errno.EIO, "the disk is broken")

        monkeypatch.setattr(Segment, "flush", refuse)
        monkeypatch.setattr(JournalFiles, "sync", refuse)
        # The thread that needs no interpreter calls fdatasync itself: a pipe refuses it.
        monkeypatch.setattr(JournalFiles, "descriptor_to_sync", lambda _: pipe[1])
        high_watermark = log.snapshot.high_watermark
        counted = produced(server)
        with one_turn(server):
            for connection in opened:
                connection.send(post("group", batch(b"lost")))
        assert {connection.read_answer().status for connection in opened} == {503}
        assert produced(server) == counted
        assert log.snapshot.high_watermark == high_watermark
        assert log.offline_reason is not None


@pytest.mark.parametrize("fails", ["fsync", "undo"])
def test_who_was_never_appended_is_told_so(
    server: ThreadedServer, twin: str, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """Two batches in one body are not plain, and have their turn behind those that are."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    topic = "group" if fails == "fsync" else "interval"
    log = server.service.parts.engine.manager.partition(topic, 0)
    with clients(server, topic) as opened:
        if fails == "fsync":
            monkeypatch.setattr(FlushPace, "allows", lambda *_: True)
            monkeypatch.setattr(Segment, "flush", refuse)
            monkeypatch.setattr(JournalFiles, "sync", refuse)
        else:
            monkeypatch.setattr(log.snapshot.segments[-1].offset_index.get().file, "opened", FullDisk(None))
            monkeypatch.setattr(log.writer, "undo_append", refuse)
        with one_turn(server):
            for connection in opened[1:]:
                connection.send(post(topic, batch(b"lost" * 300)))
            opened[0].send(post(topic, batch(b"d") + batch(b"e")))
        told = [json.loads(connection.read_answer().body) for connection in opened]
        assert log.offline_reason is not None
    applied = [answer["applied"] for answer in told]
    if twin == "compiled":
        assert applied == ["no", *["unknown"] * (CLIENTS - 1)]
    else:
        # Each has its own turn, in the order in which epoll names the sockets.
        assert "unknown" in applied
        assert set(applied) <= {"unknown", "no"}


@pytest.mark.parametrize(
    "number", ["0", "7", "00", "07", "9" * 18, "9" * 19, "9" * 30, "-1", "+1", "1x", "x", "", " 1", "1 ", "1&offset=2"]
)
def test_a_number_is_read_as_the_application_reads_it(server: ThreadedServer, number: str) -> None:
    with connect(server) as connection, connect(server) as stranger:
        for _ in range(8):
            connection.send(post("interval", batch(b"v")))
            assert connection.read_answer().status == 200
        for _ in range(2):
            connection.send(get("interval", "offset=1"))
            assert connection.read_answer().status == 200
        request = get("interval", f"offset={number}")
        connection.send(request)
        stranger.send(for_the_application(request))
        answer, expected = connection.read_answer(), stranger.read_answer()
        assert (answer.status, answer.body if answer.status == 200 else b"") == (
            expected.status,
            expected.body if expected.status == 200 else b"",
        )


@pytest.mark.parametrize(
    "query",
    [
        *("offset=earliest", "offset=latest", "offset=0", "offset=3", "offset=8", "offset=9", "offset=8&wait_ms=1"),
        *("offset=latest&wait_ms=1", "offset=2&max_bytes=1", "offset=0&max_bytes=100000000", "offset=0&max_records=3"),
        *("offset=0&isolation=read_committed", "offset=8&isolation=read_committed", "offset=0&end_offset=4"),
    ],
)
def test_a_plain_fetch_says_what_the_application_says(server: ThreadedServer, query: str) -> None:
    def comparable(answer: Answer) -> tuple[int, dict[str, str], bytes]:
        varying = ("date", "x-request-id", "content-length") if answer.status != 200 else ("date", "x-request-id")
        body = answer.body if answer.status == 200 else b""
        return answer.status, {name: value for name, value in answer.headers.items() if name not in varying}, body

    with connect(server) as connection:
        for size in (10, 9000, 300_000, 5):
            connection.send(post("interval", batch(b"v" * size)))
            assert connection.read_answer().status == 200
        answers = []
        for _ in range(4):
            connection.send(get("interval", query))
            answers.append(comparable(connection.read_answer()))
        # The first is the application's, whose headers have another order and say what no other client asks.
        assert answers[1] == answers[2] == answers[3]
        assert answers[0][0] == answers[1][0]
        assert answers[0][2] == answers[1][2]
        connection.send(post("interval", batch(b"more")))
        assert offset_of(connection.read_answer()) == 8
        with connect(server) as stranger:
            connection.send(get("interval", query))
            stranger.send(for_the_application(get("interval", query)))
            known, first = (comparable(each.read_answer()) for each in (connection, stranger))
        assert known[0] == first[0]
        assert known[2] == first[2]
        limits = ("log-start-offset", "high-watermark", "last-stable-offset", "next-offset", "content-length")
        if known[0] == 200:
            assert [known[1].get(name) for name in limits] == [first[1].get(name) for name in limits]


def test_lengths_of_bodies_may_vary(server: ThreadedServer) -> None:
    sizes = (1, 1, 500, 20, 9000, 9000, 3, 60_000, 70_000, 5)
    with connect(server) as connection:
        before = server.fast_path_count
        for place, size in enumerate(sizes):
            connection.send(post("interval", batch(b"v" * size)))
            assert offset_of(connection.read_answer()) == 2 * place
        assert server.fast_path_count > before + 5
    assert [len(value) for value in stored(server, "interval").values()][::2] == list(sizes)


def test_bodies_that_came_in_part_when_they_were_read(server: ThreadedServer) -> None:
    """The loop reads 256,000 bytes at once: what is cut there is in the socket already, or comes later, or never."""
    sizes = (20_000, 25_000, 30_000, 4000)
    bodies = [batch(bytes([65 + n]) * sizes[n % 4]) for n in range(12)]
    with connect(server) as connection:
        for _ in range(3):
            connection.send(post("interval", batch(b"first")))
            base = offset_of(connection.read_answer()) + 2
        with one_turn(server):
            connection.send(b"".join(post("interval", body) for body in bodies))
        assert [offset_of(connection.read_answer()) for _ in bodies] == [base + 2 * n for n in range(len(bodies))]
        request = post("interval", bodies[0])
        for cut in (len(request) - 1, len(request) - 10_000, 300):
            connection.send(request[:cut])
            with http_client(server.url) as client:
                assert client.get("/healthz").status_code == 200
            connection.send(request[cut:] + post("interval", bodies[1]))
            assert connection.read_answer().status == connection.read_answer().status == 200
        connection.send(request[:-1])
    records = stored(server, "interval")
    assert all(records[base + 2 * n] == bytes([65 + n]) * sizes[n % 4] for n in range(len(bodies)))
    assert sorted(records) == list(range(base + 2 * (len(bodies) + 6)))
