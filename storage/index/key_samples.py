"""Every 64th key of an index in memory, so that a search takes few steps, most of them in compiled code."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from rollway.records.compiled import load

Memory = bytes | bytearray | memoryview
"""Entries one behind the other, as in the file."""

RUN = 64
"""Keys from one sample to the next: a search reads this many at once, and samples take 1/64 of an index at most."""
_SHIFT = 6
_COMPILED_KEY_BYTES = 8

compiled: Any = load("storage.index.key_samples_c")
"""The compiled search of a run, or ``None``. Tests set it to ``None``."""


class KeyLayout:
    """The layout of the keys of an index: big-endian, the first field of each entry."""

    def __init__(self, code: str, entry_bytes: int) -> None:
        """Prepare the readers; ``code`` is the format of the key in ``struct``, such as ``q``."""
        key_bytes = struct.calcsize(f">{code}")
        entry = f"{code}{entry_bytes - key_bytes}x"
        # One for each length of a run. Nothing is read behind the last key, because the file may end there.
        self.runs: Final[tuple[Callable[[Memory, int], tuple[int, ...]], ...]] = tuple(
            struct.Struct(f">{entry * (length - 1)}{code}").unpack_from for length in range(1, RUN + 1)
        )
        self.entry_bytes: Final = entry_bytes
        self.key_bytes: Final = key_bytes
        self.dtype: Final = np.dtype([("key", f">i{key_bytes}"), ("rest", f"V{entry_bytes - key_bytes}")])


class KeySamples:
    """The samples of the first ``count`` entries of an index, taken when the index had this ``version``.

    Immutable. Thread: any.
    """

    __slots__ = ("_layout", "count", "keys", "version")

    def __init__(self, layout: KeyLayout, memory: Memory, count: int, version: int) -> None:
        """Read the keys of ``count`` entries, once, from the first page of the file to the last.

        Raises:
            ValueError: the memory holds fewer entries, because the index was cut or closed meanwhile.
        """
        self._layout = layout
        self.count = count
        self.version = version
        entries = np.frombuffer(memory, layout.dtype, count)
        self.keys = array("q", entries["key"][::RUN].astype("=i8").tobytes())

    def floor_slot(self, memory: Memory, count: int, target: int) -> int | None:
        """Find the slot as ``sparse_index.floor_slot`` does; ``None`` if it may lie behind the samples."""
        place = bisect_right(self.keys, target) - 1
        if place < 0:
            return -1
        low = place << _SHIFT
        length = count - low
        if length > RUN:
            if place == len(self.keys) - 1:
                return None
            length = RUN
        layout = self._layout
        if compiled is not None and layout.key_bytes == _COMPILED_KEY_BYTES:
            place = compiled.place_in_run(memory, low * layout.entry_bytes, length, layout.entry_bytes, target)
        else:
            place = bisect_right(layout.runs[length - 1](memory, low * layout.entry_bytes), target)
        return low + int(place) - 1
