from __future__ import annotations

import random

import aiokafka.partitioner
import kafka.partitioner.default
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollway.records import BinaryColumn, murmur2, partition_for_key, partitions_for_keys

pytestmark = pytest.mark.usefixtures("twin")


@given(st.binary(max_size=40))
def test_murmur2_is_kafkas(key: bytes) -> None:
    theirs = kafka.partitioner.default.murmur2(key)
    assert murmur2(key) == theirs == aiokafka.partitioner.murmur2(key)


def test_partitions_are_those_of_the_default_partitioner() -> None:
    random_ = random.Random(2)
    default = aiokafka.partitioner.DefaultPartitioner()
    for count in (1, 2, 6, 97):
        keys = [random_.randbytes(random_.randrange(30)) for _ in range(200)]
        expected = [default(key, range(count), range(count)) for key in keys]
        assert [partition_for_key(key, count) for key in keys] == expected
        assert partitions_for_keys(BinaryColumn.from_list(keys), count).tolist() == expected


@pytest.mark.parametrize("size", [255, 256, 257, 258, 259, 5000])
def test_long_keys_are_hashed_as_kafkas(size: int) -> None:
    key = random.Random(size).randbytes(size)
    expected = kafka.partitioner.default.murmur2(key)
    assert murmur2(key) == expected
    assert partitions_for_keys(BinaryColumn.from_list([key, None, b""]), 2**31 - 1).tolist() == [
        (expected & 0x7FFF_FFFF) % (2**31 - 1),
        -1,
        partition_for_key(b"", 2**31 - 1),
    ]


@given(st.lists(st.none() | st.binary(max_size=30), max_size=100), st.integers(1, 1000), st.integers(0, 5))
def test_many_keys_go_where_each_goes(keys: list[bytes | None], count: int, skipped: int) -> None:
    column = BinaryColumn.from_list(keys).slice(min(skipped, len(keys)), len(keys))
    partitions = partitions_for_keys(column, count)
    assert partitions.dtype == np.int32
    assert partitions.tolist() == [-1 if key is None else partition_for_key(key, count) for key in keys[skipped:]]


def test_long_keys_among_many_short_ones() -> None:
    keys = [b"%d" % number for number in range(5000)] + [bytes(size) for size in (50, 51, 52, 53, 100_000)]
    expected = [partition_for_key(key, 12) for key in keys]
    assert partitions_for_keys(BinaryColumn.from_list(keys), 12).tolist() == expected


@pytest.mark.parametrize("count", [0, -1, 2**31])
def test_a_topic_has_a_partition(count: int) -> None:
    with pytest.raises(ValueError, match="partitions"):
        partition_for_key(b"k", count)
    with pytest.raises(ValueError, match="partitions"):
        partitions_for_keys(BinaryColumn.from_list([b"k"]), count)
