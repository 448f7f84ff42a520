"""Cases F: what a fetch gives, where it ends, and what is found by time."""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from log_model.errors import CorruptionError, OffsetOutOfRangeError
from log_model.offsets import LogOffsetMetadata, Offset, Position
from log_model.reads import FileSlice, Isolation
from rollway.records import split_batches
from tests.cases.logs import EVERYTHING, START_MS, TOPIC, CaseLog, batch_of, kafka_code_of, raw_record, sized_batch
from tests.support.kafka_directory import NOON_MS, KafkaDirectory, Segment, batch, emptied, with_crc

NewLog = Callable[..., CaseLog]


def assert_out_of_range(log: CaseLog, offset: int) -> None:
    """Code 1, with the ends that can be asked for."""
    for isolation in Isolation:
        with pytest.raises(OffsetOutOfRangeError) as raised:
            log.read(offset, isolation)
        assert kafka_code_of(raised.value) == 1
        assert raised.value.offset == offset
        assert raised.value.log_start_offset == log.snapshot.log_start_offset
        assert raised.value.log_end_offset == log.end_offset


def test_f_1_boundaries(new_log: NewLog) -> None:
    """At the log end a fetch is empty; above it, below the log start and below zero it is out of range."""
    log = new_log()
    log.partition.truncate_fully_and_start_at(1024)
    log.send(batch_of())
    assert (log.snapshot.log_start_offset, log.end_offset) == (1024, 1025)
    assert log.offsets(1024) == [1024]
    assert log.read(1025) == b""
    assert log.snapshot.read(Offset(1025), EVERYTHING).next_offset == 1025
    for offset in (1026, 2**40, 2**63 - 1, 1023, 0, -1, -2, -(2**63)):
        assert_out_of_range(log, offset)


def test_b8_out_of_range_after_retention(new_log: NewLog) -> None:
    """Spec B8: what was deleted is out of range, and the log start that the error names can be read."""
    log = new_log({"segment.bytes": 200, "retention.bytes": 300})
    log.fill(10)
    assert log.run_retention()
    assert_out_of_range(log, 0)
    start = log.snapshot.log_start_offset
    assert start > 0
    assert log.offsets(start) == list(range(start, 10))


def test_b7_right_now(new_log: NewLog) -> None:
    """Spec B7: who begins at the latest offset sees exactly what comes after; the earliest is the log start."""
    log = new_log()
    log.fill(5)
    latest, earliest = log.snapshot.high_watermark, log.snapshot.log_start_offset
    assert log.read(latest) == b""
    log.send(batch_of(value=b"new"))
    assert [record.value for record in log.records(latest)] == [b"new"]
    assert log.offsets(earliest) == list(range(6))


def test_f_7_high_watermark_bound(new_log: NewLog) -> None:
    """Log end 10, high watermark 5: consumers get 0 to 4, a copy gets all; between the two there is nothing yet."""
    log = new_log({"flush.policy": "group"})
    log.fill(5)
    log.flush()
    log.fill(5)
    assert (log.snapshot.high_watermark, log.end_offset) == (5, 10)
    assert log.offsets() == list(range(5))
    assert log.offsets(isolation=Isolation.LOG_END) == list(range(10))
    for offset in (5, 7, 10):
        assert log.read(offset) == b""
        assert log.snapshot.available_bytes(Offset(offset)) == 0
    assert log.offsets(7, Isolation.LOG_END) == [7, 8, 9]
    assert_out_of_range(log, 11)
    log.flush()
    assert log.offsets(7) == [7, 8, 9]


def test_f_7_lookups_by_time_end_there_too(new_log: NewLog) -> None:
    """Spec ListOffsets: a hit at or beyond the visible end is no hit."""
    log = new_log({"flush.policy": "group"})
    for timestamp in (100, 200):
        log.send(batch_of(timestamps=[timestamp]))
    log.flush()
    for timestamp in (300, 400):
        log.send(batch_of(timestamps=[timestamp]))
    snapshot = log.snapshot
    assert snapshot.offset_for_timestamp(250) is None
    assert snapshot.max_timestamp().timestamp == 200
    assert snapshot.offset_for_timestamp(250, Isolation.LOG_END).offset == 2
    assert snapshot.max_timestamp(Isolation.LOG_END).offset == 3


def test_f_8_high_watermark_on_an_earlier_segment(new_log: NewLog) -> None:
    """No byte past it and no hang, whichever batch boundary it is; one copy moves it up with every roll, several
    copies need not, so snapshots are made by hand here."""
    log = new_log()
    for base_offset in (0, 3, 6):
        for _ in range(3):
            log.send(batch_of(timestamps=[START_MS + base_offset]))
        if base_offset < 6:
            log.roll()
    size_bytes = len(batch_of())
    for visible in range(10):
        base_offset = min(visible // 3 * 3, 6)
        places = [
            LogOffsetMetadata(Offset(visible), Offset(base_offset), Position((visible - base_offset) * size_bytes))
        ]
        if 0 < visible < 9 and visible % 3 == 0:
            # The same offset is also the end of the segment before.
            places.append(LogOffsetMetadata(Offset(visible), Offset(visible - 3), Position(3 * size_bytes)))
        for place in places:
            snapshot = replace(log.snapshot, last_stable_metadata=place, high_watermark_metadata=place)
            for offset in range(10):
                fetched = snapshot.read(Offset(offset), EVERYTHING)
                headers = [one.header for piece in fetched.slices for one in split_batches(piece.read())]
                assert [header.base_offset for header in headers] == list(range(offset, visible))
                assert fetched.next_offset == max(offset, visible)
                assert snapshot.available_bytes(Offset(offset)) == max(0, visible - offset) * size_bytes


@pytest.mark.parametrize("per_batch", [1, 3, 7])
@pytest.mark.parametrize("per_segment", [1, 2, 7])
def test_f_11_max_timestamp(new_log: NewLog, per_batch: int, per_segment: int) -> None:
    """Timestamps 0,1,2,3,4,6,5: the largest is 6 at offset 5; an empty log has none."""
    log = new_log({"index.interval.bytes": 0})
    timestamps = [0, 1, 2, 3, 4, 6, 5]
    batches = [timestamps[place : place + per_batch] for place in range(0, 7, per_batch)]
    for number, part in enumerate(batches):
        if number and number % per_segment == 0:
            log.roll()
        log.send(batch_of(timestamps=part))
    for step in (None, True, False):
        if step is not None:
            log.restart(clean=step)
        found = log.snapshot.max_timestamp()
        assert (found.timestamp, found.offset, found.leader_epoch) == (6, 5, 0)
    log.truncate(0)
    assert log.snapshot.max_timestamp() is None
    assert log.snapshot.offset_for_timestamp(0) is None


def test_f_11_the_first_of_equal_ones(new_log: NewLog) -> None:
    """Spec ListOffsets: the first record with the largest timestamp, also when segments share it."""
    log = new_log()
    for timestamps in ([5, 9, 9], [9], [2]):
        log.send(batch_of(timestamps=timestamps))
        log.roll()
    assert log.snapshot.max_timestamp().offset == 1
    log.delete_records(2)
    assert log.snapshot.max_timestamp().offset == 2
    log.delete_records(4)
    assert (log.snapshot.max_timestamp().offset, log.snapshot.max_timestamp().timestamp) == (4, 2)


@pytest.mark.parametrize("per_batch", [1, 3, 10])
@pytest.mark.parametrize("interval", [0, 150, 4096])
def test_f_13_timestamp_lookup(new_log: NewLog, per_batch: int, interval: int) -> None:
    """Offsets 40 to 49, each ten times as late: the first record at or after the time asked for."""
    log = new_log({"index.interval.bytes": interval})
    log.partition.truncate_fully_and_start_at(40)
    for first in range(40, 50, per_batch):
        log.send(batch_of(timestamps=[offset * 10 for offset in range(first, min(first + per_batch, 50))]))
    for clean in (None, True, False):
        if clean is not None:
            log.roll()
            log.restart(clean=clean)
        answers = {420: 42, 421: 43, 431: 44, 491: None, 399: 40, 490: 49, 0: 40}
        for timestamp, offset in answers.items():
            found = log.snapshot.offset_for_timestamp(timestamp)
            assert (found and found.offset) == offset
            assert found is None or found.timestamp == offset * 10


def test_f_13_records_below_the_log_start_are_not_found(new_log: NewLog) -> None:
    """Spec ListOffsets: a hit lies at or above the log start, also inside the batch that it cuts."""
    log = new_log({"index.interval.bytes": 0})
    log.send(batch_of(timestamps=[10, 50, 20, 30]))
    log.send(batch_of(timestamps=[40]))
    log.delete_records(2)
    assert [log.snapshot.offset_for_timestamp(timestamp).offset for timestamp in (0, 15, 25, 35)] == [2, 2, 3, 4]
    assert log.snapshot.offset_for_timestamp(45) is None
    assert log.snapshot.max_timestamp().offset == 4


def log_of_batches(tmp_path: Path, *segments: list[bytes]) -> CaseLog:
    """A compacted log of hand-made segments."""
    directory = KafkaDirectory(tmp_path / "compacted")
    directory.configure(TOPIC, {"cleanup.policy": "compact", "flush.policy": "interval"})
    directory.add_partition(f"{TOPIC}-0", [Segment(batches) for batches in segments])
    return CaseLog(directory.path)


@pytest.mark.parametrize("rolls", [False, True])
def test_x_9_an_emptied_batch_has_the_largest_timestamp(tmp_path: Path, rolls: bool) -> None:
    """61 bytes, no record: the largest is that of the records that are left, in whichever segment."""
    gone = emptied(batch(2, 2, timestamp=NOON_MS + 90_000, producer_id=7, producer_epoch=0, base_sequence=2))
    batches = [batch(0, 2), gone, batch(4, 1, timestamp=NOON_MS + 500), batch(5, 1, timestamp=9)]
    log = log_of_batches(tmp_path, *([[one] for one in batches] if rolls else [batches]))
    for clean in (True, False):
        found = log.snapshot.max_timestamp()
        assert found is not None
        assert (found.offset, found.timestamp) == (1, NOON_MS + 1000)
        assert log.snapshot.offset_for_timestamp(NOON_MS + 1001) is None
        assert log.snapshot.offset_for_timestamp(NOON_MS + 1).offset == 1
        assert log.offsets() == [0, 1, 4, 5]
        assert all(info.first_timestamp != -1 or rolls for info in log.snapshot.segment_infos())
        log.restart(clean=clean)
    log.kill()


def test_x_9_nothing_but_emptied_batches(tmp_path: Path) -> None:
    gone = [emptied(batch(base, 2, producer_id=7, producer_epoch=0, base_sequence=base)) for base in (0, 2)]
    log = log_of_batches(tmp_path, gone)
    assert log.snapshot.max_timestamp() is None
    assert log.snapshot.offset_for_timestamp(0) is None
    assert [info.first_timestamp for info in log.snapshot.segment_infos()] == [-1]
    log.kill()


def test_x_9_a_batch_may_claim_more_than_it_has(tmp_path: Path) -> None:
    """The largest record is found though the headers of other batches name larger timestamps, or the same."""
    claims = [(5, 9), (7, 8), (7, 7), (8, 6), (8, 8), (4, 10)]
    batches = [
        with_crc(data[:35] + struct.pack(">q", claimed) + data[43:])
        for offset, (timestamp, claimed) in enumerate(claims)
        for data in [batch(offset, 1, timestamp=timestamp)]
    ]
    log = log_of_batches(tmp_path, batches)
    found = log.snapshot.max_timestamp()
    assert found is not None
    # What claims less than it has is looked at only where it might be the largest.
    assert (found.offset, found.timestamp) == (4, 8)
    log.kill()


def test_first_timestamp_of_a_batch_with_a_delete_horizon(tmp_path: Path) -> None:
    """The base timestamp is the horizon then, and the deltas count from it."""
    data = batch(0, 2)
    horizon = NOON_MS + 86_400_000
    records = raw_record(0, timestamp_delta=-86_400_000) + raw_record(1, timestamp_delta=-86_399_000)
    held = data[:21] + struct.pack(">hiqq", 0x40, 1, horizon, NOON_MS + 1000) + data[43:61] + records
    log = log_of_batches(tmp_path, [with_crc(held[:8] + struct.pack(">i", len(held) - 12) + held[12:])])
    assert [info.first_timestamp for info in log.snapshot.segment_infos()] == [NOON_MS]
    assert log.snapshot.max_timestamp().timestamp == NOON_MS + 1000
    log.kill()


def test_f_14b_the_largest_lies_beyond_the_last_stable_offset(new_log: NewLog) -> None:
    """A broker answers none then, never a smaller one; with the marker it is visible."""
    log = new_log()
    log.send(batch_of(timestamps=[START_MS, START_MS + 5]))
    open_one = batch_of(timestamps=[START_MS + 9], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    log.send(open_one)
    log.send(batch_of(timestamps=[START_MS + 3]))
    assert log.snapshot.last_stable_offset == 2
    assert log.snapshot.max_timestamp(Isolation.LAST_STABLE) is None
    assert log.snapshot.max_timestamp().offset == log.snapshot.max_timestamp(Isolation.LOG_END).offset == 2
    assert log.snapshot.offset_for_timestamp(START_MS + 5, Isolation.LAST_STABLE).offset == 1
    log.end_transaction(7, commit=True)
    assert log.snapshot.max_timestamp(Isolation.LAST_STABLE).offset == 2


def test_f_14b_the_largest_lies_below_the_last_stable_offset(new_log: NewLog) -> None:
    log = new_log()
    log.send(batch_of(timestamps=[START_MS, START_MS + 50]))
    log.send(batch_of(timestamps=[START_MS], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    assert log.snapshot.max_timestamp(Isolation.LAST_STABLE).offset == 1


def test_d14_a_fetch_begins_at_a_batch(new_log: NewLog) -> None:
    """Spec D14: batch 0-9, fetch 7: the raw bytes are the whole batch, the consumer skips to 7."""
    log = new_log()
    log.send(batch_of(10))
    log.send(batch_of(2))
    assert log.read(7) == log.file().read_bytes()
    assert log.offsets(7) == [7, 8, 9, 10, 11]
    assert log.snapshot.read(Offset(7), 1).next_offset == 10


def test_d14_sizes(new_log: NewLog) -> None:
    """Spec D14: at most what was asked for, whole batches; the first comes whole unless the caller forbids it."""
    log = new_log({"segment.bytes": 1000})
    for _ in range(7):
        log.send(sized_batch(300))
    snapshot = log.snapshot
    for max_bytes in (0, 1, 299, 300, 301, 599, 600, 900, 901, 1200, 2099, 2100, EVERYTHING):
        for min_one in (True, False):
            fetched = snapshot.read(Offset(0), max_bytes, min_one=min_one)
            count = max(min(max_bytes, 2100) // 300, 1 if min_one else 0)
            assert (fetched.size_bytes, fetched.next_offset) == (300 * count, count)
            assert all(piece.size_bytes % 300 == 0 for piece in fetched.slices)
    with pytest.raises(ValueError, match="-1"):
        snapshot.read(Offset(0), -1)


def test_d14_a_batch_larger_than_the_limit_comes_whole(new_log: NewLog) -> None:
    """Spec B5: the modern rule; a consumer is never stuck behind a large batch."""
    log = new_log()
    log.fill(1)
    log.send(sized_batch(100_000))
    log.fill(1)
    assert log.offsets(1) == [1, 2]
    fetched = log.snapshot.read(Offset(1), 16_384)
    assert (fetched.size_bytes, fetched.next_offset) == (100_000, 2)


def test_d15_slices_never_give_garbage(new_log: NewLog) -> None:
    """Spec D15: wrong places are errors, ends are clamped, a file that shrank is damage, not fewer bytes."""
    log = new_log()
    log.send(sized_batch(300))
    (piece,) = log.snapshot.read(Offset(0), EVERYTHING).slices
    content = piece.read()
    assert piece.read_part(290, 1000) == content[290:]
    assert piece.read_part(300, 5) == b""
    assert piece.read_part(0, 2**40) == content
    for start, length in ((-1, 5), (0, -1), (301, 1), (2**63, 1)):
        with pytest.raises(ValueError, match="not inside a slice"):
            piece.read_part(start, length)
    too_long = FileSlice(piece.file, Position(0), 301)
    with pytest.raises(CorruptionError):
        too_long.read()
    piece.file.truncate(200)
    with pytest.raises(CorruptionError):
        piece.read()
    assert piece.read_part(0, 200) == content[:200]


def compacted(tmp_path: Path, *segments: Segment) -> CaseLog:
    """A log with gaps, as a broker's compaction leaves it."""
    directory = KafkaDirectory(tmp_path)
    directory.configure(TOPIC, {"cleanup.policy": "compact", "flush.policy": "interval"})
    directory.add_partition(f"{TOPIC}-0", segments)
    last = segments[-1].batches[-1]
    end = int.from_bytes(last[:8]) + int.from_bytes(last[23:27]) + 1
    directory.checkpoint("recovery-point-offset-checkpoint", (TOPIC, 0, end))
    return CaseLog(tmp_path)


def test_a18_search_in_a_log_with_gaps(tmp_path: Path) -> None:
    """Spec A18: offsets 0, 2, 4: whoever asks for 1 gets 2; behind 4 there is nothing."""
    log = compacted(tmp_path, Segment([batch(0, 1), batch(2, 1), batch(4, 1)]))
    (segment,) = log.snapshot.segments
    expected = {0: 0, 1: 2, 2: 2, 3: 4, 4: 4}
    for target, found in expected.items():
        assert segment.locate(Offset(target), segment.size_bytes).header.base_offset == found
        assert log.offsets(target)[0] == found
    assert segment.locate(Offset(5), segment.size_bytes) is None
    assert log.read(5) == b""
    log.kill()


def test_d13_a_gap_at_the_end_of_a_segment(tmp_path: Path) -> None:
    """Spec D13: a fetch in the gap gives the first batch of the next segment that has one."""
    log = compacted(
        tmp_path, Segment([batch(0, 2), batch(4, 1)]), Segment([batch(20, 1)]), Segment([batch(30, 2), batch(40, 1)])
    )
    for clean in (None, True):
        if clean is not None:
            log.restart(clean=clean)
        for offset in range(log.end_offset + 1):
            assert log.offsets(offset) == [kept for kept in (0, 1, 4, 20, 30, 31, 40) if kept >= offset]
    assert log.snapshot.read(Offset(7), 1).next_offset == 21
    log.send(batch_of())
    assert log.offsets(35) == [40, 41]
    log.kill()


def test_b6_every_offset_is_found_in_its_segment(new_log: NewLog) -> None:
    """Spec B6, E3: the segment with the greatest base at or below the offset, then its place in the file.

    Ten thousand offsets over two hundred segments are tests/model/test_lookups.py's.
    """
    log = new_log({"segment.bytes": 700, "index.interval.bytes": 200})
    source = random.Random(6)
    for _ in range(150):
        log.send(batch_of(source.randint(1, 9)))
    holders = {offset: header for header in log.headers() for offset in range(header.base_offset, header.next_offset)}
    assert len(log.base_offsets) > 20
    for offset in range(log.end_offset):
        (piece,) = log.snapshot.read(Offset(offset), 1).slices
        assert split_batches(piece.read())[0].header == holders[offset]
        base_offset = max(base for base in log.base_offsets if base <= offset)
        assert piece.file.path == log.file(base_offset)


def test_b3_fetched_bytes_are_the_files(new_log: NewLog) -> None:
    """Spec B3: the slices of a raw fetch are pieces of the log files, in place."""
    log = new_log({"segment.bytes": 500})
    for number in range(40):
        log.send(batch_of(number % 5 + 1))
    fetched = log.snapshot.read(Offset(0), EVERYTHING)
    assert len(fetched.slices) == len(log.base_offsets)
    assert [piece.read() for piece in fetched.slices] == list(log.log_files().values())


@pytest.mark.usefixtures("eager_threads")
def test_a17_readers_beside_the_writer_see_whole_batches(new_log: NewLog) -> None:
    """Spec A17: a reader in a loop never meets a torn batch, a wrong CRC or an offset out of turn."""
    log = new_log({"segment.bytes": 20_000, "index.interval.bytes": 300})
    problems: list[str] = []
    done = threading.Event()

    def read_on() -> None:
        offset = 0
        while not (done.is_set() and offset == log.end_offset):
            fetched = log.snapshot.read(Offset(offset), 5000)
            for piece in fetched.slices:
                for one in split_batches(piece.read()):
                    one.check_crc()
                    if one.header.base_offset != offset:
                        problems.append(f"{one.header.base_offset} instead of {offset}")
                    offset = one.header.next_offset

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read_on) for _ in range(2)]
        source = random.Random(17)
        bodies = [batch_of(source.randint(1, 20), value=source.randbytes(source.randint(0, 300))) for _ in range(40)]
        try:
            for _ in range(5):
                log.send_group(*bodies)
        finally:
            done.set()
        for reader in readers:
            reader.result(60)
    assert problems == []
