"""A random history of requests, which depends on its seed alone; it runs on this revision and on earlier ones.

``python request_history.py FIRST_SEED COUNT DIRECTORY`` leaves a data directory for each seed, and beside it what was
answered and done. PYTHONPATH says of which revision the packages are. So this program uses nothing that is newer than
the earlier revision: a service, its HTTP interface, and few calls of the engine.

The clock moves only by the history. Ids are given one after the other. No background job runs by itself.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import itertools
import json
import random
import sys
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx

import app.load_jobs.registry
import storage.disk.file_names
import storage.manager.log_manager
from app.service.scheduler import Scheduler
from app.settings import Settings
from log_model.clock import ManualClock
from rollway.records import Codec, Record, columns_from_records, encode_batch
from tests.support.load_jobs import Driver
from tests.support.servers import ThreadedServer
from tests.support.transactions import ProducerIdentity, settled, transactional_batch

STEPS = 120
RAW = {"Content-Type": "application/vnd.kafka.record-batch.v2"}
JOBS = (
    "flush",
    "roll",
    "retention",
    "checkpoint",
    "checkpoint_high_watermarks",
    "expire_producers",
    "delete_files",
    "transactions",
)
CONFIG: dict[str, object] = {
    "segment.bytes": 40_000,
    "index.interval.bytes": 300,
    "segment.index.bytes": 2400,
    "segment.ms": 3_000_000,
    "retention.bytes": 300_000,
    "retention.ms": 9_000_000,
    "file.delete.delay.ms": 2000,
    "flush.messages": 40,
    "flush.ms": 60_000,
}
LARGE_BYTES = 100_000
"""More than the journal takes."""
SHOWN = ("base_offset", "next_offset", "log_start_offset", "low_watermark", "state", "code", "producer_id")
"""What is compared of answers; other members say how much is durable, or name a request."""


def give_ids_in_turn(seed: int) -> None:
    """Let topics, load jobs and deleted directories have ids that are the same in each run."""
    topics, deleted, jobs = (random.Random(f"{seed} {name}") for name in ("topics", "deleted", "jobs"))

    def topic_id() -> str:
        return base64.urlsafe_b64encode(_uuid(topics).bytes)[:22].decode()

    for module, name, value in (
        (storage.manager.log_manager, "new_topic_id", topic_id),
        (storage.disk.file_names, "uuid", SimpleNamespace(uuid4=lambda: _uuid(deleted))),
        (app.load_jobs.registry, "secrets", SimpleNamespace(token_hex=lambda size: jobs.randbytes(size).hex())),
    ):
        assert hasattr(module, name)
        setattr(module, name, value)
    # Earlier revisions have no such function, and give producer ids from 0.
    if hasattr(storage.manager.log_manager, "first_id_of"):
        storage.manager.log_manager.first_id_of = lambda directory_id: 0


def _uuid(source: random.Random) -> uuid.UUID:
    return uuid.UUID(int=source.getrandbits(127), version=4)


class Request(NamedTuple):
    """One request for one partition."""

    path: str
    content: bytes | None = None
    json: Any = None
    headers: dict[str, str] | None = None
    method: str = "POST"


class RunningService:
    """A service over a data directory, and its clients; ``restart`` stops it cleanly in between."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.answers: list[object] = []
        self._directory = directory
        self._pool = ThreadPoolExecutor(8)
        self.start()

    def start(self) -> None:
        more: dict[str, Any] = {"journal_bytes_max": 3 << 20} if "journal_bytes_max" in Settings.model_fields else {}
        self.server = ThreadedServer(
            self._directory,
            clock=self.clock,
            insecure_no_authentication=True,
            producer_id_expiration_ms=20_000_000,
            topic_defaults={"segment.index.bytes": 24_000},
            **more,
        ).start()
        self.client = httpx.Client(base_url=self.server.url, timeout=60)

    def stop(self) -> None:
        self.client.close()
        self.server.stop()

    def restart(self) -> None:
        self.stop()
        self.start()

    @property
    def parts(self) -> Any:
        return self.server.service.parts

    def send(self, *requests: Request) -> list[Any]:
        """Send all at once; return the answers in the order of the requests, ``None`` for those that were refused."""
        responses = list(self._pool.map(self._send, requests))
        for response in responses:
            # A stream of lines is answered with a line for each of its appends.
            documents = [json.loads(line) for line in response.text.splitlines() if line.startswith("{")]
            documents += [each for document in documents for each in document.get("results", ())]
            shown = [str(document[name]) for document in documents for name in SHOWN if name in document]
            self.answers.append([response.status_code, *shown])
        self.run(asyncio.sleep(0))
        return [response if response.is_success else None for response in responses]

    def _send(self, request: Request) -> httpx.Response:
        return self.client.request(
            request.method, request.path, content=request.content, json=request.json, headers=request.headers
        )

    def run(self, work: Any) -> Any:
        """Await ``work`` on the service's loop, then all that goes on by itself: what it does later depends on no time.

        These are the ends of transactions, and with ``acks=1`` the fsyncs that raise the high watermark.
        """
        result = self.server.result_of(work)
        self.server.result_of(self._settle())
        return result

    async def _settle(self) -> None:
        while self.parts.load_jobs.is_busy:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
        await settled(self.parts)
        partitions = self.parts.engine.partitions
        # Earlier revisions had every partition open. One that rests has had its fsyncs.
        logs = partitions.opened() if hasattr(partitions, "opened") else partitions.all()
        for log in tuple(logs):
            while log.snapshot.high_watermark < log.snapshot.log_end_offset:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0)

    def in_log(self, topic: str, partition: int, call: Callable[[Any], Any]) -> None:
        self.run(self._in_log(topic, partition, call))

    async def _in_log(self, topic: str, partition: int, call: Callable[[Any], Any]) -> None:
        found = self.parts.engine.partition(topic, partition)
        log = await found if inspect.isawaitable(found) else found
        await self.parts.engine.partitions.run_in_log(log, lambda: call(log))

    async def _open_all(self) -> None:
        """Open every partition: an earlier revision did so at its last start, and tidied up what it found."""
        engine = self.parts.engine
        if hasattr(engine.partitions, "opened"):
            for topic in await engine.topics.page("", "", 1_000, lambda _: True):
                for number in range(topic.partition_count):
                    await engine.partition(topic.name, number)

    def close(self) -> None:
        self.run(self._open_all())
        self.stop()
        self._pool.shutdown()


class Draws:
    """Draws bodies of requests that append to one partition."""

    def __init__(self, source: random.Random, clock: ManualClock) -> None:
        self.source = source
        self._clock = clock
        self._mark = itertools.count()
        self._sent: dict[str, list[Request]] = {}
        self.producers: list[list[Any]] = []
        """Of each: its id, and the next sequence for each partition."""

    def values(self, *, large: bool = False) -> list[bytes]:
        source = self.source
        count = source.choice((1, 1, 1, 2, 5))
        length = source.choice((0, 10, 100, 100, 1000, 4000)) if not large else LARGE_BYTES // count
        return [b"%d:" % next(self._mark) + source.randbytes(8).hex().encode() + b"v" * length for _ in range(count)]

    def batch(self, values: list[bytes], **fields: int) -> bytes:
        source, now_ms = self.source, self._clock.now_ms()
        records = [
            Record(place, now_ms - source.randint(0, 5000), source.choice((None, b"key")), value)
            for place, value in enumerate(values)
        ]
        return encode_batch(
            columns_from_records(records), codec=source.choice([Codec.NONE] * 4 + list(Codec)), **fields
        )

    def append(self, partition: str) -> Request:
        """Return an append: some are repeated, some will be refused."""
        sent = self._sent.setdefault(partition, [])
        if sent and self.source.random() < 0.08:
            return self.source.choice(sent[-5:])
        kinds = [self._raw] * 5 + [self._json, self._lines, self._with_key, self._of_producer, self._of_producer]
        request = self.source.choice(kinds)(partition)
        if request.content is not None:
            sent.append(request)
        return request

    def _query(self) -> str:
        return self.source.choice(["", "", "", "", "?acks=1", "?durability=fsynced", "?acks=1&durability=fsynced"])

    def _raw(self, partition: str) -> Request:
        is_large = self.source.random() < 0.03
        count = self.source.choice((1, 1, 1, 2, 3))
        body = b"".join(self.batch(self.values(large=is_large)) for _ in range(count))
        return Request(f"{partition}/records{self._query()}", body, headers=RAW)

    def _json(self, partition: str) -> Request:
        records = [{"value": value.decode(), "key": self.source.choice((None, "key"))} for value in self.values()]
        return Request(f"{partition}/records{self._query()}", json={"records": records})

    def _lines(self, partition: str) -> Request:
        body = b"".join(json.dumps({"value": value.decode()}).encode() + b"\n" for value in self.values())
        headers = {"Content-Type": "application/x-ndjson"}
        return Request(f"{partition}/record-lines", body, headers=headers)

    def _with_key(self, partition: str) -> Request:
        key = {"Idempotency-Key": f"key-{next(self._mark)}"}
        return Request(f"{partition}/records{self._query()}", self.batch(self.values()), headers=RAW | key)

    def _of_producer(self, partition: str) -> Request:
        """The next batch of a producer, in its own header or in those of the request, or one that comes too early."""
        if not self.producers:
            return self._raw(partition)
        producer_id, sequences = self.source.choice(self.producers)
        sequence, values = sequences.get(partition, 0), self.values()
        if self.source.random() < 0.1:
            sequence += 1
        else:
            sequences[partition] = sequence + len(values)
        if self.source.random() < 0.5:
            body = self.batch(values, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
            return Request(f"{partition}/records{self._query()}", body, headers=RAW)
        named = {"Producer-Id": str(producer_id), "Producer-Epoch": "0", "Base-Sequence": str(sequence)}
        records = [{"value": value.decode()} for value in values]
        return Request(f"{partition}/records{self._query()}", json={"records": records}, headers=named)


class Transactions:
    """Some transactional producers, of which each has at most one open transaction; and load jobs."""

    def __init__(self, service: RunningService, draws: Draws) -> None:
        self._service = service
        self._draws = draws
        self._known: dict[str, tuple[ProducerIdentity, dict[str, int]]] = {}
        self._versions = itertools.count(1)

    def initialise(self, name: str) -> None:
        body = {"transactional_id": name, "transaction_timeout_ms": 900_000}
        (answer,) = self._service.send(Request("/v1/producers", json=body))
        identity = ProducerIdentity(answer.json()["producer_id"], answer.json()["producer_epoch"])
        self._known[name] = identity, {}

    def send(self, name: str, partitions: list[str]) -> None:
        """Send records to these partitions, one after the other: the order of enlisting is stored."""
        if name not in self._known:
            self.initialise(name)
        identity, sequences = self._known[name]
        for partition in partitions:
            values = self._draws.values()
            body = transactional_batch(identity, sequences.get(partition, 0), *values)
            (answer,) = self._service.send(Request(f"{partition}/records", body, headers=RAW))
            if answer is None:
                del self._known[name]
                return
            sequences[partition] = sequences.get(partition, 0) + len(values)

    def end(self, name: str, how: str) -> None:
        if name not in self._known:
            return
        identity, _ = self._known.pop(name)
        (answer,) = self._service.send(Request(f"/v1/transactions/{name}/{how}", json=identity._asdict()))
        if answer is not None:
            document = answer.json()
            self._known[name] = ProducerIdentity(document["producer_id"], document["producer_epoch"]), {}

    def load(self, partitions: list[str], *, commit: bool) -> None:
        """A whole load job of one writer."""
        version = next(self._versions)
        driver = Driver.begin(self._service.client, f"load{version % 3}", version)
        writer = driver.enlist(0)
        for partition in partitions:
            for _ in range(self._draws.source.choice((1, 3))):
                answer = writer.send(partition, *self._draws.values())
                self._service.answers.append(answer.status_code)
        if commit:
            driver.commit(writer)
        else:
            driver.abort()
        self._service.run(asyncio.sleep(0))
        self._service.answers.append(driver.look()["state"])


class History:
    """Does one random step after the other."""

    def __init__(self, seed: int, directory: Path) -> None:
        give_ids_in_turn(seed)
        self.service = RunningService(directory)
        self.done: Counter[str] = Counter()
        self._source = random.Random(seed)
        self._draws = Draws(self._source, self.service.clock)
        self._transactions = Transactions(self.service, self._draws)
        self._topics: dict[str, int] = {}
        self._names = itertools.count()

    def step(self) -> None:
        if not self._topics:
            return self._create_topic()
        steps: list[tuple[Callable[[], None], int]] = [
            (self._append_to_many, 50),
            (self._produce_to_many, 5),
            (self._add_producer, 4),
            (self._send_in_transaction, 12),
            (self._end_transaction, 8),
            (self._load, 3),
            (self._roll, 3),
            (self._truncate, 3),
            (self._begin_epoch, 2),
            (self._delete_records, 4),
            (self._run_job, 12),
            (self._run_retention, 3),
            (self._advance, 5),
            (self._create_topic, 2),
            (self._delete_topic, 1),
            (self._alter_topic, 2),
            (self._restart, 2),
        ]
        calls, weights = zip(*steps, strict=True)
        call = self._source.choices(calls, weights)[0]
        self.done[call.__name__.strip("_").replace("_", " ")] += 1
        return call()

    def _partition(self) -> tuple[str, int]:
        topic = self._source.choice(sorted(self._topics))
        return topic, self._source.randrange(self._topics[topic])

    def _partitions(self, count_max: int) -> list[str]:
        every = [(topic, number) for topic, count in sorted(self._topics.items()) for number in range(count)]
        chosen = self._source.sample(every, self._source.randint(1, min(count_max, len(every))))
        return [_path(*each) for each in chosen]

    def _append_to_many(self) -> None:
        """One append to each of some partitions, all at once, a few times."""
        for _ in range(self._source.choice((1, 3, 10))):
            self.service.clock.advance(self._source.choice((0, 1, 100, 2000)))
            self.service.send(*(self._draws.append(partition) for partition in self._partitions(8)))

    def _produce_to_many(self) -> None:
        parts = []
        for topic, number in sorted({self._partition() for _ in range(4)}):
            records = [{"value": value.decode()} for value in self._draws.values()]
            parts.append({"topic": topic, "partition": number, "records": records})
        self.service.send(Request("/v1/produce", json={"partitions": parts}))

    def _add_producer(self) -> None:
        (answer,) = self.service.send(Request("/v1/producers"))
        self._draws.producers = [*self._draws.producers[-2:], [answer.json()["producer_id"], {}]]

    def _send_in_transaction(self) -> None:
        self._transactions.send(self._source.choice("abc"), self._partitions(3))

    def _end_transaction(self) -> None:
        self._transactions.end(self._source.choice("abc"), self._source.choice(("commit", "commit", "abort")))

    def _load(self) -> None:
        self._transactions.load(self._partitions(3), commit=self._source.random() < 0.7)

    def _roll(self) -> None:
        self.service.in_log(*self._partition(), lambda log: log.roll())

    def _truncate(self) -> None:
        """Some records of the end go. Producers begin again: their sequences may be gone as well."""
        back = self._source.choice((0, 1, 5, 40))
        self.service.in_log(
            *self._partition(),
            lambda log: log.truncate_to(max(log.snapshot.log_start_offset, log.snapshot.log_end_offset - back)),
        )
        self._draws.producers.clear()

    def _begin_epoch(self) -> None:
        self.service.send(Request(f"{_path(*self._partition())}/epochs"))

    def _delete_records(self) -> None:
        path = _path(*self._partition())
        (answer,) = self.service.send(Request(path, method="GET"))
        start, end = answer.json()["log_start_offset"], answer.json()["high_watermark"]
        body = {"offset": self._source.choice((-1, start, (start + end) // 2, start + (end - start) // 8))}
        self.service.send(Request(f"{path}/delete-records", json=body))

    def _run_job(self) -> None:
        scheduler = self.service.server.service.scheduler
        assert scheduler is not None
        job = self._source.choice(JOBS)
        if job == "transactions":
            # Of several that time out together no order is promised.
            for name in self._source.sample("abc", 2):
                self._transactions.end(name, "abort")
        self.service.run(scheduler.run(job))

    def _run_retention(self) -> None:
        self.service.send(Request(f"/v1/topics/{self._source.choice(sorted(self._topics))}/retention/run"))

    def _advance(self) -> None:
        self.service.clock.advance(self._source.choice((5000, 300_000, 1_000_000, 4_000_000)))

    def _create_topic(self) -> None:
        name, source = f"t{next(self._names)}", self._source
        config = CONFIG | {"flush.policy": source.choice(("group", "group", "group", "interval"))}
        if source.random() < 0.2:
            config["preallocate"] = True
        if source.random() < 0.2:
            config["message.timestamp.type"] = "LogAppendTime"
        if source.random() < 0.3:
            config["compression.type"] = source.choice(("lz4", "zstd", "uncompressed"))
        if source.random() < 0.3:
            config["segment.bytes"] = 2_000_000
        count = source.choice((1, 2, 4, 8))
        self.service.send(Request(f"/v1/topics/{name}", json={"partitions": count, "config": config}, method="PUT"))
        self._topics[name] = count

    def _delete_topic(self) -> None:
        name = self._source.choice(sorted(self._topics))
        del self._topics[name]
        self.service.send(Request(f"/v1/topics/{name}", method="DELETE"))

    def _alter_topic(self) -> None:
        name = self._source.choice(sorted(self._topics))
        self._topics[name] += self._source.choice((0, 1, 2))
        config = {"segment.bytes": self._source.choice((20_000, 60_000)), "retention.bytes": 200_000}
        body = {"partitions": self._topics[name], "config": config}
        self.service.send(Request(f"/v1/topics/{name}", json=body, method="PATCH"))

    def _restart(self) -> None:
        self.service.restart()


def _path(topic: str, partition: int) -> str:
    return f"/v1/topics/{topic}/partitions/{partition}"


def run_history(seed: int, directory: Path) -> None:
    """Leave the data directory of a history after a clean stop, and in ``told.json`` what was answered and done."""
    history = History(seed, directory / "data")
    try:
        for _ in range(STEPS):
            history.step()
    finally:
        history.service.close()
    program = str(Path(storage.manager.log_manager.__file__).parents[2])
    told = {"program": program, "answers": history.service.answers, "done": history.done}
    (directory / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    Scheduler.start = lambda self: None  # type: ignore[method-assign]
    first, count = int(sys.argv[1]), int(sys.argv[2])
    for number in range(first, first + count):
        run_history(number, Path(sys.argv[3]) / str(number))
