"""Byte strings scattered over a section, collected into one column."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rollway.records.columns import BinaryColumn, ByteArray, Int64Array

_INT32_MAX = 2**31 - 1


class Ranges(NamedTuple):
    """Where byte strings lie: ``lengths[i]`` bytes from ``starts[i]`` on, -1 for a null."""

    starts: Int64Array
    lengths: Int64Array


def gather(data: ByteArray, ranges: Ranges) -> BinaryColumn:
    """Copy the ranges, which rise, do not overlap and lie inside ``data``, into one column."""
    starts, lengths = ranges
    nulls = None
    if len(lengths) and int(lengths.min()) < 0:
        nulls = lengths < 0
        lengths = np.maximum(lengths, 0)
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    total_bytes = int(offsets[-1])
    if total_bytes == 0:
        return BinaryColumn(b"", offsets, nulls)
    width = int(lengths[0])
    if width * len(lengths) == total_bytes and (lengths == width).all():
        return BinaryColumn(_take_equal(data, starts, width), offsets, nulls)
    return BinaryColumn(_take_unequal(data, starts, lengths)[:total_bytes], offsets, nulls)


def _take_equal(data: ByteArray, starts: Int64Array, width: int) -> ByteArray:
    """Every place of ``data`` as the start of an element of ``width`` bytes, of which numpy copies those wanted."""
    elements = np.ndarray((len(data) - width + 1,), dtype=f"V{width}", buffer=data, strides=(1,))
    return elements[starts].view(np.uint8)


def _take_unequal(data: ByteArray, starts: Int64Array, lengths: Int64Array) -> ByteArray:
    """The section as an Arrow column of wanted and unwanted strings in turn, of which Arrow copies the wanted."""
    wide = len(data) > _INT32_MAX
    meets = np.empty(2 * len(starts) + 1, dtype=np.int64 if wide else np.int32)
    meets[:-1:2] = starts
    meets[1::2] = starts + lengths
    meets[-1] = meets[-2]
    kind, array_type = (pa.large_binary(), pa.LargeBinaryArray) if wide else (pa.binary(), pa.BinaryArray)
    turns = array_type.from_buffers(kind, 2 * len(starts), [None, pa.py_buffer(meets), pa.py_buffer(data)])
    wanted = turns.take(pa.array(np.arange(0, 2 * len(starts), 2)))
    return np.frombuffer(wanted.buffers()[2], dtype=np.uint8)
