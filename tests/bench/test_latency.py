"""The open loop and the bare program: what is due when, what a latency counts from, and how slices become rows."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from bench.bare_syncs import Synced, bare_syncs
from bench.histogram import Histogram, histogram_of
from bench.machine import choose_cores
from bench.open_loop import Schedule, Timed, at_rate
from bench.tail import HEADS, PARTITIONS, Slice, requests_of, rows_of

REQUEST = b"GET / HTTP/1.1\r\n\r\n"
ANSWER = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"


class Clock:
    """Each look takes a microsecond; a server adds what it stops for."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now


def serve(listener: socket.socket, clock: Clock, stop_at: int, seconds: float) -> None:
    """Answer one connection; stop for ``seconds`` of the clock before the answer of this number."""
    connection, _ = listener.accept()
    with connection:
        number = 0
        while received := connection.recv(len(REQUEST), socket.MSG_WAITALL):
            assert received == REQUEST
            if number == stop_at:
                clock.now += seconds
            connection.sendall(ANSWER)
            number += 1


def test_a_request_is_due_by_its_number() -> None:
    schedule = Schedule(50, 2)
    assert schedule.total == 100
    assert [schedule.due(number) for number in (0, 5, 99)] == [0.0, 0.1, 1.98]
    assert [schedule.due_by(seconds) for seconds in (0.0, 0.019, 0.1, 1.0, 5.0)] == [1, 1, 6, 51, 100]
    assert Schedule(0.5, 1).total == 1


def test_a_server_that_stops_answers_for_all_that_were_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """One connection, 100 requests a second: the server stops for a second at the tenth."""
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener, clock, 10, 1.0))
        thread.start()
        timed = at_rate(listener.getsockname(), [REQUEST], Schedule(100, 1), 1)
        thread.join()
    assert timed.requests == timed.latencies.count == timed.late.count == 100
    assert timed.latencies.longest >= 1.0
    # Those behind it were due within that second, and the last of them 0.89 s after the stop began.
    assert timed.latencies.percentile(50) >= 0.4
    assert timed.latencies.percentile(11) >= 0.09
    assert timed.late.longest >= 0.9


def test_histograms_together_are_one_of_all() -> None:
    durations = [0.001 * number for number in range(1, 301)]
    parts = [histogram_of(durations[start : start + 70]) for start in range(0, 300, 70)]
    whole, one = Histogram.together(parts), histogram_of(durations)
    assert (whole.count, whole.longest) == (300, 0.3)
    assert whole.table() == one.table()
    assert Histogram.together([]).count == 0


def test_every_request_has_another_head_and_they_go_to_all_partitions() -> None:
    requests = requests_of("t")
    assert len(set(requests)) == HEADS
    assert len({request.split(b" ")[1] for request in requests}) == PARTITIONS
    assert len({request.partition(b"\r\n\r\n")[2] for request in requests}) == 1


def a_slice(ours_ms: float, bare_ms: float) -> Slice:
    ours, bare = histogram_of([ours_ms / 1000] * 1000), histogram_of([bare_ms / 1000] * 1000)
    return Slice(Timed(ours, histogram_of([0.0]), 1000, 10.0, 4.0), Synced(bare, histogram_of([0.0001])), 0.5)


def test_rows_are_of_all_slices_as_one() -> None:
    """Nine slices of 1 ms and one of 8, beside 0.5 ms: the median is 1 ms, the 99th percentile 8."""
    rows = {row.name.rpartition(" ")[2]: row for row in rows_of([*[a_slice(1, 0.5)] * 9, a_slice(8, 0.5)], 100.0)}
    assert list(rows) == ["p50", "p99", "p99.9", "longest"]
    assert rows["p50"].value == pytest.approx(1, rel=0.01)
    assert rows["p50"].ratio == pytest.approx(2, rel=0.01)
    assert rows["p50"].met is True
    assert rows["p99"].value == pytest.approx(8, rel=0.01)
    assert rows["p99"].ratio == pytest.approx(16, rel=0.01)
    assert rows["p99"].met is False
    assert rows["longest"].met is None
    assert rows["p50"].note == "100 requests/s; ratios of 10 slices 2.00 to 16.00"
    assert (rows["p50"].server_cpu, rows["p50"].generator_cpu) == (0.5, 0.6)
    assert rows["p50"].limit_extra["fsync_p50_ms"] == pytest.approx(0.1, rel=0.01)


def test_the_bare_program_writes_all_that_is_due_within_its_file(tmp_path: Path) -> None:
    path = tmp_path / "bare.bin"
    with bare_syncs(path, choose_cores().server, 16 * 1024) as bare:
        first, second = bare.run(Schedule(1e6, 1e-4), 1024), bare.run(Schedule(1e6, 2e-5), 1024)
        assert path.stat().st_size == 16 * 1024
    assert (first.latencies.count, second.latencies.count) == (100, 20)
    assert 100 / 16 <= first.fsyncs.count <= 100
    assert {"fsync_p50_ms", "fsync_p99.9_ms"} <= set(first.table())
    assert not path.exists()
