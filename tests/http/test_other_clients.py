"""Independent judges: what aiokafka and kafka-python make of our raw answers, and we of what they send."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from aiokafka.record.memory_records import MemoryRecords as AioRecords
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaBuilder
from kafka.record.memory_records import MemoryRecords as KafkaRecords

RAW = "application/vnd.kafka.record-batch.v2"
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


class Told(NamedTuple):
    """A record as another library tells it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def decode(library: type, content: bytes) -> list[Told]:
    batches = library(content)
    told = []
    while batches.has_next():
        batch = batches.next_batch()
        if hasattr(batch, "validate_crc"):
            assert batch.validate_crc()
        told += [
            Told(record.offset, record.timestamp, record.key, record.value, list(record.headers)) for record in batch
        ]
    return told


def built(builder: Callable[..., Any], codec: int, count: int) -> bytes:
    batch = builder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for number in range(count):
        assert batch.append(
            number, timestamp=1000 + number, key=b"k%d" % number, value=b"v" * number, headers=[("h", b"%d" % number)]
        )
    return bytes(batch.build())


@pytest.mark.parametrize("library", [AioRecords, KafkaRecords], ids=["aiokafka", "kafka-python"])
def test_other_clients_decode_raw_fetches_of_json_records(client: httpx.Client, topic: str, library: type) -> None:
    path = f"{topic}/partitions/0/records"
    for first in range(0, 100, 20):
        records = [
            {
                "key": None if number % 3 == 0 else f"key-{number}",
                "value": None if number % 7 == 0 else f"value-{number}",
                "timestamp": 1000 + number,
                "headers": [{"name": "n", "value": str(number)}, {"name": "null", "value": None}],
            }
            for number in range(first, first + 20)
        ]
        client.post(path, json={"records": records})
    raw = client.get(path, params={"offset": 0, "max_bytes": 10**6}, headers={"Accept": RAW}).content
    assert decode(library, raw) == [
        Told(
            number,
            1000 + number,
            None if number % 3 == 0 else b"key-%d" % number,
            None if number % 7 == 0 else b"value-%d" % number,
            [("n", b"%d" % number), ("null", None)],
        )
        for number in range(100)
    ]


# kafka-python knows snappy only beside a library that needs a compiler.
BUILDERS = [
    pytest.param(builder, codec, id=f"{library}-{name}")
    for library, builder in (("aiokafka", AioBuilder), ("kafka-python", KafkaBuilder))
    for name, codec in CODECS.items()
    if (library, name) != ("kafka-python", "snappy")
]


@pytest.mark.parametrize(("builder", "codec"), BUILDERS)
def test_batches_of_other_clients_are_taken_and_given_back(
    client: httpx.Client, topic: str, builder: Callable[..., Any], codec: int
) -> None:
    path = f"{topic}/partitions/0/records"
    sent = built(builder, codec, 50)
    for _ in range(2):
        answer = client.post(path, content=sent, headers={"Content-Type": RAW})
        assert answer.status_code == 200, answer.text
    records = client.get(path, params={"offset": 50}).json()["records"]
    assert [record["offset"] for record in records] == list(range(50, 100))
    assert [record["key"] for record in records] == [f"k{number}" for number in range(50)]
    assert [record["value"] for record in records] == ["v" * number for number in range(50)]
    assert [record["timestamp"] for record in records] == [1000 + number for number in range(50)]
    raw = client.get(path, params={"offset": 50}, headers={"Accept": RAW}).content
    assert raw[16:] == sent[16:]
    for library in (AioRecords,) if codec == CODECS["snappy"] else (AioRecords, KafkaRecords):
        assert [record.offset for record in decode(library, raw)] == list(range(50, 100))
        assert [record.value for record in decode(library, raw)] == [b"v" * number for number in range(50)]


def test_a_raw_body_may_be_compressed_on_the_way_too(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0/records"
    headers = {"Content-Type": RAW, "Content-Encoding": "gzip"}
    sent = built(AioBuilder, CODECS["lz4"], 10)
    assert client.post(path, content=gzip.compress(sent), headers=headers).json()["record_count"] == 10
    raw = client.get(path, params={"offset": 0}, headers={"Accept": RAW}).content
    assert raw[16:] == sent[16:]
