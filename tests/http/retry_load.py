"""Requests that are sent again and again over broken connections, and what every answer to them must say."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from rollway.records import Record, columns_from_records, encode_batch

TOPIC = "/v1/topics/retries"
PARTITIONS = 3
RAW = {"Content-Type": "application/vnd.kafka.record-batch.v2"}
NDJSON = {"Content-Type": "application/x-ndjson"}
SENDS_MAX = 4
BATCH_RECORDS_MAX = 8
IMPATIENT_SECONDS = 0.02
PATIENT_SECONDS = 30.0

Place = tuple[int, int]


class Places:
    """Where each value is, as the answers say: whatever is said twice must be the same."""

    def __init__(self) -> None:
        self.of_value: dict[str, Place] = {}
        self.done_count = 0
        self.sent_count = 0
        self.replay_count = 0
        self.progressed = asyncio.Event()

    def tell(self, values: Sequence[str], result: dict[str, Any]) -> None:
        """An answer: these values, one behind the other, from its base offset on."""
        assert result["record_count"] == len(values), (values, result)
        assert result["last_offset"] - result["base_offset"] == len(values) - 1, result
        self.replay_count += result["duplicate"]
        for index, value in enumerate(values):
            place = (result["partition"], result["base_offset"] + index)
            known = self.of_value.setdefault(value, place)
            assert known == place, f"{value} was at {known}, now the answer says {place}: {result}"


@dataclass
class Client:
    """One client: sends request after request, each until it is answered, and some of them again."""

    number: int
    http: httpx.AsyncClient
    source: random.Random
    places: Places
    is_over: Callable[[], bool]
    sequences: dict[Place, int] = field(default_factory=dict)
    request_count: int = 0

    async def run(self) -> None:
        kinds: list[Callable[[list[str]], Awaitable[None]]] = [
            self._keyed_to_partition,
            self._keyed_to_topic,
            self._keyed_parts,
            self._sequenced,
            self._streamed,
        ]
        while not self.is_over():
            self.request_count += 1
            count = self.source.choice((1, 2, 5, 30))
            padding = "x" * self.source.choice((0, 0, 300))
            values = [f"{self.number}:{self.request_count}:{index}:{padding}" for index in range(count)]
            await self.source.choice(kinds)(values)
            self.places.done_count += 1
            self.places.progressed.set()

    async def _send(self, path: str, content: bytes, headers: dict[str, str]) -> httpx.Response | None:
        """Once; ``None`` when no answer came, or one that allows to try again."""
        seconds = self.source.choice((PATIENT_SECONDS,) * 5 + (IMPATIENT_SECONDS,))
        self.places.sent_count += 1
        try:
            answer = await self.http.post(path, content=content, headers=headers, timeout=seconds)
        except httpx.TransportError:
            return None
        if answer.status_code not in (200, 207):
            assert answer.json()["retryable"], (answer.status_code, answer.text, path, headers)
            return None
        return answer

    async def _until_answered(
        self, path: str, content: bytes, headers: dict[str, str], take: Callable[[httpx.Response], bool]
    ) -> None:
        """Send one to four times, more often only while no answer was whole."""
        sends = self.source.randint(1, SENDS_MAX)
        is_answered = False
        while sends > 0 or not is_answered:
            sends -= 1
            answer = await self._send(path, content, headers)
            if answer is not None:
                is_answered = take(answer) or is_answered

    async def _keyed_to_partition(self, values: list[str]) -> None:
        content, headers = self._form(values)
        path = f"{TOPIC}/partitions/{self.source.randrange(PARTITIONS)}/records"
        headers["Idempotency-Key"] = f"{self.number}-{self.request_count}"

        def take(answer: httpx.Response) -> bool:
            result = answer.json()
            assert (answer.headers.get("Idempotent-Replayed") == "true") is result["duplicate"]
            self.places.tell(values, result)
            return True

        await self._until_answered(path, content, headers, take)

    def _form(self, values: list[str]) -> tuple[bytes, dict[str, str]]:
        match self.source.randrange(3):
            case 0:
                return json_body([{"value": value} for value in values]), {"Content-Type": "application/json"}
            case 1:
                return lines(values), dict(NDJSON)
        return b"".join(map(batch, self._parts(values))), dict(RAW)

    def _parts(self, values: list[str]) -> list[list[str]]:
        """Cut so that each part makes a batch of its own."""
        size = self.source.randint(1, BATCH_RECORDS_MAX)
        return [values[place : place + size] for place in range(0, len(values), size)]

    async def _keyed_to_topic(self, values: list[str]) -> None:
        of_partition: dict[int, list[str]] = {}
        rows: list[dict[str, Any]] = []
        for value in values:
            number = self.source.randrange(PARTITIONS)
            of_partition.setdefault(number, []).append(value)
            rows.append({"value": value, "partition": number})
        is_json = self.source.random() < 0.5
        content = json_body(rows) if is_json else b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        headers = {"Content-Type": "application/json"} if is_json else dict(NDJSON)
        headers["Idempotency-Key"] = f"{self.number}-{self.request_count}"

        def take(answer: httpx.Response) -> bool:
            results = answer.json()["results"] if is_json else list(map(json.loads, answer.text.splitlines()))
            for result in results:
                if "error" in result:
                    assert result["error"]["retryable"], result
                else:
                    self.places.tell(of_partition[result["partition"]], result)
            return answer.status_code == 200

        await self._until_answered(f"{TOPIC}/records", content, headers, take)

    async def _keyed_parts(self, values: list[str]) -> None:
        """Several parts for one partition occur too; each is JSON records or record batches."""
        pieces = self._parts(values)
        parts: list[dict[str, Any]] = []
        for piece in pieces:
            part: dict[str, Any] = {"topic": TOPIC.rsplit("/", 1)[1], "partition": self.source.randrange(PARTITIONS)}
            if self.source.random() < 0.5:
                part["records"] = [{"value": value} for value in piece]
            else:
                part["record_batches"] = base64.b64encode(batch(piece)).decode()
            parts.append(part)
        headers = {"Content-Type": "application/json", "Idempotency-Key": f"{self.number}-{self.request_count}"}

        def take(answer: httpx.Response) -> bool:
            results = answer.json()["results"]
            for piece, result in zip(pieces, results, strict=True):
                if "error" in result:
                    assert result["error"]["retryable"], result
                else:
                    self.places.tell(piece, result)
            is_replay = all(result.get("duplicate") for result in results)
            assert (answer.headers.get("Idempotent-Replayed") == "true") is is_replay
            return answer.status_code == 200

        content = json.dumps({"partitions": parts}).encode()
        await self._until_answered("/v1/produce", content, headers, take)

    def _take_sequences(self, producer_id: int, count: int) -> tuple[str, int, dict[str, str]]:
        """A partition, and the sequences of this client's producer there."""
        partition = self.source.randrange(PARTITIONS)
        first = self.sequences.get((producer_id, partition), 2**31 - 20)
        self.sequences[producer_id, partition] = (first + count) % 2**31
        headers = {"Producer-Id": str(producer_id), "Producer-Epoch": "0", "Base-Sequence": str(first)}
        return f"{TOPIC}/partitions/{partition}/records", first, headers

    async def _sequenced(self, values: list[str]) -> None:
        producer_id = 2 * self.number
        path, first, headers = self._take_sequences(producer_id, len(values))
        if self.source.random() < 0.5:
            content = json_body([{"value": value} for value in values])
            headers["Content-Type"] = "application/json"
        else:
            headers = dict(RAW)
            content, sequence = b"", first
            for part in self._parts(values):
                content += batch(part, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
                sequence = (sequence + len(part)) % 2**31

        def take(answer: httpx.Response) -> bool:
            self.places.tell(values, answer.json())
            return True

        await self._until_answered(path, content, headers, take)

    async def _streamed(self, values: list[str]) -> None:
        """Resumed from the first record that is not acknowledged, or from any before, until all are."""
        path, first, headers = self._take_sequences(2 * self.number + 1, len(values))
        sends, known_count = self.source.randint(1, SENDS_MAX), 0
        while sends > 0 or known_count < len(values):
            sends -= 1
            start = self.source.choice((known_count, self.source.randint(0, known_count)))
            if start == len(values):
                continue
            headers["Base-Sequence"] = str((first + start) % 2**31)
            answer = await self._send(path, lines(values[start:]), {**NDJSON, **headers})
            place = start
            for line in [] if answer is None else map(json.loads, answer.text.splitlines()):
                if "error" in line:
                    assert line["error"]["retryable"], line
                    break
                self.places.tell(values[place : place + line["record_count"]], line)
                place += line["record_count"]
            known_count = max(known_count, place)


def json_body(rows: list[dict[str, Any]]) -> bytes:
    return json.dumps({"records": rows}).encode()


def lines(values: Sequence[str]) -> bytes:
    return b"".join(json.dumps({"value": value}).encode() + b"\n" for value in values)


def batch(values: Sequence[str], **fields: int) -> bytes:
    rows = [Record(place, 1_700_000_000_000, None, value.encode(), ()) for place, value in enumerate(values)]
    return encode_batch(columns_from_records(rows), **fields)


def check_log(client: httpx.Client, places: Places) -> int:
    """Every value exactly once, and where each answer said; return how many records there are."""
    found: dict[str, Place] = {}
    for partition in range(PARTITIONS):
        offset = 0
        while True:
            answer = client.get(f"{TOPIC}/partitions/{partition}/records", params={"offset": offset}).json()
            if not answer["records"]:
                break
            for record in answer["records"]:
                assert record["offset"] == offset, f"a gap at {offset}"
                offset += 1
                value = record["value"]
                assert value not in found, f"{value} is at {found[value]} and at {(partition, record['offset'])}"
                found[value] = (partition, record["offset"])
    assert found == places.of_value, "lost, or not where it was acknowledged: " + str(
        sorted(set(found.items()) ^ set(places.of_value.items()))[:10]
    )
    return len(found)
