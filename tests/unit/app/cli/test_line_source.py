"""``app.cli.records.line_source``: lines from any descriptor, whatever the pieces."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cli.records import line_source
from app.cli.records.line_source import LineSource, LineTooLongError, input_size


def lines_of(content: bytes) -> list[bytes | None]:
    """Send ``content`` through a pipe that is closed afterwards; it must fit into the pipe's buffer."""
    reader, writer = os.pipe()
    try:
        os.write(writer, content)
        os.close(writer)
        return list(LineSource(reader, linger_ms=1000).lines())
    finally:
        os.close(reader)


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)), st.integers(1, 7))
def test_lines_come_back_whatever_the_pieces(lines: list[bytes], read_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_source, "READ_BYTES", read_bytes)
        assert lines_of(b"".join(line + b"\n" for line in lines)) == lines


def test_the_last_line_needs_no_line_feed() -> None:
    assert lines_of(b"a\nb") == [b"a", b"b"]
    assert lines_of(b"a\r\n\n") == [b"a\r", b""]
    assert lines_of(b"") == []


def test_none_when_nothing_comes_for_the_linger_time() -> None:
    reader, writer = os.pipe()
    try:
        os.write(writer, b"a\nb")
        lines = LineSource(reader, linger_ms=0).lines()
        assert next(lines) == b"a"
        assert next(lines) is None
        os.write(writer, b"c\n")
        assert next(lines) == b"bc"
        os.close(writer)
        assert list(lines) in ([], [None])
    finally:
        os.close(reader)


def test_a_line_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_source, "LINE_BYTES_MAX", 100)
    monkeypatch.setattr(line_source, "READ_BYTES", 64)
    with pytest.raises(LineTooLongError):
        lines_of(b"x" * 200)


def test_the_size_of_a_file_is_known_and_of_a_pipe_is_not(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"12345")
    with path.open("rb") as file:
        assert input_size(file.fileno()) == 5
        source = LineSource(file.fileno(), linger_ms=0)
        assert list(source.lines()) == [b"12345"]
        assert source.read_bytes == 5
    reader, writer = os.pipe()
    try:
        assert input_size(reader) is None
    finally:
        os.close(reader)
        os.close(writer)


def test_the_descriptor_may_be_a_large_number() -> None:
    """``select`` refuses those above 1023."""
    reader, writer = os.pipe()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, reader)
        large = fcntl.fcntl(reader, fcntl.F_DUPFD, 1500)
        stack.callback(os.close, large)
        os.write(writer, b"line\n")
        os.close(writer)
        assert list(LineSource(large, linger_ms=1000).lines()) == [b"line"]
