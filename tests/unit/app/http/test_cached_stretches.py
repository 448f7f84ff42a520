"""Whether a stretch of a file seems to be in memory: asked in C and in Python."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from app.http.transfer import page_cache

pytestmark = pytest.mark.usefixtures("twin")

MIB = 1024 * 1024
PLACES = (0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB)
LENGTHS = (1, 4096, MIB)
TRIES = 200


@pytest.fixture
def source(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 4 * MIB)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        yield file.fileno()


def looks_cold(source: int, place: int, length: int, kept: Sequence[int] = ()) -> bool:
    """Whether a stretch of which only the pages at ``kept`` are in memory is found cold.

    A look that finds nothing has the disk read ahead, which may come to its end behind the next drop: so not each time.
    """
    for _ in range(TRIES):
        os.posix_fadvise(source, 0, 0, os.POSIX_FADV_DONTNEED)
        for position in kept:
            os.pread(source, 1, position)
        if not page_cache.seems_cached(source, place, length):
            return True
    return False


def test_what_was_read_is_in_memory(source: int) -> None:
    os.pread(source, 4 * MIB, 0)
    assert all(page_cache.seems_cached(source, place, length) for place in PLACES for length in LENGTHS)


def test_what_was_dropped_is_not(source: int) -> None:
    def is_dropped() -> bool:
        os.posix_fadvise(source, 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            os.preadv(source, [bytearray(1)], 0, os.RWF_NOWAIT)
        except BlockingIOError:
            return True
        except OSError:
            pytest.skip("this file system cannot tell")
        return False

    if not any(is_dropped() for _ in range(TRIES)):
        pytest.skip("this file system keeps what it is told to drop")
    assert all(looks_cold(source, place, length) for place in PLACES for length in LENGTHS)
    # One byte at either end, or a place between.
    assert looks_cold(source, 0, 3 * MIB, kept=[0])
    assert looks_cold(source, 0, 3 * MIB, kept=[3 * MIB - 1])
    assert looks_cold(source, 0, 3 * MIB, kept=[0, 3 * MIB - 1])


def test_where_nobody_can_tell_it_is(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        assert page_cache.seems_cached(reading, 0, MIB)
    finally:
        os.close(reading)
        os.close(writing)
    (tmp_path / "empty").touch()
    with (tmp_path / "empty").open("rb") as file:
        assert page_cache.seems_cached(file.fileno(), 0, 3 * MIB)
