"""Producers and consumers that write down what they saw, and do not mind a service that dies under them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from rollway.records import Codec, Record, TimestampType, columns_from_records, encode_batch
from tests.histories.history import History, Isolation, Poll, Seen, Send, SendOutcome

TOPIC = "history"
RAW = "application/vnd.kafka.record-batch.v2"
RETRY_SECONDS = 0.02
PATIENCE_SECONDS = 60.0
IMPATIENCE = 0.05
IMPATIENT_SECONDS = (0.001, 0.05)
"""Some requests are given up before they are answered, to be sent again while the first is still at work."""
TRANSACTION_TIMEOUT_MS = 60_000
_SEQUENCE_LIMIT = 2**31


class UnexpectedAnswerError(Exception):
    """What no healthy service answers."""


@dataclass(slots=True)
class Run:
    """What all clients share."""

    client: httpx.AsyncClient
    history: History
    partitions: int
    source: random.Random
    patience_seconds: float = PATIENCE_SECONDS
    over: bool = False
    held: httpx.AsyncClient | None = None
    """For requests that change something, if a proxy may hold them back."""

    async def ask(self, method: str, path: str, **options: Any) -> httpx.Response | None:
        """One attempt; ``None`` when the connection broke or nobody answered in time, so that nothing is known."""
        if self.source.random() < IMPATIENCE:
            options["timeout"] = self.source.uniform(*IMPATIENT_SECONDS)
        try:
            client = self.held if self.held is not None and method == "POST" else self.client
            return await client.request(method, path, **options)
        except httpx.TransportError:
            return None

    async def insist(self, method: str, path: str, **options: Any) -> tuple[httpx.Response, bool]:
        """Ask until there is an answer that more asking would not change; whether that took more than one attempt.

        Only for requests that may be repeated.

        Raises:
            UnexpectedAnswerError: there was none for very long.
        """
        again = False
        last: httpx.Response | None = None
        give_up_at = time.monotonic() + self.patience_seconds
        while time.monotonic() < give_up_at:
            answer = await self.ask(method, path, **options)
            if answer is not None and not _is_retryable(answer):
                return answer, again
            again, last = True, answer or last
            # Waiting for the service to be started again, which nothing in this process sees.
            await asyncio.sleep(RETRY_SECONDS)
        raise UnexpectedAnswerError(f"{method} {path}: {'no answer' if last is None else last.text}")

    async def note(self, work: Coroutine[Any, Any, None]) -> None:
        """Do ``work``; what no healthy service answers ends it and goes into the history."""
        try:
            await work
        except UnexpectedAnswerError as error:
            self.history.refusals.append(str(error))

    def values(self, process: int, count: int, names: Iterator[int]) -> tuple[str, ...]:
        """Fresh values of one process."""
        return tuple(f"{process}:{next(names)}" for _ in range(count))


def _expect_success(answer: httpx.Response) -> None:
    if not answer.is_success:
        raise UnexpectedAnswerError(answer.text)


def _is_retryable(answer: httpx.Response) -> bool:
    if answer.is_success:
        return False
    return bool(answer.json()["retryable"])


def _outcome(answer: httpx.Response) -> SendOutcome:
    if answer.is_success:
        return "acknowledged"
    return "refused" if answer.json()["applied"] == "no" else "unknown"


def records_path(partition: int) -> str:
    return f"/v1/topics/{TOPIC}/partitions/{partition}/records"


class PlainProducer:
    """Sends to one partition at a time, each request until it is answered; never twice into the log.

    ``form`` says how: ``headers`` (JSON with Producer-Id), ``raw`` (sequences in the batch) or ``key``
    (Idempotency-Key).
    """

    def __init__(self, run: Run, process: int, form: str, names: Iterator[int]) -> None:
        self._run = run
        self._process = process
        self._form = form
        self._names = names
        self._producer_id = -1
        self._sequences: dict[int, int] = {}

    async def run(self) -> None:
        if self._form != "key":
            answer, _ = await self._run.insist("POST", "/v1/producers", json={})
            _expect_success(answer)
            self._producer_id = answer.json()["producer_id"]
        while not self._run.over:
            await self._send()

    async def _send(self) -> None:
        run = self._run
        partition = run.source.randrange(run.partitions)
        values = run.values(self._process, run.source.randint(1, 20), self._names)
        began = time.monotonic_ns()
        answer, again = await run.insist("POST", records_path(partition), **self._request(partition, values))
        ended = time.monotonic_ns()
        outcome = _outcome(answer)
        if outcome == "refused" and again:
            outcome = "unknown"
        if outcome != "acknowledged":
            run.history.sends.append(Send(self._process, partition, values, began, ended, outcome))
            raise UnexpectedAnswerError(answer.text)
        self._sequences[partition] = self._sequences.get(partition, 0) + len(values)
        base_offset = answer.json()["base_offset"]
        run.history.sends.append(Send(self._process, partition, values, began, ended, outcome, base_offset))

    def _request(self, partition: int, values: tuple[str, ...]) -> dict[str, Any]:
        sequence = self._sequences.get(partition, 0)
        if self._form == "raw":
            content = _encode(values, self._producer_id, sequence, self._run.source.choice(list(Codec)))
            return {"content": content, "headers": {"Content-Type": RAW}}
        body = {"records": [{"value": value} for value in values]}
        if self._form == "key":
            return {"json": body, "headers": {"Idempotency-Key": values[0]}}
        headers = {"Producer-Id": self._producer_id, "Producer-Epoch": 0, "Base-Sequence": sequence}
        return {"json": body, "headers": {name: str(number) for name, number in headers.items()}}


def _encode(values: tuple[str, ...], producer_id: int, sequence: int, codec: Codec) -> bytes:
    now_ms = 1_700_000_000_000
    records = [
        Record(place, now_ms, None, value.encode(), (), TimestampType.CREATE_TIME) for place, value in enumerate(values)
    ]
    columns = columns_from_records(records)
    return encode_batch(columns, codec=codec, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


class TransactionalProducer:
    """One transaction after the other over several partitions; most are committed, some aborted, some left behind."""

    def __init__(self, run: Run, process: int, names: Iterator[int]) -> None:
        self._run = run
        self._process = process
        self._names = names
        self._id = f"transactions-of-{process}"
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequences: dict[int, int] = {}
        self._number = 0

    async def run(self) -> None:
        await self.begin_anew()
        while not self._run.over:
            await self._transaction()

    async def begin_anew(self) -> None:
        """Take the transactional id over from ourselves: what was open is aborted."""
        body = {"transactional_id": self._id, "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS}
        answer, _ = await self._run.insist("POST", "/v1/producers", json=body)
        _expect_success(answer)
        self._producer_id, self._producer_epoch = answer.json()["producer_id"], answer.json()["producer_epoch"]
        self._sequences = {}

    async def _transaction(self) -> None:
        run = self._run
        self._number += 1
        name = f"{self._process}/{self._number}"
        run.history.transactions[name] = "unknown"
        is_whole = True
        for _ in range(run.source.randint(1, 3)):
            is_whole = is_whole and await self._send(name)
        if not is_whole or run.source.random() < 0.1:
            await self.begin_anew()
            run.history.transactions[name] = "aborted"
            return
        end = "commit" if run.source.random() < 0.8 else "abort"
        if await self._end(end):
            run.history.transactions[name] = "committed" if end == "commit" else "aborted"
        else:
            await self.begin_anew()

    async def _end(self, end: str) -> bool:
        body = {"producer_id": self._producer_id, "producer_epoch": self._producer_epoch}
        answer, _ = await self._run.insist("POST", f"/v1/transactions/{self._id}/{end}", json=body)
        _expect_success(answer)
        following = {name: answer.json()[name] for name in body}
        if following != body:
            # Another identity, whose sequences begin again.
            self._producer_id, self._producer_epoch = following["producer_id"], following["producer_epoch"]
            self._sequences = {}
        return True

    async def _send(self, transaction: str) -> bool:
        """One request, for one partition or for several; false when not all of it was taken."""
        run = self._run
        count = run.source.choice((1, 1, 2, 3))
        parts = {
            partition: run.values(self._process, run.source.randint(1, 10), self._names)
            for partition in run.source.sample(range(run.partitions), count)
        }
        began = time.monotonic_ns()
        results = await (self._ask_for_one(parts) if count == 1 else self._ask_for_many(parts))
        ended = time.monotonic_ns()
        for (partition, values), base_offset in zip(parts.items(), results, strict=True):
            outcome: SendOutcome = "unknown" if base_offset is None else "acknowledged"
            run.history.sends.append(
                Send(self._process, partition, values, began, ended, outcome, base_offset, transaction)
            )
            self._sequences[partition] = self._sequences.get(partition, 0) + len(values)
        return None not in results

    async def _ask_for_one(self, parts: dict[int, tuple[str, ...]]) -> list[int | None]:
        ((partition, values),) = parts.items()
        headers = {
            "Transactional-Id": self._id,
            "Producer-Id": str(self._producer_id),
            "Producer-Epoch": str(self._producer_epoch),
            "Base-Sequence": str(self._sequences.get(partition, 0)),
        }
        body = {"records": [{"value": value} for value in values]}
        answer, _ = await self._run.insist("POST", records_path(partition), json=body, headers=headers)
        return [answer.json()["base_offset"] if answer.is_success else None]

    async def _ask_for_many(self, parts: dict[int, tuple[str, ...]]) -> list[int | None]:
        body = {
            "transactional_id": self._id,
            "producer_id": self._producer_id,
            "producer_epoch": self._producer_epoch,
            "partitions": [
                {
                    "topic": TOPIC,
                    "partition": partition,
                    "base_sequence": self._sequences.get(partition, 0),
                    "records": [{"value": value} for value in values],
                }
                for partition, values in parts.items()
            ],
        }
        answer, _ = await self._run.insist("POST", "/v1/produce", json=body)
        results = answer.json().get("results") or [{}] * len(parts)
        return [result.get("base_offset") if "error" not in result else None for result in results]


class Consumer:
    """Reads partition after partition, from where it was or, now and then, from somewhere earlier."""

    def __init__(self, run: Run, process: int, isolation: Isolation) -> None:
        self._run = run
        self._process = process
        self._isolation: Isolation = isolation
        self._positions = dict.fromkeys(range(run.partitions), 0)

    async def run(self) -> None:
        run = self._run
        while not run.over:
            partition = run.source.randrange(run.partitions)
            if run.source.random() < 0.05:
                self._positions[partition] = run.source.randint(0, self._positions[partition])
            if not await self._poll(partition, wait_ms=run.source.choice((0, 100))):
                await asyncio.sleep(RETRY_SECONDS)

    async def drain(self) -> None:
        """Read on to the end of every partition."""
        for partition in range(self._run.partitions):
            is_at_end = False
            give_up_at = time.monotonic() + self._run.patience_seconds
            while not is_at_end:
                if time.monotonic() > give_up_at:
                    raise UnexpectedAnswerError(f"partition {partition} could not be read to its end")
                before = self._positions[partition]
                if await self._poll(partition, wait_ms=0):
                    is_at_end = self._positions[partition] == before
                else:
                    await asyncio.sleep(RETRY_SECONDS)

    async def _poll(self, partition: int, *, wait_ms: int) -> bool:
        """One attempt; false when there was no answer to write down."""
        run = self._run
        position = self._positions[partition]
        parameters = {
            "offset": position,
            "isolation": self._isolation,
            "wait_ms": wait_ms,
            "max_bytes": run.source.choice((1, 1000, 100_000)),
        }
        began = time.monotonic_ns()
        answer = await run.ask("GET", records_path(partition), params=parameters)
        ended = time.monotonic_ns()
        if answer is None or _is_retryable(answer):
            return False
        _expect_success(answer)
        document = answer.json()
        self._positions[partition] = document["next_offset"]
        run.history.polls.append(
            Poll(
                self._process,
                partition,
                self._isolation,
                began,
                ended,
                position,
                document["next_offset"],
                document["high_watermark"],
                tuple(Seen(record["offset"], record["value"]) for record in document["records"]),
            )
        )
        return True
