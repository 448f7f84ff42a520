"""Cases R: when the active segment is sealed and another begun, and what that leaves on the disk."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from log_model.offsets import LogOffsetMetadata, Offset, Position
from rollway.records import split_batches
from storage.log_inspection import verify_directory
from storage.manager.log_manager import LogManager
from tests.cases.logs import START_MS, TOPIC, CaseLog, assert_whole, batch_of, sized_batch, with_crc
from tests.support.kafka_directory import KafkaDirectory, Segment, batch
from tests.support.recording_file_system import RecordingFileSystem

NewLog = Callable[..., CaseLog]
INT_MAX = 2**31 - 1


def test_r_1_size_roll(new_log: NewLog) -> None:
    """Spec E6 (1): what would make the segment larger than the limit goes into a new one."""
    size_bytes = len(batch_of())
    log = new_log({"segment.bytes": 10 * (size_bytes - 1)})
    log.fill(11)
    assert log.base_offsets == [0, 9]
    assert [len(content) for content in log.log_files().values()] == [9 * size_bytes, 2 * size_bytes]
    assert_whole(log)


def test_r_1_exactly_full_is_not_over(new_log: NewLog) -> None:
    log = new_log({"segment.bytes": 10 * len(batch_of())})
    log.fill(10)
    assert log.base_offsets == [0]
    log.fill(1)
    assert log.base_offsets == [0, 10]


def test_e6_roll_by_message_time_is_strict(new_log: NewLog) -> None:
    """Spec E6 (2): the wait counts from the largest timestamp of the segment's first batch, not from the clock's."""
    log = new_log({"segment.ms": 1000})
    log.send(batch_of(timestamps=[START_MS - 700, START_MS - 500, START_MS - 900]))
    log.clock.advance(10**6)
    log.send(batch_of(timestamps=[START_MS + 500]))
    assert log.base_offsets == [0]
    log.send(batch_of(timestamps=[START_MS - 10**6]))
    assert log.base_offsets == [0]
    log.send(batch_of(timestamps=[START_MS + 501]))
    assert log.base_offsets == [0, 5]


def test_e6_roll_by_message_time_survives_a_restart(new_log: NewLog) -> None:
    """The first batch's timestamp is read from the log again; the time of the restart does not count."""
    log = new_log({"segment.ms": 1000})
    log.fill(3)
    log.clock.advance(10**6)
    log.restart(clean=True)
    log.send(batch_of(timestamps=[START_MS + 1000]))
    assert log.base_offsets == [0]
    log.send(batch_of(timestamps=[START_MS + 1001]))
    assert log.base_offsets == [0, 4]


def test_r_4_wall_clock_roll_without_timestamps(new_log: NewLog) -> None:
    """An empty active segment is never rolled for its age; one with data is, by the age of its file."""
    log = new_log({"segment.ms": 1000})
    timeless = batch_of(timestamps=[-1])
    log.clock.advance(5000)
    assert not log.partition.roll_due()
    log.send(timeless)
    assert log.base_offsets == [0]
    assert log.partition.roll_due()
    log.send(timeless)
    assert log.base_offsets == [0, 1]
    log.clock.advance(1000)
    log.send(timeless)
    assert log.base_offsets == [0, 1]
    assert not log.partition.roll_due()
    log.clock.advance(1)
    log.send(timeless)
    assert log.base_offsets == [0, 1, 3]


def test_r_4_the_scheduler_rolls_by_the_wall_clock(new_log: NewLog) -> None:
    """A quiet partition's segment is rolled when it is older than segment.ms, though no append comes."""
    log = new_log({"segment.ms": 1000})
    log.fill(2)
    log.clock.advance(1000)
    assert not log.partition.roll_due()
    log.clock.advance(1)
    assert log.partition.roll_due()
    log.roll()
    assert log.base_offsets == [0, 2]
    log.clock.advance(10**6)
    assert not log.partition.roll_due()
    log.roll()
    assert log.base_offsets == [0, 2]


def test_r_5_jitter(new_log: NewLog) -> None:
    """Every segment, the first included, rolls later than segment.ms less its own jitter and not before."""
    jitters = set()
    for seed in range(4):
        log = new_log({"segment.ms": 100_000, "segment.jitter.ms": 20_000})
        log.manager._random = random.Random(seed)
        log.partition.writer._random = log.manager._random
        log.send(batch_of(timestamps=[START_MS]))
        log.roll()
        log.send(batch_of(timestamps=[START_MS]))
        jitter_ms = log.snapshot.segments[-1].jitter_ms
        jitters.add(jitter_ms)
        assert 0 <= jitter_ms < 20_000
        log.send(batch_of(timestamps=[START_MS + 100_000 - jitter_ms]))
        assert log.snapshot.segments[-1].jitter_ms == jitter_ms
        assert log.base_offsets == [0, 1]
        log.send(batch_of(timestamps=[START_MS + 100_000 - jitter_ms + 1]))
        assert log.base_offsets == [0, 1, 3]
    assert len(jitters) > 1


@pytest.mark.parametrize("clean", [True, False, None], ids=["clean stop", "killed", "new"])
def test_r_5_first_and_reopened_segments_have_jitter_too(
    new_log: NewLog, monkeypatch: pytest.MonkeyPatch, clean: bool | None
) -> None:
    """Partitions made or started together are those that would otherwise roll together."""
    monkeypatch.setattr(random.Random, "randrange", lambda self, end: end - 1)
    log = new_log({"segment.ms": 100_000, "segment.jitter.ms": 20_000})
    if clean is not None:
        log.send(batch_of())
        log.restart(clean=clean)
    assert log.snapshot.segments[-1].jitter_ms == 19_999


def test_r_5_jitter_is_never_longer_than_the_wait(new_log: NewLog) -> None:
    """Spec E6: abs(random) mod min(segment.jitter.ms, segment.ms)."""
    log = new_log({"segment.ms": 10, "segment.jitter.ms": 1_000_000})
    for number in range(20):
        log.send(batch_of(timestamps=[START_MS + number]))
        log.roll()
        assert 0 <= log.snapshot.segments[-1].jitter_ms < 10


@pytest.mark.parametrize(
    ("index_bytes", "entry_count"), [(24, 1), (36, 2), (120, 9)], ids=["one slot", "two slots", "nine slots"]
)
def test_e6_roll_when_an_index_is_full(new_log: NewLog, index_bytes: int, entry_count: int) -> None:
    """Spec E6 (3), (4), C8: the time index is full with one slot free, which the roll itself fills."""
    log = new_log({"index.interval.bytes": 0, "segment.index.bytes": index_bytes})
    batches = [batch_of(timestamps=[START_MS + number]) for number in range(3 * entry_count + 4)]
    for body in batches:
        log.send(body)
    # The first batch has no entry, so a segment takes one batch more than its index has room for.
    assert log.base_offsets == list(range(0, len(batches), entry_count + 1))
    for base_offset in log.base_offsets[:-1]:
        assert len(log.offset_entries(base_offset)) == entry_count
        assert log.file(base_offset, ".timeindex").stat().st_size <= index_bytes
        assert log.time_entries(base_offset)[-1] == (START_MS + base_offset + entry_count, base_offset + entry_count)
    assert_whole(log)


def test_e6_roll_before_relative_offsets_overflow(tmp_path: Path) -> None:
    """Spec E6 (5): an offset may lie 2^31-1 above the base, not more. Compaction leaves such gaps."""
    directory = KafkaDirectory(tmp_path)
    directory.configure(TOPIC, {"cleanup.policy": "compact", "flush.policy": "interval"})
    gap = Segment([batch(0, 1), batch(INT_MAX - 1, 1)])
    directory.add_partition(f"{TOPIC}-0", [gap])
    directory.checkpoint("recovery-point-offset-checkpoint", (TOPIC, 0, INT_MAX))
    log = CaseLog(tmp_path)
    assert log.end_offset == INT_MAX
    log.send(batch_of(1))
    assert (log.base_offsets, log.end_offset) == ([0], INT_MAX + 1)
    log.send(batch_of(1))
    assert log.base_offsets == [0, INT_MAX + 1]
    for clean in (True, False):
        log.restart(clean=clean)
        assert log.offsets() == [0, INT_MAX - 1, INT_MAX, INT_MAX + 1]
    log.kill()


def test_e6_a_large_batch_rolls_before_it_overflows(tmp_path: Path) -> None:
    """The last offset of what comes decides, not the first."""
    directory = KafkaDirectory(tmp_path)
    directory.configure(TOPIC, {"cleanup.policy": "compact", "flush.policy": "interval"})
    directory.add_partition(f"{TOPIC}-0", [Segment([batch(0, 1), batch(INT_MAX - 2, 1)])])
    directory.checkpoint("recovery-point-offset-checkpoint", (TOPIC, 0, INT_MAX - 1))
    log = CaseLog(tmp_path)
    log.send(batch_of(3))
    assert log.base_offsets == [0, INT_MAX - 1]
    assert log.offsets()[-3:] == [INT_MAX - 1, INT_MAX, INT_MAX + 1]
    log.kill()


def test_e6_log_append_time_is_the_incoming_time(new_log: NewLog) -> None:
    """Spec E6 (2): what the log stamps counts, not what was sent; a clock that goes back rolls nothing."""
    log = new_log({"message.timestamp.type": "LogAppendTime", "segment.ms": 1000})
    log.fill(2, first_timestamp=START_MS + 10**9)
    log.clock.advance(1000)
    log.fill(1)
    assert log.base_offsets == [0]
    log.clock.advance(1)
    log.fill(1)
    assert log.base_offsets == [0, 3]
    log.clock.jump(-500_000)
    log.fill(2)
    assert log.base_offsets == [0, 3]
    log.restart(clean=False)
    assert_whole(log)


def test_e6_index_space_may_shrink_between_starts(new_log: NewLog) -> None:
    """An index that is fuller than the topic now allows loses nothing; the segment rolls with the next append."""
    log = new_log({"index.interval.bytes": 0})
    log.fill(50)
    log.configure({"segment.index.bytes": 36})
    for clean in (True, False, True):
        log.restart(clean=clean)
        assert log.offsets() == list(range(log.end_offset))
        log.fill(3)
        assert_whole(log)
    assert log.base_offsets[:2] == [0, 50]


@pytest.mark.parametrize("index_bytes", [24, 36, 60])
@pytest.mark.parametrize("interval", [0, 150, 500])
def test_e6_full_indexes_and_groups(new_log: NewLog, index_bytes: int, interval: int) -> None:
    """Requests of one group roll as if they came one by one; a request of more batches than an index has room for
    leaves the last of them without entries, and they are found all the same."""
    config = {"index.interval.bytes": interval, "segment.index.bytes": index_bytes}
    alone, together, at_once = (new_log(config) for _ in range(3))
    source = random.Random(index_bytes)
    bodies = [
        batch_of(source.randint(1, 4), first_timestamp=START_MS + number + source.randint(-5, 30))
        for number in range(40)
    ]
    for body in bodies:
        alone.send(body)
    together.send_group(*bodies)
    for first in range(0, 40, 8):
        at_once.send(b"".join(bodies[first : first + 8]))
    assert together.base_offsets == alone.base_offsets
    for base_offset in alone.base_offsets:
        assert together.offset_entries(base_offset) == alone.offset_entries(base_offset)
        assert together.time_entries(base_offset) == alone.time_entries(base_offset)
    for log in (alone, together, at_once):
        assert_whole(log)
        log.roll()
        log.restart(clean=True)
        assert log.offsets() == list(range(log.end_offset))
        assert_whole(log)


@pytest.mark.parametrize("first", [[0], []], ids=["behind a batch", "into an empty log"])
def test_r_7_copied_offsets_beyond_an_index_roll(new_log: NewLog, first: list[int]) -> None:
    """Spec E6 (5): what a leader stored brings its offsets with it, so the last of them counts and not their number."""
    far = INT_MAX + 2
    log = new_log({"cleanup.policy": "compact"})
    for offset in [*first, far, far + 1]:
        log.partition.append_copied(batch_of(base_offset=offset, leader_epoch=0, value=b"%d" % offset))
    log.flush()
    assert log.base_offsets == [0, far]
    assert log.file_names(".snapshot") == [f"{far:020d}.snapshot"]
    assert log.file(0).stat().st_size == len(first) * len(batch_of(value=b"0"))
    for clean in (False, True):
        assert log.offsets() == [*first, far, far + 1]
        assert log.records(far)[0].value == b"%d" % far
        log.restart(clean=clean)
        assert log.recovery.damage == []
        assert log.base_offsets == [0, far]
    assert log.offsets() == [*first, far, far + 1]
    log.stop()
    assert not verify_directory(log.path).is_damaged


@pytest.mark.parametrize(
    ("base_offset", "count", "bases"),
    [(INT_MAX, 1, [0]), (INT_MAX - 2, 3, [0]), (INT_MAX - 2, 4, [0, INT_MAX - 2]), (INT_MAX + 1, 1, [0, INT_MAX + 1])],
)
def test_r_7_the_boundary_is_the_last_offset(new_log: NewLog, base_offset: int, count: int, bases: list[int]) -> None:
    """An offset may lie 2^31-1 above the base, not more; a batch that reaches further goes whole into the next."""
    log = new_log({"cleanup.policy": "compact", "index.interval.bytes": 0})
    log.partition.append_copied(batch_of(base_offset=0, leader_epoch=0))
    log.partition.append_copied(batch_of(count, base_offset=base_offset, leader_epoch=0))
    log.partition.publish()
    assert log.base_offsets == bases
    assert log.offsets() == [0, *range(base_offset, base_offset + count)]
    log.kill()
    log.start()
    assert log.offsets() == [0, *range(base_offset, base_offset + count)]


def test_r_7_a_batch_that_lost_its_records_counts_with_its_offsets(new_log: NewLog) -> None:
    """Compaction leaves the header of a producer's last batch: no record, and all of its offsets."""
    log = new_log({"cleanup.policy": "compact"})
    log.partition.append_copied(batch_of(base_offset=0, leader_epoch=0))
    emptied = bytearray(batch_of(base_offset=INT_MAX - 1, leader_epoch=0))[:61]
    struct.pack_into(">i", emptied, 8, 61 - 12)
    struct.pack_into(">i", emptied, 23, 2)
    struct.pack_into(">i", emptied, 57, 0)
    log.partition.append_copied(with_crc(emptied))
    log.partition.publish()
    assert log.base_offsets == [0, INT_MAX - 1]
    assert log.end_offset == INT_MAX + 2


def test_r_8_stale_files_at_the_new_base(new_log: NewLog) -> None:
    """Whatever has the new segment's names is replaced, and no byte of it is read."""
    log = new_log({"index.interval.bytes": 0})
    log.fill(5)
    source = random.Random(8)
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        log.file(5, suffix).write_bytes(source.randbytes(5000))
    log.roll()
    assert log.file(5).stat().st_size == 0
    assert not log.file(5, ".txnindex").exists()
    log.fill(5)
    assert log.base_offsets == [0, 5]
    assert log.offsets() == list(range(10))
    assert_whole(log)
    log.restart(clean=True)
    assert log.offsets() == list(range(10))


def test_r_9_an_empty_active_segment_with_a_full_index_is_made_anew(new_log: NewLog) -> None:
    """The same base again: new files, the same log end, and appends go on."""
    log = new_log({"index.interval.bytes": 0, "segment.index.bytes": 24})
    log.fill(2)
    log.roll()
    active = log.snapshot.segments[-1]
    index = active.offset_index.get()
    time_index = active.time_index.get()
    for offset in range(2, 5):
        index.append(Offset(offset), Position(offset * 100))
    time_index.maybe_append(START_MS + 9, Offset(4))
    assert (index.is_full, time_index.is_full, active.size_bytes) == (True, True, 0)
    log.send(batch_of(timestamps=[START_MS + 1]))
    assert (log.base_offsets, log.end_offset) == ([0, 2], 3)
    assert log.snapshot.segments[-1] is not active
    log.fill(3)
    assert_whole(log)
    log.restart(clean=False)
    assert log.offsets() == list(range(6))


def test_r_11_preallocate(new_log: NewLog) -> None:
    """segment.bytes long while active; cut to its data by a roll and by a clean stop. At rest it takes none."""
    log = new_log({"preallocate": True, "segment.bytes": 50_000})
    size_bytes = len(batch_of())
    assert log.file().stat().st_size == 0
    log.fill(4)
    assert log.file().stat().st_size == 50_000
    assert len(log.read()) == 4 * size_bytes
    log.roll()
    assert log.file().stat().st_size == 4 * size_bytes
    assert log.file(4).stat().st_size == 50_000
    log.fill(3)
    directory = log.directory
    log.stop()
    assert (directory / f"{4:020d}.log").stat().st_size == 3 * size_bytes
    log.start()
    assert (log.end_offset, log.recovery.scanned_bytes) == (7, 0)
    log.fill(1)
    assert log.offsets() == list(range(8))


@pytest.mark.parametrize("record_count", [0, 1, 5])
def test_r_11_preallocated_zeros_go_after_a_kill(new_log: NewLog, record_count: int) -> None:
    """The next start finds the right log end and trims the zeros."""
    log = new_log({"preallocate": True, "segment.bytes": 50_000})
    log.fill(record_count)
    log.restart(clean=False)
    assert log.end_offset == record_count
    assert log.file().stat().st_size == record_count * len(batch_of())
    # They were never data, so nothing was cut.
    assert (log.recovery.truncated_bytes, log.recovery.notes) == (0, [])
    log.fill(2)
    log.restart(clean=False)
    assert log.offsets() == list(range(record_count + 2))


def test_a15_log_end_metadata_after_a_roll(new_log: NewLog) -> None:
    """Spec A15: after a forced roll the log end is (n, n, 0); an append that rolls moves it there and on."""
    size_bytes = len(batch_of())
    log = new_log({"segment.bytes": 5 * size_bytes})
    log.fill(3)
    assert log.snapshot.log_end_metadata == LogOffsetMetadata(Offset(3), Offset(0), Position(3 * size_bytes))
    log.roll()
    assert log.snapshot.log_end_metadata == LogOffsetMetadata(Offset(3), Offset(3), Position(0))
    log.fill(6)
    assert log.snapshot.log_end_metadata == LogOffsetMetadata(Offset(9), Offset(8), Position(size_bytes))
    assert log.base_offsets == [0, 3, 8]


def test_a15_segments_hold_their_own_offsets_only(new_log: NewLog) -> None:
    """Spec A15, E3: every offset of earlier segments lies below a base, every one of its own at or above."""
    log = new_log({"segment.bytes": 300})
    for count in (1, 4, 2, 1, 1, 9, 3, 5):
        log.send(batch_of(count))
    bounds = [*log.base_offsets, log.end_offset]
    assert len(bounds) > 4
    for base_offset, end_offset in pairwise(bounds):
        headers = [one.header for one in split_batches(log.file(base_offset).read_bytes())]
        assert headers[0].base_offset == base_offset
        assert headers[-1].next_offset == end_offset
    infos = log.snapshot.segment_infos()
    assert [(info.base_offset, info.next_offset) for info in infos] == list(pairwise(bounds))
    assert [info.state for info in infos] == ["sealed"] * (len(infos) - 1) + ["active"]


def test_e25_the_old_segment_is_durable_before_the_next_has_a_name(tmp_path: Path) -> None:
    """Disk rule 7, stricter than Kafka, which flushes a rolled segment later: so the recovery point is at
    least the last segment's base offset, and an unclean start never doubts what lies below."""
    disk = RecordingFileSystem()
    log = CaseLog(tmp_path / "data", file_system=disk)
    log.fill(3)
    disk.operations.clear()
    assert log.partition.recovery_point == 0
    log.roll()
    order = disk.operations
    sealed = [order.index(("sync", f"{0:020d}{suffix}")) for suffix in (".log", ".index", ".timeindex")]
    snapshot = order.index(("rename", f"{3:020d}.snapshot"))
    created = order.index(("create", f"{3:020d}.log"))
    named = len(order) - 1 - order[::-1].index(("sync_directory", f"{TOPIC}-0"))
    assert max(*sealed, snapshot) < created < named
    assert log.partition.recovery_point == 3
    log.kill()


def test_b1_one_directory_per_partition(new_log: NewLog) -> None:
    """Spec B1: files are named by their first offset, data goes to the last file only."""
    log = new_log({"segment.bytes": 200}, partition_count=2)
    assert sorted(path.name for path in log.directory.parent.iterdir() if path.is_dir()) == [f"{TOPIC}-0", f"{TOPIC}-1"]
    log.fill(2)
    sealed = log.file(0).read_bytes()
    log.fill(5)
    assert log.file(0).read_bytes() == sealed
    for name, content in log.log_files().items():
        assert int(name.removesuffix(".log")) == split_batches(content)[0].header.base_offset
    assert (log.directory.with_name(f"{TOPIC}-1") / f"{0:020d}.log").read_bytes() == b""


def test_a8_concurrent_creators_get_one_log(tmp_path: Path) -> None:
    """Spec A8: fifty threads make the same topic; there is one directory and one object."""
    manager = LogManager.open(tmp_path / "data")
    with ThreadPoolExecutor(50) as pool:
        made = list(pool.map(lambda _: manager.create_topic(TOPIC, 1, {}), range(50)))
    assert len({id(topic.partitions[0]) for topic, _ in made}) == 1
    assert [created for _, created in made].count(True) == 1
    manager.close()


def test_r_1_a_group_is_split_at_the_roll(new_log: NewLog) -> None:
    """Requests written together still fill segments as if they had come one by one."""
    alone, together = (new_log({"segment.bytes": 1000, "index.interval.bytes": 100}) for _ in range(2))
    bodies = [sized_batch(size, timestamp=START_MS + size) for size in (300, 300, 300, 300, 999, 1000, 100, 400, 500)]
    for body in bodies:
        alone.send(body)
    together.send_group(*bodies)
    assert together.base_offsets == alone.base_offsets
    assert together.log_files() == alone.log_files()
    for base_offset in alone.base_offsets:
        assert together.offset_entries(base_offset) == alone.offset_entries(base_offset)
        assert together.time_entries(base_offset) == alone.time_entries(base_offset)


def test_a_sealed_segment_keeps_no_room_on_the_disk(new_log: NewLog) -> None:
    """While it grows the disk keeps room ahead of it, which is nobody's once it is sealed."""
    log = new_log({"max.message.bytes": 2**21})
    batch = sized_batch(2**20)
    for _ in range(10):
        log.send(batch)
    log.flush()
    size = log.file().stat().st_size
    assert size == 10 * 2**20
    log.roll()
    assert log.file().stat().st_blocks * 512 < size + 2**19
    assert log.file().stat().st_size == size
