"""Kafka's checkpoint files, to the byte."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log_model.errors import CorruptionError
from log_model.names import PartitionName
from storage.disk.checkpoint import CorruptCheckpointError, OffsetCheckpoint
from storage.disk.file_system import LocalFileSystem
from tests.support.recording_file_system import RecordingFileSystem

EXAMPLE = b"0\n2\norders 0 1500\norders 1 0\n"


@pytest.fixture
def checkpoint(tmp_path):
    return OffsetCheckpoint(LocalFileSystem(), tmp_path / "recovery-point-offset-checkpoint")


def test_the_documented_bytes_are_written_and_read(checkpoint):
    """on-disk: Checkpoints."""
    offsets = {PartitionName("orders", 1): 0, PartitionName("orders", 0): 1500}
    checkpoint.write(offsets)
    assert checkpoint.path.read_bytes() == EXAMPLE
    assert checkpoint.read() == offsets


def test_partitions_are_sorted_by_number(checkpoint):
    checkpoint.write({PartitionName("b", 10): 1, PartitionName("b", 9): 2, PartitionName("a", 11): 3})
    assert checkpoint.path.read_bytes() == b"0\n3\na 11 3\nb 9 2\nb 10 1\n"


def test_rc_10_a_missing_file_has_no_entries(checkpoint):
    assert checkpoint.read() == {}


def test_rc_10_an_empty_file_has_no_entries(checkpoint):
    checkpoint.path.write_bytes(b"")
    assert checkpoint.read() == {}


def test_no_partitions_is_a_file_with_two_lines(checkpoint):
    checkpoint.write({})
    assert checkpoint.path.read_bytes() == b"0\n0\n"
    assert checkpoint.read() == {}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"1\n1\norders 0 1500\n", "line 1"),
        (b"zero\n1\norders 0 1500\n", "line 1"),
        (b"\n1\norders 0 1500\n", "line 1"),
        (b"0\n", "line 2"),
        (b"0\nmany\norders 0 1500\n", "line 2"),
        (b"0\n-1\n", "line 2"),
        (b"0\n99999999999999999999999\n", "line 2"),
        (b"0\n3\norders 0 1500\norders 1 0\n", "announces 3 entries, there are 2"),
        (b"0\n1\norders 0 1500\norders 1 0\n", "announces 1 entries, there are 2"),
        (b"0\n2\norders 0 1500\norders 1 0\n\n", "announces 2 entries, there are 3"),
        (b"0\n2\norders 0 1500\norders 1 0", "does not end"),
        (b"0\n2\norders 0 1500\norders 1 ", "does not end"),
        (b"0\n1\norders 0\n", "line 3"),
        (b"0\n1\norders 0 1500 7\n", "line 3"),
        (b"0\n1\norders  0 1500\n", "line 3"),
        (b"0\n1\norders zero 1500\n", "line 3"),
        (b"0\n1\norders 0 -1\n", "line 3"),
        (b"0\n1\norders 0 1.5\n", "line 3"),
        (b"0\n1\norders 0 1_500\n", "line 3"),
        ("0\n1\norders 0 \u0661\n".encode(), "line 3"),
        (b"0\n1\norders 0 9223372036854775808\n", "line 3"),
        (b"0\n1\norders 2147483648 1\n", "line 3"),
        (b"0\n1\nor/ders 0 1500\n", "line 3"),
        (b"0\n1\n.. 0 1500\n", "line 3"),
        (b"0\r\n1\r\norders 0 1500\r\n", "line 1"),
        (b"0\n2\norders 0 1500\norders 0 1600\n", "two lines"),
        (b"0\n1\norders 0 \xff\n", "not UTF-8 at byte 13"),
        (b"\x00" * 100, "does not end"),
    ],
)
def test_rc_10_what_was_not_written_is_refused_by_name(checkpoint, content, says):
    checkpoint.path.write_bytes(content)
    with pytest.raises(CorruptCheckpointError, match=says) as caught:
        checkpoint.read()
    assert str(checkpoint.path) in str(caught.value)
    assert isinstance(caught.value, CorruptionError)


def test_rc_10_a_file_cut_anywhere_is_refused(checkpoint):
    for length in range(1, len(EXAMPLE)):
        checkpoint.path.write_bytes(EXAMPLE[:length])
        with pytest.raises(CorruptCheckpointError):
            checkpoint.read()


def test_a_huge_file_is_refused_unread(checkpoint):
    with checkpoint.path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CorruptCheckpointError, match="longer than"):
        checkpoint.read()


def test_a_long_line_is_quoted_in_part(checkpoint):
    checkpoint.path.write_bytes(b"0\n1\n" + b"x" * 100_000 + b"\n")
    with pytest.raises(CorruptCheckpointError) as caught:
        checkpoint.read()
    assert len(str(caught.value)) < 1000


@settings(max_examples=300, deadline=None)
@given(content=st.binary(max_size=60) | st.text("0123 \n-aé", max_size=40).map(str.encode))
def test_any_bytes_are_read_or_refused(tmp_path_factory, content):
    checkpoint = OffsetCheckpoint(LocalFileSystem(), tmp_path_factory.getbasetemp() / "any-checkpoint")
    checkpoint.path.write_bytes(content)
    try:
        offsets = checkpoint.read()
    except CorruptCheckpointError:
        return
    assert all(offset >= 0 for offset in offsets.values())


@settings(max_examples=100, deadline=None)
@given(
    offsets=st.dictionaries(
        st.builds(PartitionName, st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True), st.integers(0, 2**31 - 1)),
        st.integers(0, 2**63 - 1),
        max_size=20,
    )
)
def test_what_is_written_is_read_back(tmp_path_factory, offsets):
    checkpoint = OffsetCheckpoint(LocalFileSystem(), tmp_path_factory.getbasetemp() / "round-checkpoint")
    checkpoint.write(offsets)
    assert checkpoint.read() == offsets


def test_the_file_is_replaced_in_one_durable_step(tmp_path):
    """on-disk: .tmp, sync, rename, sync of the directory."""
    disk = RecordingFileSystem()
    checkpoint = OffsetCheckpoint(disk, tmp_path / "c")
    checkpoint.write({PartitionName("orders", 0): 1})
    assert disk.operations == [
        ("create", "c.tmp"),
        ("write", "c.tmp"),
        ("sync", "c.tmp"),
        ("rename", "c"),
        ("sync_directory", tmp_path.name),
    ]


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename"])
def test_a_failed_write_leaves_the_old_file_and_can_be_repeated(tmp_path, operation):
    disk = RecordingFileSystem()
    checkpoint = OffsetCheckpoint(disk, tmp_path / "c")
    checkpoint.write({PartitionName("orders", 0): 1})
    disk.refuse = {operation}
    with pytest.raises(OSError, match="refused"):
        checkpoint.write({PartitionName("orders", 0): 2})
    assert checkpoint.read() == {PartitionName("orders", 0): 1}
    disk.refuse = set()
    checkpoint.write({PartitionName("orders", 0): 3})
    assert checkpoint.read() == {PartitionName("orders", 0): 3}
