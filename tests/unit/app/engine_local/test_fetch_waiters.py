"""The purgatory of fetches: who is woken by what, and exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from app.engine_local.partitions.fetch_waiters import FetchWaiter, FetchWaiters, Wake, is_served, known_place
from app.problems.problem import Problem
from log_model.offsets import Offset
from log_model.reads import Isolation
from tests.crash.simulated_disk import SimulatedFile
from tests.support.writers import WriterStand, append_request, eventually, writer_stand

MINUTE_MS = 60_000


def on_stand(scenario: Callable[[WriterStand, FetchWaiters], Coroutine[Any, Any, None]], **config: object) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), writer_stand(**config) as stand:
            waiters = FetchWaiters(count_max=3)
            stand.observed.published = lambda log: waiters.wake(log.name)  # type: ignore[method-assign]
            await scenario(stand, waiters)

    asyncio.run(run())


async def append(stand: WriterStand, *values: bytes) -> None:
    await stand.writer.append(append_request(stand.log, *values), size_bytes=100).fsynced


def test_an_append_wakes_who_waits_at_the_end_and_nobody_else() -> None:
    """Spec D6."""

    async def scenario(stand: WriterStand, waiters: FetchWaiters) -> None:
        at_end = waiters.register(stand.log, Offset(0), min_bytes=1, wait_ms=MINUTE_MS)
        other = FetchWaiter(stand.log, stand.log.snapshot.log_end_metadata, 1, Isolation.HIGH_WATERMARK)
        waiters.purgatory.watch(other, [stand.log.name._replace(partition=7)], wait_ms=MINUTE_MS)
        assert len(waiters) == 2
        await append(stand, b"x")
        assert at_end.done.result() is Wake.AVAILABLE
        assert not other.done.done()
        beyond = waiters.register(stand.log, Offset(1), min_bytes=1, wait_ms=MINUTE_MS)
        await append(stand, b"y")
        assert beyond.done.result() is Wake.AVAILABLE
        assert len(waiters) == 1
        waiters.close()

    on_stand(scenario)


def test_nobody_is_woken_before_the_high_watermark_moves() -> None:
    """Nothing a reader has seen is ever lost (docs/explanation/durability.md#the-three-answers)."""

    async def scenario(stand: WriterStand, waiters: FetchWaiters) -> None:
        waiter = waiters.register(stand.log, Offset(0), min_bytes=1, wait_ms=MINUTE_MS)
        pending = stand.writer.append(append_request(stand.log, b"x"), size_bytes=100)
        pending.written.add_done_callback(lambda _: seen.append(waiter.done.done()))
        seen: list[bool] = []
        await waiter.done
        assert seen == [False]
        assert stand.log.snapshot.high_watermark == 1

    on_stand(scenario)


def test_min_bytes_waits_for_so_many_bytes_of_batches() -> None:
    """Spec D6 g."""

    async def scenario(stand: WriterStand, waiters: FetchWaiters) -> None:
        await append(stand, b"x")
        size_bytes = stand.log.snapshot.size_bytes
        place = stand.log.snapshot.place_of(Offset(0))
        waiter = waiters.register(stand.log, place, min_bytes=3 * size_bytes, wait_ms=MINUTE_MS)
        await append(stand, b"y")
        assert not waiter.done.done()
        await append(stand, b"z")
        assert waiter.done.result() is Wake.AVAILABLE

    on_stand(scenario)


def test_data_on_a_newer_segment_wakes_whatever_min_bytes_says() -> None:
    """Spec D6 f; the roll alone does not."""

    async def scenario(stand: WriterStand, waiters: FetchWaiters) -> None:
        await append(stand, b"x")
        waiter = waiters.register(stand.log, stand.log.snapshot.log_end_metadata, min_bytes=10_000, wait_ms=MINUTE_MS)
        await stand.writer.run(stand.log.roll)
        assert not waiter.done.done()
        await append(stand, b"y")
        assert waiter.done.result() is Wake.AVAILABLE

    on_stand(scenario)


def test_looking_for_min_bytes_reads_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait for more bytes, a publication costs no reads."""

    async def scenario(stand: WriterStand, waiters: FetchWaiters) -> None:
        await append(stand, b"x")
        place = stand.log.snapshot.place_of(Offset(0))
        waiting = [waiters.register(stand.log, place, min_bytes=10**6, wait_ms=MINUTE_MS) for _ in range(3)]

        def read(*_: object) -> bytes:
            raise AssertionError("a look read the disk")

        monkeypatch.setattr(SimulatedFile, "read", read)
        for _ in range(100):
            waiters.wake(stand.log.name)
            await asyncio.sleep(0)
            assert waiters.purgatory.check_and_complete(stand.log.name) == 0
        assert not any(waiter.done.done() for waiter in waiting)
        waiters.close()

    on_stand(scenario)


def test_a_failed_disk_wakes_who_waits_for_more() -> None:
    """Spec D6 c."""

    async def scenario(stand: WriterStand, waiters: FetchWaiters) -> None:
        waiter = waiters.register(stand.log, Offset(0), min_bytes=1, wait_ms=MINUTE_MS)
        waiters.wake_failed(stand.log.name)
        assert waiter.done.result() is Wake.FAILED

    on_stand(scenario)


def test_a_place_is_known_at_the_ends_and_found_inside() -> None:
    async def scenario(stand: WriterStand, waiters: FetchWaiters) -> None:
        await append(stand, b"x", b"y")
        await append(stand, b"z")
        snapshot = stand.log.snapshot
        assert known_place(snapshot, Offset(3)) == snapshot.log_end_metadata == snapshot.place_of(Offset(3))
        assert known_place(snapshot, Offset(1)) is None
        first, last = snapshot.place_of(Offset(1)), snapshot.place_of(Offset(2))
        assert (first.position, first.segment_base_offset, last.segment_base_offset) == (0, 0, 0)
        assert snapshot.log_end_metadata.position_difference(last) == snapshot.available_bytes(Offset(2))

    on_stand(scenario)


def test_a_bare_roll_wakes_nobody() -> None:
    """Spec D6: a roll with no data does not wake."""

    async def scenario(stand: WriterStand, waiters: FetchWaiters) -> None:
        await append(stand, b"x")
        waiter = waiters.register(stand.log, Offset(1), min_bytes=1, wait_ms=MINUTE_MS)
        await stand.writer.run(stand.log.roll)
        assert len(stand.log.snapshot.segments) == 2
        assert not waiter.done.done()
        waiters.close()

    on_stand(scenario)


def test_a_log_start_or_log_end_that_passes_the_offset_wakes() -> None:
    async def scenario(stand: WriterStand, waiters: FetchWaiters) -> None:
        await append(stand, b"x", b"y")
        low = waiters.register(stand.log, Offset(0), min_bytes=10_000, wait_ms=MINUTE_MS)
        await stand.writer.run(lambda: stand.log.delete_records(1))
        assert low.done.result() is Wake.AVAILABLE
        high = waiters.register(stand.log, Offset(2), min_bytes=1, wait_ms=MINUTE_MS)
        await stand.writer.run(lambda: stand.log.truncate_to(1))
        assert high.done.result() is Wake.AVAILABLE

    on_stand(scenario)


def test_time_topic_end_and_stop_complete_a_waiter_exactly_once() -> None:
    async def scenario(stand: WriterStand, waiters: FetchWaiters) -> None:
        name = stand.log.name
        late = waiters.register(stand.log, Offset(0), min_bytes=1, wait_ms=1)
        assert await late.done is Wake.TIMEOUT
        gone = waiters.register(stand.log, Offset(0), min_bytes=1, wait_ms=MINUTE_MS)
        waiters.wake_gone([name])
        waiters.close()
        assert await gone.done is Wake.GONE
        assert len(waiters) == 0
        assert await waiters.register(stand.log, Offset(0), min_bytes=1, wait_ms=MINUTE_MS).done is Wake.SHUTDOWN
        waiters.close()

    on_stand(scenario)


def test_stop_wakes_all() -> None:
    async def scenario(stand: WriterStand, waiters: FetchWaiters) -> None:
        waiting = [waiters.register(stand.log, Offset(0), min_bytes=1, wait_ms=MINUTE_MS) for _ in range(3)]
        waiters.close()
        assert [waiter.done.result() for waiter in waiting] == [Wake.SHUTDOWN] * 3

    on_stand(scenario)


def test_waiters_are_limited_and_a_forgotten_one_makes_room() -> None:
    """Invariant 9."""

    async def scenario(stand: WriterStand, waiters: FetchWaiters) -> None:
        waiting = [waiters.register(stand.log, Offset(0), min_bytes=1, wait_ms=MINUTE_MS) for _ in range(3)]
        with pytest.raises(Problem) as refused:
            waiters.register(stand.log, Offset(0), min_bytes=1, wait_ms=MINUTE_MS)
        assert (refused.value.status, refused.value.code, refused.value.retryable) == (503, "overloaded", True)
        waiters.forget(waiting[0])
        waiters.forget(waiting[0])
        assert waiting[0].done.cancelled()
        waiters.register(stand.log, Offset(0), min_bytes=1, wait_ms=MINUTE_MS)
        assert len(waiters) == 3
        waiters.close()
        await eventually(lambda: len(waiters) == 0)

    on_stand(scenario)


def test_is_served_tells_of_bytes_and_of_errors() -> None:
    async def scenario(stand: WriterStand, waiters: FetchWaiters) -> None:
        await append(stand, b"x")
        snapshot = stand.log.snapshot
        size_bytes = snapshot.size_bytes
        first = snapshot.place_of(Offset(0))
        assert is_served(snapshot, first, 1)
        assert is_served(snapshot, first, size_bytes)
        assert not is_served(snapshot, first, size_bytes + 1)
        assert not is_served(snapshot, snapshot.log_end_metadata, 1)
        assert is_served(snapshot, snapshot.log_end_metadata._replace(offset=Offset(2)), 1)

    on_stand(scenario)
