"""The record section of a batch of up to a few thousand records, from lists of byte strings.

Lists are what JSON and Python programs have. Without the compiled way (``sections_c.pyx``) there is no loop over
records here either: each field is one pass of ``map`` over the list, and one join puts them together. Below some
thousand records that is quicker than arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import TypeVar, cast

from rollway.records import compiled
from rollway.records.columns import name_to_bytes
from rollway.records.sections.varint import encode_varlong

_KEPT_MAX = 16 * 1024
_ATTRIBUTES = b"\x00"
_NULL = b"\x01"
_NO_HEADERS = b"\x00"
_INT64_SPAN = 1 << 64
_INT64_MIN = -(1 << 63)

Item = TypeVar("Item")
Headers = Sequence[tuple[str, bytes | None]]
_Column = bytes | list[bytes]


class _Varints(dict[int, bytes]):
    """Numbers as they are written; those that come again and again are kept."""

    def __missing__(self, number: int) -> bytes:
        encoded = encode_varlong(number)
        if -1 <= number < _KEPT_MAX:
            self[number] = encoded
        return encoded


_varint = _Varints().__getitem__
_OFFSETS = [encode_varlong(offset) for offset in range(8192)]
# From these offset deltas on, one more byte.
_OFFSET_MEETS = (64, 8192, 1 << 20, 1 << 27)


def list_section(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Headers] | None = None,
) -> bytes:
    """The record section of these records, at least one, offset deltas from 0.

    Timestamps wrap around at 2^63 like Java's long.
    """
    return join_rows(timestamps, keys, values, None if headers is None else list(map(_header_block, headers)))


def join_rows(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    header_blocks: list[bytes] | None,
) -> bytes:
    """``list_section`` with the headers of each record encoded, their number in front."""
    written = _write_compiled(timestamps, keys, values, header_blocks)
    if written is not None:
        return written
    count = len(values)
    row: list[_Column] = [_timestamp_deltas(timestamps)]
    offset_place = len(row)
    row.append(_OFFSETS[:count] if count <= len(_OFFSETS) else list(map(_varint, range(count))))
    row += (*_content(keys), *_content(values))
    row.append(_NO_HEADERS if header_blocks is None else header_blocks)
    lengths = _lengths(row, offset_place, count)
    columns: list[_Column] = []
    for column in (lengths, *row):
        if isinstance(column, bytes) and columns and isinstance(columns[-1], bytes):
            columns[-1] += column
        else:
            columns.append(column)
    width = len(columns)
    parts: list[bytes] = [b""] * (width * count)
    for place, column in enumerate(columns):
        parts[place::width] = [column] * count if isinstance(column, bytes) else column
    return b"".join(parts)


def _write_compiled(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    header_blocks: list[bytes] | None,
) -> bytes | None:
    if compiled.sections is None:
        return None
    try:
        return compiled.sections.write_lists(_as_list(timestamps), _as_list(keys), _as_list(values), header_blocks)
    except OverflowError:
        return None


def _as_list(items: Sequence[Item]) -> list[Item]:
    return items if isinstance(items, list) else list(items)


def _timestamp_deltas(timestamps: Sequence[int]) -> _Column:
    first = timestamps[0]
    if list(timestamps).count(first) == len(timestamps):
        return b"\x00"
    # Wrapping around costs more, and only timestamps of different signs may have to.
    if min(timestamps) >= 0:
        return [_varint(timestamp - first) for timestamp in timestamps]
    return [_varint((timestamp - first - _INT64_MIN) % _INT64_SPAN + _INT64_MIN) for timestamp in timestamps]


def _content(items: Sequence[bytes | None]) -> tuple[_Column, ...]:
    """The lengths of byte strings, and they themselves."""
    null_count = list(items).count(None)
    if null_count == len(items):
        return (_NULL,)
    if null_count:
        return (
            [_NULL if item is None else _varint(len(item)) for item in items],
            [b"" if item is None else item for item in items],
        )
    present = cast("list[bytes]", items if isinstance(items, list) else list(items))
    lengths = list(map(len, present))
    if lengths.count(lengths[0]) == len(lengths):
        return _varint(lengths[0]), present
    return list(map(_varint, lengths)), present


def _lengths(row: Sequence[_Column], offset_place: int, count: int) -> _Column:
    """The length of each record and its attributes, which nobody uses."""
    fixed = len(_ATTRIBUTES)
    varying: list[int] | None = None
    for place, column in enumerate(row):
        if isinstance(column, bytes):
            fixed += len(column)
        elif place != offset_place:
            sizes = list(map(len, column))
            if sizes.count(sizes[0]) == count:
                fixed += sizes[0]
            else:
                varying = sizes if varying is None else list(map(add, varying, sizes))
    heads: list[bytes] = []
    start = 0
    for size, meet in enumerate((*_OFFSET_MEETS, count), 1):
        end = min(meet, count)
        if end <= start:
            break
        if varying is None:
            heads += [_varint(fixed + size) + _ATTRIBUTES] * (end - start)
        else:
            base = fixed + size
            heads += [_varint(base + number) + _ATTRIBUTES for number in varying[start:end]]
        start = end
    return heads


def _header_block(headers: Headers) -> bytes:
    if not headers:
        return _NO_HEADERS
    parts = [_varint(len(headers))]
    for name, value in headers:
        encoded = name_to_bytes(name)
        parts += (_varint(len(encoded)), encoded)
        parts += (_NULL,) if value is None else (_varint(len(value)), value)
    return b"".join(parts)


def header_blocks(counts: Sequence[int], names: Sequence[bytes | None], values: Sequence[bytes | None]) -> list[bytes]:
    """The headers of each record, laid end to end in ``names`` and ``values``, encoded with their number in front."""
    pairs = [
        b"".join(
            (_varint(len(name or b"")), name or b"", _NULL if value is None else _varint(len(value)), value or b"")
        )
        for name, value in zip(names, values, strict=True)
    ]
    blocks = []
    start = 0
    for count in counts:
        blocks.append(_varint(count) + b"".join(pairs[start : start + count]))
        start += count
    return blocks
