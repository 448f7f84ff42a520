"""Splits of any log have every offset exactly once and begin and end between batches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log_model.batches.batch_validation import validate_batches
from log_model.clock import ManualClock
from log_model.offsets import Offset
from log_model.reads import Isolation
from log_model.splits import TooManySplitsError, split_counts
from log_model.transactions import TransactionMarker
from rollway.records import split_batches
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import AppendRequest, PartitionLog
from storage.log.splits import SplittableRange
from storage.manager.log_manager import LogManager
from tests.crash.simulated_disk import SMALL_INDEXES, SimulatedDisk
from tests.model.plain_log import client_batch
from tests.support.transactions import TIMESTAMP, ProducerIdentity, valid_transactional

EVERYTHING = 1 << 30


@dataclass
class Made:
    """A log, and what a plain list says of its batches: base offset, last offset, bytes."""

    log: PartitionLog
    batches: list[tuple[int, int, int]]

    @property
    def snapshot(self) -> LogSnapshot:
        return self.log.snapshot

    def batches_of(self, start: int, end: int) -> list[tuple[int, int, int]]:
        return [batch for batch in self.batches if batch[1] >= start and batch[0] < end]


def make(directory: Path, seed: int) -> tuple[LogManager, Made]:
    """Segments of a few batches of 1 to 12 records, transactions that are open or ended, and a raised log start."""
    clock = ManualClock(TIMESTAMP)
    disk = SimulatedDisk(clock)
    disk.make_directory(directory)
    manager = LogManager.open(directory, file_system=disk, clock=clock, topic_defaults=SMALL_INDEXES)
    config = {
        "segment.bytes": 3000,
        "index.interval.bytes": 300,
        "flush.policy": "interval",
        "segment.index.bytes": 240,
    }
    log = manager.create_topic("t", 1, config)[0].partitions[0]
    source = random.Random(seed)
    open_since: dict[int, int] = {}
    for number in range(source.choice((0, 1, 5, 60))):
        kind = source.random()
        if kind < 0.15:
            producer = ProducerIdentity(source.randrange(3), 0)
            sequence = open_since.get(producer.producer_id, 0)
            values = [b"x" * source.choice((0, 100))] * source.randint(1, 5)
            log.append([AppendRequest(valid_transactional(log, producer, sequence, *values))])
            open_since[producer.producer_id] = sequence + len(values)
        elif kind < 0.3 and open_since:
            producer_id = source.choice(sorted(open_since))
            marker = TransactionMarker(producer_id, 0, 0, commit=source.random() < 0.5)
            log.append([AppendRequest.marker(marker)])
        else:
            timestamps = [TIMESTAMP + number] * source.randint(1, 12)
            batch = client_batch(timestamps, source.choice((0, 30, 150)), number)
            log.append([AppendRequest(tuple(validate_batches(batch.sent, log.config, TIMESTAMP)))])
    log.flush()
    log.publish()
    if source.random() < 0.3:
        log.delete_records(Offset(source.randint(0, log.snapshot.high_watermark)))
        log.publish()
    read = log.snapshot.read(log.snapshot.log_start_offset, EVERYTHING, isolation=Isolation.LOG_END)
    headers = [batch.header for batch in split_batches(b"".join(piece.read() for piece in read.slices))]
    return manager, Made(log, [(each.base_offset, each.last_offset, each.size_bytes) for each in headers])


@pytest.fixture(scope="module")
def logs() -> Iterator[list[Made]]:
    made = [make(Path("/data"), seed) for seed in range(60)]
    yield [each for _, each in made]
    for manager, _ in made:
        manager.close()


@settings(max_examples=1_500, deadline=None)
@given(data=st.data())
def test_every_offset_lies_in_exactly_one_split(logs: list[Made], data: st.DataObject) -> None:
    made = data.draw(st.sampled_from(logs))
    snapshot = made.snapshot
    isolation = data.draw(st.sampled_from((Isolation.HIGH_WATERMARK, Isolation.LAST_STABLE)))
    low, high = snapshot.log_start_offset, snapshot.bound(isolation).offset
    start = data.draw(st.one_of(st.just(low), st.integers(low, high)))
    end = data.draw(st.one_of(st.just(high), st.integers(start, high)))
    count = data.draw(st.integers(1, 40))
    record_count_max = data.draw(st.one_of(st.none(), st.integers(1, 60)))
    found = SplittableRange(snapshot, start, end, isolation)
    splits = found.split(count, record_count_max)
    batches = made.batches_of(start, end) if start < end else []
    total = sum(size for _, _, size in batches)
    assert found.size_bytes == total
    if start == end:
        assert splits == []
        return
    assert (splits[0].start, splits[-1].end) == (start, end)
    assert all(a.end == b.start for a, b in pairwise(splits))
    bases = {base for base, _, _ in batches}
    assert all(split.start in bases for split in splits[1:])
    largest = max(size for _, _, size in batches)
    for split in splits:
        own = made.batches_of(split.start, split.end)
        assert split.start < split.end
        assert own, "a split without a batch"
        assert split.size_bytes == sum(size for _, _, size in own)
        assert split.size_bytes <= total / count + largest
        if record_count_max is not None:
            assert split.end - split.start <= record_count_max or len(own) == 1
    if record_count_max is None:
        assert len(splits) <= count


def test_splits_are_as_many_as_asked_for_where_batches_are_small(logs: list[Made]) -> None:
    made = max(logs, key=lambda each: len(each.batches))
    found = SplittableRange(made.snapshot, made.snapshot.log_start_offset, made.snapshot.high_watermark)
    assert len(found.split(4)) == 4
    assert len(found.split(10_000)) == len(made.batches)


def test_too_many_splits_are_refused(logs: list[Made]) -> None:
    made = max(logs, key=lambda each: len(each.batches))
    found = SplittableRange(made.snapshot, made.snapshot.log_start_offset, made.snapshot.high_watermark)
    with pytest.raises(TooManySplitsError):
        found.split(1, 1, count_max=5)


@given(st.lists(st.integers(0, 10_000), max_size=30), st.integers(1, 100))
def test_counts_follow_the_bytes(sizes: list[int], count: int) -> None:
    counts = split_counts(sizes, count)
    filled = sum(1 for size in sizes if size)
    assert [bool(each) for each in counts] == [bool(size) for size in sizes]
    assert sum(counts) == (max(count, filled) if filled else 0)
    if sizes and filled <= count:
        total = sum(sizes)
        assert all(each <= count * size / total + 1 for each, size in zip(counts, sizes, strict=True) if size)
