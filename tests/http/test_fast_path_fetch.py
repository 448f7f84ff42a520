"""Raw fetches on the connection: they answer as the route does, from memory at once and from the disk in a thread."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.http.transfer import page_cache, transfer_turns
from app.http.transfer.wire import Wire
from storage.disk.file_system import LocalFile
from storage.segment import batch_search
from tests.cases.logs import sized_batch
from tests.support.edge_server import Answer, Connection
from tests.support.servers import ThreadedServer, http_client

pytestmark = pytest.mark.needs_local("it tests the fast path of plain requests")

RAW = "application/vnd.kafka.record-batch.v2"
TOPIC = "/v1/topics/hot"
PATH = f"{TOPIC}/partitions/0/records"
BATCHES = f"{TOPIC}/partitions/0/record-batches"
OCTETS = "application/octet-stream"
FORMS = pytest.mark.parametrize(("path", "accept"), [(PATH, RAW), (BATCHES, RAW), (BATCHES, OCTETS), (BATCHES, "*/*")])
"""Where record batches are read, and what for."""
SIZES = [100, 700, 9000, 30_000, 400, 200_000, 90, 5000]
END = len(SIZES)
# Makes no difference to the route, but the request is not plain any more.
NOT_PLAIN = "TE: trailers\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedServer]:
    with ThreadedServer(tmp_path_factory.mktemp("service") / "data") as running:
        with http_client(running.url) as client:
            fill(client)
        yield running


def fill(client: httpx.Client) -> None:
    assert client.put(TOPIC, json={"partitions": 1, "config": {"segment.bytes": "210000"}}).status_code == 201
    for size in SIZES:
        answer = client.post(PATH, content=sized_batch(size), headers={"Content-Type": RAW})
        assert answer.status_code in (200, 201), answer.text


def connect(server: ThreadedServer, **options: int) -> Connection:
    return Connection(int(server.url.rpartition(":")[2]), **options)


def ask(connection: Connection, query: str, more: str = "", path: str = PATH, accept: str = RAW) -> Answer:
    connection.send(f"GET {path}?{query} HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n{more}\r\n".encode())
    return connection.read_answer()


QUERIES = [
    *(f"offset={offset}" for offset in range(END + 2)),
    "offset=earliest",
    "offset=latest",
    "offset=2&max_bytes=1",
    "max_bytes=9500&offset=1",
    "offset=3&max_bytes=100000000",
    "offset=0&max_records=2",
    "offset=0&max_records=1000",
    "offset=0&end_offset=3",
    "offset=0&end_offset=1000",
    "offset=2&isolation=read_committed",
    "offset=0&end_offset=2&isolation=read_committed",
    "offset=0&wait_ms=1",
    f"offset={END}&wait_ms=1",
    "offset=0&wait_ms=1&min_bytes=300",
    "offset=0&on_truncated=earliest",
    "tail=2",
    "timestamp=0",
    "offset=0&magic=1",
    "offset=0&nonsense=1",
    "offset=-1",
    "",
]


@FORMS
@pytest.mark.parametrize("query", QUERIES)
def test_plain_requests_are_answered_as_the_route_answers(
    server: ThreadedServer, query: str, path: str, accept: str
) -> None:
    with connect(server) as connection:
        slow = ask(connection, query, NOT_PLAIN, path, accept)
        for _ in range(3):
            answer = ask(connection, query, "", path, accept)
            for headers in (slow.headers, answer.headers):
                headers.pop("date", None)
                headers.pop("x-request-id", None)
            assert (answer.status, answer.headers) == (slow.status, slow.headers)
            if slow.status == 200:
                assert answer.body == slow.body


@pytest.mark.parametrize("path", [PATH.replace("hot", "none"), PATH.replace("0/rec", "1/rec")])
def test_what_does_not_exist_is_told_by_the_route(server: ThreadedServer, path: str) -> None:
    with connect(server) as connection:
        assert ask(connection, "offset=0").status == 200
        answers = [ask(connection, "offset=0", more, path) for more in ("", NOT_PLAIN)]
        assert [answer.status for answer in answers] == [404, 404]


@FORMS
def test_they_are_answered_on_the_connection(server: ThreadedServer, path: str, accept: str) -> None:
    with connect(server) as connection:
        ask(connection, "offset=0&max_bytes=50000", NOT_PLAIN, path, accept)
        before = server.fast_path_count
        offset = 0
        while offset < END:
            answer = ask(connection, f"offset={offset}&max_bytes=50000", "", path, accept)
            assert answer.status == 200
            assert answer.headers["content-type"] == (OCTETS if accept == "*/*" else accept)
            offset = int(answer.headers["next-offset"])
        # Open ranges, closed ones, and nothing there.
        assert ask(connection, f"offset={END}&max_bytes=50000", "", path, accept).body == b""
        assert server.fast_path_count >= before + 4


def test_a_row_of_requests_is_answered_in_order(server: ThreadedServer) -> None:
    """Of memory, of files, and of the application, without waiting for one another's bytes to be taken."""
    with connect(server, receive_buffer_bytes=4096) as connection:
        wanted = [ask(connection, f"offset={offset}", NOT_PLAIN).body for offset in range(END)]
        row = [number % END for number in range(40)]
        for offset in row:
            more = NOT_PLAIN if offset == 3 else ""
            request = f"GET {PATH}?offset={offset} HTTP/1.1\r\nHost: a\r\nAccept: {RAW}\r\n{more}\r\n"
            connection.send(request.encode())
        for offset in row:
            assert connection.read_answer().body == wanted[offset]


def test_cold_bytes_never_stall_the_loop(server: ThreadedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk takes its time, and others are answered meanwhile."""
    with connect(server) as connection, connect(server) as other:
        expected = ask(connection, "offset=1&max_bytes=20000", NOT_PLAIN)
        is_read, may_go_on = threading.Event(), threading.Event()
        read = LocalFile.read

        def slow(self: LocalFile, position: int, length: int) -> bytes:
            assert threading.current_thread().name != "server under test"
            is_read.set()
            assert may_go_on.wait(30)
            return read(self, position, length)

        monkeypatch.setattr(batch_search, "compiled", None)
        monkeypatch.setattr(LocalFile, "read_cached", lambda *_: None)
        monkeypatch.setattr(LocalFile, "read", slow)
        connection.send(f"GET {PATH}?offset=1&max_bytes=20000 HTTP/1.1\r\nHost: a\r\nAccept: {RAW}\r\n\r\n".encode())
        assert is_read.wait(30)
        for _ in range(5):
            other.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert other.read_answer().status == 200
        may_go_on.set()
        assert connection.read_answer().body == expected.body


def test_what_is_remembered_of_a_request_ends_with_its_topic(server: ThreadedServer) -> None:
    topic = "/v1/topics/again"
    path = f"{topic}/partitions/0/records"

    def fill_again(client: httpx.Client, *sizes: int) -> None:
        assert client.put(topic, json={"partitions": 1}).status_code == 201
        for size in sizes:
            assert client.post(path, content=sized_batch(size), headers={"Content-Type": RAW}).status_code == 200

    with http_client(server.url) as client, connect(server) as connection:
        fill_again(client, 100, 200)
        for offset, size in ((0, 300), (0, 300), (1, 200), (0, 300)):
            assert len(ask(connection, f"offset={offset}", path=path).body) == size
        # The end is no short way, nor what lies beyond it.
        assert ask(connection, "offset=2", path=path).body == b""
        assert ask(connection, "offset=3", path=path).status == 416
        before = server.fast_path_count
        assert len(ask(connection, "offset=1", path=path).body) == 200
        assert server.fast_path_count == before + 1
        assert client.delete(topic).status_code in (200, 202, 204)
        assert ask(connection, "offset=0", path=path).status == 404
        fill_again(client, 400)
        for _ in range(2):
            assert len(ask(connection, "offset=0", path=path).body) == 400


@pytest.mark.parametrize("policy", ["interval", "group"])
def test_a_connection_holds_no_log_that_was_deleted(server: ThreadedServer, policy: str) -> None:
    """It remembers its last requests; the descriptors of a deleted topic would keep its bytes on the disk."""
    topic = f"/v1/topics/held-{policy}"
    path = f"{topic}/partitions/0/records"
    batch = sized_batch(300)
    with http_client(server.url) as client, connect(server) as connection:
        assert client.put(topic, json={"partitions": 1, "config": {"flush.policy": policy}}).status_code == 201
        for _ in range(3):
            head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {RAW}\r\nContent-Length: 300\r\n\r\n"
            connection.send(head.encode() + batch)
            assert connection.read_answer().status == 200
            assert ask(connection, "offset=0", path=path).status == 200
        assert ask(connection, "offset=1").status == 200
        log = weakref.ref(server.service.parts.engine.manager.partition(f"held-{policy}", 0))
        assert client.delete(topic).status_code in (200, 202, 204)
        # Its answer is out; the deletion may still be on its way out of the loop.
        assert ask(connection, "offset=2").status == 200
        gc.collect()
        assert log() is None


def test_cold_bytes_of_a_transfer_are_sent_from_a_thread(
    server: ThreadedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "seems_cached", lambda *_: False)
    with connect(server) as connection:
        for _ in range(2):
            answer = ask(connection, "offset=4&max_bytes=100000000")
            assert answer.body == ask(connection, "offset=4&max_bytes=100000000", NOT_PLAIN).body


@pytest.mark.parametrize("size", [transfer_turns.PIECE_BYTES - 100, transfer_turns.PIECE_BYTES])
def test_a_piece_is_offered_whole_to_the_kernel_with_its_head(
    server: ThreadedServer, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """A piece less its head was, and some hundred bytes waited for a turn of their own."""
    offered: list[int] = []
    sendfile = os.sendfile

    def sendfile_and_note(wire: int, source: int, position: int, count: int) -> int:
        offered.append(count)
        return sendfile(wire, source, position, count)

    topic = f"large-{size}"
    path = PATH.replace("hot", topic)
    with http_client(server.url) as client:
        client.put(f"/v1/topics/{topic}", json={"partitions": 1, "config": {"max.message.bytes": "5000000"}})
        assert client.post(path, content=sized_batch(size), headers={"Content-Type": RAW}).status_code == 200
    with connect(server) as connection:
        query = f"offset=0&max_bytes={size}"
        ask(connection, query, path=path)
        before = server.fast_path_count
        monkeypatch.setattr(os, "sendfile", sendfile_and_note)
        assert len(ask(connection, query, path=path).body) == size
        assert (server.fast_path_count, offered[0]) == (before + 1, size)


def test_a_crowd_of_large_fetches_arrives_whole(server: ThreadedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that must queue behind others begin with their turn, their heads before it."""
    first_piece_bytes = transfer_turns.TransferTurns.first_piece_bytes
    began: list[int] = []

    def counted(self: transfer_turns.TransferTurns, size_bytes: int) -> int:
        began.append(first_piece_bytes(self, size_bytes))
        return began[-1]

    path = PATH.replace("hot", "crowd")
    batch = sized_batch(1_000_000)
    with http_client(server.url) as client:
        client.put("/v1/topics/crowd", json={"partitions": 1})
        for _ in range(12):
            assert client.post(path, content=batch, headers={"Content-Type": RAW}).status_code == 200
    whole = httpx.get(server.url + path, params={"offset": 0, "max_bytes": 20_000_000}, headers={"Accept": RAW}).content
    assert len(whole) == 12 * len(batch)
    monkeypatch.setattr(transfer_turns, "TURN_BYTES", 256 * 1024)
    monkeypatch.setattr(transfer_turns.TransferTurns, "first_piece_bytes", counted)
    request = f"GET {path}?offset=0&max_bytes=20000000 HTTP/1.1\r\nHost: a\r\nAccept: {RAW}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(connect(server)) for _ in range(8)]
        for _ in range(50):
            before = server.fast_path_count
            for connection in crowd:
                connection.send(request)
            # The others wait for their turns while one is read.
            assert all(connection.read_answer().body == whole for connection in crowd)
            if 0 in began and server.fast_path_count > before:
                break
    assert 0 in began


@pytest.mark.parametrize("options", [{}, {"receive_buffer_bytes": 4096}])
@pytest.mark.parametrize("size", [300_000, 8_000_000])
def test_packets_of_large_answers_are_filled(
    server: ThreadedServer, monkeypatch: pytest.MonkeyPatch, options: dict[str, int], size: int
) -> None:
    """Every third packet had 53 bytes in it: what was over when 64 KiB of a file were cut into packets of loopback."""
    corks: list[int] = []
    set_option = Wire.set_option

    def note_and_set(wire: Wire, level: int, option: int, value: int | bytes) -> None:
        if (level, option) == (socket.IPPROTO_TCP, socket.TCP_CORK):
            assert isinstance(value, int)
            corks.append(value)
        set_option(wire, level, option, value)

    topic = f"corked-{size}-{len(options)}"
    path = PATH.replace("hot", topic)
    with http_client(server.url) as client:
        client.put(f"/v1/topics/{topic}", json={"partitions": 1, "config": {"max.message.bytes": "9000000"}})
        batch = sized_batch(size)
        assert client.post(path, content=batch, headers={"Content-Type": RAW}).status_code == 200
    monkeypatch.setattr(Wire, "set_option", note_and_set)
    query = f"offset=0&max_bytes={size}"
    with connect(server, **options) as connection:
        for more in ("", NOT_PLAIN, ""):
            # The last of them is answered on the connection; what its client does not take at once goes later.
            corks.clear()
            assert ask(connection, query, more, path=path).body == batch
            # It holds packets and lets them go, before the next request has its turn.
            connection.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert connection.read_answer().status == 200
            assert set(corks) == {0, 1}
            assert corks[-1] == 0
        for _ in range(2):
            # The second of them is answered on the connection, and small.
            corks.clear()
            assert ask(connection, "offset=0&max_bytes=1").status == 200
        assert not corks


def test_a_file_that_ended_early_cuts_the_connection(tmp_path: Path) -> None:
    with ThreadedServer(tmp_path / "data") as server:
        with http_client(server.url) as client:
            fill(client)
        with connect(server) as connection:
            whole = ask(connection, "offset=5&max_bytes=1", NOT_PLAIN)
            log = server.service.parts.engine.manager.partition("hot", 0)
            segment = next(one for one in reversed(log.snapshot.segments) if one.base_offset <= 5)
            original = type(log.snapshot).read_cached

            def too_much(self, *arguments, **options):  # type: ignore[no-untyped-def]
                data = original(self, *arguments, **options)
                if data is None or not data.slices:
                    return data
                piece = data.slices[0]
                return data._replace(slices=(piece._replace(size_bytes=segment.size_bytes + 1, content=None),))

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(type(log.snapshot), "read_cached", too_much)
                connection.send(
                    f"GET {PATH}?offset=5&max_bytes=1 HTTP/1.1\r\nHost: a\r\nAccept: {RAW}\r\n\r\n".encode()
                )
                connection.read_head()
                assert 0 < len(connection.read_to_end()) <= segment.size_bytes
            assert whole.status == 200
