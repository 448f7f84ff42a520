"""Other implementations read segments of batches that the service made itself: converted, compressed anew, stamped."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka.record.legacy_records as aiokafka_legacy
import aiokafka.record.memory_records as aiokafka_memory
import cramjam
import kafka.codec
import kafka.record.legacy_records as kafka_legacy
import kafka.record.memory_records as kafka_memory
import pytest

from log_model.batches.message_conversion import convert_message_set
from rollway.records import Codec, Record, columns_from_records, encode_batch
from storage.log.partition_log import AppendRequest
from tests.cases.logs import START_MS, CaseLog

READERS = {"aiokafka": aiokafka_memory.MemoryRecords, "kafka-python": kafka_memory.MemoryRecords}
BUILDERS = {
    "aiokafka": aiokafka_legacy.LegacyRecordBatchBuilder,
    "kafka-python": kafka_legacy.LegacyRecordBatchBuilder,
}
TYPES = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
Seen = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@pytest.fixture(autouse=True)
def kafka_python_with_snappy(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python writes and reads the xerial frames itself; only their blocks are left to a package."""

    class Snappy:
        compress = staticmethod(lambda block: bytes(cramjam.snappy.compress_raw(block)))
        decompress = staticmethod(lambda block: bytes(cramjam.snappy.decompress_raw(block)))

    monkeypatch.setattr(kafka.codec, "snappy", Snappy)


def read_by(judge: str, content: bytes) -> Iterator[tuple[int, list[Seen]]]:
    """The codec and the records of each batch of a log file, CRCs checked."""
    walk = READERS[judge](content)
    while walk.has_next():
        batch = walk.next_batch()
        assert batch.validate_crc()
        assert batch.magic == 2
        yield (
            batch.compression_type,
            [
                (
                    record.offset,
                    record.timestamp,
                    record.timestamp_type,
                    record.key,
                    record.value,
                    tuple(record.headers),
                )
                for record in batch
            ],
        )


def random_records(source: random.Random, count: int) -> list[Record]:
    def data() -> bytes | None:
        return None if source.random() < 0.2 else source.randbytes(source.choice((0, 1, 50)))

    return [
        Record(n, START_MS - source.randrange(1000), data(), data(), (("h", data()),) if source.random() < 0.5 else ())
        for n in range(count)
    ]


def appended(log: CaseLog, body: bytes) -> int:
    """Append messages of magic 0 or 1; their base offset."""
    batches = convert_message_set(body, log.partition.config, log.clock.now_ms())
    (answer,) = log.partition.append([AppendRequest(tuple(batches))])
    log.partition.publish()
    assert not isinstance(answer, Exception)
    return int(answer.base_offset)


def built_by(builder: Any, records: list[Record], codec: Codec, magic: int) -> bytes:
    made = builder(magic=magic, compression_type=int(codec), batch_size=2**20)
    for place, record in enumerate(records):
        assert made.append(place, record.timestamp, record.key, record.value) is not None
    return bytes(made.build())


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("compression_type", TYPES)
@pytest.mark.parametrize("judge", READERS)
def test_batches_compressed_anew(tmp_path: Path, judge: str, compression_type: str, timestamp_type: str) -> None:
    """Of every codec in, with the topic's codec out; keys, values, headers, offsets and timestamps as they were."""
    config = {"compression.type": compression_type, "message.timestamp.type": timestamp_type, "segment.bytes": 6000}
    log = CaseLog(tmp_path / "data", config)
    source = random.Random(compression_type)
    expected: list[tuple[int, list[Seen]]] = []
    for codec in [*Codec] * 3:
        records = random_records(source, source.choice((1, 5, 30)))
        log.clock.advance(1000)
        base = log.send(encode_batch(columns_from_records(records), codec=codec)).base_offset
        is_stamped = timestamp_type == "LogAppendTime"
        now_ms = log.clock.now_ms()
        stored = codec if TYPES[compression_type] is None else TYPES[compression_type]
        rows: list[Seen] = [
            (base + r.offset, now_ms if is_stamped else r.timestamp, int(is_stamped), r.key, r.value, r.headers)
            for r in records
        ]
        expected.append((int(stored or 0), rows))
    log.stop()
    files = log.log_files()
    assert len(files) > 1
    assert [batch for content in files.values() for batch in read_by(judge, content)] == expected


@pytest.mark.parametrize("compression_type", ["producer", "zstd"])
@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("judge", READERS)
def test_converted_messages(tmp_path: Path, judge: str, name: str, compression_type: str) -> None:
    """What old producers built, read as record batches by the readers of today."""
    log = CaseLog(tmp_path / "data", {"compression.type": compression_type, "segment.bytes": 6000})
    source = random.Random(name)
    expected: list[Seen] = []
    for magic in (0, 1):
        for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY):
            for _ in range(4):
                records = random_records(source, source.choice((1, 5, 30)))
                base = appended(log, built_by(BUILDERS[name], records, codec, magic))
                expected += [(base + r.offset, r.timestamp if magic else -1, 0, r.key, r.value, ()) for r in records]
    log.stop()
    seen = [row for content in log.log_files().values() for _, rows in read_by(judge, content) for row in rows]
    assert seen == expected
