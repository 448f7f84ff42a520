"""Topics that a service is filled with, and what it serves of them, in the words of kafka-console-consumer."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import httpx

from rollway.records import Codec, Record, columns_from_records, encode_batch
from tests.cases.logs import START_MS, batch_of
from tests.http.test_transactions import end, identity_in, initialise, send
from tests.kafka.adoption import TopicToAdopt
from tests.kafka.cases import SEGMENT_BYTES
from tests.kafka.tools import ConsoleRecord

TOPICS: Mapping[str, TopicToAdopt] = {
    "codecs": TopicToAdopt(len(Codec), {"retention.ms": -1}),
    "keyed": TopicToAdopt(2, {"retention.ms": -1}),
    "moved": TopicToAdopt(2, {"retention.ms": -1}),
    "stamped": TopicToAdopt(1, {"retention.ms": -1, "message.timestamp.type": "LogAppendTime"}),
    "trimmed": TopicToAdopt(1, {"retention.ms": -1, "segment.bytes": SEGMENT_BYTES}),
}
_OCTETS = {"Content-Type": "application/octet-stream"}


def fill(client: httpx.Client, seed: int) -> None:
    """Make the topics, and write records of every kind that a client can send. No transaction stays open."""
    draw = random.Random(seed)
    for name, topic in TOPICS.items():
        client.put(
            f"/v1/topics/{name}", json={"partitions": topic.partition_count, "config": dict(topic.settings)}
        ).raise_for_status()
    for codec in Codec:
        for body in _bodies(draw, codec):
            _send(client, "codecs", codec, body)
            _send(client, "stamped", 0, body)
    _fill_keyed(client)
    _fill_transactions(client, draw)
    for _ in range(12):
        _send(client, "trimmed", 0, batch_of(2, value=b"v" * 100_000))
    client.post("/v1/topics/trimmed/partitions/0/delete-records", json={"offset": 5}).raise_for_status()


def _send(client: httpx.Client, topic: str, partition: int, body: bytes) -> None:
    path = f"/v1/topics/{topic}/partitions/{partition}/record-batches"
    client.post(path, content=body, headers=_OCTETS).raise_for_status()


def _bodies(draw: random.Random, codec: Codec) -> Iterable[bytes]:
    headers = (("name", b"value"), ("name", b"again"), ("empty", b""), ("none", None))
    for count in (1, 3, 50):
        records = [
            Record(
                place,
                START_MS + draw.randrange(-5_000, 5_000),
                draw.choice([None, b"", b"key %d" % place]),
                draw.choice([None, b"", b"value %d" % place, b"text " * 50]),
                draw.choice([(), headers, headers[:1]]),
            )
            for place in range(count)
        ]
        yield encode_batch(columns_from_records(records), codec=codec)


def _fill_keyed(client: httpx.Client) -> None:
    """Requests with an Idempotency-Key, some sent again, and records that are spread by their keys."""
    for number in range(20):
        records = {"records": [{"key": f"k{number}", "value": f"v{number}", "timestamp": START_MS + number}]}
        for _ in range(1 + number % 2):
            client.post(
                "/v1/topics/keyed/records", json=records, headers={"Idempotency-Key": f"n{number}"}
            ).raise_for_status()


def _fill_transactions(client: httpx.Client, draw: random.Random) -> None:
    """Transactions of three producers, side by side, each committed or aborted; and records of none."""
    names = ("a", "b", "c")
    producers = {name: initialise(client, name) for name in names}
    sequences = {(name, partition): 0 for name in names for partition in (0, 1)}
    begun: set[str] = set()
    for step in range(80):
        name, partition = draw.choice(names), draw.randrange(2)
        if name in begun and draw.random() < 0.3:
            answer = end(client, name, draw.choice(["commit", "abort"]), producers[name])
            answer.raise_for_status()
            producers[name] = identity_in(answer.json())
            sequences |= {(name, 0): 0, (name, 1): 0}
            begun.discard(name)
        elif draw.random() < 0.2:
            _send(client, "moved", partition, batch_of(2, value=b"of no transaction %d" % step))
        else:
            values = [b"%s %d %d" % (name.encode(), step, place) for place in range(draw.randrange(1, 4))]
            send(
                client, "/v1/topics/moved", partition, producers[name], sequences[name, partition], *values
            ).raise_for_status()
            sequences[name, partition] += len(values)
            begun.add(name)
    for name in sorted(begun):
        end(client, name, draw.choice(["commit", "abort"]), producers[name]).raise_for_status()


def served_records(client: httpx.Client, topic: str, partition_count: int, *, committed: bool) -> list[ConsoleRecord]:
    """Return all records of a topic that a JSON fetch shows, by partition and offset."""
    found = []
    isolation = "read_committed" if committed else "read_uncommitted"
    for partition in range(partition_count):
        offset: int | str = "earliest"
        while True:
            answer = client.get(
                f"/v1/topics/{topic}/partitions/{partition}/records",
                params={"offset": offset, "isolation": isolation},
                headers={"Accept": "application/json"},
            )
            answer.raise_for_status()
            found += [_as_printed(partition, each) for each in answer.json()["records"]]
            if offset == answer.json()["next_offset"]:
                break
            offset = answer.json()["next_offset"]
    return found


def _as_printed(partition: int, record: Mapping[str, Any]) -> ConsoleRecord:
    headers = ",".join(f"{each.get('name')}:{_text(each['value'])}" for each in record["headers"])
    return ConsoleRecord(
        partition,
        record["offset"],
        f"{record['timestamp_type']}:{record['timestamp']}",
        headers or "NO_HEADERS",
        _text(record["key"]),
        _text(record["value"]),
    )


def _text(value: str | None) -> str:
    return "null" if value is None else value
