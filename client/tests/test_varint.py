from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.tests.sample_records import INT64_MAX, INT64_MIN, varint
from rollway.records import BrokenRecordError
from rollway.records.sections.varint import read_varint, read_varlong
from rollway.records.varint_arrays import encode_varints, read_varints, write_varints

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(INT64_MIN, INT64_MAX)
edges = sorted({sign * (2**bits + step) for bits in range(63) for step in (-1, 0, 1) for sign in (-1, 1)} | {INT64_MIN})


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, b"\x00"),
        (-1, b"\x01"),
        (1, b"\x02"),
        (63, b"\x7e"),
        (-64, b"\x7f"),
        (64, b"\x80\x01"),
        (2**31 - 1, b"\xfe\xff\xff\xff\x0f"),
        (-(2**31), b"\xff\xff\xff\xff\x0f"),
        (INT64_MAX, b"\xfe" + b"\xff" * 8 + b"\x01"),
        (INT64_MIN, b"\xff" * 9 + b"\x01"),
    ],
)
def test_v_23_bytes_of_the_edges(number: int, encoded: bytes) -> None:
    assert varint(number) == encoded
    assert read_varlong(encoded, 0, len(encoded)) == (number, len(encoded))
    if len(encoded) <= 5:
        assert read_varint(encoded, 0, len(encoded)) == (number, len(encoded))


def test_v_23_edges_in_arrays_are_the_edges_one_by_one() -> None:
    numbers = np.array(edges, dtype=np.int64)
    data, ends = write_varints([encode_varints(numbers)], len(edges))
    assert data.tobytes() == b"".join(varint(number) for number in edges)
    read = read_varints(data, ends[:-1], 10)
    assert read.numbers.tolist() == edges
    assert read.ends.tolist() == ends[1:].tolist()
    assert read.broken is None


@given(st.lists(st.tuples(int64, int32, int32), min_size=1, max_size=30))
def test_rows_of_numbers_round_trip(rows: list[tuple[int, int, int]]) -> None:
    columns = [encode_varints(np.array(column, dtype=np.int64)) for column in zip(*rows, strict=True)]
    data, ends = write_varints(columns, len(rows))
    assert data.tobytes() == b"".join(varint(number) for row in rows for number in row)
    first = read_varints(data, ends[:-1], 10)
    second = read_varints(data, first.ends)
    third = read_varints(data, second.ends)
    read = zip(first.numbers.tolist(), second.numbers.tolist(), third.numbers.tolist(), strict=True)
    assert list(read) == rows
    assert third.ends.tolist() == ends[1:].tolist()


@given(st.binary(min_size=1, max_size=12))
def test_arrays_refuse_what_one_by_one_is_refused(encoded: bytes) -> None:
    # Bytes that end a number follow, so that a number that is cut off is not the question.
    data = np.frombuffer(encoded + bytes(10), dtype=np.uint8)
    for read_one, bytes_max in ((read_varint, 5), (read_varlong, 10)):
        many = read_varints(data, np.zeros(1, dtype=np.int64), bytes_max)
        try:
            number, end = read_one(data.tobytes(), 0, len(data))
        except BrokenRecordError:
            assert many.broken is not None
            assert many.broken.tolist() == [True]
        else:
            assert many.broken is None or not many.broken.any()
            assert (many.numbers.tolist(), many.ends.tolist()) == ([number], [end])


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (b"\x80\x80\x80\x80\x80\x00", "longer than 5 bytes"),
        (b"\xff\xff\xff\xff\x1f", "out of range"),
        (b"\x80\x80", "cut off"),
        (b"", "cut off"),
    ],
)
def test_v_22_broken_numbers_are_named(encoded: bytes, reason: str) -> None:
    with pytest.raises(BrokenRecordError, match=reason):
        read_varint(encoded, 0, len(encoded))


def test_v_22_broken_long_numbers_are_named() -> None:
    with pytest.raises(BrokenRecordError, match="longer than 10 bytes"):
        read_varlong(b"\x80" * 10 + b"\x00", 0, 11)
    with pytest.raises(BrokenRecordError, match="out of range"):
        read_varlong(b"\xff" * 9 + b"\x02", 0, 10)
