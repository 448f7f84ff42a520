"""Which partition a key belongs to: murmur2, as in Kafka's default partitioner, so that all clients agree."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rollway.records.columns import BinaryColumn

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24
_MASK = 0xFFFF_FFFF
_POSITIVE = 0x7FFF_FFFF


def murmur2(key: bytes) -> int:
    """The 32-bit murmur2 hash of ``key`` with Kafka's seed, as an unsigned number."""
    length = len(key)
    digest = _SEED ^ length
    body_bytes = length & ~3
    for place in range(0, body_bytes, 4):
        word = int.from_bytes(key[place : place + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> _SHIFT) * _MULTIPLIER & _MASK
        digest = digest * _MULTIPLIER & _MASK ^ word
    if body_bytes < length:
        digest = (digest ^ int.from_bytes(key[body_bytes:], "little")) * _MULTIPLIER & _MASK
    digest = (digest ^ digest >> 13) * _MULTIPLIER & _MASK
    return digest ^ digest >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of ``key`` in a topic of ``partition_count``: the hash made positive, modulo the count."""
    return (murmur2(key) & _POSITIVE) % partition_count


def partitions_for_keys(keys: BinaryColumn, partition_count: int) -> npt.NDArray[np.int32]:
    """``partition_for_key`` of every key. Null keys belong nowhere and get -1."""
    partitions = [-1 if key is None else partition_for_key(key, partition_count) for key in keys.to_list()]
    return np.array(partitions, dtype=np.int32)
