"""Which partition a key belongs to: murmur2, as in Kafka's default partitioner, so that all clients agree."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rollway.records import compiled
from rollway.records.columns import BinaryColumn, ByteArray, Int64Array

UInt32Array = npt.NDArray[np.uint32]

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24
_MASK = 0xFFFF_FFFF
_POSITIVE = 0x7FFF_FFFF
_PARTITIONS_MAX = 2**31 - 1

# Measured: with fewer keys hashing one by one is quicker.
_TOGETHER_MIN = 32

# A long key takes half a microsecond for four bytes in Python, and no time to speak of in C.
_COMPILED_BYTES_MIN = 256


def murmur2(key: bytes) -> int:
    """The 32-bit murmur2 hash of ``key`` with Kafka's seed, as a number from 0 to 2^32 - 1."""
    if len(key) >= _COMPILED_BYTES_MIN and compiled.sections is not None:
        return int(_hash_all(BinaryColumn.from_list([key]))[0])
    return _hash_rest(_SEED ^ len(key), key)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of ``key`` in a topic of ``partition_count``: the hash made positive, modulo the count.

    Raises:
        ValueError: a topic cannot have that many partitions.
    """
    _check_count(partition_count)
    return (murmur2(key) & _POSITIVE) % partition_count


def partitions_for_keys(keys: BinaryColumn, partition_count: int) -> npt.NDArray[np.int32]:
    """``partition_for_key`` of every key. Null keys belong nowhere and get -1.

    Raises:
        ValueError: a topic cannot have that many partitions.
    """
    _check_count(partition_count)
    partitions = ((_hash_all(keys) & np.uint32(_POSITIVE)) % np.uint32(partition_count)).astype(np.int32)
    if keys.nulls is not None:
        partitions[keys.nulls] = -1
    return partitions


def _check_count(partition_count: int) -> None:
    if not 1 <= partition_count <= _PARTITIONS_MAX:
        raise ValueError(f"a topic has 1 to {_PARTITIONS_MAX} partitions, not {partition_count}")


def _hash_rest(digest: int, rest: bytes) -> int:
    """Finish a hash with the bytes after those that are in ``digest``, of which there were a multiple of four."""
    words_end = len(rest) & ~3
    for place in range(0, words_end, 4):
        word = int.from_bytes(rest[place : place + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> _SHIFT) * _MULTIPLIER & _MASK
        digest = digest * _MULTIPLIER & _MASK ^ word
    if words_end < len(rest):
        digest = (digest ^ int.from_bytes(rest[words_end:], "little")) * _MULTIPLIER & _MASK
    digest = (digest ^ digest >> 13) * _MULTIPLIER & _MASK
    return digest ^ digest >> 15


def _hash_all(keys: BinaryColumn) -> UInt32Array:
    """The hashes of all keys, a null's being that of no bytes."""
    digests = None if compiled.sections is None else compiled.sections.hash_strings(keys)
    return _hash_together(keys) if digests is None else digests


def _hash_together(keys: BinaryColumn) -> UInt32Array:
    """``_hash_all`` in Python: the first words of all, then the second, and so on."""
    lengths = keys.lengths()
    starts = keys.offsets[:-1]
    digests = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    # Every place of the data as the start of a word.
    words = np.ndarray((max(len(keys.data) - 3, 0),), dtype="<u4", buffer=keys.data, strides=(1,))
    active = np.flatnonzero(lengths >= 4)
    hashed_bytes = 0
    while len(active) >= _TOGETHER_MIN:
        word = words[starts[active] + hashed_bytes] * np.uint32(_MULTIPLIER)
        word = (word ^ word >> np.uint32(_SHIFT)) * np.uint32(_MULTIPLIER)
        digests[active] = digests[active] * np.uint32(_MULTIPLIER) ^ word
        hashed_bytes += 4
        active = active[lengths[active] >= hashed_bytes + 4]
    _finish(digests, keys.data, starts + (lengths & ~3), lengths & 3)
    # Few keys are longer than most: what was finished too early is done again from its words.
    for place in active.tolist():
        digests[place] = murmur2(keys[place] or b"")
    return digests


def _finish(digests: UInt32Array, data: ByteArray, rest_starts: Int64Array, rest_bytes: Int64Array) -> None:
    """Mix in the last 1 to 3 bytes of each key, then the hash with itself."""
    for place in (2, 1, 0):
        longer = np.flatnonzero(rest_bytes > place)
        digests[longer] ^= data[rest_starts[longer] + place].astype(np.uint32) << np.uint32(8 * place)
    digests[rest_bytes > 0] *= np.uint32(_MULTIPLIER)
    digests ^= digests >> np.uint32(13)
    digests *= np.uint32(_MULTIPLIER)
    digests ^= digests >> np.uint32(15)
