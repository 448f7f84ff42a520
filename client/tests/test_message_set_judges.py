"""aiokafka and kafka-python read the message sets we write, and we read what they write."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import aiokafka.record.legacy_records as aiokafka_records
import cramjam
import kafka.codec
import kafka.record.legacy_records as kafka_records
import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaMemoryRecords
from kafka.record.memory_records import MemoryRecords as KafkaMemoryRecords

from client.tests.sample_records import random_records
from rollway.records import (
    Codec,
    Record,
    TimestampType,
    columns_from_records,
    decode_message_set,
    encode_message_set,
    records_from_columns,
)
from rollway.records.message_sets.lz4_of_magic_0 import _xxh32

codecs = pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
magics = pytest.mark.parametrize("magic", [0, 1])
seeds = pytest.mark.parametrize("seed", range(8))
readers = pytest.mark.parametrize("reader", [AiokafkaMemoryRecords, KafkaMemoryRecords], ids=["aiokafka", "kafka"])
builders = pytest.mark.parametrize(
    "builder",
    [
        aiokafka_records.LegacyRecordBatchBuilder,
        aiokafka_records._LegacyRecordBatchBuilderPy,
        kafka_records.LegacyRecordBatchBuilder,
    ],
    ids=["aiokafka", "aiokafka in Python", "kafka"],
)


@pytest.fixture(autouse=True)
def kafka_python_with_its_codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python writes and reads the xerial frames itself; only their blocks are left to a package."""

    class Snappy:
        compress = staticmethod(lambda block: bytes(cramjam.snappy.compress_raw(block)))
        decompress = staticmethod(lambda block: bytes(cramjam.snappy.decompress_raw(block)))

    class Xxhash:
        """The hash that its lz4 of magic 0 needs; which bytes are hashed, and what becomes of it, is its own."""

        class xxh32:  # noqa: N801 - the package's name
            def __init__(self, content: bytes) -> None:
                self.content = content

            def digest(self) -> bytes:
                return _xxh32(bytes(self.content)).to_bytes(4, "big")

    monkeypatch.setattr(kafka.codec, "snappy", Snappy)
    monkeypatch.setattr(kafka.codec, "xxhash", Xxhash)


def needs(library: Any, codec: Codec, magic: int) -> None:
    """Leave out what the library itself does not do."""
    if "aiokafka" in library.__module__ and (codec, magic) == (Codec.LZ4, 0):
        pytest.skip("aiokafka has no lz4 of magic 0")


def plain(seed: int, magic: int, *, base_offset: int = 0) -> list[Record]:
    """Records as these formats can hold them."""
    return [
        Record(record.offset, record.timestamp if magic else -1, record.key, record.value)
        for record in random_records(seed, 200, base_offset=base_offset)
    ]


def read_by(reader: Any, content: bytes) -> list[Record]:
    records = []
    walk = reader(content)
    while walk.has_next():
        batch = walk.next_batch()
        assert batch.validate_crc()
        for record in batch:
            assert reader is AiokafkaMemoryRecords or record.validate_crc()
            kind = TimestampType(record.timestamp_type or 0)
            timestamp = -1 if record.timestamp is None else record.timestamp
            records.append(Record(record.offset, timestamp, record.key, record.value, (), kind))
    return records


def built_by(builder: Any, records: Iterable[Record], codec: Codec, magic: int) -> bytes:
    made = builder(magic=magic, compression_type=int(codec), batch_size=2**30)
    for place, record in enumerate(records):
        assert made.append(place, record.timestamp, record.key, record.value) is not None
    return bytes(made.build())


@seeds
@codecs
@magics
@readers
def test_both_read_what_we_write(reader: Any, magic: int, codec: Codec, seed: int) -> None:
    needs(reader, codec, magic)
    records = plain(seed, magic, base_offset=1000)
    content = encode_message_set(columns_from_records(records), magic=magic, codec=codec)
    assert read_by(reader, content) == records


@seeds
@codecs
@magics
@builders
def test_we_read_what_both_write(builder: Any, magic: int, codec: Codec, seed: int) -> None:
    needs(builder, codec, magic)
    records = plain(seed, magic)
    content = built_by(builder, records, codec, magic)
    read = [record for part in decode_message_set(content) for record in records_from_columns(part.columns)]
    assert read == records


@seeds
@magics
@builders
def test_our_bytes_are_theirs(builder: Any, magic: int, seed: int) -> None:
    records = plain(seed, magic)
    theirs = built_by(builder, records, Codec.NONE, magic)
    assert encode_message_set(columns_from_records(records), magic=magic) == theirs


@codecs
@readers
def test_log_append_time_as_others_see_it(reader: Any, codec: Codec) -> None:
    needs(reader, codec, 1)
    records = [Record(5 + n, 77, b"k", b"v", (), TimestampType.LOG_APPEND_TIME) for n in range(4)]
    content = encode_message_set(
        columns_from_records(records), magic=1, codec=codec, timestamp_type=TimestampType.LOG_APPEND_TIME
    )
    assert read_by(reader, content) == records
