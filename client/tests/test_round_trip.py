from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.tests.sample_records import (
    INT64_MAX,
    INT64_MIN,
    batch_bytes,
    random_records,
    record_bytes,
    record_lists,
    varint,
)
from rollway.records import (
    HEADER_BYTES,
    BinaryColumn,
    Codec,
    HeaderColumns,
    Record,
    RecordBatch,
    RecordColumns,
    TimestampType,
    columns_from_records,
    decode_batch,
    encode_batch,
    encode_batches,
    parse_header,
    records_from_columns,
    split_batches,
)

pytestmark = pytest.mark.usefixtures("twin")


def decoded(batch: bytes) -> list[Record]:
    parsed = RecordBatch(batch)
    parsed.check_crc()
    return records_from_columns(decode_batch(parsed))


@given(records=record_lists(), codec=st.sampled_from(Codec))
def test_records_round_trip(records: list[Record], codec: Codec) -> None:
    assert decoded(encode_batch(columns_from_records(records), codec=codec)) == records


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("seed", range(30))
def test_realistic_records_round_trip(seed: int, codec: Codec) -> None:
    records = random_records(seed, base_offset=seed * 2**33)
    batch = encode_batch(columns_from_records(records), codec=codec, base_offset=seed * 2**33)
    assert decoded(batch) == records


@pytest.mark.parametrize("count", [65535, 65536, 65537, 140_000])
def test_more_records_than_are_read_at_once(count: int) -> None:
    values = BinaryColumn.from_lengths(bytes(2 * count), np.arange(count, dtype=np.int64) % 3)
    names = BinaryColumn.from_list([b"last"])
    headers = HeaderColumns(np.bincount([count - 1], minlength=count), names, names)
    columns = RecordColumns(np.arange(count), np.arange(count) * 7, BinaryColumn.all_null(count), values, headers)
    read = decode_batch(RecordBatch(encode_batch(columns)))
    assert np.array_equal(read.offsets, columns.offsets)
    assert np.array_equal(read.timestamps, columns.timestamps)
    assert read.keys == columns.keys
    assert read.values == columns.values
    assert read.headers is not None
    assert np.array_equal(read.headers.counts, headers.counts)
    assert (read.headers.names, read.headers.values) == (names, names)


@pytest.mark.parametrize("length", [0, 1, 56, 57, 63, 64, 8183, 8184, 8192, 1_048_570, 1_048_576, 20_000_000])
def test_lengths_at_the_edges_of_their_varints(length: int) -> None:
    records = [Record(0, 5, b"k", bytes(length)), Record(1, 5, None, b"v")]
    assert decoded(encode_batch(columns_from_records(records))) == records


def test_runs_of_equal_records_of_every_length() -> None:
    random_ = random.Random(9)
    for _ in range(60):
        records: list[Record] = []
        for _ in range(random_.randrange(1, 8)):
            value = random_.randbytes(random_.choice([0, 1, 7, 50, 57, 58, 200]))
            for _ in range(random_.choice([1, 2, 31, 32, 33, 34, 300])):
                records.append(Record(len(records), random_.choice([0, 1]), None, value))
        assert decoded(encode_batch(columns_from_records(records))) == records


def test_v_19_headers_of_every_kind() -> None:
    odd = (("null", None), ("empty", b""), ("", b"v"), ("same", b"1"), ("same", b"2"), ("größe", b"\xff"), ("", None))
    many = tuple((f"h{number % 7}", b"%d" % number if number % 3 else None) for number in range(1000))
    records = [Record(0, 1, b"k", b"v", odd), Record(1, 1, None, None), Record(2, 1, None, b"v", many)]
    assert decoded(encode_batch(columns_from_records(records))) == records


@pytest.mark.parametrize(
    "row",
    [
        [0, INT64_MAX],
        [0, INT64_MIN],
        [INT64_MAX, INT64_MIN, 0, -1],
        [INT64_MIN, INT64_MAX],
        [-1, -1],
        [1, INT64_MIN + 1, INT64_MAX - 1],
    ],
)
def test_v_23_timestamp_deltas_wrap_around(row: list[int]) -> None:
    records = [Record(place, timestamp, None, None) for place, timestamp in enumerate(row)]
    assert decoded(encode_batch(columns_from_records(records))) == records


def test_v_23_deltas_at_their_edges() -> None:
    deltas = [(INT64_MAX, 0), (INT64_MIN, 2**31 - 1), (-1, -1), (1, -(2**31))]
    section = b"".join(
        record_bytes(timestamp_delta=varint(timestamp), offset_delta=varint(offset)) for timestamp, offset in deltas
    )
    columns = decode_batch(RecordBatch(batch_bytes(section, 4, base_timestamp=1)))
    assert columns.offsets.tolist() == [offset for _, offset in deltas]
    assert columns.timestamps.tolist() == [INT64_MIN, INT64_MIN + 1, 0, 2]


def test_log_append_time_is_reported_for_every_record() -> None:
    """Spec E15."""
    records = random_records(4, 50)
    batch = encode_batch(columns_from_records(records), timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert set(decode_batch(RecordBatch(batch)).timestamps.tolist()) == {max(record.timestamp for record in records)}


def test_records_after_a_delete_horizon() -> None:
    """Compaction puts the horizon where the base timestamp is and counts deltas from there."""
    section = record_bytes(timestamp_delta=varint(-400)) + record_bytes(timestamp_delta=varint(7))
    batch = RecordBatch(batch_bytes(section, 2, attributes=0x40, base_timestamp=1000))
    assert batch.header.has_delete_horizon
    assert decode_batch(batch).timestamps.tolist() == [600, 1007]


def test_attributes_of_a_record_mean_nothing() -> None:
    section = bytearray(record_bytes(value=varint(1) + b"v"))
    section[1] = 0xFF
    assert decode_batch(RecordBatch(batch_bytes(bytes(section), 1))).values.to_list() == [b"v"]


def test_an_emptied_batch_has_no_records() -> None:
    batch = RecordBatch(batch_bytes(b"", 0))
    assert len(batch.buffer) == HEADER_BYTES
    assert records_from_columns(decode_batch(batch)) == []


def test_columns_that_are_slices_or_hold_garbage_under_nulls() -> None:
    count = 200
    data = random.Random(1).randbytes(count * 10)
    column = BinaryColumn(data, np.arange(count + 1) * 10, np.arange(count) % 3 == 0)
    columns = RecordColumns(np.arange(count), np.arange(count), column, column)
    for start, end in ((0, count), (50, 150), (50, 60)):
        part = columns.slice(start, end)
        read = decode_batch(RecordBatch(encode_batch(part)))
        expected = [None if place % 3 == 0 else data[10 * place : 10 * place + 10] for place in range(start, end)]
        assert read.keys.to_list() == read.values.to_list() == expected


def test_decoded_columns_do_not_depend_on_the_batch() -> None:
    records = random_records(6, 300)
    buffer = bytearray(encode_batch(columns_from_records(records)))
    columns = decode_batch(RecordBatch(buffer))
    buffer[:] = bytes(len(buffer))
    assert records_from_columns(columns) == records


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        encode_batch(columns_from_records([]))


@settings(deadline=None)
@given(record_lists(min_size=0, max_size=60), st.integers(61, 3000))
def test_batches_are_filled_greedily(records: list[Record], batch_bytes_max: int) -> None:
    batches = encode_batches(
        columns_from_records(records), batch_bytes_max=batch_bytes_max, base_offset=100, producer_id=1, base_sequence=7
    )
    read = [record for batch in batches for record in decoded(batch)]
    assert [(r.offset - 100, r.timestamp, r.key, r.value, r.headers) for r in read] == [
        (r.offset, r.timestamp, r.key, r.value, r.headers) for r in records
    ]
    start = 0
    for batch in batches:
        header = parse_header(batch)
        assert header.base_sequence == 7 + start
        end = start + header.record_count
        assert len(batch) <= batch_bytes_max or header.record_count == 1
        if end < len(records):
            assert len(encode_batch(columns_from_records(records[start : end + 1]))) > batch_bytes_max
        start = end


@pytest.mark.parametrize("codec", Codec)
def test_batches_stay_within_the_limit_when_compression_only_adds(codec: Codec) -> None:
    random_ = random.Random(3)
    records = [Record(place, 0, None, random_.randbytes(100)) for place in range(100)]
    for limit in (300, 301, 1000, 1003, 5000):
        batches = encode_batches(columns_from_records(records), batch_bytes_max=limit, codec=codec)
        assert max(map(len, batches)) <= limit
        assert [record.value for batch in batches for record in decoded(batch)] == [r.value for r in records]


def test_header_names_that_are_no_text_are_written_as_they_are() -> None:
    names = BinaryColumn.from_list([b"fine", b"gr\xf6sse"])
    headers = HeaderColumns(np.array([1, 1]), names, names)
    columns = RecordColumns(np.arange(2), np.arange(2), BinaryColumn.all_null(2), BinaryColumn.all_null(2), headers)
    read = decode_batch(RecordBatch(encode_batch(columns)))
    assert read.headers is not None
    assert read.headers.names == names
    assert [record.headers for record in records_from_columns(read)] == [
        (("fine", b"fine"),),
        (("gr\udcf6sse", b"gr\xf6sse"),),
    ]


@pytest.mark.parametrize(
    "field",
    [
        {"producer_epoch": 2**15},
        {"producer_id": 2**63},
        {"base_sequence": 2**31},
        {"base_offset": -(2**63) - 1},
        {"leader_epoch": 2**31},
    ],
)
def test_numbers_that_do_not_fit_are_refused(field: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        encode_batch(columns_from_records(random_records(1, 2)), **field)


def test_sequences_wrap_around() -> None:
    columns = columns_from_records(random_records(8, 9))
    batches = split_batches(
        b"".join(encode_batches(columns, batch_bytes_max=1, producer_id=1, base_sequence=2**31 - 4))
    )
    expected = [2**31 - 4, 2**31 - 3, 2**31 - 2, 2**31 - 1, 0, 1, 2, 3, 4]
    assert [batch.header.base_sequence for batch in batches] == expected
