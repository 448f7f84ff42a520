"""aiokafka and kafka-python read what we write, and we read what they write."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import cramjam
import kafka.codec
import kafka.record.default_records as kafka_records
import pytest
from kafka.record.memory_records import MemoryRecords

from client.tests.sample_records import random_records
from rollway.records import (
    Codec,
    ControlType,
    Record,
    RecordBatch,
    columns_from_records,
    decode_batch,
    encode_batch,
    encode_control_batch,
    records_from_columns,
    split_batches,
)

pytestmark = pytest.mark.usefixtures("twin")

codecs = pytest.mark.parametrize("codec", Codec)
seeds = pytest.mark.parametrize("seed", range(12))


@pytest.fixture(autouse=True)
def kafka_python_with_snappy(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python writes and reads the xerial frames itself; only their blocks are left to a package."""

    class Snappy:
        compress = staticmethod(lambda block: bytes(cramjam.snappy.compress_raw(block)))
        decompress = staticmethod(lambda block: bytes(cramjam.snappy.decompress_raw(block)))

    monkeypatch.setattr(kafka.codec, "snappy", Snappy)
    # Its decoder gives up at 1 MiB when a zstd frame does not tell its size.
    monkeypatch.setattr(kafka.codec, "ZSTD_MAX_OUTPUT_SIZE", 2**26)


def built_by(library: Any, records: Iterable[Record], codec: Codec) -> bytes:
    builder = library(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2**30,
    )
    for place, record in enumerate(records):
        appended = builder.append(place, record.timestamp, record.key, record.value, list(record.headers))
        assert appended is not None
    return bytes(builder.build())


def read_by(batch: Any) -> list[Record]:
    assert batch.validate_crc()
    return [
        Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers)) for record in batch
    ]


BUILDERS = [aiokafka_records.DefaultRecordBatchBuilder, aiokafka_records._DefaultRecordBatchBuilderPy]
READERS = [aiokafka_records.DefaultRecordBatch, aiokafka_records._DefaultRecordBatchPy]


@seeds
@codecs
def test_both_read_what_we_write(codec: Codec, seed: int) -> None:
    records = random_records(seed, base_offset=5)
    batch = encode_batch(columns_from_records(records), codec=codec, base_offset=5)
    for reader in READERS:
        assert read_by(reader(batch)) == records
    assert read_by(kafka_records.DefaultRecordBatch(batch)) == records


@seeds
@codecs
def test_we_read_what_both_write(codec: Codec, seed: int) -> None:
    records = random_records(seed)
    for builder in [*BUILDERS, kafka_records.DefaultRecordBatchBuilder]:
        (batch,) = split_batches(built_by(builder, records, codec))
        batch.check_crc()
        assert records_from_columns(decode_batch(batch)) == records


@pytest.mark.parametrize("seed", range(60))
def test_our_bytes_are_aiokafkas_bytes(seed: int) -> None:
    records = random_records(seed)
    theirs = built_by(aiokafka_records.DefaultRecordBatchBuilder, records, Codec.NONE)
    assert encode_batch(columns_from_records(records), leader_epoch=-1) == theirs


def test_kafka_python_walks_our_batches_as_a_log() -> None:
    parts = [(codec, random_records(int(codec), 20, base_offset=20 * codec)) for codec in Codec]
    log = b"".join(
        encode_batch(columns_from_records(records), codec=codec, base_offset=20 * codec) for codec, records in parts
    )
    walk = MemoryRecords(log)
    read = []
    while (batch := walk.next_batch()) is not None:
        read += read_by(batch)
    assert read == [record for _, records in parts for record in records]


@codecs
def test_headers_fields_are_read_alike(codec: Codec) -> None:
    batch = encode_batch(
        columns_from_records(random_records(2, 30)),
        codec=codec,
        base_offset=2**40,
        leader_epoch=6,
        producer_id=2**50,
        producer_epoch=9,
        base_sequence=2**31 - 1,
        transactional=True,
    )
    ours, theirs = RecordBatch(batch).header, kafka_records.DefaultRecordBatch(batch)
    assert theirs.base_offset == ours.base_offset == 2**40
    assert theirs.leader_epoch == ours.partition_leader_epoch == 6
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (2**50, 9, 2**31 - 1)
    assert (theirs.first_timestamp, theirs.max_timestamp) == (ours.base_timestamp, ours.max_timestamp)
    assert (theirs.last_offset, theirs.records_count) == (ours.last_offset, ours.record_count)
    assert theirs.compression_type == ours.codec == codec
    assert theirs.is_transactional
    assert not theirs.is_control_batch


@pytest.mark.parametrize("control_type", ControlType)
def test_both_read_our_control_batches(control_type: ControlType) -> None:
    batch = encode_control_batch(
        control_type, producer_id=3, producer_epoch=1, coordinator_epoch=4, timestamp=99, base_offset=7
    )
    theirs = kafka_records.DefaultRecordBatch(batch)
    assert theirs.is_control_batch
    assert theirs.is_transactional
    (record,) = theirs
    assert (record.abort, record.commit) == (control_type is ControlType.ABORT, control_type is ControlType.COMMIT)
    assert (record.offset, record.timestamp) == (7, 99)
    other = aiokafka_records.DefaultRecordBatch(batch)
    assert other.validate_crc()
    assert other.is_control_batch
    (record,) = other
    assert record.key == bytes([0, 0, 0, control_type])
