"""Cases IX: the indexes as files beside their log, made with it, lost, garbled and made again."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from log_model.offsets import Offset
from rollway.records import split_batches
from tests.cases.logs import START_MS, CaseLog, assert_whole, batch_of, sized_batch
from tests.support.recording_file_system import RecordingFileSystem

NewLog = Callable[..., CaseLog]


def test_ix_1_sparse_positions(new_log: NewLog) -> None:
    """Spec C6: strictly more than the interval since the last entry; the entry is (last offset, position) of the
    batch that comes then."""
    log = new_log({"index.interval.bytes": 4096})
    for number in range(100):
        log.send(sized_batch(1000, timestamp=START_MS + number))
    entries = log.offset_entries()
    assert [position for _, position in entries] == list(range(5000, 100_000, 5000))
    assert len(entries) == 19
    content = log.file().read_bytes()
    for offset, position in entries:
        (batch,) = split_batches(content[position : position + 1000])
        assert batch.header.last_offset == offset
    assert log.time_entries() == [(START_MS + offset, offset) for offset, _ in entries]


def test_ix_1_the_entry_is_the_last_offset_of_the_batch(new_log: NewLog) -> None:
    """Spec C6: Kafka's newest rule, per batch and by its last offset, not its first."""
    log = new_log({"index.interval.bytes": 0})
    for count in (3, 1, 5, 2):
        log.send(batch_of(count))
    headers = log.headers()
    positions = [0]
    for header in headers:
        positions.append(positions[-1] + header.size_bytes)
    assert log.offset_entries() == [(3, positions[1]), (8, positions[2]), (10, positions[3])]


def test_c6_out_of_order_timestamps_rise_in_the_file(new_log: NewLog) -> None:
    """Spec C6, C8: the greatest timestamp so far, and the last offset of the earliest batch that has it."""
    log = new_log({"index.interval.bytes": 0})
    for timestamps in ([100], [300, 200], [250], [300], [50], [400, 400], [400]):
        log.send(batch_of(timestamps=timestamps))
    assert log.time_entries() == [(300, 2), (400, 7)]
    log.roll()
    assert log.time_entries() == [(300, 2), (400, 7)]
    log.send(batch_of(timestamps=[10]))
    log.send(batch_of(timestamps=[5]))
    log.roll()
    assert log.time_entries(9) == [(10, 9)]


def test_c6_rebuilt_indexes_are_identical(new_log: NewLog) -> None:
    """Spec C6: recovery goes by the same rule, so the files are the same to the byte."""
    log = new_log({"index.interval.bytes": 700, "segment.bytes": 20_000})
    source = random.Random(6)
    for _ in range(150):
        log.send(sized_batch(source.randint(100, 1500), timestamp=START_MS + source.randint(-1000, 1000)))
    log.roll()
    names = log.file_names(".index", ".timeindex")
    assert len(names) > 8
    before = {name: (log.directory / name).read_bytes() for name in names}
    log.stop()
    for name in names:
        (log.directory / name).unlink()
    log.start()
    for segment in log.snapshot.segments:
        segment.offset_index.get()
        segment.time_index.get()
    sealed = [name for name in names if int(name[:20]) in log.base_offsets[:-1]]
    for name in sealed:
        assert (log.directory / name).read_bytes() == before[name], name
    assert_whole(log)


def test_c2_lengths_while_active_and_after(new_log: NewLog) -> None:
    """Spec C2: preallocated to whole entries while active, cut to their entries by roll and clean stop, grown again
    when the segment is appended to after a restart."""
    log = new_log({"index.interval.bytes": 0, "segment.index.bytes": 10_485_760})
    log.fill(6)
    assert log.file(0, ".index").stat().st_size == 10_485_760
    assert log.file(0, ".timeindex").stat().st_size == 10_485_756
    assert log.file(0, ".index").read_bytes()[40:].count(0) == 10_485_760 - 40
    log.roll()
    assert log.file(0, ".index").stat().st_size == 8 * 5
    assert log.file(0, ".timeindex").stat().st_size == 12 * 1
    log.send(batch_of(timestamps=[START_MS]))
    log.send(batch_of(timestamps=[START_MS + 1]))
    log.stop()
    assert log.file(6, ".index").stat().st_size == 8 * 1
    assert log.file(6, ".timeindex").stat().st_size == 12 * 1
    log.start()
    log.send(batch_of(timestamps=[START_MS + 2]))
    assert log.file(6, ".index").stat().st_size == 10_485_760
    assert log.file(6, ".timeindex").stat().st_size == 10_485_756


def test_a19_relative_offsets(new_log: NewLog) -> None:
    """Spec A19, C5: base 50: offset 55 is 5, 56 is 6, each an i32 before the position."""
    log = new_log({"index.interval.bytes": 0})
    log.partition.truncate_fully_and_start_at(50)
    log.send(batch_of(5))
    log.send(batch_of(1))
    log.send(batch_of(1))
    positions = [header.size_bytes for header in log.headers()]
    log.roll()
    assert log.file(50, ".index").read_bytes() == struct.pack(">iiii", 5, positions[0], 6, positions[0] + positions[1])
    assert log.file(50, ".timeindex").read_bytes() == struct.pack(">qi", START_MS + 4, 4)


def _damage(name: str, content: bytes, entry_bytes: int) -> bytes:
    """A file that Kafka's sanity check finds wanting, and some that only ours does."""
    source = random.Random(name)
    return {
        "odd length": content + b"\x01",
        "cut inside an entry": content[:-1],
        "zeros behind": content + b"\0" * entry_bytes * 5,
        "all zeros": b"\0" * len(content),
        "random": source.randbytes(len(content)),
        "last entry first": content[-entry_bytes:] + content[entry_bytes:-entry_bytes] + content[:entry_bytes],
        "last offset below the base": content[:-4] + struct.pack(">i", -7)
        if entry_bytes == 12
        else content[:-8] + struct.pack(">i", -7) + content[-4:],
    }[name]


DAMAGES = (
    "odd length",
    "cut inside an entry",
    "zeros behind",
    "all zeros",
    "random",
    "last entry first",
    "last offset below the base",
)


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_ix_8_insane_index_files_are_rebuilt(new_log: NewLog, suffix: str, name: str) -> None:
    """After a clean stop nothing is scanned, so the check waits for the first look; the log is never touched."""
    log = new_log({"index.interval.bytes": 200, "segment.bytes": 3000})
    for number in range(70):
        log.send(batch_of(timestamps=[START_MS + number * 10]))
    log.stop()
    sealed, active = log.base_offsets[0], log.base_offsets[-1]
    logs = log.log_files()
    good = {base: log.file(base, suffix).read_bytes() for base in (sealed, active)}
    for base, content in good.items():
        assert len(content) > 3 * (8 if suffix == ".index" else 12)
        log.file(base, suffix).write_bytes(_damage(name, content, 8 if suffix == ".index" else 12))
    log.start()
    assert log.recovery.scanned_bytes == 0
    assert_lookups_right(log, 70)
    assert log.log_files() == logs
    assert log.file(sealed, suffix).read_bytes() == good[sealed]
    assert log.file(active, suffix).read_bytes().rstrip(b"\0").startswith(good[active].rstrip(b"\0"))


def assert_lookups_right(log: CaseLog, record_count: int) -> None:
    """Every offset and timestamp of a log whose record n, alone in its batch, has the timestamp START_MS + 10 n."""
    for offset in range(record_count):
        fetched = log.snapshot.read(Offset(offset), 1)
        (batch,) = split_batches(fetched.slices[0].read())
        assert batch.header.base_offset == offset
        for timestamp in (START_MS + offset * 10, START_MS + offset * 10 - 9):
            found = log.snapshot.offset_for_timestamp(timestamp)
            assert found is not None
            assert (found.offset, found.timestamp) == (offset, START_MS + offset * 10)
    assert log.snapshot.offset_for_timestamp(START_MS + record_count * 10 - 9) is None


def test_ix_10_full_length_again_after_truncation(new_log: NewLog) -> None:
    """Ten messages, interval 1: nine entries; half go, the files are as long as before, and appends go on."""
    log = new_log({"index.interval.bytes": 1, "segment.index.bytes": 1200})
    for number in range(10):
        log.send(batch_of(timestamps=[START_MS + number]))
    assert len(log.offset_entries()) == len(log.time_entries()) == 9
    log.truncate(5)
    index = log.snapshot.segments[-1].offset_index.get()
    time_index = log.snapshot.segments[-1].time_index.get()
    assert (index.entry_count, time_index.entry_count) == (4, 4)
    assert log.file(0, ".index").stat().st_size == log.file(0, ".timeindex").stat().st_size == 1200
    for number in range(10):
        log.send(batch_of(timestamps=[START_MS + 100 + number]))
    # The counter starts anew, so the first batch after the cut has no entry (spec C6).
    assert [offset for offset, _ in log.offset_entries()] == [1, 2, 3, 4, *range(6, 15)]
    assert_whole(log)


def test_ix_10_a_sealed_segment_that_becomes_active_again(new_log: NewLog) -> None:
    """Truncation into an older segment: its trimmed index files grow to full length."""
    log = new_log({"index.interval.bytes": 1, "segment.index.bytes": 1200})
    for number in range(5):
        log.send(batch_of(timestamps=[START_MS + number]))
    log.roll()
    log.fill(5)
    assert log.file(0, ".index").stat().st_size == 32
    log.truncate(3)
    assert log.file(0, ".index").stat().st_size == log.file(0, ".timeindex").stat().st_size == 1200
    assert log.time_entries() == [(START_MS + 1, 1), (START_MS + 2, 2)]
    for number in range(5):
        log.send(batch_of(timestamps=[START_MS + 100 + number]))
    assert log.offsets() == list(range(8))
    assert_whole(log)
    log.restart(clean=True)
    assert_whole(log)


def open_indexes(directory: Path) -> list[str]:
    """Index files of a directory that this process has open or mapped."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    opened = [str(link.readlink()) for link in links if link.is_symlink()]
    mapped = Path("/proc/self/maps").read_text().splitlines()
    return sorted(
        {line.rsplit("/", 1)[1] for line in (*opened, *mapped) if str(directory) in line and line.endswith("index")}
    )


@pytest.mark.parametrize("by", ["log start", "age", "size"])
def test_ix_11_deleting_unread_segments_maps_nothing(tmp_path: Path, by: str) -> None:
    """Spec C4: renaming and unlinking segments that nobody has read touches no index of theirs."""
    disk = RecordingFileSystem()
    log = CaseLog(tmp_path / "data", {"segment.bytes": 500, "index.interval.bytes": 0}, file_system=disk)
    for number in range(60):
        log.send(batch_of(timestamps=[START_MS + number]))
    segment_count = len(log.base_offsets)
    assert segment_count >= 10
    log.restart(clean=True)
    assert open_indexes(log.directory) == []
    disk.operations.clear()
    match by:
        case "log start":
            log.delete_records(log.base_offsets[-1])
        case "age":
            log.configure({"retention.ms": 1000})
            log.clock.advance(2000)
        case "size":
            log.configure({"retention.bytes": 500})
    assert len(log.run_retention()) >= segment_count - 3
    log.clock.advance(60_000)
    assert log.manager.delete_due_files() > 0
    gone = {name for operation, name in disk.operations if operation == "unlink"}
    assert len(gone) > segment_count
    assert {int(name[:20]) for name in open_indexes(log.directory)} <= {log.base_offsets[-1]}
    ever_opened = {int(name[:20]) for operation, name in disk.operations if operation == "open" and "index" in name}
    # How old a segment is stands in its time index, which is then asked and let go.
    assert by == "age" or all(base_offset >= log.base_offsets[0] for base_offset in ever_opened)
    log.kill()


def test_c4_opening_maps_no_index(new_log: NewLog) -> None:
    """Spec C4: after a clean stop a start maps nothing; a read maps what it needs."""
    log = new_log({"segment.bytes": 300, "index.interval.bytes": 0})
    log.fill(60)
    log.restart(clean=True)
    assert open_indexes(log.directory) == []
    log.read(30, max_bytes=1)
    # What was read needs no file.
    assert open_indexes(log.directory) == []
    assert sum(segment.offset_index.is_open for segment in log.snapshot.segments) == 1
    assert not any(segment.time_index.is_open for segment in log.snapshot.segments)
