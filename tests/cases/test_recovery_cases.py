"""Cases RC: what a start makes of what a stop, a kill or a bad disk left behind."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from log_model.clock import ManualClock
from log_model.errors import CorruptionError, DirectoryLockedError, PartitionOfflineError
from log_model.offsets import Offset
from log_model.reads import Isolation, OffsetRange
from rollway.records import Codec
from storage.disk.topic_metadata import is_topic_id
from storage.manager.log_manager import LogManager
from tests.cases.logs import TOPIC, CaseLog, assert_whole, batch_of
from tests.support.kafka_directory import KafkaDirectory, Segment, batch
from tests.support.recording_file_system import RecordingFileSystem

NewLog = Callable[..., CaseLog]
SIZE = len(batch_of())


def test_rc_1_cut_at_every_byte_of_the_last_batch(new_log: NewLog) -> None:
    """Spec B13 (a): the log ends where the last whole batch does, to the byte, and the next record gets that offset."""
    log = new_log()
    log.fill(3)
    log.send(batch_of(4, value=b"v" * 20))
    whole = log.file().read_bytes()
    boundary = 3 * SIZE
    last = batch_of(2, value=b"other")
    log.kill()
    for length in range(boundary, len(whole)):
        log.file().write_bytes(whole[:length])
        log.start()
        assert log.end_offset == 3
        assert log.file().read_bytes() == whole[:boundary]
        assert log.recovery.truncated_bytes == length - boundary
        assert log.recovery.damage == []
        assert log.send(last).base_offset == 3
        assert log.offsets() == [0, 1, 2, 3, 4]
        log.kill()
        # The first start began a new leader epoch; the next cut starts from what the first kill left.
        (log.directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    log.file().write_bytes(whole)
    log.start()
    assert log.end_offset == 7


def test_rc_1_nothing_is_cut_below_the_recovery_point(new_log: NewLog) -> None:
    """Stricter than Kafka, which cuts wherever it finds damage (disk rule 5): what was durable once is reported
    as damaged, no byte is removed, the rest can be read and nothing is appended."""
    log = new_log()
    log.fill(5)
    log.flush()
    log.manager.checkpoint()
    log.kill()
    whole = log.file().read_bytes()
    for length in (4 * SIZE, 4 * SIZE + 1, 5 * SIZE - 1, 2 * SIZE + 30, 0):
        log.file().write_bytes(whole[:length])
        log.start()
        kept = length // SIZE
        assert log.recovery.damage == [OffsetRange(Offset(kept), Offset(5))]
        assert log.file().read_bytes() == whole[:length]
        assert log.end_offset == 5
        with pytest.raises(CorruptionError):
            log.read(kept)
        if kept:
            assert log.offsets() == list(range(kept))
        with pytest.raises(PartitionOfflineError):
            log.send(batch_of())
        log.kill()


def test_rc_1_the_recovery_point_is_at_least_the_last_segments_base(new_log: NewLog) -> None:
    """Stricter than Kafka: a segment is fsynced before the next is created (disk rule 7), so damage below the
    last segment is never the tail of a crash, even when no checkpoint was ever written."""
    log = new_log()
    log.fill(3)
    log.roll()
    log.fill(3)
    log.kill()
    damaged = bytearray(log.file().read_bytes())
    damaged[2 * SIZE + 70] ^= 1
    log.file().write_bytes(damaged)
    log.start()
    assert log.recovery.damage == [OffsetRange(Offset(2), Offset(3))]
    assert log.base_offsets == [0, 3]
    assert log.file().read_bytes() == damaged
    assert log.offsets() == [0, 1]
    assert log.offsets(3) == [3, 4, 5]


def _garbage() -> dict[str, bytes]:
    source = random.Random(2)
    wrong_crc = bytearray(batch_of(3, base_offset=3))
    wrong_crc[-1] ^= 1
    return {
        "random, short": source.randbytes(1024),
        "random, long": source.randbytes(10_240),
        "zeros": bytes(4096),
        "one byte": b"\0",
        "a plausible header with a wrong CRC": bytes(wrong_crc),
        "a batch from before": batch_of(1, base_offset=1),
        "a batch from beyond": batch_of(1, base_offset=4),
        "a batch of another epoch": batch_of(1, base_offset=3, leader_epoch=9),
        "a length of 2 GiB": batch_of(1, base_offset=3)[:8] + b"\x7f\xff\xff\xff" + batch_of(1)[12:],
        "a negative length": batch_of(1, base_offset=3)[:8] + b"\xff\xff\xff\xff" + batch_of(1)[12:],
        "magic 1": batch_of(1, base_offset=3)[:16] + b"\1" + batch_of(1)[17:],
        "zeros, then a whole batch": bytes(100) + batch_of(1, base_offset=3),
    }


GARBAGE = _garbage()


@pytest.mark.parametrize("name", GARBAGE)
@pytest.mark.parametrize("preallocate", [False, True])
def test_rc_2_garbage_tail(new_log: NewLog, name: str, preallocate: bool) -> None:
    """Spec B13 (b): a nonsense block behind the last batch goes, nothing before it does; never skip and continue."""
    log = new_log({"preallocate": preallocate, "segment.bytes": 20_000})
    log.fill(3)
    good = log.read()
    log.kill()
    log.file().write_bytes(good + GARBAGE[name])
    log.start()
    assert log.end_offset == 3
    assert log.file().read_bytes() == good
    # Zeros at the end of a file that is preallocated were never data.
    cut = GARBAGE[name].rstrip(b"\0") if preallocate else GARBAGE[name]
    assert log.recovery.truncated_bytes == len(cut)
    log.fill(2)
    assert log.offsets() == list(range(5))
    log.restart(clean=False)
    assert log.offsets() == list(range(5))


def test_rc_2_a_flipped_bit_anywhere_in_the_last_batch(new_log: NewLog) -> None:
    """Disk rule 6: the CRC begins at byte 21; base offset, length, epoch and magic are checked on their own."""
    log = new_log()
    log.fill(3)
    whole = log.file().read_bytes()
    log.kill()
    for bit in range(8 * 2 * SIZE, 8 * 3 * SIZE):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        log.file().write_bytes(damaged)
        log.start()
        log.kill()
        assert log.end_offset == 2, f"bit {bit % 8} of byte {bit // 8 - 2 * SIZE}"
        assert log.file().read_bytes() == whole[: 2 * SIZE]
        (log.directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")


def test_b12_what_lies_behind_the_first_bad_batch_goes_too(new_log: NewLog) -> None:
    """Spec E20: recovery ends at the first batch that is not valid, though whole ones follow."""
    log = new_log()
    log.fill(9)
    log.kill()
    damaged = bytearray(log.file().read_bytes())
    damaged[5 * SIZE + 65] ^= 0x10
    log.file().write_bytes(damaged)
    log.start()
    assert log.end_offset == 5
    assert log.file().stat().st_size == 5 * SIZE
    log.fill(1)
    assert log.offsets() == list(range(6))


def test_rc_5_clean_stop(tmp_path: Path) -> None:
    """The marker is written last and gone after the start; nothing is scanned or mapped, nor is damage in the tail
    seen that no scan would find."""
    disk = RecordingFileSystem()
    log = CaseLog(tmp_path / "data", {"segment.bytes": 4 * SIZE}, file_system=disk)
    log.fill(10)
    disk.operations.clear()
    log.stop()
    marker = log.path / "logs" / ".kafka_cleanshutdown"
    assert [name for operation, name in disk.operations if operation == "rename"][-1] == marker.name
    content = json.loads(marker.read_text())
    assert is_topic_id(content.pop("rollwayRestingPartitions"))
    # A broker reads these two, and no others.
    assert content == {"version": 0, "brokerEpoch": -1}
    damaged = bytearray(log.file(8).read_bytes())
    damaged[-1] ^= 1
    log.file(8).write_bytes(damaged)
    log.start()
    assert log.manager.was_clean
    assert not marker.exists()
    assert (log.recovery.scanned_bytes, log.recovery.truncated_bytes) == (0, 0)
    assert log.end_offset == 10
    assert log.partition.recovery_point == 10
    log.kill()
    log.start()
    assert not log.manager.was_clean
    assert log.recovery.damage == [OffsetRange(Offset(9), Offset(10))]
    log.kill()


def test_rc_5_an_empty_marker_is_a_clean_stop(new_log: NewLog) -> None:
    """On-disk: its existence alone counts; older brokers left it empty."""
    log = new_log()
    log.fill(3)
    log.stop()
    marker = log.path / "logs" / ".kafka_cleanshutdown"
    for content in (b"", b"not JSON"):
        marker.write_bytes(content)
        log.start()
        assert log.manager.was_clean
        assert log.recovery.scanned_bytes == 0
        log.stop()


def test_rc_5_files_after_a_clean_stop(new_log: NewLog) -> None:
    """On-disk: after a clean stop trimmed files, producer snapshot at the log end, three checkpoints."""
    log = new_log({"segment.bytes": 4 * SIZE, "index.interval.bytes": 0, "preallocate": True})
    log.fill(10)
    log.delete_records(2)
    log.stop()
    assert log.file(8).stat().st_size == 2 * SIZE
    assert log.file(8, ".index").stat().st_size == 8
    assert log.file(8, ".timeindex").stat().st_size == 12
    assert log.file(10, ".snapshot").exists()
    logs = log.path / "logs"
    assert (logs / "recovery-point-offset-checkpoint").read_text() == f"0\n1\n{TOPIC} 0 10\n"
    assert (logs / "log-start-offset-checkpoint").read_text() == f"0\n1\n{TOPIC} 0 2\n"
    assert (logs / "replication-offset-checkpoint").read_text() == f"0\n1\n{TOPIC} 0 10\n"


@pytest.mark.parametrize("bad_offset", [0, 2, 3])
def test_rc_8_log_end_below_the_log_start(new_log: NewLog, bad_offset: int) -> None:
    """The log start checkpoint says 4, and the log is bad below it: one empty segment at 4."""
    log = new_log()
    log.fill(6)
    log.delete_records(4)
    log.kill()
    damaged = bytearray(log.file().read_bytes())
    damaged[bad_offset * SIZE + 70] ^= 1
    log.file().write_bytes(damaged)
    log.start()
    assert (log.base_offsets, log.snapshot.log_start_offset, log.end_offset) == ([4], 4, 4)
    assert log.file_names(".log") == [f"{4:020d}.log"]
    log.fill(2)
    for clean in (True, False):
        log.restart(clean=clean)
        assert log.offsets(4) == [4, 5]


@pytest.mark.parametrize("is_cut", [True, False])
def test_rc_8_a_transaction_that_was_open_below(new_log: NewLog, is_cut: bool) -> None:
    """As Kafka's ``LogLoader``: the log that begins again knows no producers. One that has its bytes knows them."""
    log = new_log()
    log.fill(2)
    log.send(batch_of(2, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    log.delete_records(4)
    log.kill()
    if is_cut:
        log.file().write_bytes(log.file().read_bytes()[: 2 * SIZE])
    log.start()
    assert (log.snapshot.log_start_offset, log.end_offset, log.snapshot.last_stable_offset) == (4, 4, 4)
    log.fill(1)
    log.flush()
    assert log.snapshot.last_stable_offset == (5 if is_cut else 4)


def test_rc_8_not_when_it_was_durable(new_log: NewLog) -> None:
    """Stricter than Kafka, which would drop the log: below the recovery point it is damage (disk rule 5).

    Among deleted records it harms nobody."""
    log = new_log()
    log.fill(6)
    log.flush()
    log.manager.checkpoint()
    log.delete_records(4)
    log.kill()
    damaged = bytearray(log.file().read_bytes())
    damaged[2 * SIZE + 70] ^= 1
    log.file().write_bytes(damaged)
    log.start()
    assert log.recovery.damage == []
    assert "offsets 2 to 3 are damaged, below the log start 4" in log.recovery.notes[0]
    assert log.file().read_bytes() == damaged
    assert log.offsets(4) == [4, 5]


def test_rc_9_the_recovery_point_stays_until_a_flush(new_log: NewLog) -> None:
    """After an unclean start what was recovered has been made durable, but recovery would begin where it did before."""
    log = new_log()
    log.fill(10)
    log.flush()
    log.manager.checkpoint()
    log.fill(5)
    log.restart(clean=False)
    assert (log.end_offset, log.partition.recovery_point) == (15, 10)
    log.fill(1)
    assert log.partition.recovery_point == 10
    log.flush()
    assert log.partition.recovery_point == 16


def test_rc_9_only_from_the_recovery_point_on_is_scanned(new_log: NewLog) -> None:
    """Spec E20: from the segment that holds it, to the end."""
    log = new_log()
    for _ in range(4):
        log.fill(5)
        log.roll()
    log.fill(2)
    log.flush()
    log.manager.checkpoint()
    log.fill(3)
    log.restart(clean=False)
    assert log.recovery.scanned_bytes == 5 * SIZE
    (log.path / "logs" / "recovery-point-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 12\n")
    log.restart(clean=False)
    assert log.recovery.scanned_bytes == 15 * SIZE


def test_rc_12_a_second_opening_is_refused(tmp_path: Path) -> None:
    """In this process and in another; the first goes on undisturbed, and lets the directory go when it stops."""
    log = CaseLog(tmp_path / "data")
    log.fill(3)
    with pytest.raises(DirectoryLockedError, match="data"):
        LogManager.open(tmp_path / "data", clock=ManualClock())
    program = (
        "import sys; from pathlib import Path\n"
        "from log_model.errors import DirectoryLockedError\n"
        "from storage.manager.log_manager import LogManager\n"
        "try:\n"
        "    manager = LogManager.open(Path(sys.argv[1]))\n"
        "except DirectoryLockedError as error:\n"
        "    print('refused:', error)\n"
        "else:\n"
        "    print('opened', manager.partition('cases', 0).snapshot.log_end_offset)\n"
        "    manager.close()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "data")]
    other = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert other.stdout.startswith("refused: ")
    assert str(tmp_path / "data" / "logs") in other.stdout
    log.fill(1)
    assert log.offsets() == [0, 1, 2, 3]
    log.stop()
    other = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert other.stdout == "opened 4\n"


def test_e20_files_set_aside(new_log: NewLog) -> None:
    """Spec E20: .deleted and .cleaned go; a .swap with a base at or above the lowest .cleaned goes, another is put in
    its place."""
    log = new_log()
    log.fill(4)
    log.roll()
    log.fill(4)
    content = log.log_files()
    log.kill()
    for suffix in (".log", ".index", ".timeindex"):
        log.file(0, suffix).rename(log.file(0, suffix + ".swap"))
        log.file(4, suffix + ".swap").write_bytes(b"half a compaction")
        log.file(4, suffix + ".cleaned").write_bytes(b"half a compaction")
        log.file(9, suffix + ".deleted").write_bytes(b"gone")
    log.start()
    assert log.log_files() == content
    assert not [name for name in log.file_names() if name.endswith((".swap", ".cleaned", ".deleted"))]
    assert log.offsets() == list(range(8))


def test_e20_other_files_are_left_alone(new_log: NewLog) -> None:
    """Whatever else lies there is nobody's business, and no reason not to start."""
    log = new_log()
    log.fill(2)
    log.kill()
    notes = [log.directory / name for name in ("notes.txt", "5.log.bak", "x.index", "00.snapshotx", "-1.log")]
    for note in notes:
        note.write_bytes(b"mine")
    log.start()
    assert log.offsets() == [0, 1]
    assert all(note.read_bytes() == b"mine" for note in notes)


def test_e20_a_kill_while_the_next_segment_is_made(new_log: NewLog) -> None:
    """An empty last segment, with or without its indexes, is where the log goes on."""
    log = new_log()
    log.fill(4)
    log.roll()
    log.kill()
    for suffix in (".timeindex", ".index", ".log"):
        log.file(4, suffix).unlink(missing_ok=True)
        log.start()
        assert (log.end_offset, log.recovery.damage) == (4, [])
        assert log.offsets() == [0, 1, 2, 3]
        log.kill()
    log.start()
    log.fill(1)
    assert_whole(log)


@pytest.mark.parametrize("lost", [(), (".index",), (".index", ".timeindex")])
@pytest.mark.parametrize("clean", [True, False])
def test_e20_offsets_too_far_from_the_base(tmp_path: Path, clean: bool, lost: tuple[str, ...]) -> None:
    """A segment whose offsets do not fit into an index entry, which only old brokers wrote, is split."""
    directory = KafkaDirectory(tmp_path)
    directory.configure(TOPIC, {"cleanup.policy": "compact", "flush.policy": "interval", "index.interval.bytes": 0})
    directory.add_partition(f"{TOPIC}-0", [Segment([batch(0, 1), batch(2**31 - 1, 1)])])
    directory.checkpoint("recovery-point-offset-checkpoint", (TOPIC, 0, 2**31 + 6))
    log_file = directory.logs / f"{TOPIC}-0" / f"{0:020d}.log"
    with log_file.open("ab") as file:
        file.write(batch(2**31 + 5, 1))
    content = log_file.read_bytes()
    for suffix in lost:
        log_file.with_suffix(suffix).unlink()
    if not clean:
        directory.stop_uncleanly()
    log = CaseLog(tmp_path)
    assert log.recovery.damage == []
    assert log.base_offsets == [0, 2**31 + 5]
    assert log.offsets() == [0, 2**31 - 1, 2**31 + 5]
    assert log.file().read_bytes() + log.file(2**31 + 5).read_bytes() == content
    log.kill()


def test_e20_a_topic_made_again_begins_anew(new_log: NewLog) -> None:
    """Checkpoints of a deleted topic say nothing of the next one of its name."""
    log = new_log({"segment.bytes": 4 * SIZE})
    for clean in (True, False):
        log.fill(20)
        log.flush()
        log.delete_records(10)
        log.manager.checkpoint()
        log.manager.checkpoint_high_watermarks()
        log.manager.delete_topic(TOPIC)
        log.manager.create_topic(TOPIC, 1, {"flush.policy": "interval"})
        log.fill(2)
        log.restart(clean=clean)
        assert log.recovery.damage == []
        assert log.offsets() == [0, 1]
        log.truncate(0)


@pytest.mark.parametrize("codec", list(Codec))
def test_e20_compressed_batches_recover_alike(new_log: NewLog, codec: Codec) -> None:
    """The CRC covers the compressed bytes; recovery decompresses nothing."""
    log = new_log()
    for _ in range(3):
        log.send(batch_of(20, value=b"v" * 50, codec=codec))
    whole = log.file().read_bytes()
    log.kill()
    log.file().write_bytes(whole[:-1])
    log.start()
    assert log.end_offset == 40
    assert log.offsets(isolation=Isolation.LOG_END) == list(range(40))


def test_e20_recovering_twice_is_recovering_once(new_log: NewLog) -> None:
    """A second start finds nothing more to do, and every file the same but for the new leader epoch."""
    log = new_log({"segment.bytes": 4 * SIZE, "index.interval.bytes": 0})
    log.fill(10)
    log.kill()
    with log.file(8).open("ab") as tail:
        tail.write(b"torn")
    log.start()
    first = log.log_files()
    log.restart(clean=False)
    assert log.recovery.truncated_bytes == 0
    assert log.log_files() == first
    assert_whole(log)
