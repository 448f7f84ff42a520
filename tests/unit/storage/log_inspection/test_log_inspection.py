"""``storage.log_inspection``: a clean directory has no findings, and each kind of damage has its own sentence."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rollway.records import Codec
from storage.disk.file_system import LocalFileSystem
from storage.log_inspection import DirectoryReport, Severity, StoredFileError, verify_directory
from storage.log_inspection.findings import FINDINGS_PER_FILE_MAX
from tests.support.kafka_directory import (
    NOON_MS,
    TOPIC_ID,
    KafkaDirectory,
    Segment,
    batch,
    snapshot,
    two_segments,
    with_crc,
)

FIRST = "00000000000000000000"
SECOND = "00000000000000000020"


@pytest.fixture
def directory(tmp_path: Path) -> KafkaDirectory:
    """A clean directory with one partition ``orders-0``, and its topic known to be not compacted."""
    made = KafkaDirectory(tmp_path / "data")
    made.add_partition("orders-0", two_segments())
    made.checkpoint("recovery-point-offset-checkpoint", ("orders", 0, 30))
    made.checkpoint("replication-offset-checkpoint", ("orders", 0, 30))
    made.configure("orders", {"retention.ms": -1})
    return made


def damage(report: DirectoryReport) -> list[str]:
    return [finding.sentence for finding in report.findings if finding.severity is Severity.DAMAGE]


def notes(report: DirectoryReport) -> list[str]:
    return [finding.sentence for finding in report.findings if finding.severity is Severity.NOTE]


def change(path: Path, position: int, data: bytes) -> None:
    """Overwrite bytes in place."""
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def test_a_clean_directory_has_no_findings(directory: KafkaDirectory) -> None:
    report = verify_directory(directory.path)
    assert report.findings == ()
    assert report.is_clean
    assert not report.is_live
    (partition,) = report.partitions
    assert (partition.segment_count, partition.batch_count, partition.record_count) == (2, 6, 30)
    assert (partition.first_offset, partition.log_end_offset) == (0, 30)
    assert partition.index_entry_count == 3 + 3 + 1 + 1


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches_are_decoded(tmp_path: Path, codec: Codec) -> None:
    made = KafkaDirectory(tmp_path / "data")
    made.add_partition("orders-0", [Segment([batch(0, 50, codec=codec), batch(50, 50, codec=codec)])])
    assert verify_directory(made.path).findings == ()


def test_log_directory_and_partition_directory_are_found_too(directory: KafkaDirectory) -> None:
    for path in (directory.logs, directory.logs / "orders-0"):
        report = verify_directory(path)
        assert damage(report) == []
        assert [str(partition.name) for partition in report.partitions] == ["orders-0"]


def test_one_topic_alone(directory: KafkaDirectory) -> None:
    directory.add_partition("clicks-0", [Segment([batch(0, 1)])])
    change(directory.logs / "orders-0" / f"{FIRST}.log", 100, b"\xff")
    assert damage(verify_directory(directory.path, topic="clicks")) == []
    assert damage(verify_directory(directory.path)) != []


def test_a_directory_without_logs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoredFileError, match="neither logs nor partitions"):
        verify_directory(tmp_path)
    with pytest.raises(StoredFileError, match="is not a directory"):
        verify_directory(tmp_path / "missing")


def test_every_flipped_byte_of_a_batch_is_found(directory: KafkaDirectory) -> None:
    """No byte of a stored batch can change unseen: the CRC, or offsets, epoch, length, magic outside it."""
    log = directory.logs / "orders-0" / f"{FIRST}.log"
    original = log.read_bytes()
    first_bytes = len(batch(0, 5))
    for position in range(first_bytes, first_bytes + len(batch(5, 5))):
        change(log, position, bytes([original[position] ^ 0x01]))
        assert any(
            str(log) in sentence or "orders-0" in sentence for sentence in damage(verify_directory(directory.path))
        )
        log.write_bytes(original)


def _replace_batch(directory: KafkaDirectory, edit: Callable[[bytearray], None]) -> Path:
    """Change the second batch of the first segment and give it the right CRC again."""
    log = directory.logs / "orders-0" / f"{FIRST}.log"
    content = log.read_bytes()
    start = len(batch(0, 5))
    end = start + len(batch(5, 5))
    data = bytearray(content[start:end])
    edit(data)
    log.write_bytes(content[:start] + with_crc(bytes(data)) + content[end:])
    return log


@pytest.mark.parametrize(
    ("position", "field", "sentence"),
    [
        (35, struct.pack(">q", NOON_MS), "says the largest timestamp is"),
        (57, struct.pack(">i", 4), "4 records for 5 offsets"),
        (57, struct.pack(">i", 6), "do not fit"),
        (57, struct.pack(">i", -1), "is negative"),
        (21, struct.pack(">h", 7), "unknown codec 7"),
        (21, struct.pack(">h", 0x20), "control batch of 5 records"),
        (21, struct.pack(">h", 0x10), "transactional and has no producer"),
        (43, struct.pack(">q", 9), "producer 9 has epoch -1"),
        (61, b"\x7f", "are broken"),
    ],
)
def test_lies_behind_a_right_crc_are_found(
    directory: KafkaDirectory, position: int, field: bytes, sentence: str
) -> None:
    def edit(data: bytearray) -> None:
        data[position : position + len(field)] = field

    log = _replace_batch(directory, edit)
    found = damage(verify_directory(directory.path))
    assert any(sentence in each and str(log) in each and f"position {len(batch(0, 5))}" in each for each in found), (
        found
    )


def test_a_sequence_without_a_producer_is_a_note(directory: KafkaDirectory) -> None:
    """The service and brokers store such a batch as the client sent it."""

    def edit(data: bytearray) -> None:
        data[53:57] = struct.pack(">i", 3)

    log = _replace_batch(directory, edit)
    report = verify_directory(directory.path)
    assert damage(report) == []
    found = [each for each in notes(report) if "sequence 3 and no producer" in each]
    assert len(found) == 1
    assert str(log) in found[0]
    assert f"position {len(batch(0, 5))}" in found[0]


def test_headers_only_decodes_nothing(directory: KafkaDirectory) -> None:
    def edit(data: bytearray) -> None:
        data[61:62] = b"\x7f"

    _replace_batch(directory, edit)
    assert damage(verify_directory(directory.path, decodes=False)) == []


def test_a_missing_batch_is_a_loss_unless_the_topic_is_compacted(directory: KafkaDirectory) -> None:
    made = Segment([batch(0, 5), batch(10, 5), batch(15, 5)])
    made.write(directory.logs / "orders-0", is_last=False)
    assert any("offsets 5 to 9 are missing" in each for each in damage(verify_directory(directory.path)))
    directory.configure("orders", {"cleanup.policy": "compact"})
    assert verify_directory(directory.path).findings == ()
    (directory.path / "rollway" / f"{TOPIC_ID}.json").unlink()
    report = verify_directory(directory.path)
    assert damage(report) == []
    assert any("normal in a compacted topic" in each for each in notes(report))


def test_overlapping_segments_are_found(directory: KafkaDirectory) -> None:
    Segment([batch(18, 5)]).write(directory.logs / "orders-0", is_last=False)
    assert any(
        "begins at offset 18, but the one before it ends at 20" in each
        for each in damage(verify_directory(directory.path))
    )


def test_trailing_bytes_are_found(directory: KafkaDirectory) -> None:
    log = directory.logs / "orders-0" / f"{FIRST}.log"
    end = log.stat().st_size
    log.write_bytes(log.read_bytes() + b"\x01" * 70)
    found = damage(verify_directory(directory.path))
    assert any(f"{log}, position {end}" in each for each in found), found


@pytest.mark.parametrize("tail", [b"\x00" * 5000, batch(30, 5)[:40], batch(30, 5)[:-1], b"\x17" * 200])
def test_a_torn_tail_is_damage_only_after_a_clean_stop(directory: KafkaDirectory, tail: bytes) -> None:
    log = directory.logs / "orders-0" / f"{SECOND}.log"
    log.write_bytes(log.read_bytes() + tail)
    assert len(damage(verify_directory(directory.path))) == 1
    directory.stop_uncleanly()
    assert damage(verify_directory(directory.path)) == []


def test_damage_in_the_middle_is_damage_after_an_unclean_stop_too(directory: KafkaDirectory) -> None:
    directory.stop_uncleanly()
    change(directory.logs / "orders-0" / f"{SECOND}.log", 80, b"\xff")
    assert any("does not match its CRC" in each for each in damage(verify_directory(directory.path)))


@pytest.mark.parametrize(
    ("position", "field", "sentence"),
    [
        (8, struct.pack(">ii", 12, len(batch(0, 5)) * 2), "names offset 12"),
        (8, struct.pack(">ii", 14, 7), "does not rise"),
        (12, struct.pack(">i", 2 * len(batch(0, 5)) + 3), "where no batch begins"),
        (20, struct.pack(">i", 2_000_000), "beyond the last batch"),
        (8, struct.pack(">i", -14), "negative"),
        (8, bytes(16), "not trimmed"),
        (8, bytes(8), "follow a zero entry"),
    ],
)
def test_wrong_offset_index_entries_are_found(
    directory: KafkaDirectory, position: int, field: bytes, sentence: str
) -> None:
    index = directory.logs / "orders-0" / f"{FIRST}.index"
    change(index, position, field)
    found = damage(verify_directory(directory.path))
    assert any(sentence in each and str(index) in each for each in found), found


@pytest.mark.parametrize(
    ("position", "field", "sentence"),
    [
        (0, struct.pack(">q", NOON_MS + 1), "but that batch's largest is"),
        (20, struct.pack(">i", 13), "with which no batch ends"),
        (12, struct.pack(">q", 0), "does not rise"),
        (20, struct.pack(">i", -1), "negative"),
        (32, struct.pack(">i", 500), "beyond the last batch"),
        (36, bytes(12), "not trimmed"),
    ],
)
def test_wrong_time_index_entries_are_found(
    directory: KafkaDirectory, position: int, field: bytes, sentence: str
) -> None:
    index = directory.logs / "orders-0" / f"{FIRST}.timeindex"
    change(index, position, field)
    found = damage(verify_directory(directory.path))
    assert any(sentence in each and str(index) in each for each in found), found


def test_time_index_that_hides_a_later_timestamp_is_found(directory: KafkaDirectory) -> None:
    """An entry (T, O) promises that nothing at or before O is later than T (spec C8)."""
    late = NOON_MS + 9_000_000
    Segment([batch(0, 5), batch(5, 5, timestamp=late), batch(10, 10)]).write(directory.logs / "orders-0", is_last=False)
    index = directory.logs / "orders-0" / f"{FIRST}.timeindex"
    assert verify_directory(directory.path).findings == ()
    index.write_bytes(struct.pack(">qi", NOON_MS + 19_000, 19))
    found = damage(verify_directory(directory.path))
    assert any("says nothing up to offset 19 is later" in each for each in found), found
    index.write_bytes(struct.pack(">qi", NOON_MS + 4_000, 4))
    found = damage(verify_directory(directory.path))
    assert any("a lookup between the two would skip this segment" in each for each in found), found


def test_index_of_a_length_that_is_no_multiple_is_found(directory: KafkaDirectory) -> None:
    for suffix in ("index", "timeindex"):
        path = directory.logs / "orders-0" / f"{FIRST}.{suffix}"
        path.write_bytes(path.read_bytes() + b"\x00")
    assert len(damage(verify_directory(directory.path))) == 2


def test_preallocated_indexes_are_normal_only_in_the_active_segment_of_an_unclean_stop(
    directory: KafkaDirectory,
) -> None:
    for stem in (FIRST, SECOND):
        for suffix, size in (("index", 4096), ("timeindex", 4092)):
            path = directory.logs / "orders-0" / f"{stem}.{suffix}"
            path.write_bytes(path.read_bytes().ljust(size, b"\x00"))
    assert len([each for each in damage(verify_directory(directory.path)) if "not trimmed" in each]) == 4
    directory.stop_uncleanly()
    found = damage(verify_directory(directory.path))
    assert len(found) == 2
    assert all(f"{FIRST}." in each for each in found)


def test_missing_and_empty_indexes_are_no_damage(directory: KafkaDirectory) -> None:
    (directory.logs / "orders-0" / f"{FIRST}.index").write_bytes(b"")
    (directory.logs / "orders-0" / f"{SECOND}.timeindex").unlink()
    report = verify_directory(directory.path)
    assert damage(report) == []
    assert len(notes(report)) == 1


def test_producer_snapshots_are_checked_against_the_log(directory: KafkaDirectory) -> None:
    Segment([batch(0, 10, producer_id=7, producer_epoch=0, base_sequence=100), batch(10, 10)]).write(
        directory.logs / "orders-0", is_last=False
    )
    path = directory.logs / "orders-0" / f"{SECOND}.snapshot"
    path.write_bytes(snapshot((7, 0, 109, 9, 9, NOON_MS, -1, -1)))
    assert verify_directory(directory.path).findings == ()
    for entry, sentence in (
        ((7, 0, 108, 9, 9, NOON_MS, -1, -1), "sequence 109 there"),
        ((7, 1, 109, 9, 9, NOON_MS, -1, -1), "epoch 0, sequence 109 there"),
        ((7, 0, 109, 8, 9, NOON_MS, -1, -1), "but none does"),
        ((7, 0, 109, 25, 9, NOON_MS, -1, -1), "not below 20"),
    ):
        path.write_bytes(snapshot(entry))
        found = damage(verify_directory(directory.path))
        assert any(sentence in each and str(path) in each for each in found), found


@pytest.mark.parametrize(
    "content", [b"", b"\x00\x01", snapshot()[:-1], b"\x00\x02" + snapshot()[2:], snapshot() + b"\x00"]
)
def test_broken_producer_snapshots_are_found(directory: KafkaDirectory, content: bytes) -> None:
    path = directory.logs / "orders-0" / f"{SECOND}.snapshot"
    path.write_bytes(content)
    found = damage(verify_directory(directory.path))
    assert len(found) == 1
    assert str(path) in found[0]


def test_transaction_index_entries_are_checked(directory: KafkaDirectory) -> None:
    path = directory.logs / "orders-0" / f"{FIRST}.txnindex"
    good = struct.pack(">hqqqq", 0, 7, 0, 4, 5)
    for content, sentence in (
        (good, "no transaction was aborted at offset 4"),
        (good + good, "does not rise"),
        (struct.pack(">hqqqq", 1, 7, 0, 4, 5), "version 1"),
        (struct.pack(">hqqqq", 0, 7, 5, 4, 5), "cannot last"),
        (struct.pack(">hqqqq", 0, 7, 5, 400, 5), "not in this segment"),
        (good[:-1], "no whole number"),
    ):
        path.write_bytes(content)
        found = damage(verify_directory(directory.path))
        assert any(sentence in each for each in found), found


@pytest.mark.parametrize(
    "content",
    [
        "1\n0\n",
        "0\n2\norders 0 30\n",
        "0\n1\norders 0\n",
        "0\n1\norders zero 30\n",
        "0\n1\norders 0 -1\n",
        "0\nx\n",
        "nonsense",
    ],
)
def test_broken_checkpoints_are_found(directory: KafkaDirectory, content: str) -> None:
    path = directory.logs / "recovery-point-offset-checkpoint"
    path.write_text(content)
    found = damage(verify_directory(directory.path))
    assert len(found) == 1
    assert str(path) in found[0]


def test_checkpoints_beyond_the_log_are_found(directory: KafkaDirectory) -> None:
    directory.checkpoint("recovery-point-offset-checkpoint", ("orders", 0, 31))
    assert any("orders-0 is said to have offset 31" in each for each in damage(verify_directory(directory.path)))


def test_a_high_watermark_ahead_of_the_log_is_no_damage_after_an_unclean_stop(directory: KafkaDirectory) -> None:
    directory.checkpoint("replication-offset-checkpoint", ("orders", 0, 31))
    assert len(damage(verify_directory(directory.path))) == 1
    directory.stop_uncleanly()
    report = verify_directory(directory.path)
    assert damage(report) == []
    assert any("is said to have offset 31" in each for each in notes(report))


def test_leader_epochs_are_checked_against_the_batches(directory: KafkaDirectory) -> None:
    path = directory.logs / "orders-0" / "leader-epoch-checkpoint"
    path.write_text("0\n2\n0 0\n3 10\n")
    assert any("the epoch checkpoint says 3" in each for each in damage(verify_directory(directory.path)))
    path.write_text("0\n2\n0 0\n3 40\n")
    assert any(
        "leader epoch 3 begins at offset 40, beyond" in each for each in damage(verify_directory(directory.path))
    )
    path.write_text("0\n2\n0 0\n0 10\n")
    assert any("does not rise" in each for each in damage(verify_directory(directory.path)))
    path.unlink()
    Segment([batch(20, 5, leader_epoch=2), batch(25, 5, leader_epoch=1)]).write(
        directory.logs / "orders-0", is_last=True
    )
    assert any("leader epoch 1 follows leader epoch 2" in each for each in damage(verify_directory(directory.path)))


@pytest.mark.parametrize(
    "content",
    [
        "version: 0\ntopic_id: short",
        "version: 1\ntopic_id: vbX5CGHpTq2OyL3cZhW1Uw",
        "nonsense",
        "version: 0\ntopic_id: " + "A" * 22,
    ],
)
def test_broken_partition_metadata_is_found(directory: KafkaDirectory, content: str) -> None:
    path = directory.logs / "orders-0" / "partition.metadata"
    path.write_text(content)
    found = damage(verify_directory(directory.path))
    assert len(found) == 1
    assert str(path) in found[0]


def test_partitions_of_one_topic_must_agree_on_its_id(directory: KafkaDirectory) -> None:
    other = directory.add_partition("orders-1", [Segment([batch(0, 1)])])
    assert verify_directory(directory.path).findings == ()
    (other / "partition.metadata").write_text("version: 0\ntopic_id: " + "B" * 22)
    assert any("differs from" in each for each in damage(verify_directory(directory.path)))


def test_files_that_do_not_belong_are_noted(directory: KafkaDirectory) -> None:
    (directory.logs / "orders-0" / f"{FIRST}.log.deleted").touch()
    (directory.logs / "orders-0" / "00000000000000000500.index").touch()
    (directory.logs / "orders-0" / "notes.txt").touch()
    (directory.logs / "orders-0" / "leader-epoch-checkpoint.tmp").touch()
    (directory.logs / "something").mkdir()
    (directory.logs / f"gone-0.{'a' * 32}-delete").mkdir()
    report = verify_directory(directory.path)
    assert damage(report) == []
    assert len(notes(report)) == 6


def test_names_with_the_wrong_number_of_digits_are_found(directory: KafkaDirectory) -> None:
    (directory.logs / "orders-0" / "30.log").touch()
    assert any("named by 20 digits" in each for each in damage(verify_directory(directory.path)))


def test_a_running_server_is_noticed_and_not_disturbed(directory: KafkaDirectory) -> None:
    log = directory.logs / "orders-0" / f"{SECOND}.log"
    log.write_bytes(log.read_bytes() + batch(30, 5)[:50])
    lock = LocalFileSystem().lock(directory.logs / ".lock")
    try:
        report = verify_directory(directory.path)
        assert report.is_live
        assert damage(report) == []
        assert any("the server may be writing it now" in each for each in notes(report))
        with pytest.raises(BlockingIOError):
            LocalFileSystem().lock(directory.logs / ".lock")
    finally:
        lock.release()
    assert not verify_directory(directory.path).is_live


def test_findings_of_one_file_are_cut(directory: KafkaDirectory) -> None:
    many = [batch(base, 1) for base in range(20)]
    Segment(many).write(directory.logs / "orders-0", is_last=False)
    big = Segment([batch(base, 1) for base in range(20, 120)])
    big.write(directory.logs / "orders-0", is_last=True)
    index = directory.logs / "orders-0" / f"{SECOND}.index"
    content = bytearray(index.read_bytes())
    for position in range(4, len(content), 8):
        content[position + 3] ^= 1
    index.write_bytes(content)
    found = damage(verify_directory(directory.path))
    assert len(found) == FINDINGS_PER_FILE_MAX + 1
    assert "more of the same file are not listed" in found[-1]


def test_a_length_field_never_makes_it_read_or_allocate_beyond_the_file(directory: KafkaDirectory) -> None:
    change(directory.logs / "orders-0" / f"{FIRST}.log", 8, struct.pack(">i", 2**31 - 1))
    found = damage(verify_directory(directory.path))
    assert any("a batch of 2147483659 bytes begins" in each for each in found), found


def test_every_batch_is_reported_to_the_observer(directory: KafkaDirectory) -> None:
    seen: list[tuple[int, int]] = []
    verify_directory(directory.path, on_batch=lambda size, records: seen.append((size, records)))
    size_bytes = sum(path.stat().st_size for path in directory.logs.rglob("*.log"))
    assert (sum(size for size, _ in seen), sum(records for _, records in seen)) == (size_bytes, 30)


def test_partitions_are_checked_against_what_the_service_noted(directory: KafkaDirectory) -> None:
    directory.configure("orders", {}, partitions=2)
    assert any("orders-1: the partition is missing" in each for each in damage(verify_directory(directory.path)))
    directory.configure("orders", {})
    directory.configure("orders", {}, topic_id="B" * 22)
    found = damage(verify_directory(directory.path))
    assert any("and so does" in each for each in found), found
    (directory.path / "rollway" / f"{TOPIC_ID}.json").unlink()
    assert any("differs from " + "B" * 22 in each for each in damage(verify_directory(directory.path)))


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", "[" * 100_000, '{"name": 1, "topic_id": 2, "partitions": 3, "config": 4}']
)
def test_a_broken_note_of_the_service_is_found(directory: KafkaDirectory, content: str) -> None:
    path = directory.path / "rollway" / f"{TOPIC_ID}.json"
    path.write_text(content)
    assert [each for each in damage(verify_directory(directory.path)) if str(path) in each]
