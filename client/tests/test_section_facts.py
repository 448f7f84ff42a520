"""The log learns of records without reading them: the facts that a reader would find, or nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.tests.sample_records import random_records, record_bytes, record_lists, varint
from rollway.records import (
    HEADER_BYTES,
    BinaryColumn,
    BrokenRecordError,
    Record,
    RecordColumns,
    columns_from_records,
    encode_batch,
)
from rollway.records.sections.reader import SectionFacts, find_facts
from rollway.records.sections.reader_py import read_section

pytestmark = pytest.mark.usefixtures("twin")

BASE_MS = 1_700_000_000_000


def section_of(records: list[Record]) -> bytes:
    return encode_batch(columns_from_records(records))[HEADER_BYTES:]


def read_facts(section: bytes | memoryview, record_count: int) -> SectionFacts | None:
    """Find the facts with the plain reader: ``None`` if it refuses, or if offset deltas do not count up."""
    try:
        columns = read_section(section, record_count, 2**62)
    except BrokenRecordError:
        return None
    if not np.array_equal(columns.offsets, np.arange(record_count)):
        return None
    return SectionFacts(int(columns.timestamps.min()), int(columns.timestamps.max()), columns.keys.nulls is not None)


def check(section: bytes, record_count: int) -> SectionFacts | None:
    """Hold the facts against the plain reader's; return them."""
    found = find_facts(section, record_count)
    assert found == read_facts(section, record_count)
    assert find_facts(memoryview(bytearray(section)), record_count) == found
    return found


def uniform(count: int, *, step_ms: int = 0, key: bytes | None = None, value: bytes | None = b"v" * 100) -> bytes:
    return section_of([Record(place, BASE_MS + place * step_ms, key, value) for place in range(count)])


@pytest.mark.parametrize("count", [1, 2, 11, 12, 13, 63, 64, 65, 76, 77, 585, 8191, 8192, 8193, 8204, 20_000])
@pytest.mark.parametrize("step_ms", [0, 1, 3, -1, 700])
def test_uniform_records_are_known_at_once(count: int, step_ms: int) -> None:
    found = check(uniform(count, step_ms=step_ms), count)
    assert found == SectionFacts(min(0, (count - 1) * step_ms), max(0, (count - 1) * step_ms), has_null_key=True)


Last = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]
LAST_RECORDS: tuple[Last, ...] = (
    (BASE_MS, None, b"v" * 40, ()),
    (BASE_MS, None, b"v" * 2000, ()),
    (BASE_MS + 5000, b"key", None, ()),
    (BASE_MS - 5000, None, b"v" * 100, (("name", b"value"),)),
)


@pytest.mark.parametrize("last", LAST_RECORDS)
@pytest.mark.parametrize("count", [13, 40, 64])
def test_the_last_of_few_may_be_of_another_shape(
    count: int, last: tuple[int, bytes | None, bytes | None, tuple]
) -> None:
    rows = [Record(place, BASE_MS + place % 7, b"k", b"v" * 100) for place in range(count - 1)]
    rows.append(Record(count - 1, *last))
    delta = last[0] - BASE_MS
    assert check(section_of(rows), count) == SectionFacts(min(0, delta), max(6, delta), has_null_key=last[1] is None)


@pytest.mark.parametrize(("key", "value_bytes"), [(None, 3), (b"k", 70), (b"", 0)])
def test_no_byte_of_few_records_alike_can_change_unnoticed(key: bytes | None, value_bytes: int) -> None:
    section = uniform(14, step_ms=1, key=key, value=b"v" * value_bytes)
    stride = len(section) // 14
    for at in (*range(stride), *range(6 * stride, 7 * stride), *range(13 * stride, 14 * stride)):
        for byte in (0, 1, 2, 0x7F, 0x80, 0xFF, section[at] ^ 0x80, (section[at] + 2) % 256):
            check(section[:at] + bytes([byte]) + section[at + 1 :], 14)
    for shorter in range(1, stride + 1):
        check(section[:-shorter], 14)
        check(section + bytes(shorter), 14)


@pytest.mark.parametrize("key", [b"", b"k", b"k" * 64, b"k" * 9000])
@pytest.mark.parametrize("value", [None, b"", b"v" * 64, b"v" * 9000])
def test_lengths_of_fields_take_as_many_bytes_as_they_need(key: bytes, value: bytes | None) -> None:
    assert check(uniform(100, key=key, value=value), 100) == SectionFacts(0, 0, has_null_key=False)


def many_empty_records(count: int) -> bytes:
    nulls = BinaryColumn.all_null(count)
    return encode_batch(RecordColumns(np.arange(count), np.full(count, BASE_MS), nulls, nulls))[HEADER_BYTES:]


def test_offset_deltas_of_more_bytes_count_on(twin: str) -> None:
    count = {"compiled": 1 << 20, "plain": 1 << 13}[twin] + 20
    assert find_facts(many_empty_records(count), count) == SectionFacts(0, 0, has_null_key=True)


@pytest.mark.parametrize("seed", range(40))
def test_records_of_real_life(seed: int) -> None:
    records = random_records(seed)
    assert check(section_of(records), len(records)) is not None


@given(record_lists())
def test_any_records(records: list[Record]) -> None:
    check(section_of(records), len(records))


@st.composite
def spoiled_sections(draw: st.DrawFn) -> tuple[bytes, int]:
    """Sections of uniform and of other records with a few bytes changed, taken out or put in."""
    count = draw(st.sampled_from([1, 8, 20, 70, 130]))
    if draw(st.booleans()):
        section = bytearray(
            uniform(
                count,
                step_ms=draw(st.sampled_from([0, 1])),
                key=draw(st.sampled_from([None, b"k"])),
                value=b"v" * draw(st.integers(0, 70)),
            )
        )
    else:
        section = bytearray(section_of(random_records(draw(st.integers(0, 1000)), count)))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(section) - 1))
        how = draw(st.sampled_from(["change", "change", "take", "put", "copy"]))
        if how == "change":
            section[place] = draw(st.integers(0, 255))
        elif how == "take":
            del section[place]
        elif how == "put":
            section.insert(place, draw(st.integers(0, 255)))
        else:
            section[place : place + 2] = section[-2:]
        if not section:
            return b"\0", count
    return bytes(section), max(1, count + draw(st.sampled_from([0, 0, 0, 1, -1])))


@settings(max_examples=600)
@given(spoiled_sections())
def test_what_the_reader_refuses_is_never_found_sound(spoiled: tuple[bytes, int]) -> None:
    check(*spoiled)


@pytest.mark.parametrize("count", [8, 70])
def test_every_byte_of_what_lies_around_the_values_counts(count: int) -> None:
    section = uniform(count, step_ms=1, key=b"key", value=b"v")
    for place in range(len(section)):
        for flip in (1, 2, 0x40, 0x80):
            spoiled = bytearray(section)
            spoiled[place] ^= flip
            check(bytes(spoiled), count)


def test_numbers_in_longer_forms_than_they_need() -> None:
    """Legal, if odd: whatever is found must be what the reader finds."""
    long_zero = b"\x80\x00"
    for place in range(30):
        records = [
            record_bytes(
                timestamp_delta=long_zero if place % 2 else b"\0",
                offset_delta=bytes([number << 1 | 0x80, 0]) if number == place else varint(number),
                key=b"\x81\x00" if place % 3 == 0 and number == place else b"\x01",
                value=b"\x81\x00" if place % 5 == 0 and number == place else b"\x01",
            )
            for number in range(30)
        ]
        check(b"".join(records), 30)


def test_a_decompressed_section_may_not_grow_beyond_its_columns() -> None:
    section = uniform(2000)
    assert find_facts(section, 2000, 40 * 2000) is not None
    assert find_facts(section, 2000, 40 * 2000 - 1) is None
    headed = section_of([Record(place, BASE_MS, None, None, (("n", b""),) * 40) for place in range(200)])
    assert find_facts(headed, 200, 200 * 40 + 200 * 40 * 64) is not None
    assert find_facts(headed, 200, 200 * 40 + 200 * 40 * 64 - 1) is None
