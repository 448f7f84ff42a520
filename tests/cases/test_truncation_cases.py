"""Case TR: cutting a log off at an offset, and all that must follow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from log_model.offsets import Offset
from log_model.reads import Isolation, OffsetRange
from tests.cases.logs import START_MS, TOPIC, CaseLog, assert_whole, batch_of, refused
from tests.support.kafka_directory import KafkaDirectory, Segment, batch

NewLog = Callable[..., CaseLog]
SIZE = len(batch_of())


def restarts(log: CaseLog) -> None:
    """The log is the same after every way of starting again."""

    def state() -> tuple[list[int], int, int]:
        start = log.snapshot.log_start_offset
        return log.offsets(start, Isolation.LOG_END), log.end_offset, start

    before = state()
    for clean in (True, True, False, False, True):
        log.restart(clean=clean)
        assert log.recovery.damage == []
        assert state() == before


@pytest.mark.parametrize("target", [10, 11, 2**40])
def test_tr_1_nothing_above_the_end(new_log: NewLog, target: int) -> None:
    """At or above the log end nothing changes, but for epochs that begin there."""
    log = new_log({"segment.bytes": 4 * SIZE})
    log.fill(10)
    before = log.log_files()
    log.truncate(target)
    assert (log.end_offset, log.log_files()) == (10, before)
    log.partition.epochs.assign(5, 10)
    log.truncate(target)
    assert [entry.epoch for entry in log.partition.epochs.entries] == ([0] if target == 10 else [0, 5])


def test_tr_1_to_zero(new_log: NewLog) -> None:
    log = new_log({"segment.bytes": 4 * SIZE})
    log.fill(10)
    log.truncate(0)
    assert (log.base_offsets, log.end_offset, log.snapshot.high_watermark) == ([0], 0, 0)
    assert log.file().stat().st_size == 0
    assert log.file_names(".log") == [f"{0:020d}.log"]
    log.fill(3)
    assert_whole(log)
    restarts(log)


@pytest.mark.parametrize("target", range(11))
@pytest.mark.parametrize("roll_every", [1, 3, 100])
def test_tr_1_every_batch_boundary(new_log: NewLog, target: int, roll_every: int) -> None:
    """Segments above the target go, one that begins there stays and is empty; what is appended then is the next."""
    log = new_log({"index.interval.bytes": 0})
    for number in range(10):
        if number and number % roll_every == 0:
            log.roll()
        log.send(batch_of(timestamps=[START_MS + number]))
    bases = log.base_offsets
    log.truncate(target)
    assert log.end_offset == target
    assert log.base_offsets == [base for base in bases if base <= target]
    assert log.offsets() == list(range(target))
    newest = log.snapshot.max_timestamp()
    assert newest is None if target == 0 else newest.offset == target - 1
    log.send(batch_of(timestamps=[START_MS + 100]))
    assert log.snapshot.max_timestamp().offset == target
    assert_whole(log)
    restarts(log)


@pytest.mark.parametrize("target", range(1, 30))
def test_tr_1_inside_a_batch(new_log: NewLog, target: int) -> None:
    """The whole batch goes and the log end is the target even so. Stricter than Kafka behind it: the next record
    begins a segment and an epoch of its own, so that a later start can tell the gap from damage."""
    log = new_log({"index.interval.bytes": 0})
    for first in range(0, 30, 10):
        log.send(batch_of(10, first_timestamp=START_MS + first))
    log.truncate(target)
    assert (log.end_offset, log.snapshot.high_watermark) == (target, target)
    kept = list(range(target // 10 * 10))
    assert log.offsets() == kept
    assert log.read(len(kept)) == b""
    restarts(log)
    log.send(batch_of(3))
    assert log.offsets() == [*kept, target, target + 1, target + 2]
    for offset in range(len(kept), target + 1):
        assert log.offsets(offset) == [target, target + 1, target + 2]
    restarts(log)


@pytest.mark.parametrize("again", [15, 14, 11, 10, 9, 5, 0])
@pytest.mark.parametrize("restarted", [None, True, False])
def test_tr_1_again_where_a_gap_is(new_log: NewLog, again: int, restarted: bool | None) -> None:
    """A second truncation at the gap's end, inside the gap, before it."""
    log = new_log({"index.interval.bytes": 0})
    for _ in range(3):
        log.send(batch_of(10))
    log.flush()
    log.manager.checkpoint()
    log.truncate(15)
    if restarted is not None:
        log.restart(clean=restarted)
    log.truncate(again)
    assert log.end_offset == again
    restarts(log)
    log.send(batch_of(2))
    log.flush()
    log.manager.checkpoint()
    assert log.offsets() == [*(range(10) if again >= 10 else ()), again, again + 1]
    restarts(log)


def test_tr_1_into_a_gap(tmp_path: Path) -> None:
    """Offsets 40, then 43: 41 keeps 40."""
    directory = KafkaDirectory(tmp_path)
    directory.configure(TOPIC, {"cleanup.policy": "compact", "flush.policy": "interval"})
    directory.add_partition(f"{TOPIC}-0", [Segment([batch(40, 1), batch(43, 1)])])
    directory.checkpoint("log-start-offset-checkpoint", (TOPIC, 0, 40))
    directory.checkpoint("recovery-point-offset-checkpoint", (TOPIC, 0, 44))
    log = CaseLog(tmp_path)
    assert log.offsets(40) == [40, 43]
    log.truncate(41)
    assert (log.offsets(40), log.end_offset) == ([40], 41)
    log.fill(2)
    assert log.offsets(40) == [40, 41, 42]
    restarts(log)
    log.kill()


def test_tr_1_below_the_first_segment(new_log: NewLog) -> None:
    """One empty segment at the target; the log start follows, down."""
    log = new_log({"segment.bytes": 4 * SIZE})
    log.partition.truncate_fully_and_start_at(100)
    log.fill(10)
    log.truncate(50)
    assert (log.base_offsets, log.snapshot.log_start_offset, log.end_offset) == ([50], 50, 50)
    assert log.file_names(".log") == [f"{50:020d}.log"]
    log.fill(2)
    assert log.offsets(50) == [50, 51]
    restarts(log)


@pytest.mark.parametrize("target", [-1, -(2**63)])
def test_tr_1_negative(new_log: NewLog, target: int) -> None:
    log = new_log()
    log.fill(3)
    before = log.log_files()
    with pytest.raises(ValueError, match=str(target)):
        log.truncate(target)
    with pytest.raises(ValueError, match=str(target)):
        log.partition.truncate_fully_and_start_at(target)
    assert (log.end_offset, log.log_files()) == (3, before)
    log.fill(1)


@pytest.mark.parametrize("offset", [0, 7, 100])
def test_e21_truncate_fully_and_start_at(new_log: NewLog, offset: int) -> None:
    """Spec E21: everything is gone, producers included; one empty segment at the offset."""
    log = new_log({"segment.bytes": 4 * SIZE})
    log.send(batch_of(producer_id=1, producer_epoch=0, base_sequence=0))
    log.fill(10)
    log.flush()
    log.partition.truncate_fully_and_start_at(offset)
    assert (log.base_offsets, log.snapshot.log_start_offset, log.end_offset) == ([offset], offset, offset)
    assert log.partition.recovery_point == min(offset, 11)
    assert log.partition.producers.entries == {}
    assert log.snapshot.max_timestamp() is None
    restarts(log)
    log.fill(2)
    restarts(log)


def test_e21_points_follow(new_log: NewLog) -> None:
    """Spec E21: log start, high watermark and recovery point are lowered to the target, none is raised; on disk too,
    before anything is cut, or a start would take the rest for damage."""
    log = new_log({"segment.bytes": 4 * SIZE})
    log.fill(10)
    log.flush()
    log.delete_records(6)
    log.manager.checkpoint()
    assert log.partition.recovery_point == 10
    log.truncate(8)
    snapshot = log.snapshot
    assert (snapshot.log_start_offset, snapshot.high_watermark, log.partition.recovery_point) == (6, 8, 8)
    log.truncate(5)
    snapshot = log.snapshot
    assert (snapshot.log_start_offset, snapshot.high_watermark, log.partition.recovery_point) == (5, 5, 5)
    assert f"{TOPIC} 0 5" in (log.path / "logs" / "recovery-point-offset-checkpoint").read_text()
    restarts(log)


def test_e21_epochs_follow(new_log: NewLog) -> None:
    """Spec E1: epochs that begin at the target or above are forgotten; the next batch carries the one that is left."""
    log = new_log()
    for _ in range(3):
        log.fill(5)
        log.restart(clean=False)
    assert [tuple(entry) for entry in log.partition.epochs.entries] == [(0, 0), (1, 5), (2, 10), (3, 15)]
    log.truncate(10)
    assert [tuple(entry) for entry in log.partition.epochs.entries] == [(0, 0), (1, 5)]
    log.fill(1)
    assert log.headers()[-1].partition_leader_epoch == 1
    restarts(log)


def test_e21_producers_follow(new_log: NewLog) -> None:
    """Spec E21: state is rebuilt from snapshot and replay, so that the sequences that were cut are accepted again."""
    log = new_log({"segment.bytes": 4 * SIZE})
    bodies = [batch_of(producer_id=1, producer_epoch=0, base_sequence=sequence) for sequence in range(12)]
    for body in bodies:
        log.send(body)
    assert log.file_names(".snapshot") == [f"{base:020d}.snapshot" for base in log.base_offsets[1:]]
    log.truncate(6)
    assert log.file_names(".snapshot") == [f"{4:020d}.snapshot"]
    assert log.send(bodies[5]).duplicate
    with refused(log, 45):
        log.send(bodies[7])
    assert log.send(bodies[6]).base_offset == 6
    log.truncate(2)
    assert log.file_names(".snapshot") == []
    assert log.send(bodies[2]).base_offset == 2
    log.truncate(0)
    assert log.send(bodies[9]).base_offset == 0
    restarts(log)


def test_e21_readers_of_what_is_kept_read_on(new_log: NewLog) -> None:
    """A snapshot of before shows what was cut as an error, never as other bytes; what was kept is the same."""
    log = new_log({"segment.bytes": 4 * SIZE, "index.interval.bytes": 0})
    log.fill(10)
    kept = log.read(0)[: 5 * SIZE]
    log.truncate(5)
    assert log.read(0) == kept
    log.fill(5, first_timestamp=START_MS + 500)
    assert log.read(0)[: 5 * SIZE] == kept
    assert_whole(log)


@pytest.mark.parametrize("clean", [True, False])
def test_e21_truncation_after_a_restart(new_log: NewLog, clean: bool) -> None:
    """Segments that nobody has opened since the start are cut like others, by size and by time."""
    log = new_log({"segment.bytes": 4 * SIZE, "index.interval.bytes": 0})
    for number in range(20):
        log.send(batch_of(timestamps=[START_MS + number * 10]))
    log.restart(clean=clean)
    log.truncate(10)
    assert log.offsets() == list(range(10))
    assert log.snapshot.max_timestamp().timestamp == START_MS + 90
    assert log.snapshot.offset_for_timestamp(START_MS + 91) is None
    log.send(batch_of(timestamps=[START_MS + 5]))
    log.roll()
    assert log.snapshot.max_timestamp().timestamp == START_MS + 90
    assert_whole(log)
    restarts(log)


@pytest.mark.parametrize("clean", [True, False])
def test_a_lost_segment_may_be_accepted(new_log: NewLog, clean: bool) -> None:
    """As docs/how-to/repair.md says: who writes the gap down has the partition back, without those records."""
    log = new_log()
    for _ in range(3):
        log.fill(2)
        log.roll()
    log.fill(1)
    log.stop()
    log.file(2).unlink()
    log.start()
    assert log.recovery.damage == [OffsetRange(Offset(2), Offset(4))]
    log.kill()
    noted = log.path / "rollway" / "truncation-gaps"
    noted.write_text(json.dumps({"version": 1, "truncation_gaps": [[TOPIC, 0, 2, 4]]}))
    log.start()
    assert log.partition.offline_reason is None
    log.fill(1)
    for _ in range(2):
        assert log.offsets() == [0, 1, 4, 5, 6, 7]
        assert [record.offset for record in log.records(2)] == [4, 5, 6, 7]
        log.restart(clean=clean)
    assert json.loads(noted.read_text())["truncation_gaps"] == [[TOPIC, 0, 2, 4]]
    assert noted.with_name("truncation-gaps-copy").read_bytes() == noted.read_bytes()
