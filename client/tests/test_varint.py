from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.tests.sample_records import INT64_MAX, INT64_MIN, record_bytes, varint
from rollway.records import BrokenRecordError, RecordColumns
from rollway.records.sections.reader import read_section
from rollway.records.sections.varint import read_varint, read_varlong
from rollway.records.sections.writer import write_section

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


@pytest.mark.usefixtures("twin")
def test_v_23_edges_in_sections_are_the_edges_one_by_one() -> None:
    section = b"".join(record_bytes(timestamp_delta=varint(number)) for number in edges)
    columns = read_section(section, len(edges))
    assert columns.timestamps.tolist() == edges
    # From one timestamp to the next all deltas come again, and wrap around.
    written = write_section(RecordColumns(columns.offsets, columns.timestamps, columns.keys, columns.values))
    deltas = [(number - edges[0] + 2**63) % 2**64 - 2**63 for number in edges]
    assert read_section(written, len(edges)).timestamps.tolist() == deltas


@pytest.mark.usefixtures("twin")
@given(st.lists(st.tuples(int64, int32, int32), min_size=1, max_size=30))
def test_numbers_of_records_round_trip(rows: list[tuple[int, int, int]]) -> None:
    section = b"".join(
        record_bytes(
            timestamp_delta=varint(timestamp),
            offset_delta=varint(offset),
            value=varint(len(varint(other))) + varint(other),
        )
        for timestamp, offset, other in rows
    )
    columns = read_section(section, len(rows))
    values = [value or b"" for value in columns.values.to_list()]
    read = [read_varint(value, 0, len(value)) for value in values]
    assert [end for _, end in read] == list(map(len, values))
    numbers = [number for number, _ in read]
    assert list(zip(columns.timestamps.tolist(), columns.offsets.tolist(), numbers, strict=True)) == rows


@pytest.mark.usefixtures("twin")
@given(st.binary(min_size=1, max_size=12))
def test_sections_refuse_the_numbers_that_are_refused_one_by_one(encoded: bytes) -> None:
    # Bytes that end a number follow, so no number is cut off.
    data = encoded + bytes(10)
    for read_one, field in ((read_varint, "offset_delta"), (read_varlong, "timestamp_delta")):
        try:
            number, end = read_one(data, 0, len(data))
        except BrokenRecordError as error:
            with pytest.raises(BrokenRecordError, match=f"record 0 {str(error).partition(' at byte')[0]} at byte"):
                read_section(record_bytes(**{field: data}), 1)
        else:
            columns = read_section(record_bytes(**{field: data[:end]}), 1)
            found = columns.offsets if read_one is read_varint else columns.timestamps
            assert found.tolist() == [number]


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
