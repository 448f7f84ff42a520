"""Whether a stretch of a file seems to be in memory: asked in C and in Python."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.http import file_transfer

MIB = 1024 * 1024
PROBES = (0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB)


@pytest.fixture(autouse=True, params=["compiled", "Python"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "Python":
        monkeypatch.setattr(file_transfer, "search", None)
    elif file_transfer.search is None:
        pytest.skip("not compiled here")


def test_what_was_written_is_in_memory_until_it_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 4 * MIB)
    with path.open("rb") as file:
        source = file.fileno()
        file.read()
        assert all(file_transfer._is_cached(source, place, length) for place in PROBES for length in (1, 4096, MIB))
        os.fsync(source)
        os.posix_fadvise(source, 0, 0, os.POSIX_FADV_DONTNEED)
        probe = bytearray(1)
        try:
            os.preadv(source, [probe], 0, os.RWF_NOWAIT)
        except BlockingIOError:
            pass
        else:
            pytest.skip("this file system keeps what it is told to drop")
        assert not any(file_transfer._is_cached(source, place, length) for place in PROBES for length in (1, 4096, MIB))
        # A hole in the middle is found, and one byte at either end.
        os.pread(source, 4096, 0)
        os.pread(source, 4096, 3 * MIB)
        assert not file_transfer._is_cached(source, 0, 3 * MIB + 100)


def test_where_nobody_can_tell_it_is(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        assert file_transfer._is_cached(reading, 0, MIB)
    finally:
        os.close(reading)
        os.close(writing)
    (tmp_path / "empty").touch()
    with (tmp_path / "empty").open("rb") as file:
        assert file_transfer._is_cached(file.fileno(), 0, 3 * MIB)
