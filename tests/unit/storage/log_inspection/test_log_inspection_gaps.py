"""Offsets that a truncation took are no finding where the service noted them, and a loss everywhere else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import crc32c
import pytest

from storage.log_inspection import Finding, Severity, verify_directory
from tests.cases.logs import TOPIC, CaseLog, batch_of
from tests.support.kafka_directory import KafkaDirectory, Segment, batch


@pytest.fixture
def directory(tmp_path: Path) -> KafkaDirectory:
    """Offsets 0 to 9, then 15 to 19 in a segment of their own."""
    made = KafkaDirectory(tmp_path / "data")
    made.add_partition("orders-0", [Segment([batch(0, 5), batch(5, 5)]), Segment([batch(15, 5)])])
    made.configure("orders", {})
    return made


def note_gaps(directory: KafkaDirectory, *gaps: Sequence[object], checksum: str | None = None) -> Path:
    content = {"truncation_gaps": [list(gap) for gap in gaps], "version": 1}
    compact = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    content["crc32c"] = f"{crc32c.crc32c(compact):08x}" if checksum is None else checksum
    path = directory.path / "rollway" / "truncation-gaps"
    path.write_text(json.dumps(content))
    return path


def found(directory: Path) -> list[Finding]:
    return [finding for finding in verify_directory(directory).findings if finding.severity is Severity.DAMAGE]


def test_a_noted_gap_is_no_finding(directory: KafkaDirectory) -> None:
    (loss,) = found(directory.path)
    assert "offsets 10 to 14 are missing before this batch" in loss.sentence
    note_gaps(directory, ("orders", 0, 10, 15), ("orders", 1, 3, 4))
    assert verify_directory(directory.path).findings == ()


@pytest.mark.parametrize(
    "gap",
    [("orders", 0, 9, 15), ("orders", 0, 10, 14), ("orders", 0, 10, 16), ("orders", 1, 10, 15), ("clicks", 0, 10, 15)],
)
def test_another_gap_vouches_for_nothing(directory: KafkaDirectory, gap: Sequence[object]) -> None:
    note_gaps(directory, gap)
    (loss,) = found(directory.path)
    assert "offsets 10 to 14 are missing" in loss.sentence


def test_only_where_a_segment_begins(directory: KafkaDirectory) -> None:
    """A truncation begins a new segment behind its gap; batches that are gone within one are lost."""
    log = directory.logs / "orders-0" / f"{0:020d}.log"
    content = log.read_bytes()
    log.write_bytes(content[: len(batch(0, 5))] + batch(7, 3))
    note_gaps(directory, ("orders", 0, 5, 7), ("orders", 0, 10, 15))
    assert any("offsets 5 to 6 are missing" in finding.sentence for finding in found(directory.path))


def test_a_loss_before_an_empty_segment_is_found(directory: KafkaDirectory) -> None:
    """No batch stands behind it that could tell."""
    partition = directory.logs / "orders-0"
    for path in partition.glob(f"{15:020d}.*"):
        path.write_bytes(b"")
    (loss,) = found(directory.path)
    assert "offsets 10 to 14 are missing before this segment" in loss.sentence
    note_gaps(directory, ("orders", 0, 10, 15))
    assert found(directory.path) == []


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        '{"version": 2, "truncation_gaps": []}',
        '{"version": 1, "truncation_gaps": 3}',
        '{"version": 1, "truncation_gaps": [["orders", 0, 10]]}',
        '{"version": 1, "truncation_gaps": [["orders", 0, 10, "15"]]}',
        '{"version": 1, "truncation_gaps": [[0, 0, 10, 15]]}',
        '{"version": 1, "truncation_gaps": [["orders", 0, 10, 15]], "crc32c": "00000000"}',
    ],
)
def test_a_damaged_list_is_found_and_vouches_for_nothing(directory: KafkaDirectory, content: str) -> None:
    path = note_gaps(directory)
    path.write_text(content)
    findings = found(directory.path)
    assert [finding.path for finding in findings if "missing" not in finding.message] == [path]
    assert any("offsets 10 to 14 are missing" in finding.sentence for finding in findings)


def test_the_copy_vouches_when_the_list_is_damaged(directory: KafkaDirectory) -> None:
    path = note_gaps(directory, ("orders", 0, 10, 15))
    copy = path.with_name("truncation-gaps-copy")
    copy.write_bytes(path.read_bytes())
    path.write_text("{")
    assert [finding.path for finding in found(directory.path)] == [path]
    path.unlink()
    assert found(directory.path) == []
    copy.write_text("{")
    assert {finding.path for finding in found(directory.path)} > {copy}


def test_a_list_written_by_hand_counts(directory: KafkaDirectory) -> None:
    """To accept a loss, an operator writes it down; nobody computes a checksum for that."""
    path = note_gaps(directory)
    path.write_text('{"version": 1, "truncation_gaps": [["orders", 0, 10, 15]]}')
    assert found(directory.path) == []


@pytest.mark.parametrize("clean", [True, False])
def test_gaps_as_the_engine_leaves_them(tmp_path: Path, clean: bool) -> None:
    log = CaseLog(tmp_path / "data")
    for _ in range(4):
        log.send(batch_of(5))
    log.partition.truncate_to(13)
    log.send(batch_of(5))
    log.partition.truncate_to(16)
    if clean:
        log.stop()
    else:
        log.kill()
    assert found(log.path) == []
    gaps = json.loads((log.path / "rollway" / "truncation-gaps").read_text())["truncation_gaps"]
    assert gaps == [[TOPIC, 0, 10, 13], [TOPIC, 0, 13, 16]]
    log.start()
    assert log.recovery.damage == []
    log.kill()
