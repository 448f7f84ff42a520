"""Load for a service that will be killed, and what must be true of its logs afterwards."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import httpx

from rollway.records import (
    Codec,
    Record,
    RecordBatch,
    TimestampType,
    columns_from_records,
    decode_batch,
    encode_batch,
    records_from_columns,
    split_batches,
)

TOPICS = {"group": {"flush.policy": "group"}, "interval": {"flush.policy": "interval"}}
PARTITIONS = 2
MANY_TOPIC = "many"
MANY_PARTITIONS = 24
"""So many that the journal makes their small appends durable together."""
SEGMENT_BYTES = 65_536
PRODUCERS = 16
RAW = "application/vnd.kafka.record-batch.v2"

Place = tuple[str, int]


def places() -> Iterator[Place]:
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            yield topic, partition
    yield from many_places()


def many_places() -> Iterator[Place]:
    for partition in range(MANY_PARTITIONS):
        yield MANY_TOPIC, partition


@dataclass(frozen=True)
class Sent:
    """One request's records: ``count`` values ``<producer>:<first>:<count>:<index>:<padding>``."""

    producer: int
    first: int
    count: int

    def values(self, padding: int) -> list[str]:
        return [f"{self.producer}:{self.first}:{self.count}:{index}:{'x' * padding}" for index in range(self.count)]

    @classmethod
    def of(cls, records: list[Record]) -> Sent:
        """The request whose records these are: all of them, in order, or an error."""
        first = _fields(records[0])
        for index, record in enumerate(records):
            assert _fields(record) == (*first[:3], index), f"a torn batch: {records}"
        sent = cls(*first[:3])
        assert sent.count == len(records), f"a torn batch: {len(records)} of {sent.count} records"
        return sent


def _fields(record: Record) -> tuple[int, int, int, int]:
    assert record.value is not None
    producer, first, count, index, _ = record.value.decode().split(":")
    return int(producer), int(first), int(count), int(index)


@dataclass
class Ledger:
    """What was acknowledged, what readers saw, and how much of it has been found again after a restart."""

    acknowledged: dict[Place, dict[int, Sent]] = field(default_factory=lambda: {place: {} for place in places()})
    seen_end: dict[Place, int] = field(default_factory=lambda: dict.fromkeys(places(), 0))
    checked_end: dict[Place, int] = field(default_factory=lambda: dict.fromkeys(places(), 0))
    last_sequence: dict[tuple[Place, int], int] = field(default_factory=dict)
    acknowledged_count: int = 0
    found_count: int = 0

    def acknowledge(self, place: Place, base_offset: int, sent: Sent) -> None:
        assert base_offset not in self.acknowledged[place], f"{place}: offset {base_offset} was given twice"
        self.acknowledged[place][base_offset] = sent
        self.acknowledged_count += sent.count

    def check_batch(self, place: Place, batch: RecordBatch) -> None:
        """The next batch of a partition: whole, in its place, in its producer's order, and as acknowledged."""
        batch.check_crc()
        header = batch.header
        assert header.base_offset == self.checked_end[place], f"{place}: a gap or an overlap at {header.base_offset}"
        sent = Sent.of(records_from_columns(decode_batch(batch)))
        key = (place, sent.producer)
        assert sent.first > self.last_sequence.get(key, -1), f"{place}: out of order or twice: {sent}"
        self.last_sequence[key] = sent.first
        expected = self.acknowledged[place].pop(header.base_offset, None)
        assert expected in (None, sent), f"{place}: {sent} stands where {expected} was acknowledged"
        self.checked_end[place] = header.next_offset
        self.found_count += sent.count

    def check_nothing_lost(self) -> None:
        """After every partition was read to its end: no acknowledgement is left over, nothing seen is gone."""
        for place, left in self.acknowledged.items():
            assert not left, f"{place}: acknowledged and lost: {dict(sorted(left.items())[:5])}"
            assert self.checked_end[place] >= self.seen_end[place], (
                f"{place}: a reader saw up to {self.seen_end[place]}"
            )


def create_topics(client: httpx.Client) -> None:
    for topic, config in TOPICS.items():
        body = {"partitions": PARTITIONS, "config": {**config, "segment.bytes": SEGMENT_BYTES}}
        assert client.put(f"/v1/topics/{topic}", json=body).status_code == 201
    body = {"partitions": MANY_PARTITIONS, "config": {"flush.policy": "group", "segment.bytes": SEGMENT_BYTES}}
    assert client.put(f"/v1/topics/{MANY_TOPIC}", json=body).status_code == 201


def check_logs(client: httpx.Client, ledger: Ledger) -> None:
    """Read on from where the last check ended, and hold every batch against the ledger."""
    for place in places():
        topic, partition = place
        while True:
            answer = client.get(
                f"/v1/topics/{topic}/partitions/{partition}/records",
                params={"offset": ledger.checked_end[place]},
                headers={"Accept": RAW},
            )
            assert answer.status_code == 200, answer.text
            if not answer.content:
                break
            for batch in split_batches(answer.content):
                ledger.check_batch(place, batch)
    ledger.check_nothing_lost()


async def load_until_killed(
    url: str,
    ledger: Ledger,
    source: random.Random,
    kill_after: int,
    kill: Callable[[], None],
    sequences: list[int],
    targets: Sequence[Place],
) -> None:
    """Produce to ``targets`` from many clients and read along; ``kill`` after this many acknowledgements, in the midst
    of more."""
    limits = httpx.Limits(max_connections=len(sequences) + 2)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=30) as client:
        enough = _Countdown(kill_after, kill)
        producers = [
            _produce(client, number, ledger, source, enough, sequences, targets) for number in range(len(sequences))
        ]
        await asyncio.gather(*producers, _read_along(client, ledger, enough))


class _Countdown:
    def __init__(self, count: int, at_zero: Callable[[], None]) -> None:
        self._count = count
        self._at_zero = at_zero
        self.over = False

    def step(self) -> None:
        self._count -= 1
        if self._count == 0:
            self.over = True
            self._at_zero()


async def _produce(
    client: httpx.AsyncClient,
    producer: int,
    ledger: Ledger,
    source: random.Random,
    enough: _Countdown,
    sequences: list[int],
    targets: Sequence[Place],
) -> None:
    while True:
        topic, partition = place = source.choice(targets)
        sent = Sent(producer, sequences[producer], source.randint(1, 40))
        sequences[producer] += sent.count
        values = sent.values(source.choice((0, 20, 400)))
        path = f"/v1/topics/{topic}/partitions/{partition}/records"
        acks = source.choice(("all", "all", "1"))
        try:
            if source.random() < 0.5:
                body = {"records": [{"value": value} for value in values]}
                answer = await client.post(path, params={"acks": acks}, json=body)
            else:
                content = _encode(values, source.choice(list(Codec)))
                answer = await client.post(path, params={"acks": acks}, content=content, headers={"Content-Type": RAW})
        except httpx.TransportError:
            assert enough.over, "the connection broke before the kill"
            return
        assert answer.status_code == 200, answer.text
        result = answer.json()
        assert result["record_count"] == sent.count
        ledger.acknowledge(place, result["base_offset"], sent)
        enough.step()


def _encode(values: list[str], codec: Codec) -> bytes:
    records = [
        Record(index, 1_700_000_000_000 + index, None, value.encode(), (), TimestampType.CREATE_TIME)
        for index, value in enumerate(values)
    ]
    return encode_batch(columns_from_records(records), codec=codec)


async def _read_along(client: httpx.AsyncClient, ledger: Ledger, enough: _Countdown) -> None:
    """A reader at the end of one partition: what it saw must be there after the restart."""
    place = ("group", 0)
    path = f"/v1/topics/{place[0]}/partitions/{place[1]}/records"
    offset = ledger.checked_end[place]
    while True:
        try:
            answer = await client.get(path, params={"offset": offset, "wait_ms": 1000}, headers={"Accept": RAW})
        except httpx.TransportError:
            assert enough.over, "the connection broke before the kill"
            return
        assert answer.status_code == 200, answer.text
        offset = int(answer.headers["Next-Offset"])
        ledger.seen_end[place] = max(ledger.seen_end[place], offset)
