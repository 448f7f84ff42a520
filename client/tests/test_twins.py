"""The compiled way against the one in Python: the same records, bytes and errors, whatever the input."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.tests.sample_records import random_records, record_bytes, record_lists, varint
from rollway.records import (
    BinaryColumn,
    DecompressedSizeError,
    HeaderColumns,
    Record,
    RecordColumns,
    RecordFormatError,
    columns_from_records,
    compiled,
    encode_lists,
    records_from_columns,
)
from rollway.records.section_facts import find_facts
from rollway.records.section_lists import list_section
from rollway.records.section_reader import read_section
from rollway.records.section_writer import record_section

pytestmark = pytest.mark.skipif(not compiled.is_compiled(), reason="the package was installed without a compiler")

TOO_MANY = (DecompressedSizeError, "the batch has more records or headers than there is memory for")


@contextmanager
def in_python() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "sections", None)
        yield


def both(call: Callable[[], Any]) -> tuple[Any, Any]:
    """What a call gives, and what it gives in Python; errors as their class and text."""

    def outcome() -> Any:
        try:
            return call()
        except (RecordFormatError, ValueError, OverflowError) as error:
            return type(error), str(error)

    found = outcome()
    with in_python():
        return found, outcome()


def read(section: bytes, count: int, columns_bytes_max: int | None = None) -> list[Record]:
    return list(records_from_columns(read_section(section, count, columns_bytes_max)))


@st.composite
def sections(draw: st.DrawFn) -> tuple[bytes, int]:
    """Sections of any records, often with bytes changed, taken out, put in or repeated, and a wrong count."""
    records = draw(
        st.one_of(
            record_lists(),
            st.builds(random_records, st.integers(0, 1000), st.sampled_from([1, 7, 120, 500])),
        )
    )
    count = len(records)
    section = bytearray(record_section(columns_from_records(records)))
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
    return bytes(section), count + draw(st.sampled_from([0, 0, 0, 0, 1, -1]))


@settings(max_examples=600)
@given(sections())
def test_any_bytes_are_read_alike_or_refused_alike(spoiled: tuple[bytes, int]) -> None:
    section, count = spoiled
    found, expected = both(lambda: read(section, count))
    assert found == expected
    facts, python_facts = both(lambda: find_facts(section, count)) if count > 0 else (None, None)
    # Either may leave it to the reader, but the compiled one only what the reader refuses.
    assert python_facts in (facts, None)
    if isinstance(expected, list) and [record.offset for record in expected] == list(range(count)) and count:
        assert facts is not None


@pytest.mark.parametrize("budget", [-1, 0, 39, 40, 103, 104, 105, 40 + 2 * 64 - 1, 40 + 2 * 64])
def test_the_room_for_columns_ends_at_the_same_byte(budget: int) -> None:
    section = record_bytes(headers=varint(2) + varint(1) + b"h" + varint(-1) + varint(0) + varint(0))
    padded = section * 200
    for bytes_, count, allowed in ((section, 1, budget), (padded, 200, 200 * budget)):
        found, expected = both(lambda b=bytes_, c=count, a=allowed: read(b, c, a))
        assert found == expected
        if count == 200:
            assert (expected == TOO_MANY) == (allowed < 200 * 168)
            facts, python_facts = both(lambda b=bytes_, c=count, a=allowed: find_facts(b, c, a))
            assert facts == python_facts


@settings(max_examples=300)
@given(record_lists())
def test_the_same_bytes_are_written(records: list[Record]) -> None:
    columns = columns_from_records(records)
    found, expected = both(lambda: bytes(record_section(columns)))
    assert found == expected
    assert isinstance(found, bytes)
    lists = (
        [record.timestamp for record in records],
        [record.key for record in records],
        [record.value for record in records],
        [record.headers for record in records],
    )
    found, expected = both(lambda: list_section(*lists))
    assert found == expected


@pytest.mark.parametrize("count", [1, 3, 400])
def test_columns_of_any_memory_are_written(count: int) -> None:
    """Slices, strides, read-only memory, nulls that have a range: what callers may hand in."""
    data = np.frombuffer(bytes(range(256)) * 20, dtype=np.uint8)
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
        found, expected = both(lambda c=columns: bytes(record_section(c)))
        assert found == expected


def test_offsets_that_lie_are_no_way_out_of_the_data() -> None:
    ends = np.array([0, 10_000_000], dtype=np.int64)
    liar = BinaryColumn.unchecked(np.zeros(3, dtype=np.uint8), ends)
    empty = BinaryColumn.all_null(1)
    assert compiled.sections is not None
    for keys, values in ((liar, empty), (empty, liar)):
        assert compiled.sections.write_section(RecordColumns(ends[:1], ends[:1], keys, values)) is None
    falling = BinaryColumn.unchecked(np.zeros(3, dtype=np.uint8), np.array([2, 1], dtype=np.int64))
    assert compiled.sections.write_section(RecordColumns(ends[:1], ends[:1], falling, empty)) is None


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
    assert compiled.sections is not None
    try:
        assert compiled.sections.write_lists(*lists) is None
    except OverflowError:
        assert lists[0] == [2**63]


def test_timestamps_wrap_around_like_a_long_of_java() -> None:
    times = [-(2**63), 2**63 - 1, 0]
    found, expected = both(lambda: list_section(times, [None] * 3, [b"v"] * 3))
    assert found == expected
    assert [record.timestamp for record in read(found, 3)] == [0, -1, -(2**63)]
    with pytest.raises(ValueError, match="lists of different lengths"):
        encode_lists(times, [None], [b"v"] * 3)


def test_without_a_compiler_the_build_goes_on_without_it(tmp_path: Path) -> None:
    build = ["build_ext", "--force", "--build-lib", str(tmp_path / "lib"), "--build-temp", str(tmp_path / "temp")]
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
    code = "from rollway.records import compiled; print(compiled.is_compiled())"
    for value, answer in (("1", "False"), ("0", "True"), ("", "True")):
        environment = {"ROLLWAY_PURE_PYTHON": value, "PATH": "/usr/bin"}
        run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert run.stdout.strip() == answer
