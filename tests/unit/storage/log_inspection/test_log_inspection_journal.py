"""``log verify`` and the journal of a service that was killed: what the next start writes is no damage, and what it
refuses is. Each verdict is held against a start of a copy of the directory."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import crc32c
import pytest

from log_model.clock import ManualClock
from log_model.errors import CorruptionError
from storage.disk.file_system import LocalFileSystem
from storage.journal.journal_files import JournalLimits
from storage.log.partition_log import PartitionLog
from storage.log_inspection import DirectoryReport, MissingBytesSearch, Severity, verify_directory
from storage.manager.log_manager import LogManager
from tests.cases.logs import CONFIG
from tests.support.writers import append_request

BLOCK = 4096
FIRST = "00000000000000000000.log"
LIMITS = JournalLimits(file_count_max=3, file_bytes=5 * BLOCK, step_bytes=BLOCK)
PARTITIONS = 3
ROUNDS = 3
VALUE = b"value" * 40


class Killed:
    """A data directory whose service was killed, and the lengths that the segments had after the last fsync."""

    def __init__(self, path: Path, *, rounds: int = ROUNDS, frees: Callable[[], bool] = lambda: False) -> None:
        """``frees`` decides after each round whether full files of the journal are freed, and written to again."""
        self.path = path
        self.manager = LogManager.open(path, clock=ManualClock(), ballast_bytes=1, journal_limits=LIMITS)
        self.topic, _ = self.manager.create_topic("t", PARTITIONS, CONFIG)
        self.logs = self.topic.partitions
        for log in self.logs:
            append(log, b"fsynced by itself")
            log.flush(to_segment=True)
        self.fsynced_bytes = [self.segment(number).stat().st_size for number in range(PARTITIONS)]
        for _ in range(rounds):
            for log in self.logs:
                append(log, VALUE)
            answers = self.manager.journal.flush(self.logs)
            if frees():
                self.manager.journal.free()
            for number, (log, is_durable) in enumerate(zip(self.logs, answers, strict=True)):
                # Without a free file each log is flushed by itself.
                if not is_durable:
                    log.flush(to_segment=True)
                if log.writer.fsynced_end == log.writer.written.log_end.offset:
                    self.fsynced_bytes[number] = self.segment(number).stat().st_size
        self.manager.checkpoint()
        self.ends = [int(log.snapshot.log_end_offset) for log in map(published, self.logs)]
        self.manager.checkpoint_high_watermarks()
        self.lengths = [self.segment(number).stat().st_size for number in range(PARTITIONS)]
        self.manager._lock.release()

    @property
    def journal(self) -> Path:
        return self.path / "rollway" / "journal"

    def segment(self, number: int) -> Path:
        return self.path / "logs" / f"t-{number}" / FIRST

    def lose_tails(self) -> Killed:
        """Cut the segments to what their own fsyncs covered, as a power cut may."""
        for number, size_bytes in enumerate(self.fsynced_bytes):
            with self.segment(number).open("r+b") as file:
                file.truncate(size_bytes)
        return self

    def copy(self, path: Path) -> Path:
        shutil.copytree(self.path, path)
        return path


def append(log: PartitionLog, value: bytes) -> None:
    log.append([append_request(log, value)])


def published(log: PartitionLog) -> PartitionLog:
    log.publish()
    return log


def damage(report: DirectoryReport) -> list[str]:
    return [finding.sentence for finding in report.findings if finding.severity is Severity.DAMAGE]


def notes(report: DirectoryReport) -> list[str]:
    return [finding.sentence for finding in report.findings if finding.severity is Severity.NOTE]


def change(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int) -> None:
    change(path, position, bytes([path.read_bytes()[position] ^ 0x01]))


def is_accepted(path: Path) -> bool:
    """Start on the directory, and stop again if that goes."""
    try:
        manager = LogManager.open(path, clock=ManualClock(), ballast_bytes=1, journal_limits=LIMITS)
    except CorruptionError:
        return False
    assert manager.close()
    return True


@pytest.fixture
def killed(tmp_path: Path) -> Killed:
    return Killed(tmp_path / "data")


# The journal is whole


def test_a_killed_service_has_no_damage(killed: Killed) -> None:
    report = verify_directory(killed.path)
    assert damage(report) == []
    assert not any("journal" in note for note in notes(report)), "the segments have everything"
    assert not report.is_clean


@pytest.mark.parametrize("cut_bytes", [0, 1, 30, 100])
def test_bytes_that_only_the_journal_has_are_a_note(killed: Killed, tmp_path: Path, cut_bytes: int) -> None:
    """A segment ends anywhere; the report reads it as the next start will have written it."""
    killed.lose_tails()
    with killed.segment(1).open("r+b") as file:
        file.truncate(killed.fsynced_bytes[1] + cut_bytes)
    lacking = [length - fsynced for length, fsynced in zip(killed.lengths, killed.fsynced_bytes, strict=True)]
    report = verify_directory(killed.path)
    assert damage(report) == []
    said = [note for note in notes(report) if "the journal has" in note]
    assert [note.split(":")[0] for note in said] == [str(killed.segment(number).parent) for number in range(PARTITIONS)]
    for number in (0, 2):
        assert said[number] == (
            f"{killed.segment(number).parent}: the journal has {lacking[number]} bytes that the segments lack; the "
            "next start writes them again."
        )
    assert [partition.log_end_offset for partition in report.partitions] == killed.ends
    assert is_accepted(killed.copy(tmp_path / "copy"))
    after = verify_directory(tmp_path / "copy")
    assert after.findings == ()
    assert after.is_clean
    assert [partition.record_count for partition in after.partitions] == [
        partition.record_count for partition in report.partitions
    ]


def test_torn_bytes_below_the_pieces_end_are_no_damage(killed: Killed, tmp_path: Path) -> None:
    for number in range(PARTITIONS):
        middle = (killed.fsynced_bytes[number] + killed.lengths[number]) // 2
        change(killed.segment(number), middle, b"\xff" * 20)
    with killed.segment(2).open("ab") as file:
        file.write(b"torn and in no entry of the journal")
    report = verify_directory(killed.path)
    assert damage(report) == []
    assert sum("the journal has" in note for note in notes(report)) == PARTITIONS
    assert any(
        "the next start cuts them off" in note and f"position {killed.lengths[2]}" in note for note in notes(report)
    )
    assert is_accepted(killed.copy(tmp_path / "copy"))
    assert verify_directory(tmp_path / "copy").findings == ()


def test_damage_below_the_pieces_is_still_found(killed: Killed) -> None:
    flip(killed.lose_tails().segment(0), 70)
    (sentence,) = damage(verify_directory(killed.path))
    assert "does not match its CRC" in sentence


def test_one_topic_and_one_partition_have_only_their_notes(killed: Killed) -> None:
    killed.lose_tails()
    partition = killed.segment(1).parent
    report = verify_directory(partition)
    assert damage(report) == []
    assert [note.split(":")[0] for note in notes(report) if "the journal has" in note] == [str(partition)]
    assert damage(verify_directory(killed.path / "logs")) == []


def test_a_segment_that_the_journal_fills_in_again_may_not_be_missing(killed: Killed) -> None:
    for file in killed.segment(0).parent.glob("*.*index"):
        file.unlink()
    killed.segment(0).unlink()
    assert f"{killed.segment(0)}: the journal has bytes of this segment, but its log is missing." in damage(
        verify_directory(killed.path)
    )


def test_a_segment_that_ends_before_its_first_piece_is_damaged(killed: Killed) -> None:
    with killed.segment(0).open("r+b") as file:
        file.truncate(killed.fsynced_bytes[0] - 1)
    assert damage(verify_directory(killed.path))[0] == (
        f"{killed.segment(0)}, position {killed.fsynced_bytes[0] - 1}: the segment ends here, but the journal "
        f"continues at position {killed.fsynced_bytes[0]}."
    )


def test_forgotten_pieces_do_not_count(tmp_path: Path) -> None:
    """A truncation lets the journal forget the log, whose end may then be anything."""
    killed = Killed(tmp_path / "data")
    killed.manager._lock.renew()
    log = killed.logs[0]
    log.truncate_to(log.snapshot.log_start_offset)
    append(log, b"another")
    report = verify_directory(killed.copy(tmp_path / "copy"))
    assert damage(report) == []
    assert report.partitions[0].log_end_offset == 1
    assert is_accepted(tmp_path / "copy")


def test_pieces_of_deleted_topics_do_not_count(tmp_path: Path) -> None:
    killed = Killed(tmp_path / "data")
    (killed.path / "rollway" / f"{killed.topic.topic_id}.json").unlink()
    for number in range(PARTITIONS):
        shutil.rmtree(killed.segment(number).parent)
    report = verify_directory(killed.path)
    assert not any("the journal" in note for note in notes(report))
    assert all("checkpoint" in sentence for sentence in damage(report))


# Version 1000


def test_a_running_service_and_its_mark_are_no_damage(killed: Killed) -> None:
    shutil.rmtree(killed.journal)
    lock = LocalFileSystem().lock(killed.path / "logs" / ".lock")
    try:
        report = verify_directory(killed.path)
    finally:
        lock.release()
    assert report.is_live
    assert damage(report) == []


def test_a_mark_without_an_id_is_damage(killed: Killed) -> None:
    path = killed.path / "logs" / "meta.properties"
    text = path.read_text()
    path.write_text("".join(line for line in text.splitlines(True) if "journal" not in line))
    assert damage(verify_directory(killed.path)) == [f"{path}: rollway.journal.id should name a journal, and is None."]
    path.write_text(text.replace("version=1000", "version=2"))
    assert damage(verify_directory(killed.path)) == [f"{path}: the version should be 0 or 1, not '2'."]


def test_after_a_clean_stop_the_files_of_the_journal_do_not_count(killed: Killed) -> None:
    assert is_accepted(killed.path)
    for file in killed.journal.iterdir():
        file.write_bytes(b"anything")
    report = verify_directory(killed.path)
    assert report.findings == ()
    assert report.is_clean


def test_a_marker_of_another_program_does_not_make_the_stop_clean(killed: Killed) -> None:
    (killed.lose_tails().path / "logs" / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    report = verify_directory(killed.path)
    assert damage(report) == []
    assert not report.is_clean


# The journal is damaged

ENTRY_FIELDS = {
    "magic": 0,
    "crc": 8,
    "body length": 15,
    "body length, by much": 12,
    "journal id": 16,
    "journal id's zeros": 38,
    "sequence": 47,
    "oldest": 55,
    "piece count": 59,
    "reserved": 63,
    "topic id": 64,
    "topic id's zeros": 86,
    "partition": 91,
    "base offset": 99,
    "position": 107,
    "end offset": 115,
    "length": 119,
    "content": 64 + 56 * PARTITIONS + 30,
}


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("field", ENTRY_FIELDS)
def test_a_flipped_byte_of_an_entry_is_found_in_each_field(
    killed: Killed, tmp_path: Path, field: str, number: int
) -> None:
    (path,) = [file for file in killed.journal.iterdir() if file.read_bytes()[:8] == b"RWJOURN1"]
    flip(path, number * BLOCK + ENTRY_FIELDS[field])
    (sentence,) = damage(verify_directory(killed.path))
    assert sentence.startswith(f"{path}, position {number * BLOCK}: entry {number + 1} of the journal ")
    assert not is_accepted(killed.copy(tmp_path / "copy"))


@pytest.mark.parametrize("field", ENTRY_FIELDS)
def test_the_last_entry_may_be_unfinished(killed: Killed, tmp_path: Path, field: str) -> None:
    """A flipped byte cannot be told from what a crash leaves. A start decides in the same manner."""
    (path,) = [file for file in killed.journal.iterdir() if file.read_bytes()[:8] == b"RWJOURN1"]
    flip(path, (ROUNDS - 1) * BLOCK + ENTRY_FIELDS[field])
    found = damage(verify_directory(killed.path))
    assert is_accepted(killed.copy(tmp_path / "copy")) == (found == [])


def test_an_unfinished_last_entry_is_a_note(killed: Killed) -> None:
    flip(killed.journal / "0.journal", (ROUNDS - 1) * BLOCK + 200)
    assert notes(verify_directory(killed.path))[0] == (
        f"{killed.journal / '0.journal'}, position {(ROUNDS - 1) * BLOCK}: entry {ROUNDS} of the journal is unfinished"
        ", as a crash leaves the last one; the next start ignores it."
    )


def cut_in_an_entry(killed: Killed) -> str:
    with (killed.journal / "0.journal").open("r+b") as file:
        file.truncate(BLOCK + 200)
    return f"{killed.journal / '0.journal'}, position {BLOCK}: entry 2 of the journal is damaged: its body has"


def cut_between_entries(killed: Killed) -> str:
    with (killed.journal / "0.journal").open("r+b") as file:
        file.truncate(BLOCK)
    return (
        f"{killed.journal / '0.journal'}, position {BLOCK}: entry 2 of the journal is missing, here and at the "
        "beginning of another file"
    )


def remove_first(killed: Killed) -> str:
    (killed.journal / "0.journal").unlink()
    return f"{killed.journal}: entry 1 of the journal is in none of the files"


def put_zeros(killed: Killed) -> str:
    change(killed.journal / "0.journal", 0, bytes(BLOCK))
    return f"{killed.journal / '0.journal'}, position 0: entry 1 of the journal should begin here"


def empty_folder(killed: Killed) -> str:
    for file in killed.journal.iterdir():
        file.unlink()
    return f"{killed.journal}: the journal has no files, so what only the journal held is lost"


def remove_folder(killed: Killed) -> str:
    shutil.rmtree(killed.journal)
    return f"{killed.journal}: the journal is missing, though the service was not stopped cleanly"


def put_stale_file(killed: Killed) -> str:
    """A file of an earlier journal, whose entries have another id."""
    path = killed.journal / "0.journal"
    content = bytearray(path.read_bytes())
    for position in range(0, len(content), BLOCK):
        if content[position : position + 8] == b"RWJOURN1":
            content[position + 16 : position + 38] = b"vbX5CGHpTq2OyL3cZhW1Uw"
            size = 64 + struct.unpack_from(">I", content, position + 12)[0]
            crc = crc32c.crc32c(bytes(content[position + 12 : position + size]))
            struct.pack_into(">I", content, position + 8, crc)
    path.write_bytes(content)
    return f"{killed.journal}: entry 1 of the journal is in none of the files"


@pytest.mark.parametrize(
    "break_journal",
    [cut_in_an_entry, cut_between_entries, remove_first, put_zeros, put_stale_file, empty_folder, remove_folder],
)
def test_damage_of_files_is_found(tmp_path: Path, break_journal: Callable[[Killed], str]) -> None:
    """The journal has two files: three entries fill the first, and the rest is in the second."""
    killed = Killed(tmp_path / "data", rounds=7).lose_tails()
    assert len(list(killed.journal.iterdir())) == 2
    expected = break_journal(killed)
    report = verify_directory(killed.path)
    found = [sentence for sentence in damage(report) if "journal" in sentence]
    assert len(found) == 1
    assert found[0].startswith(expected)
    assert is_accepted(killed.copy(tmp_path / "copy")) == (break_journal is empty_folder)
    if break_journal not in (empty_folder, remove_folder):
        assert any("whole entries of the damaged journal have" in note for note in notes(report))
    assert [partition.log_end_offset for partition in report.partitions] == [1] * PARTITIONS


def test_a_file_of_the_same_journals_earlier_turn_is_damage(tmp_path: Path) -> None:
    """A backup of one file is put back: its entries are older than the oldest that a start needs."""
    data = tmp_path / "data"
    manager = LogManager.open(data, clock=ManualClock(), ballast_bytes=1, journal_limits=LIMITS)
    topic, _ = manager.create_topic("t", PARTITIONS, CONFIG)

    def flush(rounds: int) -> None:
        for _ in range(rounds):
            for log in topic.partitions:
                append(log, VALUE)
            assert manager.journal.flush(topic.partitions) == [True] * PARTITIONS

    flush(6)
    path = data / "rollway" / "journal" / "0.journal"
    early = path.read_bytes()
    manager.journal.free()
    flush(10)
    assert path.read_bytes() != early
    manager._lock.release()
    assert damage(verify_directory(data)) == []
    path.write_bytes(early)
    (sentence,) = damage(verify_directory(data))
    assert "of the journal" in sentence
    assert not is_accepted(data)


# Pieces that do not fit


def rewrite(path: Path, position: int, edit: Callable[[bytearray], None]) -> None:
    """Change an entry and give it the right CRC again."""
    content = bytearray(path.read_bytes())
    size = 64 + struct.unpack_from(">I", content, position + 12)[0]
    entry = content[position : position + size]
    edit(entry)
    struct.pack_into(">I", entry, 8, crc32c.crc32c(bytes(entry[12:])))
    content[position : position + size] = entry
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        (100, struct.pack(">q", -2), "position 0: piece 0 of entry 1 has position -2 and "),
        (116, struct.pack(">I", 1 << 20), "position 0: piece 0 of entry 1 has position "),
        (64, b"\xff", "position 0: piece 0 of entry 1 has position "),
        (108, struct.pack(">q", 9), "it ends with offset 2, not with 9"),
        (116, struct.pack(">I", 100), "its 100 bytes are not whole batches"),
        (100, struct.pack(">q", 1 << 40), "the segment ends here, but the journal continues at position"),
    ],
)
def test_lies_behind_a_right_crc_are_found(killed: Killed, field: int, value: bytes, sentence: str) -> None:
    def edit(entry: bytearray) -> None:
        entry[field : field + len(value)] = value

    rewrite(killed.journal / "0.journal", 0, edit)
    assert any(sentence in each for each in damage(verify_directory(killed.path)))


def test_pieces_that_overlap_are_found(killed: Killed) -> None:
    def edit(entry: bytearray) -> None:
        entry[100:108] = struct.pack(">q", killed.fsynced_bytes[0])

    rewrite(killed.lose_tails().journal / "0.journal", BLOCK, edit)
    (sentence,) = damage(verify_directory(killed.path))
    assert f"it begins at position {killed.fsynced_bytes[0]}, but the piece before it ends at" in sentence


def test_batches_of_another_program_are_found(killed: Killed, tmp_path: Path) -> None:
    killed.lose_tails()
    with LogManagerOf(tmp_path / "other") as log:
        for value in (b"fsynced by itself", b"other"):
            append(log, value)
        other = (tmp_path / "other" / "logs" / "t-0" / FIRST).read_bytes()
    killed.segment(0).write_bytes(other)
    (sentence,) = damage(verify_directory(killed.path))
    assert sentence.startswith(
        f"{killed.segment(0)}, position {killed.fsynced_bytes[0]}: the segment has another batch here than the "
    )
    assert sentence.endswith("another program has written to it.")
    assert not is_accepted(killed.copy(tmp_path / "copy"))


class LogManagerOf:
    """A directory with one partition, for the bytes that another program would write."""

    def __init__(self, path: Path) -> None:
        self._manager = LogManager.open(path, clock=ManualClock(), ballast_bytes=1, journal_limits=LIMITS)

    def __enter__(self) -> PartitionLog:
        topic, _ = self._manager.create_topic("t", 1, CONFIG)
        (log,) = topic.partitions
        return log

    def __exit__(self, *_: object) -> None:
        self._manager.close()


# What a dump does not show


def missing_bytes(paths: Sequence[Path]) -> list[tuple[int, bool]]:
    search = MissingBytesSearch(LocalFileSystem())
    try:
        return [tuple(search.find(path)) for path in paths]
    finally:
        search.close()


def test_missing_bytes_of_segments(killed: Killed) -> None:
    segments = [killed.segment(number) for number in range(PARTITIONS)]
    assert missing_bytes(segments) == [(0, False)] * PARTITIONS
    killed.lose_tails()
    lacking = [length - fsynced for length, fsynced in zip(killed.lengths, killed.fsynced_bytes, strict=True)]
    assert missing_bytes(segments) == [(count, False) for count in lacking]
    others = [killed.path / "logs" / "meta.properties", segments[0].with_suffix(".index"), killed.path / FIRST]
    assert missing_bytes(others) == [(0, False)] * 3
    flip(killed.journal / "0.journal", 200)
    kept = [count * (ROUNDS - 1) // ROUNDS for count in lacking]
    assert missing_bytes(segments) == [(count, True) for count in kept]
    (segments[0].parent / "00000000000000000099.log").touch()
    assert missing_bytes(segments[:1]) == [(kept[0], False)], "a sealed segment needs no journal"


def test_a_running_service_has_no_missing_bytes(killed: Killed) -> None:
    killed.lose_tails()
    lock = LocalFileSystem().lock(killed.path / "logs" / ".lock")
    try:
        assert missing_bytes([killed.segment(0)]) == [(0, False)]
    finally:
        lock.release()
