"""What the demo asks of the HTTP interface. Every answer in the demo's table comes through here."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import httpx
import msgspec

from demo.flights import Flight
from demo.service import DemoError

FETCH_BYTES = 4 << 20


class _Record(msgspec.Struct):
    offset: int
    timestamp: int
    key_base64: str | None
    value_base64: str | None


class StoredRecord(NamedTuple):
    """A record as the service gave it back."""

    offset: int
    timestamp: int
    key: bytes
    value: bytes


_decode_record = msgspec.json.Decoder(_Record).decode


class LogClient:
    """A few requests of the HTTP interface (docs/reference/http.md)."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=60, trust_env=False, headers={"Accept-Encoding": "identity"})

    def close(self) -> None:
        self._client.close()

    def request(self, method: str, path: str, *, expected: int = 200, **arguments: Any) -> httpx.Response:
        """Send a request that must be answered with ``expected``.

        Raises:
            DemoError: it was answered with something else.
        """
        response = self._client.request(method, path, **arguments)
        if response.status_code != expected:
            raise DemoError(f"{method} {path} was answered {response.status_code}: {response.text[:300]}")
        return response

    def create_topic(self, topic: str, partitions: int, config: dict[str, object]) -> None:
        body = {"partitions": partitions, "config": config}
        self.request("PUT", f"/v1/topics/{topic}", json=body, expected=201)

    def partitions(self, topic: str) -> list[dict[str, Any]]:
        return list(self.request("GET", f"/v1/topics/{topic}").json()["partitions"])

    def produce(self, topic: str, flights: Sequence[Flight]) -> int:
        """Append, each flight in the partition of its key; returns how many were acknowledged.

        Raises:
            DemoError: not all of them.
            httpx.HTTPError: no answer; unknown whether any were appended.
        """
        records = [
            {"key": flight.key.decode("ascii"), "value": flight.value.decode("ascii"), "timestamp": flight.timestamp}
            for flight in flights
        ]
        content = msgspec.json.encode({"records": records})
        response = self.request(
            "POST", f"/v1/topics/{topic}/records", content=content, headers={"Content-Type": "application/json"}
        )
        acknowledged = sum(int(result["record_count"]) for result in response.json()["results"])
        if acknowledged != len(flights):
            raise DemoError(f"{acknowledged:,} of {len(flights):,} records were acknowledged.")
        return acknowledged

    def offsets_by_time(self, topic: str, queries: Sequence[tuple[int, int]]) -> list[tuple[int, int] | None]:
        """(offset, timestamp) of the first record at or after each (partition, timestamp); ``None`` where none is."""
        body = {"queries": [{"topic": topic, "partition": number, "timestamp": time} for number, time in queries]}
        results = self.request("POST", "/v1/offsets", json=body).json()["results"]
        return [None if each["offset"] is None else (each["offset"], each["timestamp"]) for each in results]

    def value(self, topic: str, partition: int, offset: int) -> bytes:
        """One record's value as bytes."""
        return self.request("GET", f"/v1/topics/{topic}/partitions/{partition}/records/{offset}/value").content

    def records(self, topic: str, partition: int, start: int = 0) -> Iterator[StoredRecord]:
        """All records from ``start`` to the high watermark."""
        path = f"/v1/topics/{topic}/partitions/{partition}/record-lines"
        while True:
            params: dict[str, str | int] = {"offset": start, "max_bytes": FETCH_BYTES, "encoding": "base64"}
            response = self.request("GET", path, params=params)
            for line in response.content.splitlines():
                record = _decode_record(line)
                yield StoredRecord(
                    record.offset,
                    record.timestamp,
                    base64.b64decode(record.key_base64 or ""),
                    base64.b64decode(record.value_base64 or ""),
                )
            start = int(response.headers["Next-Offset"])
            if start >= int(response.headers["High-Watermark"]):
                return

    def raw_batches(self, topic: str, partition: int, start: int = 0) -> Iterator[bytes]:
        """The stored record batches from ``start`` to the high watermark, byte for byte, in pieces."""
        path = f"/v1/topics/{topic}/partitions/{partition}/record-batches"
        while True:
            params: dict[str, str | int] = {"offset": start, "max_bytes": FETCH_BYTES}
            response = self.request("GET", path, params=params)
            yield response.content
            start = int(response.headers["Next-Offset"])
            if start >= int(response.headers["High-Watermark"]):
                return

    def segments(self, topic: str, partition: int) -> list[dict[str, Any]]:
        return list(self.request("GET", f"/v1/topics/{topic}/partitions/{partition}/segments").json()["segments"])
