"""The newest segment's file is gone: noticed by the indexes it leaves, also above a stale recovery point."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from log_model.errors import CorruptionError, PartitionOfflineError
from log_model.offsets import Offset
from log_model.reads import OffsetRange
from storage.log_inspection import Severity, verify_directory
from tests.cases.logs import CaseLog, batch_of

NewLog = Callable[..., CaseLog]
CONFIG: dict[str, object] = {"index.interval.bytes": 1}


def rolled_log(new_log: NewLog, *, is_checkpointed: bool = False) -> CaseLog:
    """Offsets 0 to 3 and 4 to 9 in two segments, killed; the recovery point on disk is 2 or 4."""
    log = new_log(CONFIG)
    log.fill(2)
    log.flush()
    log.manager.checkpoint()
    log.fill(2)
    log.roll()
    log.fill(6)
    if is_checkpointed:
        log.flush()
        log.manager.checkpoint()
    log.kill()
    return log


@pytest.mark.parametrize("is_checkpointed", [False, True])
@pytest.mark.parametrize("left", [(".index", ".timeindex"), (".index",), (".timeindex",)])
def test_the_loss_is_noticed_at_every_start(new_log: NewLog, left: tuple[str, ...], is_checkpointed: bool) -> None:
    log = rolled_log(new_log, is_checkpointed=is_checkpointed)
    kept = log.file(4).read_bytes()
    log.file(4).unlink()
    for suffix in {".index", ".timeindex"} - set(left):
        log.file(4, suffix).unlink()
    # All records have one timestamp, and the time index one entry.
    end = 10 if is_checkpointed or ".index" in left else 5
    for _ in range(2):
        told = [finding for finding in verify_directory(log.path).findings if "entries, but its log" in finding.message]
        assert [(finding.path.suffix, finding.severity) for finding in told] == [
            (suffix, Severity.DAMAGE) for suffix in left
        ]
        log.start()
        assert log.recovery.damage == [OffsetRange(Offset(4), Offset(end))]
        assert log.end_offset == end
        assert [record.offset for record in log.records(0)] == [0, 1, 2, 3]
        with pytest.raises(CorruptionError):
            log.read(4)
        with pytest.raises(PartitionOfflineError, match=f"{4:020d}.log is missing"):
            log.send(batch_of())
        log.kill()
    log.file(4).write_bytes(kept)
    log.start()
    assert log.recovery.damage == []
    assert log.offsets() == list(range(10))
    log.fill(1)


def test_the_loss_may_be_accepted(new_log: NewLog) -> None:
    """As docs/how-to/repair.md says: without its indexes nothing speaks for the segment."""
    log = rolled_log(new_log)
    log.file(4).unlink()
    log.start()
    assert log.partition.offline_reason is not None
    log.kill()
    for suffix in (".index", ".timeindex"):
        log.file(4, suffix).unlink()
    log.start()
    assert log.recovery.damage == []
    log.fill(1)
    assert log.offsets() == [0, 1, 2, 3, 4]


def test_the_only_segment(new_log: NewLog) -> None:
    log = new_log(CONFIG)
    log.fill(3)
    log.kill()
    log.file().unlink()
    for _ in range(2):
        log.start()
        assert log.recovery.damage == [OffsetRange(Offset(0), Offset(3))]
        log.kill()


def test_two_segments_at_once(new_log: NewLog) -> None:
    log = rolled_log(new_log)
    log.start()
    log.roll()
    log.fill(3)
    log.kill()
    for base_offset in (4, 10):
        log.file(base_offset).unlink()
    log.start()
    assert log.recovery.damage == [OffsetRange(Offset(4), Offset(13))]
    log.kill()


def test_the_end_of_the_segment_before_is_no_torn_tail_then(new_log: NewLog) -> None:
    """It was durable before the lost one began."""
    log = rolled_log(new_log)
    log.file(4).unlink()
    log.file(0).write_bytes(log.file(0).read_bytes()[:-1])
    log.start()
    assert log.recovery.damage == [OffsetRange(Offset(3), Offset(10))]
    assert log.offsets(0) == [0, 1, 2]
    log.kill()


def test_empty_indexes_tell_of_nothing(new_log: NewLog) -> None:
    """A roll that a power cut interrupts may leave them without a log."""
    log = rolled_log(new_log)
    log.file(4).unlink()
    for suffix in (".index", ".timeindex"):
        log.file(4, suffix).write_bytes(bytes(4800))
    log.start()
    assert log.recovery.damage == []
    assert log.end_offset == 4
    assert not verify_directory(log.path).is_damaged
    log.fill(2)
    assert log.offsets() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("is_renamed", [True, False])
def test_indexes_of_deleted_segments_tell_of_nothing(new_log: NewLog, is_renamed: bool) -> None:
    """A truncation, or retention, that was interrupted between a log and its indexes."""
    log = rolled_log(new_log)
    log.file(4).rename(log.file(4).with_name(log.file(4).name + ".deleted"))
    if is_renamed:
        log.file(4, ".index").rename(log.file(4).with_name(log.file(4, ".index").name + ".deleted"))
    log.start()
    assert log.recovery.damage == []
    assert log.end_offset == 4
    assert not [name for name in log.file_names() if name.endswith(".deleted")]
    log.fill(1)
    log.restart(clean=False)
    assert log.offsets() == [0, 1, 2, 3, 4]
