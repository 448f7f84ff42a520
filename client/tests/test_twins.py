"""The compiled modules against their plain twins: the same records, bytes and errors, whatever the input."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.tests.sample_records import (
    batch_bytes,
    random_records,
    record_bytes,
    record_lists,
    varint,
)
from client.tests.twins import both
from rollway.records import (
    BinaryColumn,
    BrokenRecordError,
    DecompressedSizeError,
    HeaderColumns,
    Record,
    RecordBatch,
    RecordColumns,
    columns_from_records,
    decode_batch,
    encode_batch,
    encode_batches,
    encode_lists,
    partitioner,
    records_from_columns,
)
from rollway.records.compiled import is_compiled
from rollway.records.sections import reader, reader_py, writer
from rollway.records.sections.reader import find_facts, fit_records, read_section
from rollway.records.sections.writer import write_lists, write_section

pytestmark = pytest.mark.skipif(not is_compiled(), reason="the package was installed without a compiler")

TOO_MANY = (DecompressedSizeError, "the batch has more records or headers than there is memory for")


def read(section: bytes, count: int, columns_bytes_max: int | None = None) -> list[Record]:
    return list(records_from_columns(read_section(section, count, columns_bytes_max)))


@dataclass(frozen=True)
class Alike:
    """Records with keys, values and headers of the same lengths, as machines write them; some with a few odd ones."""

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
).map(Alike.records)


@st.composite
def sections(draw: st.DrawFn) -> tuple[bytes, int]:
    """Sections of any records, often with bytes changed, taken out, put in or repeated, and a wrong count."""
    records = draw(
        st.one_of(
            record_lists(),
            st.builds(random_records, st.integers(0, 1000), st.sampled_from([1, 7, 120, 500])),
            alike,
        )
    )
    count = len(records)
    section = bytearray(write_section(columns_from_records(records)))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(section) - 1))
        how = draw(st.sampled_from(["change", "change", "take", "put", "copy"]))
        if how == "change":
            section[place] = draw(st.integers(0, 255))
        elif how == "take" and len(section) > 1:
            del section[place]
        elif how == "put":
            section.insert(place, draw(st.integers(0, 255)))
        else:
            section[place : place + 3] = section[-3:]
    cut = draw(st.sampled_from([0, 0, 0, 1, 70]))
    return bytes(section[: len(section) - cut]), count + draw(st.sampled_from([0, 0, 0, 0, 1, -1]))


@settings(max_examples=600)
@given(sections())
def test_any_bytes_are_read_alike_or_refused_alike(spoiled: tuple[bytes, int]) -> None:
    section, count = spoiled
    found, expected = both(lambda: read(section, count))
    assert found == expected
    facts, plain_facts = both(lambda: find_facts(section, count))
    assert facts == plain_facts
    if isinstance(expected, list) and [record.offset for record in expected] == list(range(count)) and count:
        assert facts is not None
    else:
        assert facts is None


@settings(max_examples=300)
@given(sections(), st.integers(0, 60_000))
def test_any_bytes_are_charged_alike(spoiled: tuple[bytes, int], columns_bytes_max: int) -> None:
    section, count = spoiled
    found, expected = both(lambda: read(section, count, columns_bytes_max))
    assert found == expected
    facts, plain_facts = both(lambda: find_facts(section, count, columns_bytes_max))
    assert facts == plain_facts


@settings(max_examples=300)
@given(sections(), st.integers(0, 5000), st.integers(0, 5000))
def test_as_many_records_fit(spoiled: tuple[bytes, int], start: int, bytes_max: int) -> None:
    section, count = spoiled
    view = memoryview(section)
    found, expected = both(lambda: fit_records(view, min(start, len(view)), max(count, 0), bytes_max))
    assert found == expected


def outcome(batch: bytes) -> list[Record]:
    return records_from_columns(decode_batch(RecordBatch(batch), decompressed_bytes_max=2**20))


def test_any_byte_of_a_batch_changed() -> None:
    headers = (("größe", b"1"), ("", None))
    records = [Record(place, place * 50, b"key%d" % place, b"v" * 60, headers[: place % 3]) for place in range(6)]
    batch = encode_batch(columns_from_records(records))
    refused = 0
    for place in range(21, len(batch)):
        for changed in (0x00, 0x01, 0x02, 0x7F, 0x80, 0xFF, batch[place] ^ 1, batch[place] ^ 2):
            damaged = batch[:place] + bytes([changed]) + batch[place + 1 :]
            found, expected = both(lambda batch=damaged: outcome(batch))
            assert found == expected
            refused += isinstance(found, tuple)
    # Bytes of a header name are anything.
    assert refused > 370


@settings(deadline=None)
@given(records=record_lists(max_size=12), data=st.data())
def test_damaged_batches_are_read_alike(records: list[Record], data: st.DataObject) -> None:
    batch = bytearray(encode_batch(columns_from_records(records * data.draw(st.sampled_from([1, 30])))))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(57, len(batch) - 1))
        batch[place] = data.draw(st.integers(0, 255))
    found, expected = both(lambda: outcome(bytes(batch)))
    assert found == expected


@given(section=st.binary(max_size=200), count=st.integers(0, 30))
def test_noise_is_read_alike(section: bytes, count: int) -> None:
    found, expected = both(lambda: outcome(batch_bytes(section, count)))
    assert found == expected


@pytest.mark.parametrize("budget", [-1, 0, 39, 40, 103, 104, 105, 40 + 2 * 64 - 1, 40 + 2 * 64])
def test_the_room_for_columns_ends_at_the_same_byte(budget: int) -> None:
    section = record_bytes(headers=varint(2) + varint(1) + b"h" + varint(-1) + varint(0) + varint(0))
    for count in (1, 200):
        found, expected = both(lambda c=count: read(section * c, c, c * budget))
        assert found == expected
        assert (expected == TOO_MANY) == (budget < 168)
        facts, plain_facts = both(lambda c=count: find_facts(section * c, c, c * budget))
        assert facts == plain_facts


def test_headers_are_refused_before_they_take_memory() -> None:
    columns = columns_from_records([Record(place, 0, None, None, (("", None),) * 8) for place in range(1000)])
    section = write_section(columns)
    found, expected = both(lambda: read(section, 1000, 1000 * (40 + 8 * 64) - 1))
    assert found == expected == TOO_MANY
    found, expected = both(lambda: len(read(section, 1000, 1000 * (40 + 8 * 64))))
    assert found == expected == 1000


def test_a_fault_is_explained_without_reading_the_records_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    section = record_bytes() * 1000 + record_bytes(key=varint(-2)) + record_bytes()
    read_records: list[int] = []
    read_record = reader_py._Reader._read_record

    def counted(self: Any, position: int) -> int:
        read_records.append(position)
        return read_record(self, position)

    monkeypatch.setattr(reader_py._Reader, "_read_record", counted)
    with pytest.raises(BrokenRecordError, match="record 1000 has a field of -2 bytes"):
        read(section, 1002)
    assert read_records == [len(record_bytes()) * 1000]


def test_memory_that_changes_between_two_looks_is_an_error_all_the_same() -> None:
    sound = record_bytes() * 3
    error = reader_py.explain(sound, 3, 10, (1, len(record_bytes()), 0))
    assert (str(error), error.record_errors) == ("record 1 breaks the format", ((1, "breaks the format"),))


@settings(max_examples=300)
@given(record_lists() | alike)
def test_the_same_bytes_are_written(records: list[Record]) -> None:
    columns = columns_from_records(records)
    found, expected = both(lambda: write_section(columns))
    assert found == expected
    assert isinstance(found, bytes)
    lists = (
        [record.timestamp for record in records],
        [record.key for record in records],
        [record.value for record in records],
        [record.headers for record in records],
    )
    assert both(lambda: write_lists(*lists)) == (found, found)


@given(record_lists() | alike, st.integers(0, 3000))
def test_batches_end_at_the_same_records(records: list[Record], batch_bytes_max: int) -> None:
    columns = columns_from_records(records)
    found, expected = both(lambda: writer.fit_records(columns, batch_bytes_max))
    assert found == expected
    found, expected = both(lambda: encode_batches(columns, batch_bytes_max=batch_bytes_max))
    assert found == expected


@pytest.mark.parametrize("count", [1, 3, 400, 5000])
def test_columns_of_any_memory_are_written(count: int) -> None:
    """Slices, strides, read-only memory, nulls that have a range: what callers may hand in."""
    data = np.frombuffer(bytes(range(256)) * 100, dtype=np.uint8)
    offsets = np.arange(2 * count + 2, dtype=np.int64)
    nulls = np.arange(count) % 3 == 0
    wide = RecordColumns(
        np.arange(count),
        np.arange(2 * count, dtype=np.int64)[::2],
        BinaryColumn(data, offsets[::2], nulls),
        BinaryColumn(data[::2], offsets[: count + 1], nulls[::-1]),
        HeaderColumns(
            np.ones(count, dtype=np.int64),
            BinaryColumn(b"n" * count, np.arange(count + 1)),
            BinaryColumn.all_null(count),
        ),
    )
    narrow = RecordColumns(wide.offsets, wide.timestamps, wide.keys, wide.values)
    for columns in (wide, narrow):
        found, expected = both(lambda c=columns: write_section(c))
        assert found == expected
        assert isinstance(found, bytes)


def test_offsets_that_lie_are_no_way_out_of_the_data() -> None:
    ends = np.array([0, 10_000_000], dtype=np.int64)
    liar = BinaryColumn.unchecked(np.zeros(3, dtype=np.uint8), ends)
    empty = BinaryColumn.all_null(1)
    falling = BinaryColumn.unchecked(np.zeros(3, dtype=np.uint8), np.array([2, 1], dtype=np.int64))
    assert writer.compiled is not None
    assert partitioner.compiled is not None
    for keys, values in ((liar, empty), (empty, liar), (falling, empty)):
        columns = RecordColumns(ends[:1], ends[:1], keys, values)
        assert writer.compiled.write_section(columns) is None
        assert writer.compiled.fit_records(columns, 10**9) is None
    for keys in (liar, falling):
        assert partitioner.compiled.hash_strings(keys) is None


@pytest.mark.parametrize("start", [-1, 8, 2**62])
def test_a_place_outside_of_a_section_is_no_place_to_read(start: int) -> None:
    assert reader.compiled is not None
    with pytest.raises(IndexError):
        reader.compiled.fit_records(record_bytes(), start, 1, 2**62)


@pytest.mark.parametrize(
    "lists",
    [
        ([2**63], [None], [b""], None),
        ([True], [None], [b""], None),
        ([1], [bytearray(b"k")], [b""], None),
        ([1, 2], [None], [b"", b""], None),
        ([], [], [], None),
        ([1], [None], [b""], [None]),
        ([1], [None], [b""], [b""]),
        ([1], [None], [b""], []),
    ],
)
def test_what_is_no_list_of_records_is_left_alone(lists: tuple[Any, ...]) -> None:
    assert writer.compiled is not None
    try:
        assert writer.compiled.write_lists(*lists) is None
    except OverflowError:
        assert lists[0] == [2**63]


def test_sequences_of_other_types_are_written_as_lists_are() -> None:
    class Listed(list[Any]):
        pass

    lists = ([5, 6], [None, b"k"], [b"v", None], [[("name", b"1"), ("größe", None)], []])
    expected = write_lists(*lists)
    for kind in (tuple, Listed):
        assert both(lambda of=kind: write_lists(*map(of, lists))) == (expected, expected)


def test_timestamps_wrap_around_like_a_long_of_java() -> None:
    times = [-(2**63), 2**63 - 1, 0]
    found, expected = both(lambda: write_lists(times, [None] * 3, [b"v"] * 3))
    assert found == expected
    assert isinstance(found, bytes)
    assert [record.timestamp for record in read(found, 3)] == [0, -1, -(2**63)]
    with pytest.raises(ValueError, match="lists of different lengths"):
        encode_lists(times, [None], [b"v"] * 3)


def test_without_a_compiler_the_build_goes_on_without_it(tmp_path: Path) -> None:
    build = ["build_ext", "--build-lib", str(tmp_path / "lib"), "--build-temp", str(tmp_path / "temp")]
    run = subprocess.run(
        [sys.executable, "-c", "from setuptools import setup; setup()", *build],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "CC": "/bin/false", "CFLAGS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "building extension" in run.stderr + run.stdout
    assert not list(tmp_path.rglob("*.so"))


def test_the_environment_can_do_without() -> None:
    code = "from rollway.records.compiled import is_compiled; print(is_compiled())"
    for value, answer in (("1", "False"), ("0", "True"), ("", "True")):
        environment = {"ROLLWAY_PURE_PYTHON": value, "PATH": "/usr/bin"}
        run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert run.stdout.strip() == answer
