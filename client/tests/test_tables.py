"""Sections whose records are laid out alike, as tables: with the bytes and the verdicts of the other ways."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rollway.records.section_reader as section_reader
import rollway.records.section_writer as section_writer
from client.tests.sample_records import only
from rollway.records import DecompressedSizeError, Record, RecordFormatError, columns_from_records, encode_batch
from rollway.records.section_reader import read_section
from rollway.records.section_tables_read import read_tables
from rollway.records.section_tables_write import table_section
from rollway.records.section_writer import record_section, timestamp_deltas

pytestmark = pytest.mark.usefixtures("way")


def no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(section_reader, "read_tables", lambda *_: None)
    monkeypatch.setattr(section_writer, "table_section", lambda *_: None)


@dataclass(frozen=True)
class Alike:
    """Records with keys, values and headers of the same lengths, some of them with a few that are not."""

    key: int | None
    value: int | None
    headers: tuple[tuple[str, int | None], ...]
    count: int
    step: int
    odd: float
    seed: int

    def records(self) -> list[Record]:
        random_ = random.Random(self.seed)

        def content(width: int | None) -> bytes | None:
            if random_.random() < self.odd:
                return random_.choice([None, b"odd"])
            return None if width is None else random_.randbytes(width)

        return [
            Record(
                place,
                1000 + place * self.step + random_.choice([0, 0, 1]),
                content(self.key),
                content(self.value),
                tuple((name, content(width)) for name, width in self.headers),
            )
            for place in range(self.count)
        ]


widths = st.none() | st.integers(0, 3) | st.integers(50, 70) | st.just(200)
alike = st.builds(
    Alike,
    key=widths,
    value=widths,
    headers=st.lists(st.tuples(st.sampled_from(["", "trace", "größe"]), widths), max_size=9).map(tuple),
    count=st.integers(1, 260),
    step=st.sampled_from([0, 1, 40, 9000, 2**33, -3]),
    odd=st.sampled_from([0, 0, 0, 0.01]),
    seed=st.integers(0, 2**32),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shape=alike)
def test_tables_are_written_and_read_as_rows_are(monkeypatch: pytest.MonkeyPatch, shape: Alike) -> None:
    records = shape.records()
    columns = columns_from_records(records)
    with monkeypatch.context() as patch:
        only("rows", patch)
        expected = bytes(record_section(columns))
        rows = read_section(expected, len(records))
    with monkeypatch.context() as patch:
        only("columns", patch)
        assert bytes(record_section(columns)) == expected
        read = read_section(expected, len(records))
        no_tables(patch)
        assert bytes(record_section(columns)) == expected
    assert np.array_equal(read.offsets, rows.offsets)
    assert np.array_equal(read.timestamps, rows.timestamps)
    assert (read.keys, read.values) == (rows.keys, rows.values)
    expected_headers = [()] * len(records) if rows.headers is None else rows.headers.to_rows()
    assert ([()] * len(records) if read.headers is None else read.headers.to_rows()) == expected_headers


def verdict(section: bytes, count: int) -> object:
    try:
        read = read_section(section, count)
    except RecordFormatError as error:
        return type(error), str(error)
    headers = None if read.headers is None else read.headers.to_rows()
    return read.offsets.tolist(), read.timestamps.tolist(), read.keys.to_list(), read.values.to_list(), headers


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shape=alike, data=st.data())
def test_what_is_broken_is_told_as_without_tables(
    monkeypatch: pytest.MonkeyPatch, shape: Alike, data: st.DataObject
) -> None:
    records = shape.records()
    section = bytearray(encode_batch(columns_from_records(records))[61:])
    for _ in range(data.draw(st.integers(1, 3))):
        section[data.draw(st.integers(0, len(section) - 1))] = data.draw(st.integers(0, 255))
    count = len(records) + data.draw(st.sampled_from([0, 0, 0, -1, 1]))
    cut = bytes(section[: len(section) - data.draw(st.sampled_from([0, 0, 0, 1, 70]))])
    with monkeypatch.context() as patch:
        only("columns", patch)
        with_tables = verdict(cut, count)
        no_tables(patch)
        assert verdict(cut, count) == with_tables


@pytest.mark.parametrize("count", [300, 10_000, 70_000])
@pytest.mark.parametrize("names", [(), ("trace", "größe")])
def test_records_of_machines_are_tables(count: int, names: tuple[str, ...]) -> None:
    headers = tuple((name, b"0123") for name in names)
    records = [Record(place, place // 3, b"%08d" % place, b"%0100d" % place, headers) for place in range(count)]
    columns = columns_from_records(records)
    section = table_section(columns, timestamp_deltas(columns.timestamps))
    assert section is not None
    read = read_tables(section.data, section, count)
    assert read is not None
    assert read.values == columns.values
    assert read.keys == columns.keys
    assert np.array_equal(read.offsets, columns.offsets)
    assert np.array_equal(read.timestamps, columns.timestamps)
    # One byte of a length in the last record, and they are not alike any more.
    broken = section.copy()
    broken[-5 if names else -1] ^= 2
    assert read_tables(broken.data, broken, count) is None


def test_headers_are_refused_before_they_take_memory() -> None:
    headers = (("", None),) * 8
    columns = columns_from_records([Record(place, 0, None, None, headers) for place in range(1000)])
    section = bytes(record_section(columns))
    with pytest.raises(DecompressedSizeError):
        read_section(section, 1000, columns_bytes_max=1000 * (40 + 8 * 64) - 1)
    assert len(read_section(section, 1000, columns_bytes_max=1000 * (40 + 8 * 64))) == 1000
    told: list[int] = []
    assert read_tables(section, np.frombuffer(section, np.uint8), 1000, told.append) is not None
    assert told == [8000]
