"""Sections in pieces: together they are the records of the whole batch, whatever the size of a piece."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollway.records import (
    BinaryColumn,
    BrokenRecordError,
    DecompressedSizeError,
    HeaderColumns,
    RecordBatch,
    RecordColumns,
    decode_batch,
    decode_pieces,
    decompress_batch,
    encode_batch,
)
from rollway.records.sections.pieces import section_pieces

pytestmark = pytest.mark.usefixtures("twin")

contents = st.one_of(st.none(), st.binary(max_size=30), st.integers(0, 3000).map(bytes))
rows = st.lists(
    st.tuples(contents, contents, st.lists(st.tuples(st.text(max_size=5), contents), max_size=3)),
    min_size=1,
    max_size=80,
)


def batch_of(records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]) -> RecordBatch:
    keys, values, headers = zip(*records, strict=True)
    count = len(records)
    columns = RecordColumns(
        np.arange(count),
        np.arange(count) + 1_000,
        BinaryColumn.from_list(keys),
        BinaryColumn.from_list(values),
        HeaderColumns.from_rows(headers),
    )
    return RecordBatch(encode_batch(columns))


@settings(max_examples=200)
@given(rows, st.integers(8, 4000))
def test_all_pieces_are_all_records(
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]], piece_bytes: int
) -> None:
    batch = batch_of(records)
    section = decompress_batch(batch)
    pieces = list(section_pieces(section, len(records), piece_bytes))
    assert [piece.start for piece in pieces[1:]] == [piece.end for piece in pieces[:-1]]
    assert all(piece.record_count == 1 or piece.end - piece.start <= piece_bytes for piece in pieces)
    found = RecordColumns.concatenate(list(decode_pieces(batch, section, piece_bytes=piece_bytes)))
    whole = decode_batch(batch)
    assert found.offsets.tolist() == whole.offsets.tolist()
    assert found.timestamps.tolist() == whole.timestamps.tolist()
    assert (found.keys, found.values) == (whole.keys, whole.values)
    assert (found.headers is None) == (whole.headers is None)
    if found.headers is not None and whole.headers is not None:
        assert found.headers.to_rows() == whole.headers.to_rows()


@settings(max_examples=300)
@given(rows, st.integers(8, 500), st.data())
def test_damage_is_found_or_the_records_are_read(
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    piece_bytes: int,
    data: st.DataObject,
) -> None:
    """A changed byte is an error of the format, whichever piece it is in, and never another one."""
    batch = batch_of(records)
    section = bytearray(decompress_batch(batch))
    section[data.draw(st.integers(0, len(section) - 1))] = data.draw(st.integers(0, 255))
    try:
        pieces = list(decode_pieces(batch, bytes(section), piece_bytes=piece_bytes))
    except BrokenRecordError:
        return
    assert sum(map(len, pieces)) == len(records)


@pytest.mark.parametrize("cut", [1, 20, 5_000])
def test_a_section_that_ends_early_or_late_is_broken(cut: int) -> None:
    batch = batch_of([(None, b"v" * 100, [])] * 100)
    section = bytes(decompress_batch(batch))
    for wrong in (section[:-cut], section + bytes(cut)):
        with pytest.raises(BrokenRecordError):
            list(decode_pieces(batch, wrong, piece_bytes=1_000))


def test_headers_of_a_long_record_are_counted_before_columns_are_made() -> None:
    batch = batch_of([(None, None, [("", None)] * 50_000), (None, b"x", [])])
    section = decompress_batch(batch)
    with pytest.raises(DecompressedSizeError):
        next(decode_pieces(batch, section, piece_bytes=1_000, columns_bytes_max=10_000))
