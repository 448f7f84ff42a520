"""Indexes in private memory: threads that meet at the first look, and what a damaged file says."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import cast

import pytest

from log_model.offsets import Offset, Position
from storage.disk.file_system import File, LocalFileSystem
from storage.disk.topic_metadata import CorruptMetadataError
from storage.index.offset_index import OffsetIndex
from storage.manager.log_manager import LogManager

WAIT_SECONDS = 0.3


class _SlowFile:
    """A file whose reads of one entry wait a moment for whoever comes meanwhile."""

    def __init__(self, inner: File, meanwhile: threading.Thread) -> None:
        self._inner = inner
        self._meanwhile = meanwhile

    def read(self, position: int, length: int) -> bytes:
        if length == OffsetIndex.ENTRY_BYTES:
            self._meanwhile.start()
            self._meanwhile.join(WAIT_SECONDS)
        return self._inner.read(position, length)

    def close(self) -> None:
        self._inner.close()


def test_the_last_entry_is_read_beside_the_first_look_up(tmp_path: Path) -> None:
    """EBADF, or bytes of the next file with that number."""
    file_system, path = LocalFileSystem(), tmp_path / "00000000000000000000.index"
    index = OffsetIndex.open(file_system, path, Offset(0), max_bytes=800, writable=True)
    for number in range(1, 50):
        index.append(Offset(number), Position(number * 100))
    index.file.trim()
    index.close()
    index = OffsetIndex.open(file_system, path, Offset(0), max_bytes=800, writable=False)
    looked = []
    reader = threading.Thread(target=lambda: looked.append(index.lookup(Offset(25)).position))
    assert index.file.opened is not None
    index.file.opened = cast("File", _SlowFile(index.file.opened, reader))
    # As the checks at opening do, which no other thread may disturb either.
    assert index._entry(48) == (49, 4900)
    reader.join()
    assert looked == [2500]
    index.close()


def test_meta_properties_that_are_no_text_name_the_way_out(tmp_path: Path) -> None:
    LogManager.open(tmp_path).close()
    (tmp_path / "logs/meta.properties").write_bytes(b"\xff\xfe")
    with pytest.raises(CorruptMetadataError, match="not UTF-8 at byte 0; restore it from a backup, or move it away"):
        LogManager.open(tmp_path)
