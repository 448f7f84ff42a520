"""Messages of magic 0 and 1 over HTTP, and topics that compress."""

from __future__ import annotations

import gzip
import random
import zlib
from typing import Any

import aiokafka.record.legacy_records as aiokafka_records
import httpx
import kafka.record.legacy_records as kafka_records
import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaMemoryRecords
from kafka.record.memory_records import MemoryRecords as KafkaMemoryRecords

from rollway.records import (
    Codec,
    Record,
    columns_from_records,
    decode_batch,
    encode_batch,
    encode_message_set,
    records_from_columns,
    split_batches,
    walk_entries,
)
from tests.support.writers import record_batch

MESSAGE_SET = "application/vnd.kafka.message-set"
RAW = "application/vnd.kafka.record-batch.v2"
SEND = {"Content-Type": MESSAGE_SET}


def random_rows(seed: int, count: int = 20) -> list[Record]:
    source = random.Random(seed)

    def data() -> bytes | None:
        return None if source.random() < 0.2 else source.randbytes(source.choice((0, 1, 9, 200)))

    return [Record(n, 1_700_000_000_000 + source.randrange(1000), data(), data()) for n in range(count)]


def built_by(builder: Any, records: list[Record], codec: int, magic: int) -> bytes:
    made = builder(magic=magic, compression_type=codec, batch_size=2**20)
    for place, record in enumerate(records):
        made.append(place, record.timestamp, record.key, record.value)
    return bytes(made.build())


def stored(client: httpx.Client, path: str, offset: int = 0) -> list[Record]:
    answer = client.get(path, params={"offset": offset}, headers={"Accept": RAW})
    return [row for batch in split_batches(answer.content) for row in records_from_columns(decode_batch(batch))]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("library", [aiokafka_records, kafka_records], ids=["aiokafka", "kafka"])
def test_e17_what_old_producers_build_is_taken(
    client: httpx.Client, topic: str, library: Any, codec: Codec, magic: int
) -> None:
    path = f"{topic}/partitions/0/records"
    client.post(path, json={"records": [{"value": "before"}] * 3})
    rows = random_rows(7)
    body = built_by(library.LegacyRecordBatchBuilder, rows, int(codec), magic)
    answer = client.post(path, content=body, headers=SEND)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["base_offset"], answer.json()["record_count"]) == (3, 20)
    assert [(r.offset, r.timestamp, r.key, r.value) for r in stored(client, path, 3)] == [
        (3 + n, row.timestamp if magic else -1, row.key, row.value) for n, row in enumerate(rows)
    ]


def test_a11_a12_partial_and_empty_sets(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0/records"
    whole = encode_message_set(columns_from_records(random_rows(1, 1)), magic=1)
    assert client.post(path, content=whole + whole[:20], headers=SEND).json()["record_count"] == 1
    for nothing in (b"", whole[:20]):
        answer = client.post(path, content=nothing, headers=SEND)
        assert (answer.status_code, answer.json()["base_offset"], answer.json()["record_count"]) == (200, -1, 0)
    assert len(stored(client, path)) == 1


def test_what_is_wrong_is_named(client: httpx.Client, topic: str) -> None:
    """Kafka's codes: 2 damage, 87 format and rules, 76 codec, 10 size; the log stays as it is."""
    path = f"{topic}/partitions/0/records"
    good = encode_message_set(columns_from_records(random_rows(1, 2)), magic=1)
    zstd = bytearray(encode_message_set(columns_from_records(random_rows(1, 1)), magic=1))
    zstd[17] |= 4
    zstd[12:16] = zlib.crc32(zstd[16:]).to_bytes(4, "big")
    for body, status, code, kafka_code in (
        (good[:-1] + bytes([good[-1] ^ 1]), 400, "corrupt_batch", 2),
        (record_batch(b"v"), 400, "invalid_record", 87),
        (bytes(zstd), 400, "unsupported_codec", 76),
        (
            encode_message_set(columns_from_records([Record(0, 0, None, bytes(2**20))]), magic=1),
            413,
            "message_too_large",
            10,
        ),
    ):
        answer = client.post(path, content=body, headers=SEND)
        assert (answer.status_code, answer.json()["code"], answer.json()["kafka_code"]) == (status, code, kafka_code)
        assert answer.headers["Content-Type"] == "application/problem+json"
    assert client.post(path, content=good, headers={"Content-Type": RAW}).json()["kafka_code"] == 87
    assert client.get(f"{topic}/partitions/0").json()["log_end_offset"] == 0


def test_v_13_messages_are_named_by_their_place_in_the_body(client: httpx.Client, topic: str) -> None:
    client.patch(topic, json={"config": {"cleanup.policy": "compact"}}).raise_for_status()
    rows = [Record(n, 5, None if n == 2 else b"k", b"v") for n in range(4)]
    answer = client.post(
        f"{topic}/partitions/0/records", content=encode_message_set(columns_from_records(rows), magic=0), headers=SEND
    )
    assert (answer.status_code, answer.json()["kafka_code"]) == (400, 87)
    assert [fault["pointer"] for fault in answer.json()["errors"]] == ["/records/2"]


def test_a_set_may_come_compressed_as_a_whole(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0/records"
    body = encode_message_set(columns_from_records(random_rows(3)), magic=1, codec=Codec.SNAPPY)
    answer = client.post(path, content=gzip.compress(body), headers={**SEND, "Content-Encoding": "gzip"})
    assert answer.json()["record_count"] == 20


def test_e13_messages_have_no_sequences(client: httpx.Client, topic: str) -> None:
    """Kafka answers 43 to a producer id in a format before it; a key of the request's own works for any format."""
    path = f"{topic}/partitions/0/records"
    body = encode_message_set(columns_from_records(random_rows(3)), magic=1)
    producer = {"Producer-Id": "1", "Producer-Epoch": "0", "Base-Sequence": "0"}
    refused = client.post(path, content=body, headers={**SEND, **producer})
    assert (refused.status_code, refused.json()["kafka_code"]) == (400, 43)
    keyed = {**SEND, "Idempotency-Key": f"set-{topic}"}
    first = client.post(path, content=body, headers=keyed)
    again = client.post(path, content=body, headers=keyed)
    assert (first.json()["base_offset"], again.json()["base_offset"]) == (0, 0)
    assert again.headers["Idempotent-Replayed"] == "true"


def test_only_one_partition_takes_message_sets(client: httpx.Client, topic: str) -> None:
    assert client.post(f"{topic}/records", content=b"", headers=SEND).status_code == 415


@pytest.mark.parametrize("compression_type", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_v_18_compression_type_holds_for_every_form(client: httpx.Client, topic: str, compression_type: str) -> None:
    """Spec E12: JSON, NDJSON, raw batches and message sets are all stored with the topic's codec."""
    client.patch(topic, json={"config": {"compression.type": compression_type}}).raise_for_status()
    path = f"{topic}/partitions/0/records"
    client.post(path, json={"records": [{"value": "json" * 20}] * 5}).raise_for_status()
    lines = '{"value":"a line"}\n' * 5
    client.post(path, content=lines, headers={"Content-Type": "application/x-ndjson"}).raise_for_status()
    client.post(path, content=record_batch(b"raw"), headers={"Content-Type": RAW}).raise_for_status()
    messages = encode_message_set(columns_from_records(random_rows(3)), magic=1, codec=Codec.GZIP)
    client.post(path, content=messages, headers=SEND).raise_for_status()
    answer = client.get(path, params={"offset": 0}, headers={"Accept": RAW})
    codecs = {batch.header.codec for batch in split_batches(answer.content)}
    assert codecs == {Codec.NONE if compression_type == "uncompressed" else Codec[compression_type.upper()]}
    assert len(stored(client, path)) == 31


def test_e10_json_as_large_as_a_batch_may_be_is_taken_by_a_topic_that_compresses(
    client: httpx.Client, topic: str
) -> None:
    """What does not compress grows a little; the batches are made small enough for that."""
    config = {"compression.type": "snappy", "max.message.bytes": 10_000}
    client.patch(topic, json={"config": config}).raise_for_status()
    source = random.Random(4)
    records = [{"value": source.randbytes(49).hex()} for _ in range(1000)]
    answer = client.post(f"{topic}/partitions/0/records", json={"records": records})
    assert (answer.status_code, answer.json()["record_count"]) == (200, 1000)


# Out


def fetched(client: httpx.Client, path: str, **parameters: Any) -> httpx.Response:
    answer = client.get(path, params=parameters, headers={"Accept": MESSAGE_SET})
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == MESSAGE_SET
    return answer


def read_by(reader: Any, content: bytes) -> list[tuple[int, int | None, bytes | None, bytes | None]]:
    rows = []
    walk = reader(content)
    while walk.has_next():
        batch = walk.next_batch()
        assert batch.validate_crc()
        rows += [(record.offset, record.timestamp, record.key, record.value) for record in batch]
    return rows


READERS = pytest.mark.parametrize("reader", [AiokafkaMemoryRecords, KafkaMemoryRecords], ids=["aiokafka", "kafka"])


@READERS
@pytest.mark.parametrize("magic", [0, 1])
def test_e17_stored_batches_as_old_consumers_read_them(
    client: httpx.Client, topic: str, reader: Any, magic: int
) -> None:
    """Batches of every codec, records with and without headers: plain messages with their absolute offsets."""
    path = f"{topic}/partitions/0/records"
    expected = []
    for codec in Codec:
        rows = random_rows(int(codec))
        rows = [Record(n, row.timestamp, row.key, row.value, (("h", b"x"),)) for n, row in enumerate(rows)]
        batch = encode_batch(columns_from_records(rows), codec=codec)
        base = client.post(path, content=batch, headers={"Content-Type": RAW}).json()["base_offset"]
        expected += [(base + n, row.timestamp if magic else None, row.key, row.value) for n, row in enumerate(rows)]
    answer = fetched(client, path, offset=0, magic=magic)
    assert read_by(reader, answer.content) == expected
    assert answer.headers["Next-Offset"] == answer.headers["High-Watermark"] == "100"
    assert "First-Entry-Incomplete" not in answer.headers
    if magic == 1:
        assert fetched(client, path, offset=0).content == answer.content
    middle = fetched(client, path, offset=33, end_offset=71, magic=magic)
    assert read_by(reader, middle.content) == expected[33:71]
    assert middle.headers["Next-Offset"] == "71"
    assert len(read_by(reader, fetched(client, path, offset=50, max_records=3, magic=magic).content)) == 3


def test_e15_log_append_time_reaches_old_consumers(client: httpx.Client, topic: str) -> None:
    client.patch(topic, json={"config": {"message.timestamp.type": "LogAppendTime"}}).raise_for_status()
    path = f"{topic}/partitions/0/records"
    appended = client.post(path, json={"records": [{"value": "a"}, {"value": "b"}]}).json()["log_append_time"]
    walk = KafkaMemoryRecords(fetched(client, path, offset=0).content)
    seen = []
    while walk.has_next():
        seen += [(record.timestamp, record.timestamp_type) for record in walk.next_batch()]
    assert seen == [(appended, 1)] * 2


def test_a_set_that_was_fetched_can_be_sent_again(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0/records"
    records = [{"key": "k", "value": f"value {n}", "timestamp": 1000 + n} for n in range(5)]
    client.post(path, json={"records": records})
    content = fetched(client, path, offset=0).content
    assert client.post(path, content=content, headers=SEND).json()["base_offset"] == 5
    both = stored(client, path)
    assert [(r.timestamp, r.key, r.value) for r in both[:5]] == [(r.timestamp, r.key, r.value) for r in both[5:]]


def test_b5_f_4_d8_hard_limit(client: httpx.Client, topic: str) -> None:
    """Spec B5: 100,000 bytes are partial with 16384, 32768 and 65536 and whole with 131072; modern reads take it
    whole at once. F-4: max_bytes 1 gives 1 byte and says that the first entry is incomplete."""
    path = f"{topic}/partitions/0/records"
    client.post(path, json={"records": [{"value": "v" * 100_000}, {"value": "next"}]}).raise_for_status()
    assert len(fetched(client, path, offset=0, max_bytes=1).content) == 2 * 34 + 100_004
    max_bytes = 16_384
    while True:
        answer = fetched(client, path, offset=0, max_bytes=max_bytes, hard_limit="true")
        assert len(answer.content) == min(max_bytes, 2 * 34 + 100_004)
        whole = list(walk_entries(answer.content))
        assert answer.headers["First-Entry-Incomplete"] == ("false" if whole else "true")
        assert answer.headers["Next-Offset"] == str(len(whole))
        assert answer.headers["Cache-Control"] == "no-store"
        if whole:
            break
        max_bytes *= 2
    assert max_bytes == 131_072
    assert len(fetched(client, path, offset=0, max_bytes=1, hard_limit="true").content) == 1
    # A cut second message is dropped by the reader, who goes on with it.
    answer = fetched(client, path, offset=0, max_bytes=100_034 + 37, hard_limit="true")
    assert (len(list(walk_entries(answer.content))), answer.headers["Next-Offset"]) == (1, "1")
    assert answer.headers["First-Entry-Incomplete"] == "false"
    exact = fetched(client, path, offset=1, max_bytes=38, hard_limit="true")
    assert (len(exact.content), exact.headers["Next-Offset"]) == (38, "2")
    end = fetched(client, path, offset=2, max_bytes=38, hard_limit="true")
    assert (end.content, end.headers["Next-Offset"], end.headers["First-Entry-Incomplete"]) == (b"", "2", "false")


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_b5_a_reader_with_a_hard_limit_gets_everything(client: httpx.Client, topic: str, codec: Codec) -> None:
    """Whatever the limit, a reader that drops what is partial and doubles its buffer reads each record once."""
    path = f"{topic}/partitions/0/records"
    source = random.Random(int(codec))
    expected = []
    for _ in range(10):
        rows = [Record(n, 5, None, source.randbytes(source.choice((0, 3, 50, 2000)))) for n in range(7)]
        expected += [row.value for row in rows]
        batch = encode_batch(columns_from_records(rows), codec=codec)
        client.post(path, content=batch, headers={"Content-Type": RAW}).raise_for_status()
    offset, max_bytes, values_read = 0, 1, []
    while offset < len(expected):
        answer = fetched(client, path, offset=offset, max_bytes=max_bytes, hard_limit="true")
        assert len(answer.content) <= max_bytes
        values_read += [value for *_, value in read_by(KafkaMemoryRecords, _whole(answer.content))]
        following = int(answer.headers["Next-Offset"])
        assert (following == offset) == (answer.headers["First-Entry-Incomplete"] == "true")
        max_bytes = 2 * max_bytes if following == offset else max_bytes
        offset = following
    assert values_read == expected


def _whole(content: bytes) -> bytes:
    return content[: max((entry.end for entry in walk_entries(content)), default=0)]


def test_message_set_parameters_are_for_message_sets(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0/records"
    for parameters in ({"magic": 1}, {"hard_limit": "true"}):
        answer = client.get(path, params={"offset": 0, **parameters})
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, next(iter(parameters)))
    for parameters in ({"magic": 2}, {"magic": "one"}, {"hard_limit": "yes"}, {"hard_limit": "1"}):
        answer = client.get(path, params={"offset": 0, **parameters}, headers={"Accept": MESSAGE_SET})
        assert answer.status_code == 422, answer.text


def test_a_closed_range_of_messages_may_be_kept(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0/records"
    client.post(path, json={"records": [{"value": "a"}] * 3}, params={"durability": "fsynced"})
    tags = set()
    for magic in (0, 1):
        answer = fetched(client, path, offset=0, end_offset=3, magic=magic)
        tags.add(answer.headers["ETag"])
        again = client.get(
            path,
            params={"offset": 0, "end_offset": 3, "magic": magic},
            headers={"Accept": MESSAGE_SET, "If-None-Match": answer.headers["ETag"]},
        )
        assert again.status_code == 304
    assert len(tags) == 2
    head = client.head(path, params={"offset": 0}, headers={"Accept": MESSAGE_SET})
    assert (head.status_code, head.content, head.headers["Next-Offset"]) == (200, b"", "3")
