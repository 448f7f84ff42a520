"""Cases HW, and flushing: what may be read, what is durable, and when one follows the other."""

from __future__ import annotations

import errno
import functools
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import storage.manager.partition_factory
from log_model.batches.batch_validation import validate_batches
from log_model.errors import DiskFullError, NotEnoughReplicasError, PartitionFailedError, PartitionOfflineError
from log_model.offsets import LogOffsetMetadata, Offset, Position
from log_model.reads import Isolation
from storage.log.partition_log import AppendRequest
from storage.log.replica_set import ReplicaSet
from tests.cases.logs import TOPIC, CaseLog, batch_of
from tests.support.recording_file_system import RecordingFileSystem

NewLog = Callable[..., CaseLog]
SIZE = len(batch_of())
GROUP = {"flush.policy": "group"}


def test_hw_1_an_append_leaves_it(new_log: NewLog) -> None:
    """With one copy and flush.policy=group it waits for the fsync that covers the records (spec E24)."""
    log = new_log(GROUP)
    log.fill(5)
    assert (log.snapshot.high_watermark, log.end_offset) == (0, 5)
    log.partition.flush()
    assert log.snapshot.high_watermark == 0
    log.partition.publish()
    assert log.snapshot.high_watermark == 5
    log.fill(1)
    assert (log.snapshot.high_watermark, log.end_offset) == (5, 6)


def test_e24_with_interval_flushing_it_is_the_log_end(new_log: NewLog) -> None:
    """Spec E24: Kafka's own rule for one copy."""
    log = new_log({"flush.policy": "interval"})
    for count in range(1, 4):
        log.fill(1)
        assert log.snapshot.high_watermark == log.end_offset == count
    assert log.partition.recovery_point == 0


def test_hw_1_truncation_lowers_it(new_log: NewLog) -> None:
    """Log end 5, high watermark 4, truncate to 3: 3. Truncation above it leaves it."""
    log = new_log(GROUP)
    log.fill(4)
    log.flush()
    log.fill(1)
    assert (log.snapshot.high_watermark, log.end_offset) == (4, 5)
    log.truncate(4)
    assert (log.snapshot.high_watermark, log.end_offset) == (4, 4)
    log.truncate(3)
    assert (log.snapshot.high_watermark, log.end_offset) == (3, 3)


def test_hw_1_never_below_the_log_start_nor_above_the_end(new_log: NewLog) -> None:
    """Invariant 6: log start <= last stable offset <= high watermark <= log end, whatever happens."""
    log = new_log(GROUP | {"segment.bytes": 4 * SIZE, "retention.bytes": 8 * SIZE})
    source = random.Random(1)
    for _ in range(300):
        match source.randrange(7):
            case 0 | 1 | 2:
                log.fill(source.randint(1, 3))
            case 3:
                log.flush()
            case 4:
                log.roll()
            case 5:
                log.run_retention()
            case 6:
                snapshot = log.snapshot
                log.delete_records(source.randint(snapshot.log_start_offset, snapshot.high_watermark))
        if source.randrange(20) == 0:
            log.truncate(source.randint(log.snapshot.log_start_offset, log.end_offset))
        snapshot = log.snapshot
        ends = [snapshot.log_start_offset, snapshot.last_stable_offset, snapshot.high_watermark, log.end_offset]
        assert ends == sorted(ends)
        assert log.partition.durable_end_offset >= snapshot.high_watermark
        visible = log.offsets(snapshot.log_start_offset)
        assert visible == list(range(visible[0], snapshot.high_watermark)) if visible else True


def fetched(log: CaseLog, replica_id: int, offset: int) -> None:
    """A follower's fetch at the end of its log."""
    place = log.snapshot.log_end_metadata if offset == log.end_offset else log.snapshot.place_of(Offset(offset))
    log.partition.replicas.note_fetch(
        replica_id,
        place,
        log_start_offset=Offset(0),
        leader_end_offset=log.snapshot.log_end_offset,
        now_ms=log.clock.elapsed_ms(),
    )
    log.partition.publish()


@pytest.mark.parametrize("policy", ["group", "interval"])
def test_hw_1_with_followers(new_log: NewLog, policy: str) -> None:
    """Spec E24: what all copies in sync have is visible, the local fsync being one of them; lowered by truncation."""
    log = new_log({"flush.policy": policy, "min.insync.replicas": 2})
    log.partition.replicas = ReplicaSet(1, (2, 3), min_insync_replicas=2)
    log.fill(5)
    assert log.snapshot.high_watermark == 0
    fetched(log, 2, 5)
    fetched(log, 3, 3)
    assert log.snapshot.high_watermark == (0 if policy == "group" else 3)
    log.flush()
    assert (log.snapshot.high_watermark, log.offsets()) == (3, [0, 1, 2])
    fetched(log, 3, 4)
    assert (log.snapshot.high_watermark, log.end_offset) == (4, 5)
    log.truncate(3)
    assert (log.snapshot.high_watermark, log.end_offset) == (3, 3)


def test_a5_too_few_copies(new_log: NewLog) -> None:
    """Below min.insync.replicas the high watermark stands still, and comes on when the follower is back."""
    log = new_log({"min.insync.replicas": 2})
    log.partition.replicas = replicas = ReplicaSet(1, (2,), min_insync_replicas=2)
    log.fill(2)
    fetched(log, 2, 2)
    log.fill(1)
    log.clock.advance(30_001)
    assert replicas.shrink(log.snapshot.log_end_offset, log.clock.elapsed_ms()) == (2,)
    log.flush()
    assert log.snapshot.high_watermark == 2
    with pytest.raises(NotEnoughReplicasError):
        replicas.check_before_append()
    log.configure({"min.insync.replicas": 1})
    replicas.check_before_append()
    log.flush()
    assert log.snapshot.high_watermark == 3
    log.configure({"min.insync.replicas": 2})
    fetched(log, 2, 3)
    assert replicas.expand(2, high_watermark=log.snapshot.high_watermark, epoch_start=Offset(0))
    replicas.check_after_append()


@pytest.mark.parametrize(("checkpoint", "expected"), [("4", 4), ("99", 10), ("garbage", 0), (None, 0)])
def test_hw_4_restart_with_followers(
    new_log: NewLog, monkeypatch: pytest.MonkeyPatch, checkpoint: str | None, expected: int
) -> None:
    """Checkpoint 4, log end 10: starts at 4; clamped to the log; corrupt or missing: the log start."""
    log = new_log()
    log.fill(10)
    log.flush()
    log.kill()
    if checkpoint is not None:
        path = log.path / "logs" / "replication-offset-checkpoint"
        path.write_text(f"0\n1\n{TOPIC} 0 {checkpoint}\n")
    parts = functools.partial(storage.manager.partition_factory.LogParts, replicas=ReplicaSet(1, (2,)))
    monkeypatch.setattr(storage.manager.partition_factory, "LogParts", parts)
    log.start()
    assert (log.snapshot.high_watermark, log.end_offset) == (expected, 10)
    assert log.offsets() == list(range(expected))
    fetched(log, 2, 10)
    assert log.offsets() == list(range(10))


def test_hw_4_restart(new_log: NewLog) -> None:
    """Kafka starts at the checkpoint, 4, and rises when the leader is known. Here recovery has just made everything
    durable and there is one copy, so the log end is visible at once; it is never below the checkpoint."""
    log = new_log(GROUP)
    log.fill(4)
    log.flush()
    log.manager.checkpoint_high_watermarks()
    checkpoint = log.path / "logs" / "replication-offset-checkpoint"
    assert checkpoint.read_text() == f"0\n1\n{TOPIC} 0 4\n"
    log.fill(6)
    assert (log.snapshot.high_watermark, log.end_offset) == (4, 10)
    log.restart(clean=False)
    assert (log.snapshot.high_watermark, log.end_offset) == (10, 10)
    log.fill(1)
    assert (log.snapshot.high_watermark, log.end_offset) == (10, 11)
    log.stop()
    assert checkpoint.read_text() == f"0\n1\n{TOPIC} 0 11\n"


@pytest.mark.parametrize("content", [b"", b"rubbish", b"0\n1\ncases 0 99\n", b"0\n1\ncases 0 0\n"])
def test_hw_4_whatever_the_file_says(new_log: NewLog, content: bytes) -> None:
    """Corrupt, beyond the log end, or below the log start: it lies between the two."""
    log = new_log(GROUP)
    log.fill(10)
    log.flush()
    log.delete_records(3)
    log.kill()
    (log.path / "logs" / "replication-offset-checkpoint").write_bytes(content)
    log.start()
    assert (log.snapshot.log_start_offset, log.snapshot.high_watermark, log.end_offset) == (3, 10, 10)


def test_hw_4_the_checkpoint_is_written_when_it_moved(tmp_path: Path) -> None:
    """Spec E24: every five seconds, but not when nothing changed."""
    disk = RecordingFileSystem()
    log = CaseLog(tmp_path / "data", GROUP, file_system=disk)

    def written() -> int:
        disk.operations.clear()
        log.manager.checkpoint_high_watermarks()
        return disk.operations.count(("rename", "replication-offset-checkpoint"))

    log.fill(2)
    log.flush()
    assert [written(), written()] == [1, 0]
    log.fill(1)
    assert written() == 0
    log.flush()
    assert [written(), written()] == [1, 0]
    log.kill()


def test_a16_places_of_offsets() -> None:
    """Spec A16: (10,0,500) and (20,15,0): older, not the same, no difference; an offset alone knows nothing."""
    one = LogOffsetMetadata(Offset(10), Offset(0), Position(500))
    two = LogOffsetMetadata(Offset(20), Offset(15), Position(0))
    alone = LogOffsetMetadata(Offset(30))
    assert (one.on_older_segment(two), two.on_older_segment(one), one.on_same_segment(two)) == (True, False, False)
    with pytest.raises(ValueError, match="same segment"):
        two.position_difference(one)
    later = LogOffsetMetadata(Offset(12), Offset(0), Position(700))
    assert later.position_difference(one) == 200
    with pytest.raises(ValueError, match="before"):
        one.position_difference(later)
    assert (alone.segment_base_offset, alone.position) == (-1, -1)
    assert not alone.on_older_segment(one)
    assert not one.on_older_segment(alone)
    assert not alone.on_same_segment(alone)


# Flushing


def syncs(disk: RecordingFileSystem, name: str) -> int:
    return disk.operations.count(("sync", name))


def test_a20_flush_by_count(tmp_path: Path) -> None:
    """Spec A20: flush.messages=1 fsyncs inside every append; after a kill nothing is lost and the recovery point was
    the log end all along. A kill says nothing of fsync, so the operations are counted too."""
    disk = RecordingFileSystem()
    log = CaseLog(tmp_path / "data", {"flush.messages": 1}, file_system=disk)
    disk.operations.clear()
    for count in range(1, 201):
        log.fill(1)
        assert syncs(disk, f"{0:020d}.log") == count
        assert log.partition.recovery_point == log.end_offset == count
    log.manager.checkpoint()
    log.restart(clean=False)
    assert (log.end_offset, log.partition.recovery_point) == (200, 200)
    log.kill()


def test_a20_every_so_many_messages(tmp_path: Path) -> None:
    """At or above the count since the last flush; records count, not batches."""
    disk = RecordingFileSystem()
    log = CaseLog(tmp_path / "data", {"flush.messages": 10}, file_system=disk)
    disk.operations.clear()
    log.send(batch_of(9))
    assert (log.partition.recovery_point, syncs(disk, f"{0:020d}.log")) == (0, 0)
    log.send(batch_of(1))
    assert (log.partition.recovery_point, syncs(disk, f"{0:020d}.log")) == (10, 1)
    log.send(batch_of(25))
    assert (log.partition.recovery_point, syncs(disk, f"{0:020d}.log")) == (35, 2)
    log.kill()


def test_b4_flush_by_time(new_log: NewLog) -> None:
    """Spec B4: flush.ms=1000: due a second after the last flush, with no further append; never when nothing waits."""
    log = new_log({"flush.ms": 1000})
    log.clock.advance(5000)
    assert not log.partition.flush_due()
    log.flush()
    log.fill(3)
    log.clock.advance(999)
    assert not log.partition.flush_due()
    log.clock.advance(1)
    assert log.partition.flush_due()
    assert log.partition.recovery_point == 0
    log.flush()
    assert log.partition.recovery_point == log.end_offset == 3
    log.clock.advance(10_000)
    assert not log.partition.flush_due()


def test_b4_by_default_the_system_decides(new_log: NewLog) -> None:
    """Both default to 2^63-1."""
    log = new_log()
    log.fill(50)
    log.clock.advance(10**12)
    assert not log.partition.flush_due()
    assert log.partition.recovery_point == 0


def test_b4_a_clock_that_jumps_neither_hurries_nor_stops_it(new_log: NewLog) -> None:
    """Waiting goes by elapsed time, not by the wall."""
    log = new_log({"flush.ms": 1000})
    log.flush()
    log.fill(1)
    log.clock.jump(10**9)
    assert not log.partition.flush_due()
    log.clock.jump(-2 * 10**9)
    log.clock.advance(1000)
    assert log.partition.flush_due()


def test_e25_one_fsync_for_all_that_waits(tmp_path: Path) -> None:
    """Group commit (docs/explanation/durability.md#why-it-is-not-slow-group-commit); and none when nothing waits."""
    disk = RecordingFileSystem()
    log = CaseLog(tmp_path / "data", GROUP, file_system=disk)
    log.fill(20)
    disk.operations.clear()
    log.flush()
    log.flush()
    assert disk.operations == [("sync", f"{0:020d}.log")]
    assert (log.partition.recovery_point, log.snapshot.high_watermark) == (20, 20)
    log.kill()


def test_e25_after_a_roll(new_log: NewLog) -> None:
    """Spec E25: the recovery point is the new base, the high watermark with it: the roll made it durable."""
    log = new_log(GROUP | {"segment.bytes": 4 * SIZE})
    log.fill(9)
    assert log.base_offsets == [0, 4, 8]
    assert (log.partition.recovery_point, log.snapshot.high_watermark, log.end_offset) == (8, 8, 9)


def test_e25_checkpoints_name_every_partition(tmp_path: Path) -> None:
    """On-disk: `topic partition offset`, partitions in order; log starts only where they are above 0."""
    log = CaseLog(tmp_path / "data", partition_count=3)
    for number, count in enumerate((2, 0, 5)):
        partition = log.manager.partition(TOPIC, number)
        assert partition.name.partition == number
        for _ in range(count):
            _append(log, number)
        partition.flush()
        partition.publish()
    log.manager.partition(TOPIC, 2).delete_records(4)
    log.manager.partition(TOPIC, 2).publish()
    log.manager.checkpoint()
    log.manager.checkpoint_high_watermarks()
    logs = log.path / "logs"
    everything = f"0\n3\n{TOPIC} 0 2\n{TOPIC} 1 0\n{TOPIC} 2 5\n"
    assert (logs / "recovery-point-offset-checkpoint").read_text() == everything
    assert (logs / "replication-offset-checkpoint").read_text() == everything
    assert (logs / "log-start-offset-checkpoint").read_text() == f"0\n1\n{TOPIC} 2 4\n"
    log.kill()


def _append(log: CaseLog, number: int) -> None:
    partition = log.manager.partition(TOPIC, number)
    partition.append([AppendRequest(tuple(validate_batches(batch_of(), partition.config, log.clock.now_ms())))])
    partition.publish()


def test_a_failed_fsync_is_not_tried_again(tmp_path: Path) -> None:
    """Disk rule 3: the partition is offline, the group unknown; nothing becomes visible; reads go on."""
    disk = RecordingFileSystem()
    log = CaseLog(tmp_path / "data", GROUP, file_system=disk)
    log.fill(2)
    log.flush()
    log.fill(2)
    disk.refuse = {"sync"}
    with pytest.raises(PartitionFailedError):
        log.flush()
    disk.refuse = set()
    for _ in range(2):
        with pytest.raises(PartitionFailedError):
            log.flush()
        with pytest.raises(PartitionOfflineError):
            log.fill(1)
    assert log.partition.publish().high_watermark == 2
    assert log.offsets() == [0, 1]
    assert log.offsets(isolation=Isolation.LOG_END) == [0, 1, 2, 3]
    assert not log.manager.close()
    assert not (log.path / "logs" / ".kafka_cleanshutdown").exists()


def test_a_full_disk_refuses_and_takes_up_again(tmp_path: Path) -> None:
    """Disk rule 8: the request is answered, nothing of it stays, the next one is taken when there is room."""
    disk = RecordingFileSystem()
    log = CaseLog(tmp_path / "data", file_system=disk)
    log.fill(2)
    disk.refuse = {"write"}
    with pytest.raises(DiskFullError) as raised:
        log.fill(1)
    assert raised.value.__cause__.errno == errno.ENOSPC
    disk.refuse = set()
    assert log.partition.offline_reason is None
    log.fill(1)
    assert log.offsets() == [0, 1, 2]
    log.restart(clean=False)
    assert log.offsets() == [0, 1, 2]
    log.kill()


@pytest.mark.usefixtures("eager_threads")
def test_e25_a_flush_beside_appends(new_log: NewLog) -> None:
    """What a flush answers is covered by it, and the high watermark never passes what was flushed."""
    log = new_log(GROUP | {"segment.bytes": 20 * SIZE})
    done = threading.Event()
    answers: list[int] = []

    def flush_on() -> None:
        while not done.is_set():
            answers.append(log.partition.flush())

    flusher = threading.Thread(target=flush_on)
    flusher.start()
    try:
        for _ in range(200):
            log.fill(1)
            assert log.snapshot.high_watermark <= log.partition.durable_end_offset <= log.end_offset
    finally:
        done.set()
        flusher.join(60)
    assert answers == sorted(answers)
    log.flush()
    assert log.offsets() == list(range(200))
