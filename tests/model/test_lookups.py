"""Random lookups over many segments, with timestamps out of order, against looking at everything."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from log_model.batches.batch_validation import validate_batches
from log_model.clock import ManualClock
from log_model.offsets import Offset, TimestampOffset
from rollway.records import parse_header
from storage.log.partition_log import AppendRequest, PartitionLog
from storage.manager.log_manager import LogManager
from storage.segment.segment import Segment
from tests.model.plain_log import PlainLog, client_batch

SEGMENT_COUNT = 200
LOOKUP_COUNT = 10_000
NAIVE_COUNT = 300
START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PartitionLog, PlainLog]]:
    """A log of 200 segments whose timestamps jump back and forth by up to a quarter of its length."""
    clock = ManualClock(START_MS)
    manager = LogManager.open(tmp_path_factory.mktemp("lookups"), clock=clock)
    config = {"segment.bytes": 4000, "index.interval.bytes": 200, "flush.policy": "interval"}
    log = manager.create_topic("wide", 1, config)[0].partitions[0]
    plain = PlainLog()
    source = random.Random(7)
    while len(log.publish().segments) < SEGMENT_COUNT:
        now_ms = START_MS + plain.end_offset * 10
        span_ms = source.choice((0, 100, 20_000))
        timestamps = [now_ms - source.randint(-span_ms, span_ms) for _ in range(source.randint(1, 12))]
        batch = client_batch(timestamps, source.choice((0, 30, 120)), len(plain.batches))
        clock.jump(now_ms - clock.now_ms())
        log.append([AppendRequest(tuple(validate_batches(batch.sent, log.config, now_ms)))])
        plain.append(batch, log.leader_epoch)
    log.publish()
    yield log, plain
    manager.close()


def test_ten_thousand_offsets_are_found(filled: tuple[PartitionLog, PlainLog]) -> None:
    """Spec B6: the batch that holds the offset comes first, whatever segment it is in."""
    log, plain = filled
    holder = np.repeat(np.arange(len(plain.batches)), [len(batch.timestamps) for batch in plain.batches])
    snapshot = log.snapshot
    source = random.Random(11)
    for offset in source.choices(range(plain.end_offset), k=LOOKUP_COUNT):
        fetched = snapshot.read(Offset(offset), 1)
        assert [piece.read() for piece in fetched.slices] == [plain.batches[holder[offset]].stored]
        assert parse_header(fetched.slices[0].read()).last_offset + 1 == fetched.next_offset


def test_ten_thousand_timestamps_are_found(filled: tuple[PartitionLog, PlainLog]) -> None:
    """Spec ListOffsets: the first record in offset order at or after the timestamp."""
    log, plain = filled
    timestamps = np.concatenate([np.array(batch.timestamps) for batch in plain.batches])
    # The first record at or after T is where the running maximum reaches T.
    highest_so_far = np.maximum.accumulate(timestamps)
    assert (timestamps != highest_so_far).mean() > 0.3, "timestamps must be out of order"
    snapshot = log.snapshot
    source = random.Random(13)
    wanted = [
        source.randint(int(timestamps.min()) - 1000, int(timestamps.max()) + 10) for _ in range(LOOKUP_COUNT // 2)
    ]
    wanted += source.choices(timestamps.tolist(), k=LOOKUP_COUNT - len(wanted))
    for number, timestamp in enumerate(wanted):
        place = int(np.searchsorted(highest_so_far, timestamp))
        expected = None if place == len(timestamps) else (place, int(timestamps[place]))
        if number < NAIVE_COUNT:
            assert plain.offset_for_timestamp(timestamp, plain.end_offset) == expected
        found = snapshot.offset_for_timestamp(timestamp)
        assert (found and (found.offset, found.timestamp)) == expected, timestamp


def test_a_timestamp_is_looked_for_in_few_segments(
    filled: tuple[PartitionLog, PlainLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in all from the first on: what they hold is remembered."""
    log, plain = filled
    snapshot = log.snapshot
    asked: list[Segment] = []
    largest = Segment.largest_timestamp.fget
    assert largest is not None

    def ask(segment: Segment) -> TimestampOffset:
        asked.append(segment)
        return largest(segment)

    assert snapshot.offset_for_timestamp(START_MS) is not None
    monkeypatch.setattr(Segment, "largest_timestamp", property(ask))
    source = random.Random(19)
    for _ in range(200):
        asked.clear()
        timestamp = source.choice(source.choice(plain.batches).timestamps)
        assert snapshot.offset_for_timestamp(timestamp) is not None
        # The one that has it; another if the index says no more than that it may.
        assert len(asked) <= 2


def test_the_largest_timestamp_is_the_first_of_its_kind(filled: tuple[PartitionLog, PlainLog]) -> None:
    log, plain = filled
    found = log.snapshot.max_timestamp()
    assert found is not None
    assert (found.offset, found.timestamp) == plain.max_timestamp(plain.end_offset)


def test_lookups_below_a_raised_log_start_stay_above_it(filled: tuple[PartitionLog, PlainLog]) -> None:
    """Spec ListOffsets: the answer is at or above the log start, also inside a segment and inside a batch."""
    log, plain = filled
    source = random.Random(17)
    snapshot = log.snapshot
    for start in sorted(source.sample(range(plain.end_offset // 2), 40)):
        log.delete_records(start)
        plain.start_offset = start
        snapshot = log.publish()
        for timestamp in (0, START_MS + start * 10, START_MS + source.randrange(plain.end_offset) * 10):
            found = snapshot.offset_for_timestamp(timestamp)
            assert (found and (found.offset, found.timestamp)) == plain.offset_for_timestamp(
                timestamp, plain.end_offset
            )
        largest = snapshot.max_timestamp()
        assert (largest and (largest.offset, largest.timestamp)) == plain.max_timestamp(plain.end_offset)
