"""What sealed transaction indexes hold, kept beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from log_model.offsets import Offset
from storage.disk.file_system import LocalFileSystem
from storage.producers.transaction_checkpoint import TransactionCheckpoint
from tests.support.recording_file_system import RecordingFileSystem


def loaded(directory: Path) -> TransactionCheckpoint:
    checkpoint = TransactionCheckpoint(LocalFileSystem(), directory)
    assert checkpoint.load()
    return checkpoint


def test_what_was_noted_is_known_after_a_restart(tmp_path: Path) -> None:
    loaded(tmp_path).note(Offset(5), b"entries", [Offset(0), Offset(5)])
    again = loaded(tmp_path)
    assert again.agrees(Offset(5), b"entries")
    for other in (b"", b"entriez", b"entries!", b"entrie"):
        assert not again.agrees(Offset(5), other)
    assert again.agrees(Offset(0), b"never noted")
    assert (tmp_path / "transaction-index-checkpoint").read_text().startswith("0\n1\n5 7 ")


def test_segments_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    checkpoint = loaded(tmp_path)
    checkpoint.note(Offset(0), b"a", [Offset(0)])
    checkpoint.note(Offset(5), b"b", [Offset(5)])
    again = loaded(tmp_path)
    assert again.agrees(Offset(0), b"")
    assert not again.agrees(Offset(5), b"")


def test_a_partition_without_aborts_has_no_file(tmp_path: Path) -> None:
    disk = RecordingFileSystem()
    checkpoint = TransactionCheckpoint(disk, tmp_path)
    assert checkpoint.load()
    checkpoint.note(Offset(0), b"", [Offset(0)])
    checkpoint.note(Offset(5), b"", [Offset(0), Offset(5)])
    assert [operation for operation, _name in disk.operations if operation != "open"] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["1\n0\n", "0\n1\n5 7\n", "0\n1\n5 7 4294967296\n", "0\n2\n5 7 1\n", "nonsense"])
def test_a_damaged_file_cannot_be_relied_upon(tmp_path: Path, content: str) -> None:
    (tmp_path / "transaction-index-checkpoint").write_text(content)
    assert not TransactionCheckpoint(LocalFileSystem(), tmp_path).load()
