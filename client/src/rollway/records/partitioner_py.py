"""Keys hashed by plain Python, one after the other."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from rollway.records.columns import BinaryColumn

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24
_MASK = 0xFFFF_FFFF


def hash_strings(column: BinaryColumn) -> npt.NDArray[np.uint32]:
    """Return the murmur2 hash of each byte string of a column, for a null that of no bytes."""
    return np.array([murmur2(key or b"") for key in column.to_list()], dtype=np.uint32)


def murmur2(key: bytes) -> int:
    """Return the 32-bit murmur2 hash of ``key`` with Kafka's seed."""
    digest = _SEED ^ len(key)
    words_end = len(key) & ~3
    for (word,) in struct.iter_unpack("<I", memoryview(key)[:words_end]):
        mixed = word * _MULTIPLIER & _MASK
        mixed = (mixed ^ mixed >> _SHIFT) * _MULTIPLIER & _MASK
        digest = digest * _MULTIPLIER & _MASK ^ mixed
    if words_end < len(key):
        digest = (digest ^ int.from_bytes(key[words_end:], "little")) * _MULTIPLIER & _MASK
    digest = (digest ^ digest >> 13) * _MULTIPLIER & _MASK
    return digest ^ digest >> 15
