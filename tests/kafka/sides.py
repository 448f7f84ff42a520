"""The two sides of the differential run: a broker over Kafka's protocol, and a service over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import httpx

from tests.kafka.wire import EARLIEST, LATEST, MAX_TIMESTAMP, Wire

EVERYTHING = 1 << 26
CLOSED = -2
"""Code of a request that was answered by the end of its connection."""
_NAMED_TIMES = {EARLIEST: "earliest", LATEST: "latest", MAX_TIMESTAMP: "max_timestamp"}


class Answer(NamedTuple):
    """What a side answered to one body: Kafka's error code, 0 for a success."""

    code: int
    base_offset: int
    log_append_time: int
    log_start_offset: int
    message: str


class Read(NamedTuple):
    """What a side answered to a fetch."""

    code: int
    records: bytes
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: tuple[tuple[int, int], ...] = ()


class Found(NamedTuple):
    """What a side found for a time. Nothing is -1 and -1."""

    code: int
    offset: int
    timestamp: int


class Side(Protocol):
    """A log service that takes and gives record batches as bytes."""

    def create_topic(self, name: str, partition_count: int, settings: Mapping[str, object]) -> None: ...

    def send(self, topic: str, partition: int, body: bytes) -> Answer:
        """Append the bytes of one produce request."""
        ...

    def read(
        self, topic: str, partition: int, offset: int, max_bytes: int = EVERYTHING, *, committed: bool = False
    ) -> Read: ...

    def find_offset(self, topic: str, partition: int, timestamp: int, *, committed: bool = False) -> Found: ...


class BrokerSide:
    """A broker, on one connection."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def create_topic(self, name: str, partition_count: int, settings: Mapping[str, object]) -> None:
        self._wire.create_topic(name, partition_count, settings)

    def send(self, topic: str, partition: int, body: bytes) -> Answer:
        return Answer(*self._wire.produce(topic, partition, body))

    def read(
        self, topic: str, partition: int, offset: int, max_bytes: int = EVERYTHING, *, committed: bool = False
    ) -> Read:
        fetched = self._wire.fetch(topic, partition, offset, max_bytes, committed=committed)
        return Read(*fetched[:-1], aborted=tuple(fetched.aborted))

    def find_offset(self, topic: str, partition: int, timestamp: int, *, committed: bool = False) -> Found:
        return Found(*self._wire.list_offsets(topic, partition, timestamp, committed=committed))


class ServiceSide:
    """Rollway, over HTTP."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def create_topic(self, name: str, partition_count: int, settings: Mapping[str, object]) -> None:
        self._client.put(
            f"/v1/topics/{name}", json={"partitions": partition_count, "config": dict(settings)}
        ).raise_for_status()

    def send(self, topic: str, partition: int, body: bytes) -> Answer:
        answer = self._client.post(
            f"/v1/topics/{topic}/partitions/{partition}/record-batches",
            content=body,
            headers={"Content-Type": "application/octet-stream"},
        )
        said = answer.json()
        if answer.is_success:
            return Answer(0, said["base_offset"], said["log_append_time"], said["log_start_offset"], "")
        return Answer(said["kafka_code"], -1, -1, -1, said["detail"])

    def read(
        self, topic: str, partition: int, offset: int, max_bytes: int = EVERYTHING, *, committed: bool = False
    ) -> Read:
        answer = self._client.get(
            f"/v1/topics/{topic}/partitions/{partition}/record-batches",
            params={"offset": offset, "max_bytes": max_bytes, "isolation": _isolation(committed)},
            headers={"Accept": "application/octet-stream, application/problem+json"},
        )
        if not answer.is_success:
            return Read(answer.json()["kafka_code"], b"")
        aborted = [pair.split("/") for pair in answer.headers.get("Aborted-Transactions", "").split(", ") if pair]
        return Read(
            0,
            answer.content,
            int(answer.headers["High-Watermark"]),
            int(answer.headers["Last-Stable-Offset"]),
            int(answer.headers["Log-Start-Offset"]),
            tuple((int(producer), int(first)) for producer, first in aborted),
        )

    def find_offset(self, topic: str, partition: int, timestamp: int, *, committed: bool = False) -> Found:
        answer = self._client.get(
            f"/v1/topics/{topic}/partitions/{partition}/offsets",
            params={"timestamp": _NAMED_TIMES.get(timestamp, timestamp), "isolation": _isolation(committed)},
        )
        said = answer.json()
        if not answer.is_success:
            return Found(said["kafka_code"], -1, -1)
        offset, found = (-1 if said[name] is None else said[name] for name in ("offset", "timestamp"))
        return Found(0, offset, found)


def _isolation(committed: bool) -> str:
    return "read_committed" if committed else "read_uncommitted"
