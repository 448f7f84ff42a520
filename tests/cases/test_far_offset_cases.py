"""Segments whose offsets lie more than 2^31-1 above their base, as old cleaners could leave them (spec E20)."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from log_model.offsets import Offset
from log_model.reads import Isolation, OffsetRange
from rollway.records import Codec
from storage.log_inspection import verify_directory
from tests.cases.logs import TOPIC, CaseLog, batch_of

NewLog = Callable[..., CaseLog]
FAR = 2**31
OFFSETS = [0, 1, FAR - 1, FAR, FAR + 1, 2 * FAR + 5, 2 * FAR + 6]
END = OFFSETS[-1] + 1


def stored(offset: int) -> bytes:
    return batch_of(value=b"%d" % offset, base_offset=offset, leader_epoch=0)


def copied_log(new_log: NewLog, *, policy: str = "compact", stop: str = "killed", is_last: bool = True) -> CaseLog:
    """A log of one hand-made segment with far offsets, and maybe another behind it."""
    log = new_log({"cleanup.policy": policy})
    if stop == "clean":
        log.stop()
    else:
        log.manager.checkpoint()
        log.kill()
    log.file().write_bytes(b"".join(map(stored, OFFSETS)))
    for suffix in (".index", ".timeindex"):
        log.file(0, suffix).unlink()
    if not is_last:
        log.file(END).write_bytes(stored(END))
    checkpoint = log.path / "logs" / "recovery-point-offset-checkpoint"
    checkpoint.write_text(f"0\n1\n{TOPIC} 0 {END}\n")
    # Another program made the files, so a start opens all partitions.
    (log.path / "rollway" / "resting-partitions").unlink()
    return log


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("stop", ["clean", "killed"])
def test_the_segment_is_split(new_log: NewLog, stop: str, is_last: bool) -> None:
    log = copied_log(new_log, stop=stop, is_last=is_last)
    log.start()
    offsets = OFFSETS + ([] if is_last else [END])
    assert log.recovery.damage == []
    assert log.base_offsets == [0, FAR, 2 * FAR + 5] + ([] if is_last else [END])
    assert sum("is split at" in note for note in log.recovery.notes) == 2
    for clean in (True, False, True):
        assert log.offsets() == offsets
        for offset in OFFSETS:
            assert log.records(offset)[0].value == b"%d" % offset
        log.send(batch_of())
        offsets.append(offsets[-1] + 1)
        log.restart(clean=clean)
        assert log.recovery.notes == []
    log.stop()
    assert not verify_directory(log.path).is_damaged


def test_what_nothing_confirms_is_no_far_offset(new_log: NewLog) -> None:
    """No CRC covers offsets: above the recovery point a far one is taken for a damaged tail."""
    log = copied_log(new_log)
    (log.path / "logs" / "recovery-point-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 2\n")
    log.start()
    assert log.base_offsets == [0]
    assert log.offsets() == [0, 1, FAR - 1]


def test_a_damaged_offset_below_the_recovery_point_is_none(new_log: NewLog) -> None:
    log = copied_log(new_log)
    content = bytearray(log.file().read_bytes())
    struct.pack_into(">q", content, len(stored(0)), 3 * FAR)
    log.file().write_bytes(content)
    log.start()
    assert log.base_offsets[0] == 0
    assert log.recovery.damage[0].start == 1
    assert log.offsets(0, Isolation.LOG_END)[:1] == [0]


def test_other_topics_have_no_such_segments(new_log: NewLog) -> None:
    """Without compaction no offsets are missing, and a file cannot hold as many."""
    log = copied_log(new_log, policy="delete")
    log.start()
    assert log.base_offsets == [0]
    assert log.recovery.damage == [OffsetRange(Offset(2), Offset(END))]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_batch_that_reaches_beyond(new_log: NewLog, codec: Codec) -> None:
    """It begins near enough and ends too far: it goes with what follows."""
    log = copied_log(new_log)
    reaching = batch_of(4, codec=codec, base_offset=FAR - 2, leader_epoch=0)
    log.file().write_bytes(stored(0) + reaching + stored(FAR + 7))
    checkpoint = log.path / "logs" / "recovery-point-offset-checkpoint"
    checkpoint.write_text(f"0\n1\n{TOPIC} 0 {FAR + 8}\n")
    log.start()
    assert log.base_offsets == [0, FAR - 2]
    assert log.offsets() == [0, FAR - 2, FAR - 1, FAR, FAR + 1, FAR + 7]


def test_aborted_transactions_go_with_their_markers(new_log: NewLog) -> None:
    log = copied_log(new_log, stop="clean")
    entries = [
        struct.pack(">hqqqq", 0, producer, first, last, last + 1)
        for producer, first, last in ((7, 0, 1), (8, 1, FAR + 1), (9, FAR + 1, 2 * FAR + 6))
    ]
    log.file(0, ".txnindex").write_bytes(b"".join(entries))
    log.start()
    assert log.base_offsets == [0, FAR, 2 * FAR + 5]
    assert log.file(FAR, ".txnindex").read_bytes() == entries[1]
    assert log.file(2 * FAR + 5, ".txnindex").read_bytes() == entries[2]
    assert [entry.producer_id for entry in log.aborted(FAR)] == [8, 9]
