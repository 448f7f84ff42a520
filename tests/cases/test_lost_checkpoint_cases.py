"""Cases RC-10 and RC-11: checkpoints, leader epochs and producer snapshots that are lost or damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from log_model.errors import PartitionOfflineError
from log_model.offsets import Offset
from log_model.reads import OffsetRange
from tests.cases.logs import TOPIC, CaseLog, batch_of, refused

NewLog = Callable[..., CaseLog]
SIZE = len(batch_of())


BAD_CHECKPOINTS = {
    "missing": None,
    "empty": b"",
    "garbage": b"\x80\xff not a checkpoint",
    "another version": b"7\n1\ncases 0 3\n",
    "a line too few": b"0\n2\ncases 0 3\n",
    "a line too many": b"0\n1\ncases 0 3\ncases 1 3\n",
    "a line cut off": b"0\n1\ncases 0 ",
    "no final newline": b"0\n1\ncases 0 3",
    "a negative offset": b"0\n1\ncases 0 -3\n",
    "not a number": b"0\n1\ncases 0 three\n",
    "a huge number": b"0\n1\ncases 0 99999999999999999999\n",
    "twice": b"0\n2\ncases 0 3\ncases 0 4\n",
}


@pytest.mark.parametrize("name", BAD_CHECKPOINTS)
@pytest.mark.parametrize("kind", ["recovery-point-offset", "log-start-offset", "replication-offset"])
@pytest.mark.parametrize("clean", [True, False])
def test_rc_10_bad_checkpoint_files(new_log: NewLog, kind: str, name: str, clean: bool) -> None:
    """It still starts: what cannot be read counts as absent, which means more scanning and no loss.

    The log start survives even so: the leader epochs say where the oldest one begins.
    """
    log = new_log({"segment.bytes": 4 * SIZE})
    log.fill(10)
    log.delete_records(5)
    log.manager.checkpoint()
    log.manager.checkpoint_high_watermarks()
    if clean:
        log.stop()
    else:
        log.kill()
    path = log.path / "logs" / f"{kind}-checkpoint"
    content = BAD_CHECKPOINTS[name]
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    log.start()
    assert log.recovery.damage == []
    if kind == "recovery-point-offset" and not clean:
        assert log.recovery.scanned_bytes == 6 * SIZE
    assert (log.snapshot.log_start_offset, log.snapshot.high_watermark, log.end_offset) == (5, 10, 10)
    log.fill(2)
    log.restart(clean=True)
    assert log.offsets(5) == list(range(5, 12))


def test_rc_10_a_recovery_point_above_the_log_end(new_log: NewLog) -> None:
    """Kafka starts and believes the log. Here the checkpoint is a promise that the records were durable: what is
    missing is damage, reported and never filled with other records (disk rule 5)."""
    log = new_log()
    log.fill(3)
    log.kill()
    (log.path / "logs" / "recovery-point-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 100\n")
    log.start()
    assert log.recovery.damage == [OffsetRange(Offset(3), Offset(100))]
    assert log.offsets() == [0, 1, 2]
    with pytest.raises(PartitionOfflineError):
        log.send(batch_of())


@pytest.mark.parametrize("content", [None, b"", b"rubbish", b"0\n1\n0 0"])
@pytest.mark.parametrize("clean", [True, False])
def test_rc_10_bad_leader_epochs(new_log: NewLog, content: bytes | None, clean: bool) -> None:
    """They are made anew from the batches; the log stays as it is."""
    log = new_log({"segment.bytes": 4 * SIZE})
    log.fill(5)
    log.restart(clean=False)
    log.fill(5)
    assert log.partition.leader_epoch == 1
    if clean:
        log.stop()
    else:
        log.kill()
    path = log.directory / "leader-epoch-checkpoint"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    log.start()
    assert log.recovery.damage == []
    assert log.offsets() == list(range(10))
    assert [tuple(entry) for entry in log.partition.epochs.entries][:2] == [(0, 0), (1, 5)]
    log.fill(1)
    epochs = [header.partition_leader_epoch for header in log.headers()]
    assert epochs == sorted(epochs)
    (log.path / "logs" / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    log.restart(clean=False)
    assert log.recovery.damage == []
    assert log.offsets() == list(range(11))


def idempotent(log: CaseLog, first: int, last: int) -> list[bytes]:
    """Send the batches with these sequences, one record each, and return them."""
    bodies = [batch_of(producer_id=5, producer_epoch=0, base_sequence=sequence) for sequence in range(first, last)]
    for body in bodies:
        log.send(body)
    return bodies


BAD_SNAPSHOTS = {
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "a bad CRC": lambda content: content[:2] + bytes([content[2] ^ 1]) + content[3:],
    "another version": lambda content: b"\0\7" + content[2:],
    "a flipped bit": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "a count that is too high": lambda content: content[:6] + b"\x7f\xff\xff\xff" + content[10:],
}


@pytest.mark.parametrize("name", BAD_SNAPSHOTS)
@pytest.mark.parametrize("bad_count", [1, 2, 3])
@pytest.mark.parametrize("clean", [True, False])
def test_rc_11_bad_producer_snapshots(new_log: NewLog, name: str, bad_count: int, clean: bool) -> None:
    """The newest valid one is taken and the batches behind it replayed; damaged ones go; sequences keep working."""
    log = new_log({"segment.bytes": 4 * SIZE})
    bodies = idempotent(log, 0, 14)
    if clean:
        log.stop()
    else:
        log.kill()
    snapshots = log.file_names(".snapshot")
    assert len(snapshots) >= 3
    for snapshot in snapshots[-bad_count:]:
        path = log.directory / snapshot
        path.write_bytes(BAD_SNAPSHOTS[name](path.read_bytes()))
    log.start()
    assert log.file_names(".snapshot") == snapshots[:-bad_count]
    repeated = log.send(bodies[13])
    assert (repeated.base_offset, repeated.duplicate) == (13, True)
    with refused(log, 45):
        log.send(batch_of(producer_id=5, producer_epoch=0, base_sequence=15))
    idempotent(log, 14, 16)
    assert log.end_offset == 16


def test_rc_11_a_snapshot_beyond_the_log_end_is_not_taken(new_log: NewLog) -> None:
    """Spec E20: the newest valid one at or below the log end; the log may grow to that offset with other batches."""
    log = new_log()
    bodies = idempotent(log, 0, 3)
    log.roll()
    idempotent(log, 3, 5)
    log.kill()
    log.file(3).write_bytes(b"")
    shutil.copy(log.file(3, ".snapshot"), log.file(5, ".snapshot"))
    log.start()
    assert log.end_offset == 3
    assert log.file_names(".snapshot") == [f"{3:020d}.snapshot"]
    assert log.send(bodies[2]).duplicate
    idempotent(log, 3, 4)


@pytest.mark.parametrize("clean", [True, False])
def test_rc_11_stray_snapshots_go(new_log: NewLog, clean: bool) -> None:
    """Those of no segment's base, except the one of the clean stop, which is the newest."""
    log = new_log({"segment.bytes": 4 * SIZE})
    idempotent(log, 0, 14)
    if clean:
        log.stop()
    else:
        log.kill()
    kept = log.file_names(".snapshot")
    for stray in (1, 2, 6, 13):
        shutil.copy(log.directory / kept[0], log.file(stray, ".snapshot"))
    log.start()
    # After a kill the newest one is above all bases too; it holds the wrong producers but is valid: Kafka keeps it.
    assert [name for name in log.file_names(".snapshot") if int(name[:20]) != 13] == kept
    if clean:
        assert log.file_names(".snapshot") == kept
        idempotent(log, 14, 15)
