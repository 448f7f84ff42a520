"""LZ4 frames as messages of magic 0 carry them: with a header checksum over too many bytes.

Kafka's first LZ4 writer let the checksum of the frame's header begin at the magic number, 4 bytes too early. Readers of
that age accept only this checksum; today's LZ4 libraries accept only the right one. This module exchanges them.
"""

from __future__ import annotations

import struct

from rollway.records.errors import BrokenBatchError

_MAGIC = b"\x04\x22\x4d\x18"
_FLAGS_AT = 4
_HEADER_BYTES = 7
_CONTENT_SIZE_BIT = 0x08
_DICTIONARY_BIT = 0x01
_CONTENT_SIZE_BYTES = 8

_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_MASK = 0xFFFFFFFF


def with_right_checksum(frame: bytes | memoryview) -> bytes:
    """Return the frame with the header checksum of the standard. The checksum that it has is not compared.

    Raises:
        BrokenBatchError: the bytes begin with no LZ4 frame header, or with one that names a dictionary.
    """
    return _with_checksum(frame, covered_from=_FLAGS_AT)


def with_wrong_checksum(frame: bytes | memoryview) -> bytes:
    """Return the frame with the header checksum that readers of magic 0 expect.

    Raises:
        BrokenBatchError: as ``with_right_checksum``.
    """
    return _with_checksum(frame, covered_from=0)


def _with_checksum(frame: bytes | memoryview, *, covered_from: int) -> bytes:
    if len(frame) < _HEADER_BYTES or frame[:_FLAGS_AT] != _MAGIC:
        raise BrokenBatchError("the lz4 frame is damaged: it has no header")
    flags = frame[_FLAGS_AT]
    if flags & _DICTIONARY_BIT:
        raise BrokenBatchError("the lz4 frame names a dictionary")
    checksum_at = _HEADER_BYTES - 1 + (_CONTENT_SIZE_BYTES if flags & _CONTENT_SIZE_BIT else 0)
    if len(frame) <= checksum_at:
        raise BrokenBatchError("the lz4 frame is cut off")
    checksum = _xxh32(bytes(frame[covered_from:checksum_at])) >> 8 & 0xFF
    return b"".join((frame[:checksum_at], bytes([checksum]), frame[checksum_at + 1 :]))


def _xxh32(content: bytes) -> int:
    """Return the xxHash32 with seed 0 of fewer than 16 bytes."""
    assert len(content) < 16
    digest = (_PRIME_5 + len(content)) & _MASK
    whole = len(content) & ~3
    for (word,) in struct.iter_unpack("<I", content[:whole]):
        digest = _rotated(digest + word * _PRIME_3, 17) * _PRIME_4 & _MASK
    for byte in content[whole:]:
        digest = _rotated(digest + byte * _PRIME_5, 11) * _PRIME_1 & _MASK
    digest = (digest ^ digest >> 15) * _PRIME_2 & _MASK
    digest = (digest ^ digest >> 13) * _PRIME_3 & _MASK
    return digest ^ digest >> 16


def _rotated(number: int, bits: int) -> int:
    number &= _MASK
    return (number << bits | number >> 32 - bits) & _MASK
