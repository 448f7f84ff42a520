"""Known appends that wait for an fsync in a thread: answered, refused, given up; and who cannot wait so."""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.http.test_plain_requests import (
    batch,
    clients,
    connect,
    get,
    group_sizes,
    offset_of,
    one_turn,
    post,
    produced,
    server,
    stored,
)
from tests.support.edge_server import Connection
from tests.support.held_flushes import HeldFlush
from tests.support.servers import ThreadedServer, http_client

pytestmark = pytest.mark.needs_local("it breaks, fills or holds up a disk")

__all__ = ["server"]

COUNT = 8
ANSWERED = 6 * COUNT  # what ``clients`` has sent


def test_what_waits_for_no_fsync_is_fsynced_soon_and_then_shown(server: ThreadedServer) -> None:
    """Alone, and many at once, also beside some that wait."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(connect(server)) for _ in range(COUNT)]
        end = 0
        for turn in range(12):
            asked = opened if turn % 3 else opened[:1]
            with one_turn(server):
                for place, connection in enumerate(asked):
                    is_waiting = turn % 3 == 2 and place % 2
                    connection.send(post("group", batch(b"v"), "?acks=all" if is_waiting else "?acks=1"))
            answers = [connection.read_answer() for connection in asked]
            offsets = {offset_of(answer) for answer in answers}
            assert offsets == set(range(end, end + 2 * len(asked), 2))
            end += 2 * len(asked)
            opened[0].send(get("group", f"offset={end - 1}&wait_ms=30000"))
            assert opened[0].read_answer().headers["high-watermark"] == str(end)


@contextlib.contextmanager
def held(server: ThreadedServer) -> Iterator[HeldFlush]:
    """Fsyncs wait in their thread while the block runs."""
    # No fsync is hoped to be quick.
    engine = server.service.parts.engine
    engine.partitions._flush_pace._hopeful_count = 0
    flush = HeldFlush(engine.manager, engine.manager.partition("group", 0))
    try:
        yield flush
    finally:
        flush.go_on.set()


def send_in_one_turn(server: ThreadedServer, opened: list[Connection], behind: bytes = b"") -> None:
    with one_turn(server):
        for place, connection in enumerate(opened):
            connection.send(post("group", batch(b"%d" % place)) + behind)


def test_all_of_a_turn_are_answered_by_one_fsync(server: ThreadedServer) -> None:
    with clients(server, "group", COUNT) as opened:
        before = produced(server)
        with held(server) as flush:
            send_in_one_turn(server, opened, post("group", batch(b"behind")))
            assert flush.reached.wait(30)
            opened[0].socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                opened[0].socket.recv(1, socket.MSG_PEEK)
            opened[0].socket.settimeout(30)
        places = [offset_of(connection.read_answer()) for connection in opened]
        assert sorted(places) == list(range(2 * ANSWERED, 2 * (ANSWERED + COUNT), 2))
        # What came behind them is answered behind them.
        assert all(offset_of(connection.read_answer()) >= 2 * (ANSWERED + COUNT) for connection in opened)
        sent_bytes = COUNT * (len(batch(b"0")) + len(batch(b"behind")))
        assert produced(server) == (before[0] + 4 * COUNT, before[1] + sent_bytes)
    assert sorted(stored(server, "group")) == list(range(2 * (ANSWERED + 2 * COUNT)))


def test_what_was_answered_is_let_go(server: ThreadedServer) -> None:
    """Not after a second: that made tens of thousands of objects, which each full garbage collection looked at."""
    with clients(server, "group", COUNT) as opened:
        for _ in range(5):
            with held(server):
                send_in_one_turn(server, opened)
            for connection in opened:
                offset_of(connection.read_answer())
        assert not [each for each in gc.get_objects() if type(each).__name__ == "FsyncWait"]


def test_those_that_come_while_others_still_come_share_their_fsync(server: ThreadedServer, twin: str) -> None:
    """Each look at the sockets brings some more: they are one group, as the end of the turn is put off."""
    loop = server.service.loop
    assert loop is not None
    with clients(server, "group", COUNT) as opened:
        parts = server.service.parts
        batcher = parts.engine.writer_of(parts.engine.manager.partition("group", 0)).batcher
        if twin == "compiled":
            batcher.put_off_seconds_max = 30.0

        def send(some: list[Connection]) -> None:
            for connection in some:
                connection.send(post("group", batch(b"v")))

        before = group_sizes(server)
        with one_turn(server):
            send(opened[: COUNT // 2])
            # Before the next look at the sockets but one.
            loop.call_soon_threadsafe(send, opened[COUNT // 2 :])
        places = [offset_of(connection.read_answer()) for connection in opened]
        assert sorted(places) == list(range(2 * ANSWERED, 2 * (ANSWERED + COUNT), 2))
        after = group_sizes(server)
        assert after[0] - before[0] == COUNT
        if twin == "compiled":
            assert after[1] - before[1] == 1


def test_an_fsync_that_fails_in_a_thread_is_told_to_all(server: ThreadedServer) -> None:
    log = server.service.parts.engine.manager.partition("group", 0)
    with clients(server, "group", COUNT) as opened:
        high_watermark, counted = log.snapshot.high_watermark, produced(server)
        with held(server) as flush:
            flush.error = OSError(errno.EIO, "the disk is broken")
            send_in_one_turn(server, opened)
        answers = [connection.read_answer() for connection in opened]
        assert {answer.status for answer in answers} == {503}
        assert {json.loads(answer.body)["code"] for answer in answers} == {"append_outcome_unknown"}
        assert log.snapshot.high_watermark == high_watermark
        assert produced(server) == counted


def test_who_leaves_meanwhile_takes_nothing_back(server: ThreadedServer) -> None:
    with clients(server, "group", COUNT) as opened:
        with held(server) as flush:
            send_in_one_turn(server, opened)
            assert flush.reached.wait(30)
            for connection in opened[::2]:
                connection.socket.close()
            with http_client(server.url) as client:
                assert client.get("/healthz").status_code == 200
        assert all(connection.read_answer().status == 200 for connection in opened[1::2])
    assert sorted(stored(server, "group")) == list(range(2 * (ANSWERED + COUNT)))


def test_who_has_said_all_meanwhile_is_answered_with_the_others(server: ThreadedServer) -> None:
    with clients(server, "group", COUNT) as opened:
        with held(server) as flush:
            send_in_one_turn(server, opened)
            assert flush.reached.wait(30)
            for connection in opened[::2]:
                connection.socket.shutdown(socket.SHUT_WR)
        assert all(connection.read_answer().status == 200 for connection in opened)
        assert {connection.read_to_end() for connection in opened[::2]} == {b""}
    assert sorted(stored(server, "group")) == list(range(2 * (ANSWERED + COUNT)))


@pytest.mark.parametrize("timeout_ms", [1, 1500])
def test_who_does_not_wait_so_long_is_told_that_it_goes_on(server: ThreadedServer, timeout_ms: int) -> None:
    query = f"?timeout_ms={timeout_ms}"
    with clients(server, "group", COUNT) as opened:
        for connection in opened:
            for _ in range(3):
                connection.send(post("group", batch(b"known"), f"?timeout_ms={30_000}"))
                assert connection.read_answer().status == 200
        with held(server):
            with one_turn(server):
                for connection in opened:
                    connection.send(post("group", batch(b"late"), query))
            answers = [connection.read_answer() for connection in opened]
            assert {answer.status for answer in answers} == {504}
            assert {json.loads(answer.body)["code"] for answer in answers} == {"request_timed_out"}
        # Their connections go on, and what they have sent is there.
        for connection in opened:
            connection.send(post("group", batch(b"after")))
            assert connection.read_answer().status == 200
    assert sum(value == b"late" for value in stored(server, "group").values()) == 2 * COUNT


def test_who_waits_at_a_stop_is_answered(server: ThreadedServer) -> None:
    with clients(server, "group", COUNT) as opened, held(server) as flush:
        send_in_one_turn(server, opened)
        assert flush.reached.wait(30)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        # Connections that wait for nothing are closed when the stop has come to them.
        with contextlib.suppress(OSError), connect(server) as idle:
            idle.socket.recv(1)
        flush.go_on.set()
        answers = [connection.read_answer() for connection in opened]
        assert {answer.status for answer in answers} <= {200, 503}
        stopping.join(60)
        assert not stopping.is_alive()


def test_a_stop_between_a_request_and_its_write_lets_it_be_answered(server: ThreadedServer) -> None:
    """Two things are waited for one behind the other then: the end of the turn, and an fsync in a thread."""
    loop = server.service.loop
    assert loop is not None

    def stop() -> None:
        server.service.release()
        for connection in list(server.connections):
            connection.shutdown()

    with clients(server, "group", COUNT) as opened:
        server.service.parts.engine.partitions._flush_pace._hopeful_count = 0
        log = server.service.parts.engine.manager.partition("group", 0)
        end = log.snapshot.log_end_offset
        with one_turn(server):
            for place, connection in enumerate(opened):
                connection.send(post("group", batch(b"%d" % place)))
            loop.call_soon_threadsafe(stop)
        statuses = [connection.read_answer().status for connection in opened]
        assert set(statuses) <= {200, 503}
        written = log.snapshot.log_end_offset - end
    # Whoever is told that it is not applied finds it so.
    assert written == 2 * statuses.count(200)
