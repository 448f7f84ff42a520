"""Cases RT: what is deleted, what is not, and what becomes of the files."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from log_model.batches.batch_validation import validate_batches
from log_model.errors import InvalidConfigError, OffsetOutOfRangeError, StorageError
from log_model.offsets import Offset
from log_model.reads import Isolation
from rollway.records import split_batches
from storage.log.partition_log import AppendRequest
from storage.log.retention import RetainedSegment, register_policy
from tests.cases.logs import EVERYTHING, START_MS, TOPIC, CaseLog, assert_whole, batch_of, refused
from tests.support.recording_file_system import RecordingFileSystem

NewLog = Callable[..., CaseLog]
SIZE = len(batch_of())
DAY_MS = 86_400_000


def in_fives(log: CaseLog, count: int, *, timestamp: int = START_MS) -> None:
    """Append messages, five to a segment; the last five are the active segment's."""
    for number in range(count):
        if number and number % 5 == 0:
            log.roll()
        log.send(batch_of(timestamps=[timestamp]))


@pytest.mark.parametrize(("limit", "left"), [(15, 3), (14, 3), (11, 3), (10, 2), (6, 2), (5, 1), (1, 1), (0, 0)])
def test_rt_1_size(new_log: NewLog, limit: int, left: int) -> None:
    """Spec E5: a segment goes while what remains is not below the limit; with a limit of 0 all go."""
    log = new_log({"retention.bytes": limit * SIZE, "retention.ms": -1})
    in_fives(log, 15)
    gone = log.run_retention()
    assert gone == [0, 5, 10][: 3 - left]
    assert log.base_offsets == ([0, 5, 10][3 - left :] or [15])
    assert (log.snapshot.log_start_offset, log.end_offset) == (log.base_offsets[0], 15)
    assert log.run_retention() == []


def test_rt_1_no_limit(new_log: NewLog) -> None:
    """-1 switches a rule off, as is the default for the size."""
    log = new_log({"retention.ms": -1})
    in_fives(log, 15)
    log.clock.advance(10**12)
    assert log.run_retention() == []


def test_e5_age_is_strict(new_log: NewLog) -> None:
    """Spec E5: older than retention.ms, not as old; by the newest record of the segment."""
    log = new_log({"retention.ms": 1000})
    log.send(batch_of(timestamps=[START_MS - 5000, START_MS - 400]))
    log.roll()
    log.send(batch_of())
    log.clock.advance(600)
    assert log.run_retention() == []
    log.clock.advance(1)
    assert log.run_retention() == [0]


def test_e5_all_may_go(new_log: NewLog) -> None:
    """Spec E5: an active segment that has data expires too, after a roll; an empty one never does."""
    log = new_log({"retention.ms": 1000})
    in_fives(log, 15)
    log.clock.advance(1001)
    assert log.run_retention() == [0, 5, 10]
    assert log.base_offsets == [15]
    assert (log.snapshot.log_start_offset, log.snapshot.high_watermark, log.end_offset) == (15, 15, 15)
    log.clock.advance(10**6)
    assert log.run_retention() == []
    log.fill(1)
    assert log.offsets(15) == [15]
    for clean in (True, False):
        log.restart(clean=clean)
        assert (log.snapshot.log_start_offset, log.end_offset) == (15, 16)


def test_e5_what_is_not_below_the_high_watermark_stays(new_log: NewLog) -> None:
    """Spec E5: a record that no consumer could have read yet is not deleted, however old it is."""
    log = new_log({"retention.ms": 1000, "flush.policy": "group"})
    log.fill(5)
    log.roll()
    log.fill(2)
    log.flush()
    log.fill(3)
    log.clock.advance(5000)
    assert log.snapshot.high_watermark == 7
    assert log.run_retention() == [0]
    assert log.run_retention() == []
    log.flush()
    assert log.run_retention() == [5]


def test_rt_4_stops_at_the_first_that_stays(new_log: NewLog) -> None:
    """The first segment has the newest timestamps, so the expired ones behind it stay; a second run changes nothing."""
    log = new_log({"retention.ms": 1000})
    for timestamp in (START_MS + 50_000, START_MS, START_MS, START_MS + 50_000):
        log.send(batch_of(timestamps=[timestamp]))
        log.roll()
    log.clock.advance(10_000)
    assert log.run_retention() == []
    log.delete_records(1)
    assert log.run_retention() == [0, 1, 2]
    assert log.run_retention() == []
    assert log.offsets(3) == [3]


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete"])
def test_rt_5_compact_only(new_log: NewLog, policy: str) -> None:
    """Spec E4: without "delete" neither age nor size deletes anything; segments below the log start go even so."""
    log = new_log({"cleanup.policy": "delete", "retention.ms": 1, "retention.bytes": 0})
    in_fives(log, 15)
    log.delete_records(7)
    log.configure({"cleanup.policy": policy})
    log.clock.advance(DAY_MS)
    assert log.run_retention() == ([0] if policy == "compact" else [0, 5, 10])
    if policy == "compact":
        assert log.offsets(7) == list(range(7, 15))
        with refused(log, 44):
            log.delete_records(10)


def test_rt_6_files_are_renamed_and_unlinked_later(new_log: NewLog) -> None:
    """Spec E7: log, indexes and producer snapshot, at once; there until file.delete.delay.ms has passed."""
    log = new_log({"retention.bytes": 5 * SIZE, "file.delete.delay.ms": 60_000})
    for number in range(15):
        if number and number % 5 == 0:
            log.roll()
        log.send(batch_of(producer_id=9, producer_epoch=0, base_sequence=number))
    assert log.run_retention() == [0, 5]
    gone = [f"{0:020d}{suffix}" for suffix in (".index", ".log", ".timeindex")]
    gone += [f"{5:020d}{suffix}" for suffix in (".index", ".log", ".snapshot", ".timeindex")]
    assert log.file_names(".deleted") == sorted(name + ".deleted" for name in gone)
    assert not [name for name in log.file_names() if name in gone]
    log.clock.advance(59_999)
    assert log.manager.delete_due_files() == 0
    assert len(log.file_names(".deleted")) == 7
    log.clock.advance(1)
    assert log.manager.delete_due_files() == 7
    assert log.file_names(".deleted") == []
    assert log.manager.delete_due_files() == 0
    assert log.offsets(10) == list(range(10, 15))


@pytest.mark.parametrize("clean", [True, False])
def test_rt_6_a_restart_before_that(new_log: NewLog, clean: bool) -> None:
    """Spec E20: the next start removes what still waited."""
    log = new_log({"retention.bytes": 5 * SIZE})
    in_fives(log, 15)
    log.run_retention()
    assert log.file_names(".deleted")
    log.restart(clean=clean)
    assert log.file_names(".deleted") == []
    assert (log.snapshot.log_start_offset, log.end_offset, log.base_offsets) == (10, 15, [10])


def test_rt_6_without_delay(new_log: NewLog) -> None:
    """A delay of 0: gone with the next call; a file that somebody took away before is no error."""
    log = new_log({"retention.bytes": 5 * SIZE, "file.delete.delay.ms": 0})
    in_fives(log, 15)
    log.run_retention()
    log.file(0, ".index.deleted").unlink()
    assert log.manager.delete_due_files() == 6
    assert log.file_names(".deleted") == []


@pytest.mark.parametrize("lost", ["log", "indexes"])
def test_rt_6_files_that_are_missing_already(new_log: NewLog, lost: str) -> None:
    """Spec E7: a missing file is no reason not to delete the others."""
    log = new_log({"retention.bytes": 5 * SIZE})
    in_fives(log, 15)
    for suffix in (".log",) if lost == "log" else (".index", ".timeindex"):
        log.file(0, suffix).unlink()
    assert log.run_retention() == [0, 5]
    log.clock.advance(60_000)
    log.manager.delete_due_files()
    assert log.file_names(".deleted") == []
    assert log.offsets(10) == list(range(10, 15))


@pytest.mark.parametrize("clean", [None, True, False])
def test_rt_7_without_timestamps_the_file_is_as_old_as_it_was_written(new_log: NewLog, clean: bool | None) -> None:
    log = new_log({"retention.ms": 1000})
    in_fives(log, 15, timestamp=-1)
    for number, base_offset in enumerate(log.base_offsets):
        seconds = (START_MS + number * 10_000) / 1000
        os.utime(log.file(base_offset), (seconds, seconds))
    if clean is not None:
        written = {base: log.file(base).stat().st_mtime for base in log.base_offsets}
        log.restart(clean=clean)
        for base_offset, seconds in written.items():
            os.utime(log.file(base_offset), (seconds, seconds))
    log.clock.advance(1000)
    assert log.run_retention() == []
    log.clock.advance(1)
    assert log.run_retention() == [0]
    log.clock.advance(10_000)
    assert log.run_retention() == [5]
    log.clock.advance(10_000)
    assert log.run_retention() == [10]


@pytest.mark.parametrize("clean", [True, False])
def test_rt_8_a_log_that_begins_with_its_first_segment_has_no_line(new_log: NewLog, clean: bool) -> None:
    """On-disk: ``log-start-offset-checkpoint`` has the partitions that begin above their first segment's base."""
    log = new_log({"retention.ms": -1})
    in_fives(log, 15)
    checkpoint = log.path / "logs/log-start-offset-checkpoint"
    for offset, deleted, start in ((7, [0], 7), (10, [5], None), (12, [], 12)):
        log.delete_records(offset)
        log.manager.checkpoint()
        assert checkpoint.read_text() == f"0\n1\n{TOPIC} 0 {offset}\n"
        assert log.run_retention() == deleted
        for _ in range(2):
            log.manager.checkpoint()
            assert checkpoint.read_text() == ("0\n0\n" if start is None else f"0\n1\n{TOPIC} 0 {start}\n")
            log.restart(clean=clean)
            assert (log.snapshot.log_start_offset, log.recovery.damage) == (offset, [])


def test_rt_8_retention_by_size_leaves_no_line(new_log: NewLog) -> None:
    log = new_log({"retention.bytes": 5 * SIZE})
    in_fives(log, 15)
    assert log.run_retention()
    log.stop()
    assert (log.path / "logs/log-start-offset-checkpoint").read_text() == "0\n0\n"
    log.start()
    assert log.snapshot.log_start_offset == log.base_offsets[0] > 0
    assert log.recovery.damage == []


def test_rt_8_others_are_left_alone(tmp_path: Path) -> None:
    """A change of one partition brings back no line of another, neither before the next checkpoint nor after it."""
    log = CaseLog(tmp_path / "data", {"retention.bytes": 5 * SIZE}, partition_count=2)
    checkpoint = log.path / "logs/log-start-offset-checkpoint"
    in_fives(log, 15)
    log.run_retention()
    log.restart(clean=True)
    other = log.manager.partition(TOPIC, 1)
    other.append([AppendRequest(tuple(validate_batches(batch_of(3), other.config, START_MS)))])
    other.publish()
    other.delete_records(Offset(2))
    assert checkpoint.read_text() == f"0\n1\n{TOPIC} 1 2\n"
    log.manager.checkpoint()
    assert checkpoint.read_text() == f"0\n1\n{TOPIC} 1 2\n"
    log.kill()


def test_rt_8_a_log_that_is_cut_to_begin_lower_has_its_line_again(new_log: NewLog) -> None:
    log = new_log({"retention.bytes": 5 * SIZE})
    in_fives(log, 15)
    log.run_retention()
    log.manager.checkpoint()
    log.partition.truncate_fully_and_start_at(3)
    log.partition.publish()
    log.fill(4)
    log.delete_records(5)
    assert (log.path / "logs/log-start-offset-checkpoint").read_text() == f"0\n1\n{TOPIC} 0 5\n"
    log.restart(clean=False)
    assert (log.base_offsets, log.snapshot.log_start_offset) == ([3], 5)


def test_rt_9_the_epoch_cache_follows(new_log: NewLog) -> None:
    """Spec E1: after everything below 100 is gone, the epoch that 100 lies in begins there; the file says so."""
    log = new_log({"segment.bytes": 40 * SIZE})
    for epoch in range(3):
        assert log.partition.leader_epoch == epoch
        log.fill(60)
        if epoch < 2:
            log.restart(clean=False)
    assert [tuple(entry) for entry in log.partition.epochs.entries] == [(0, 0), (1, 60), (2, 120)]
    log.delete_records(100)
    assert [tuple(entry) for entry in log.partition.epochs.entries] == [(1, 100), (2, 120)]
    assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n2\n1 100\n2 120\n"
    log.run_retention()
    log.restart(clean=True)
    assert [tuple(entry) for entry in log.partition.epochs.entries] == [(1, 100), (2, 120)]
    assert log.snapshot.offset_for_timestamp(START_MS).leader_epoch == 1


@pytest.mark.parametrize("clean", [None, True, False])
def test_rt_10_producers_survive_deletion(new_log: NewLog, clean: bool | None) -> None:
    """All of a producer's records are gone; its duplicates are still found, and it goes on in sequence."""
    log = new_log({"segment.bytes": 5 * SIZE})
    last = batch_of(2, producer_id=7, producer_epoch=3, base_sequence=0)
    log.send(last)
    log.fill(12)
    assert log.base_offsets[1] > 2
    log.delete_records(log.base_offsets[1])
    assert log.run_retention() == [0]
    if clean is not None:
        log.restart(clean=clean)
    repeated = log.send(last)
    assert (repeated.base_offset, repeated.last_offset, repeated.duplicate) == (0, 1, True)
    with refused(log, 45):
        log.send(batch_of(1, producer_id=7, producer_epoch=3, base_sequence=3))
    assert log.send(batch_of(1, producer_id=7, producer_epoch=3, base_sequence=2)).base_offset == 14


@pytest.fixture
def many_segments(new_log: NewLog) -> Iterator[tuple[CaseLog, list[str]]]:
    """A log of a hundred segments and readers in tight loops, whose every answer but data and code 1 is noted."""
    log = new_log({"segment.bytes": 5 * SIZE, "file.delete.delay.ms": 0, "index.interval.bytes": 100})
    log.fill(500)
    problems: list[str] = []
    done = threading.Event()
    read_counts: list[int] = []

    def read_on(seed: int) -> None:
        source = random.Random(seed)
        count = 0
        while not done.is_set():
            snapshot = log.snapshot
            offset = source.randrange(500)
            try:
                fetched = snapshot.read(Offset(offset), 3 * SIZE, isolation=Isolation.LOG_END)
                headers = [one.header for piece in fetched.slices for one in split_batches(piece.read())]
                if headers[0].base_offset != offset:
                    problems.append(f"offset {headers[0].base_offset} for {offset}")
                snapshot.offset_for_timestamp(START_MS)
                snapshot.available_bytes(Offset(offset))
                count += 1
            except OffsetOutOfRangeError:
                if offset >= snapshot.log_start_offset:
                    problems.append(f"{offset} is out of range, but the log starts at {snapshot.log_start_offset}")
            except (StorageError, OSError, ValueError, IndexError) as error:
                problems.append(f"{type(error).__name__}: {error}")
        read_counts.append(count)

    threads = [threading.Thread(target=read_on, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    yield log, problems
    done.set()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert problems == []
    assert min(read_counts) > 0


@pytest.mark.usefixtures("eager_threads")
def test_rt_11_reads_during_deletion(many_segments: tuple[CaseLog, list[str]]) -> None:
    """Spec B11: a hundred segments are deleted and unlinked under readers: data or out of range, nothing else."""
    log, _ = many_segments
    for base_offset in log.base_offsets[1:]:
        log.delete_records(base_offset)
        log.run_retention()
        log.manager.delete_due_files()
    assert log.base_offsets == [495]
    assert log.file_names(".deleted") == []


def test_b11_a_reader_finishes_what_it_began(new_log: NewLog) -> None:
    """Spec B11: who holds a snapshot or a slice reads on, by offset and by time, when the files are long unlinked."""
    log = new_log({"segment.bytes": 5 * SIZE, "file.delete.delay.ms": 0, "index.interval.bytes": 0})
    for number in range(50):
        log.send(batch_of(timestamps=[START_MS + number]))
    log.restart(clean=True)
    held = log.snapshot
    piece = held.read(Offset(3), 1).slices[0]
    content = b"".join(log.log_files().values())
    log.delete_records(-1)
    assert len(log.run_retention()) == 9
    log.manager.delete_due_files()
    assert log.file_names(".log") == [f"{45:020d}.log"]
    assert b"".join(part.read() for part in held.read(Offset(0), EVERYTHING).slices) == content
    assert piece.read() == content[3 * SIZE : 4 * SIZE]
    for offset in range(50):
        assert held.offset_for_timestamp(START_MS + offset).offset == offset
        assert held.read(Offset(offset), 1).slices[0].read() == content[offset * SIZE : (offset + 1) * SIZE]


def test_b10_a_registered_policy(new_log: NewLog) -> None:
    """Spec B10: a callable of a segment and the next, oldest first, stopping at its first refusal."""
    seen: list[tuple[int, int | None]] = []

    def even_base(segment: RetainedSegment, following: RetainedSegment | None) -> bool:
        seen.append((segment.base_offset, following and following.base_offset))
        return segment.base_offset % 2 == 0

    register_policy("even", even_base)
    log = new_log({"retention.policy": "even"})
    for count in (2, 4, 1, 1, 2):
        log.send(batch_of(count))
        log.roll()
    assert log.base_offsets == [0, 2, 6, 7, 8, 10]
    assert log.run_retention() == [0, 2, 6]
    assert seen == [(0, 2), (2, 6), (6, 7), (7, 8)]
    assert log.run_retention() == []
    with pytest.raises(InvalidConfigError, match="nobody"):
        log.configure({"retention.policy": "nobody"})


def test_b10_the_rules_work_beside_each_other(new_log: NewLog) -> None:
    """Spec E4: log start, then size, then time; each says why."""
    log = new_log({"retention.bytes": 15 * SIZE, "retention.ms": 1000})
    in_fives(log, 30)
    log.delete_records(5)
    log.clock.advance(1001)
    deleted = log.partition.delete_old_segments(log.manager.protected_clock.now_ms())
    log.partition.publish()
    assert [(entry.base_offset, entry.reason) for entry in deleted] == [
        (0, "log_start_offset"),
        (5, "retention.bytes"),
        (10, "retention.bytes"),
        (15, "retention.ms"),
        (20, "retention.ms"),
        (25, "retention.ms"),
    ]


def test_e8_delete_records(new_log: NewLog) -> None:
    """Spec E8: 7: a fetch at 6 is out of range, also after a restart; -1 is the high watermark; nothing falls."""
    log = new_log({"flush.policy": "group"})
    for _ in range(4):
        log.send(batch_of(3))
    log.flush()
    log.send(batch_of(3))
    assert log.delete_records(7) == 7
    for clean in (None, True, False):
        if clean is not None:
            log.restart(clean=clean)
        with pytest.raises(OffsetOutOfRangeError):
            log.read(6)
        assert log.offsets(7, Isolation.LOG_END) == list(range(7, 15))
        assert log.snapshot.log_start_offset == 7
    log.send(batch_of(2))
    assert (log.snapshot.high_watermark, log.end_offset) == (15, 17)
    for offset in (7, 3, 0):
        assert log.delete_records(offset) == 7
    for offset in (16, 17, 18, 2**63 - 1, -2, -(2**63)):
        with refused(log, 1):
            log.delete_records(offset)
    assert log.delete_records(-1) == 15
    log.flush()
    assert log.offsets(15) == [15, 16]


def test_e8_whole_segments_below_the_log_start_go(new_log: NewLog) -> None:
    """Spec E5: the next base decides; the segment that the log start cuts stays whole on disk."""
    log = new_log({"retention.ms": -1})
    in_fives(log, 15)
    log.delete_records(9)
    assert log.run_retention() == [0]
    log.delete_records(10)
    assert log.run_retention() == [5]
    log.delete_records(15)
    assert log.run_retention() == []
    assert log.base_offsets == [10]
    assert log.read(15) == b""


def test_e8_the_log_start_is_durable_before_files_go(tmp_path: Path) -> None:
    """Disk rule 7: checkpoint, then renames, oldest first."""
    disk = RecordingFileSystem()
    log = CaseLog(tmp_path / "data", {"retention.bytes": 5 * SIZE}, file_system=disk)
    in_fives(log, 15)
    disk.operations.clear()
    log.run_retention()
    renames = [name for operation, name in disk.operations if operation == "rename"]
    assert renames[:2] == ["log-start-offsets", "log-start-offset-checkpoint"]
    moved = [name for name in renames if name.endswith(".deleted")]
    assert len(moved) == 7
    assert [int(name[:20]) for name in moved] == sorted(int(name[:20]) for name in moved)
    synced = disk.operations.index(("sync_directory", "logs"))
    assert synced < disk.operations.index(("rename", moved[0]))
    log.kill()


def test_a_clock_that_jumps_forward_deletes_nothing(new_log: NewLog) -> None:
    """Architecture, decisions; Kafka would delete. Time that really passed still counts, and so does the wall clock
    once it agrees with it again."""
    log = new_log({"retention.ms": DAY_MS})
    in_fives(log, 15)
    log.clock.jump(365 * DAY_MS)
    assert log.run_retention() == []
    log.clock.advance(DAY_MS)
    assert log.run_retention() == []
    log.clock.advance(1)
    assert log.run_retention() == [0, 5, 10]


def test_a_clock_that_jumps_back_deletes_nothing(new_log: NewLog) -> None:
    """And set right again it is believed at once."""
    log = new_log({"retention.ms": DAY_MS})
    in_fives(log, 15)
    log.clock.jump(-30 * DAY_MS)
    assert log.run_retention() == []
    log.clock.jump(30 * DAY_MS + 60_000)
    assert log.run_retention() == []
    log.clock.advance(DAY_MS)
    assert log.run_retention() == [0, 5, 10]


def test_retention_refuses_nothing_it_planned(new_log: NewLog) -> None:
    """The plan and the run agree, and the plan says what holds the first that stays."""
    log = new_log({"retention.bytes": 10 * SIZE, "retention.ms": 10**9})
    in_fives(log, 20)
    plan = log.partition.retention_plan(START_MS)
    assert [entry.reason for entry in plan] == ["retention.bytes", "retention.bytes", None, None]
    assert plan[2].held_by == ("without it less than retention.bytes would remain, and it is younger than retention.ms")
    assert plan[2].due_ms == START_MS + 10**9 + 1
    assert log.run_retention() == [0, 5]
    assert_whole(log)


def test_an_offline_partition_deletes_nothing(new_log: NewLog) -> None:
    """Invariant 10: after a disk failure nothing changes any more."""
    log = new_log({"retention.bytes": 0})
    in_fives(log, 15)
    log.partition.take_offline("a test")
    with pytest.raises(StorageError, match="a test"):
        log.run_retention()
    assert log.offsets() == list(range(15))
