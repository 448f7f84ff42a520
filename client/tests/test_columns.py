from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.tests.sample_records import byte_strings, random_records, record_lists
from rollway.records import (
    BinaryColumn,
    HeaderColumns,
    Record,
    RecordColumns,
    columns_from_records,
    records_from_columns,
)

pytestmark = pytest.mark.usefixtures("twin")

lists = st.lists(byte_strings, max_size=20)


@given(lists)
def test_lists_round_trip(items: list[bytes | None]) -> None:
    column = BinaryColumn.from_list(items)
    assert column.to_list() == items
    assert [column[place] for place in range(len(column))] == items
    assert column.size_bytes == sum(len(item or b"") for item in items)
    assert column.lengths().tolist() == [len(item or b"") for item in items]
    assert (column.nulls is not None) == (None in items)


@given(lists, st.data())
def test_slices_are_slices_of_the_list(items: list[bytes | None], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(items)))
    end = data.draw(st.integers(start, len(items)))
    part = BinaryColumn.from_list(items).slice(start, end)
    assert part.to_list() == items[start:end]
    assert part == BinaryColumn.from_list(items[start:end])
    assert part.to_arrow().to_pylist() == items[start:end]


@given(st.lists(lists, min_size=1, max_size=4))
def test_columns_concatenate_like_lists(parts: list[list[bytes | None]]) -> None:
    columns = [BinaryColumn.from_list([b"cut", *part, None]).slice(1, len(part) + 1) for part in parts]
    assert BinaryColumn.concatenate(columns).to_list() == [item for part in parts for item in part]


@given(lists, st.sampled_from([pa.binary(), pa.large_binary()]), st.integers(0, 5))
def test_arrow_round_trips(items: list[bytes | None], kind: pa.DataType, skipped: int) -> None:
    array = pa.array(items, type=kind)
    column = BinaryColumn.from_arrow(array.slice(skipped))
    assert column.to_list() == items[skipped:]
    back = column.to_arrow()
    back.validate(full=True)
    assert back.type == pa.large_binary()
    assert back.to_pylist() == items[skipped:]


@given(st.lists(st.lists(st.none() | st.text(max_size=5), max_size=5), max_size=4))
def test_chunks_of_arrow_strings(chunks: list[list[str | None]]) -> None:
    texts = [text for chunk in chunks for text in chunk]
    for kind in (pa.string(), pa.large_string()):
        column = BinaryColumn.from_arrow(pa.chunked_array(chunks, type=kind))
        assert column.to_list() == [None if text is None else text.encode() for text in texts]


def test_arrow_shares_memory() -> None:
    data = np.frombuffer(b"abcdef", dtype=np.uint8)
    column = BinaryColumn(data, np.array([0, 2, 6]))
    assert column.to_arrow().buffers()[2].address == data.ctypes.data
    assert BinaryColumn.from_arrow(column.to_arrow()).data.ctypes.data == data.ctypes.data


def test_arrow_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="int64"):
        BinaryColumn.from_arrow(pa.array([1, 2]))


@pytest.mark.parametrize(
    ("offsets", "nulls"),
    [([], None), ([0, 7], None), ([-1, 2], None), ([0, 4, 2], None), ([0, 2, 4], [True])],
)
def test_offsets_that_leave_the_data_are_refused(offsets: list[int], nulls: list[bool] | None) -> None:
    flags = None if nulls is None else np.array(nulls)
    with pytest.raises(ValueError, match=r"offsets|null flags"):
        BinaryColumn(b"abcdef", np.array(offsets, dtype=np.int64), flags)


def test_what_lies_under_a_null_does_not_count() -> None:
    column = BinaryColumn(b"abcdef", np.array([0, 2, 5, 6]), np.array([False, True, False]))
    assert column.to_list() == [b"ab", None, b"f"]
    assert column.lengths().tolist() == [2, 0, 1]
    assert column.size_bytes == 3
    assert column.to_arrow().to_pylist() == [b"ab", None, b"f"]


def test_slices_beyond_a_column_are_refused() -> None:
    column = BinaryColumn.from_list([b"a", None])
    for start, end in ((-1, 1), (0, 3), (2, 1)):
        with pytest.raises(IndexError):
            column.slice(start, end)


def test_places_beyond_a_column_are_refused() -> None:
    column = BinaryColumn.from_list([b"a", None])
    assert column[-2] == b"a"
    for place in (2, -3):
        with pytest.raises(IndexError):
            column[place]


def test_columns_of_different_lengths_are_refused() -> None:
    one, two = BinaryColumn.all_null(1), BinaryColumn.all_null(2)
    with pytest.raises(ValueError, match="different lengths"):
        RecordColumns(np.zeros(1, np.int64), np.zeros(1, np.int64), one, two)
    with pytest.raises(ValueError, match="2 headers counted, 1 names"):
        HeaderColumns(np.array([2]), BinaryColumn.from_list([b"a"]), one)
    with pytest.raises(ValueError, match="may not be null"):
        HeaderColumns(np.array([1]), one, one)
    with pytest.raises(ValueError, match="negative"):
        HeaderColumns(np.array([2, -1]), BinaryColumn.from_list([b"a"]), one)


@given(record_lists(min_size=0))
def test_records_round_trip_through_columns(records: list[Record]) -> None:
    columns = columns_from_records(records)
    assert len(columns) == len(records)
    assert records_from_columns(columns) == records


def test_slices_and_joins_of_records() -> None:
    records = [*random_records(3, 40), Record(40, 1, b"k", None, (("name", None), ("name", b"")))]
    columns = columns_from_records(records)
    parts = [columns.slice(start, end) for start, end in ((0, 7), (7, 7), (7, 30), (30, 41))]
    assert [records_from_columns(part) for part in parts] == [records[:7], [], records[7:30], records[30:]]
    assert records_from_columns(RecordColumns.concatenate(parts)) == records
