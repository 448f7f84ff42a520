"""Ranges of a fetch, by brute force against a plain list of records."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from app.engine.reading import Read
from app.engine_local.reading.ranges import ReadRange, range_of, read_range, start_of
from app.fetch.fetched_records import read_record, read_records, read_value
from log_model.batches.batch_validation import validate_batches
from log_model.clock import ManualClock
from log_model.offsets import Offset
from rollway.records import Codec, Record, columns_from_records, encode_batch, split_batches
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import AppendRequest, PartitionLog
from storage.manager.log_manager import LogManager
from tests.crash.simulated_disk import SMALL_INDEXES, SimulatedDisk
from tests.support.writers import DATA


class Stored(NamedTuple):
    offset: int
    timestamp: int
    value: bytes


class Library(NamedTuple):
    """A log of many small segments, batches of many sizes and codecs, one gap, and what is in it."""

    log: PartitionLog
    records: list[Stored]

    @property
    def snapshot(self) -> LogSnapshot:
        return self.log.snapshot


@pytest.fixture(scope="module")
def library() -> Iterator[Library]:
    source = random.Random(20_240_607)
    clock = ManualClock(1_000_000)
    disk = SimulatedDisk(clock)
    disk.make_directory(DATA)
    manager = LogManager.open(DATA, file_system=disk, clock=clock, topic_defaults=SMALL_INDEXES)
    config = {"segment.bytes": 4000, "index.interval.bytes": 200, "message.timestamp.after.max.ms": 10**9}
    log = manager.create_topic("t", 1, config)[0].partitions[0]
    stored: list[Stored] = []
    for number in range(150):
        if number == 70:
            log.truncate_to(stored[-1].offset)
            stored = [record for record in stored if record.offset < log.written_end_offset]
            last = split_batches(b"".join(piece.read() for piece in log.snapshot.read(Offset(0), 10**6).slices))[-1]
            stored = [record for record in stored if record.offset <= last.header.last_offset]
        first = log.written_end_offset
        rows = [
            Stored(first + place, source.randrange(1_000_000, 1_010_000), source.randbytes(source.randrange(60)))
            for place in range(source.randrange(1, 12))
        ]
        batch = encode_batch(
            columns_from_records([Record(0, row.timestamp, None, row.value) for row in rows]),
            codec=source.choice(list(Codec)),
        )
        log.append([AppendRequest(tuple(validate_batches(bytearray(batch), log.config, clock.now_ms())))])
        log.flush()
        log.publish()
        stored += rows
    assert len(log.snapshot.segments) > 5
    assert stored[-1].offset + 1 > len(stored)
    yield Library(log, stored)
    manager.close()


def numbers(source: random.Random, library: Library) -> int:
    return source.randrange(0, library.snapshot.high_watermark + 1)


def test_json_answers_are_exactly_the_records_of_the_range(library: Library) -> None:
    """Spec B5, B6, D13, D14."""
    source = random.Random(1)
    snapshot = library.snapshot
    for _ in range(600):
        start = numbers(source, library)
        end = source.choice([None, numbers(source, library), start + source.randrange(20)])
        max_records = source.choice([None, None, source.randrange(1, 30)])
        request = Read(
            offset=start, end_offset=end, max_records=max_records, max_bytes=source.choice([1, 500, 3000, 10**6])
        )
        outcome = read_range(snapshot, request, start_of(snapshot, request))
        read = read_records(outcome, encoding="base64", partition=0)
        limit = min(bound for bound in (end, start + (max_records or 10**9), 10**9) if bound is not None)
        expected = [record for record in library.records if start <= record.offset < max(limit, start)]
        got = [(document.offset, document.timestamp, document.value_base64) for document in read.documents]
        assert got == [tuple(record) for record in expected[: len(got)]]
        assert len(got) <= (max_records or len(got))
        if request.max_bytes == 10**6:
            assert len(got) == len(expected)
        if len(got) < len(expected):
            assert read.next_offset <= expected[len(got)].offset
            assert got or read.next_offset > start
        assert read.next_offset >= start


def test_going_on_at_next_offset_reads_everything_once(library: Library) -> None:
    snapshot = library.snapshot
    for max_bytes, max_records in ((1, None), (700, None), (10**6, 7), (700, 1)):
        place, found = 0, []
        while place < snapshot.high_watermark:
            request = Read(offset=place, max_bytes=max_bytes, max_records=max_records)
            read = read_records(read_range(snapshot, request, Offset(place)), encoding="base64", partition=0)
            assert read.next_offset > place
            found += [document.offset for document in read.documents]
            place = read.next_offset
        assert found == [record.offset for record in library.records]


def test_raw_answers_are_whole_batches_and_end_with_the_range(library: Library) -> None:
    source = random.Random(2)
    snapshot = library.snapshot
    for _ in range(400):
        start = numbers(source, library)
        end = source.choice([None, numbers(source, library), start + source.randrange(20)])
        request = Read(offset=start, end_offset=end, max_bytes=source.choice([1, 800, 10**6]))
        data = read_range(snapshot, request, Offset(start)).data
        batches = split_batches(b"".join(piece.read() for piece in data.slices))
        if not batches:
            assert data.next_offset >= start
            continue
        assert batches[0].header.last_offset >= start
        assert data.next_offset == batches[-1].header.next_offset
        if end is not None:
            assert batches[-1].header.base_offset < max(end, start + 1)
        if request.max_bytes == 10**6:
            covered = [
                record.offset for record in library.records if start <= record.offset < (10**9 if end is None else end)
            ]
            assert not covered or batches[-1].header.last_offset >= covered[-1]


def test_starts_and_ends_by_time(library: Library) -> None:
    """Spec ListOffsets, with timestamps in any order."""
    source = random.Random(3)
    snapshot = library.snapshot
    for _ in range(300):
        timestamp, until = source.randrange(999_990, 1_010_010), source.randrange(999_990, 1_010_010)
        after = [record.offset for record in library.records if record.timestamp >= timestamp]
        start = start_of(snapshot, Read(timestamp=timestamp))
        assert start == (after[0] if after else snapshot.high_watermark)
        closing = [record.offset for record in library.records if record.timestamp >= until]
        wanted = range_of(snapshot, Read(timestamp=timestamp, until=until), start)
        assert wanted.end == (max(start, closing[0]) if closing else None)
    for tail in (0, 1, 5, 10**6):
        assert start_of(snapshot, Read(tail=tail)) == max(0, snapshot.high_watermark - tail)


def test_single_records_and_values(library: Library) -> None:
    snapshot = library.snapshot
    known = {record.offset: record for record in library.records}
    for offset in range(snapshot.high_watermark):
        request = Read(offset=offset, end_offset=offset + 1, max_records=1, max_bytes=0)
        outcome = read_range(snapshot, request, Offset(offset))
        found = read_record(outcome, encoding="base64", partition=3)
        value = read_value(outcome)
        if offset not in known:
            assert found is None
            assert value is None
            continue
        assert found is not None
        record = json.loads(found)
        assert (record["offset"], record["timestamp"], record["partition"]) == (*known[offset][:2], 3)
        assert base64.b64decode(record["value_base64"]) == known[offset].value
        assert value == (known[offset].value, known[offset].timestamp)


def test_an_end_beyond_what_is_visible_leaves_the_range_open(library: Library) -> None:
    snapshot = library.snapshot
    end = snapshot.high_watermark
    assert range_of(snapshot, Read(offset=0, end_offset=end), Offset(0)) == ReadRange(Offset(0), end)
    assert range_of(snapshot, Read(offset=0, end_offset=end + 1), Offset(0)).end is None
    assert range_of(snapshot, Read(offset=5, end_offset=2), Offset(5)) == ReadRange(Offset(5), Offset(5))
