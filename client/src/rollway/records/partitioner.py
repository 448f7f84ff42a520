"""Which partition a key belongs to: murmur2, as in Kafka's default partitioner, so that all clients agree.

Columns of keys are hashed by ``partitioner_c`` where it was compiled, otherwise by ``partitioner_py``.
"""

from __future__ import annotations

from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from rollway.records import partitioner_py
from rollway.records.columns import BinaryColumn
from rollway.records.compiled import load

_POSITIVE = 0x7FFF_FFFF
_PARTITIONS_MAX = 2**31 - 1

# A long key takes half a microsecond for four bytes in Python. A short one takes less than making a column of it.
_COMPILED_BYTES_MIN = 256


class CompiledPartitioner(Protocol):
    """The function of ``partitioner_c.pyx``."""

    def hash_strings(self, column: BinaryColumn) -> npt.NDArray[np.uint32] | None:
        """Return the murmur2 hash of each byte string, for a null that of no bytes."""


compiled = cast("CompiledPartitioner | None", load("rollway.records.partitioner_c"))
"""The compiled module, or ``None``. Tests set it to ``None`` to hold both against each other."""


def murmur2(key: bytes) -> int:
    """Return the 32-bit murmur2 hash of ``key`` with Kafka's seed, as a number from 0 to 2^32 - 1."""
    if compiled is not None and len(key) >= _COMPILED_BYTES_MIN:
        return int(_hash_all(BinaryColumn.from_list([key]))[0])
    return partitioner_py.murmur2(key)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of ``key`` in a topic of ``partition_count``: the hash made positive, modulo the count.

    Example: ``partition_for_key(b"42", 6)`` is 4.

    Raises:
        ValueError: a topic cannot have that many partitions.
    """
    _check_count(partition_count)
    return (murmur2(key) & _POSITIVE) % partition_count


def partitions_for_keys(keys: BinaryColumn, partition_count: int) -> npt.NDArray[np.int32]:
    """Return ``partition_for_key`` of every key, and -1 for a null, which belongs to no partition.

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


def _hash_all(keys: BinaryColumn) -> npt.NDArray[np.uint32]:
    digests = None if compiled is None else compiled.hash_strings(keys)
    return partitioner_py.hash_strings(keys) if digests is None else digests
