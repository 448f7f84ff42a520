"""Both twins write the text that msgspec makes of the documents of records, byte for byte."""

from __future__ import annotations

import json
import tracemalloc
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.record_json.record_documents import encode_document, encode_lines, record_documents
from app.record_json.record_texts import IN_LINES, IN_LIST, bounded_texts, record_texts
from app.record_json.translate import Encoding
from rollway.records import BinaryColumn, HeaderColumns, RecordColumns
from rollway.records.columns import name_from_bytes

pytestmark = pytest.mark.usefixtures("twin")

EACH_BYTE = [bytes([byte]) for byte in range(256)]
TEXTS = ["", '"\\/\b\f\n\r\t\x00\x1f\x7f', "héß", "\u2028\u2029\ud7ff\ue000\ufffd\uffff", "\U00010000😀\U0010ffff"]
NO_TEXTS = [b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"plain and \xff", bytes(range(256))]
CONTENTS = [*EACH_BYTE, *[text.encode() for text in TEXTS], *NO_TEXTS, *[b"abcdefgh"[:size] for size in range(8)], None]

contents = st.one_of(st.none(), st.binary(max_size=40), st.text(max_size=40).map(str.encode), st.just(b"x" * 5000))
int64s = st.integers(-(2**63), 2**63 - 1)
names = st.one_of(st.text(max_size=9), st.binary(max_size=9).map(name_from_bytes))
rows = st.lists(
    st.tuples(int64s, int64s, contents, contents, st.lists(st.tuples(names, contents), max_size=3)),
    min_size=1,
    max_size=12,
)


def check(columns: RecordColumns, encoding: Encoding) -> None:
    documents = record_documents(columns, encoding=encoding, timestamp_type="CreateTime", partition=2**31 - 1)
    for between, encode in ((IN_LIST, encode_document), (IN_LINES, encode_lines)):
        found = record_texts(
            columns, encoding=encoding, timestamp_type="CreateTime", partition=2**31 - 1, between=between
        )
        assert encode(found) == encode(documents)
    assert len(json.loads(encode_document(documents))) == len(columns)


@pytest.mark.parametrize("encoding", get_args(Encoding))
@pytest.mark.parametrize("has_headers", [False, True])
def test_every_byte_and_every_kind_of_text(encoding: Encoding, has_headers: bool) -> None:
    count = len(CONTENTS)
    names = [*TEXTS, *map(name_from_bytes, NO_TEXTS)]
    headers = [[(names[(place + each) % 11], CONTENTS[-place]) for each in range(place % 4)] for place in range(count)]
    check(
        RecordColumns(
            np.arange(count),
            np.arange(count) - 1,
            BinaryColumn.from_list(CONTENTS[::-1]),
            BinaryColumn.from_list(CONTENTS),
            HeaderColumns.from_rows(headers) if has_headers else None,
        ),
        encoding,
    )


@settings(max_examples=300)
@given(rows, st.sampled_from(get_args(Encoding)), st.integers(0, 11))
def test_any_records(
    records: list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    encoding: Encoding,
    first: int,
) -> None:
    offsets, timestamps, keys, values, headers = zip(*records, strict=True)
    columns = RecordColumns(
        np.array(offsets),
        np.array(timestamps),
        BinaryColumn.from_list(keys),
        BinaryColumn.from_list(values),
        HeaderColumns.from_rows(headers),
    )
    check(columns, encoding)
    # As a range of a batch is: over the memory of all.
    check(columns.slice(min(first, len(records)), len(records)), encoding)


def test_no_records_are_no_text() -> None:
    nothing = RecordColumns(np.array([], np.int64), np.array([], np.int64), *[BinaryColumn.from_list([])] * 2)
    assert record_texts(nothing, encoding="utf8", timestamp_type="CreateTime", partition=0, between=IN_LINES) == []


def test_offsets_that_lie_are_no_way_out_of_the_data(twin: str) -> None:
    if twin == "plain":
        pytest.skip("slices of Python end with the data")
    one = np.array([0], dtype=np.int64)
    sound = BinaryColumn.from_list([b"x"])
    for ends in ([0, 10_000_000], [2, 1], [-1, 1]):
        liar = BinaryColumn.unchecked(np.zeros(3, dtype=np.uint8), np.array(ends, dtype=np.int64))
        columns = RecordColumns(one, one, sound, liar)
        with pytest.raises(IndexError):
            record_texts(columns, encoding="utf8", timestamp_type="CreateTime", partition=0, between=IN_LIST)


@pytest.mark.parametrize("encoding", get_args(Encoding))
@pytest.mark.parametrize("sizes", [[4_000_000], [4000] * 1000, [40] * 20_000])
def test_a_header_that_is_no_text_hides_no_others(encoding: Encoding, sizes: list[int]) -> None:
    """Text that takes six bytes for one is told before any of it is made, whatever stands beside it."""
    headers = [*[("h", b"\0" * size) for size in sizes], ("h", b"\xff")]
    one, nothing = np.arange(1), BinaryColumn.from_list([None])
    columns = RecordColumns(one, one, nothing, nothing, HeaderColumns.from_rows([headers]))
    content_bytes = sum(sizes)
    limit = 4 * content_bytes // 3 - 1000 if encoding == "base64" else 3 * content_bytes
    tracemalloc.start()
    try:
        found = bounded_texts(
            columns, encoding=encoding, timestamp_type="CreateTime", partition=0, between=IN_LINES, bytes_max=limit
        )
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found.record_count, found.size_bytes) == (0, 0)
    assert found.missing_bytes > (content_bytes if encoding == "base64" else 5 * content_bytes)
    # Of headers, 16 * 1024 are objects at a time.
    assert peak_bytes < limit + 1_000_000


@settings(max_examples=200)
@given(rows, st.sampled_from(get_args(Encoding)), st.integers(0, 20_000))
def test_as_many_records_as_fit_are_written(
    records: list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    encoding: Encoding,
    bytes_max: int,
) -> None:
    """Compiled and not: the first records, whole, within the limit; and one more would be beyond it, about."""
    offsets, timestamps, keys, values, headers = zip(*records, strict=True)
    columns = RecordColumns(
        np.array(offsets),
        np.array(timestamps),
        BinaryColumn.from_list(keys),
        BinaryColumn.from_list(values),
        HeaderColumns.from_rows(headers),
    )
    found = bounded_texts(
        columns, encoding=encoding, timestamp_type="CreateTime", partition=3, between=IN_LINES, bytes_max=bytes_max
    )
    documents = record_documents(columns, encoding=encoding, timestamp_type="CreateTime", partition=3)
    assert encode_lines(found.documents) == encode_lines(documents[: found.record_count])
    assert len(encode_lines(found.documents)) <= bytes_max + len(records)
    if found.record_count < len(records):
        assert found.missing_bytes > bytes_max - found.size_bytes
        next_bytes = len(encode_document(documents[found.record_count]))
        header_count = len(headers[found.record_count])
        assert next_bytes + 200 + 80 * header_count + next_bytes // 2 > bytes_max - found.size_bytes
