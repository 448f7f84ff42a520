"""Zigzag varints: a signed number in 1 to 5 (int32) or 10 (int64) bytes, seven bits each, lowest first.

The sign is the lowest bit (0, -1, 1, -2 become 0, 1, 2, 3), so that small numbers of either sign are short. Example:
300 becomes 600, which is ``b"\\xd8\\x04"``.
"""

from __future__ import annotations

from rollway.records.errors import BrokenRecordError

VARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10

_UINT32_MAX = 0xFFFF_FFFF
_UINT64_MAX = 0xFFFF_FFFF_FFFF_FFFF


def append_varlong(buffer: bytearray, number: int) -> None:
    """Append ``number``, an int64 (or an int32, which takes the same bytes), to ``buffer``."""
    zigzag = (number << 1) ^ (number >> 63)
    while zigzag > 0x7F:
        buffer.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    buffer.append(zigzag)


def encode_varlong(number: int) -> bytes:
    """Return the bytes that ``append_varlong`` appends."""
    encoded = bytearray()
    append_varlong(encoded, number)
    return bytes(encoded)


def read_varint(data: bytes | memoryview, position: int, end: int) -> tuple[int, int]:
    """Read an int32 that lies inside ``[position, end)``; return it and where it ends.

    Raises:
        BrokenRecordError: the number is cut off at ``end``, longer than 5 bytes, or out of range.
    """
    # Most numbers take one byte or two.
    if position + 1 < end:
        low = data[position]
        if low < 0x80:
            return low >> 1 ^ -(low & 1), position + 1
        high = data[position + 1]
        if high < 0x80:
            return (high << 6 | (low & 0x7F) >> 1) ^ -(low & 1), position + 2
    return _read(data, position, end, VARINT_BYTES_MAX, _UINT32_MAX)


def read_varlong(data: bytes | memoryview, position: int, end: int) -> tuple[int, int]:
    """Read an int64 that lies inside ``[position, end)``; return it and where it ends.

    Raises:
        BrokenRecordError: the number is cut off at ``end``, longer than 10 bytes, or out of range.
    """
    if position + 1 < end:
        low = data[position]
        if low < 0x80:
            return low >> 1 ^ -(low & 1), position + 1
        high = data[position + 1]
        if high < 0x80:
            return (high << 6 | (low & 0x7F) >> 1) ^ -(low & 1), position + 2
    return _read(data, position, end, VARLONG_BYTES_MAX, _UINT64_MAX)


def _read(data: bytes | memoryview, position: int, end: int, bytes_max: int, unsigned_max: int) -> tuple[int, int]:
    zigzag = 0
    shift = 0
    for place in range(position, min(position + bytes_max, end)):
        byte = data[place]
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            if zigzag > unsigned_max:
                raise BrokenRecordError(f"has a number out of range at byte {position}")
            return (zigzag >> 1) ^ -(zigzag & 1), place + 1
        shift += 7
    if position + bytes_max <= end:
        raise BrokenRecordError(f"has a number longer than {bytes_max} bytes at byte {position}")
    raise BrokenRecordError(f"has a number cut off at byte {end}")
