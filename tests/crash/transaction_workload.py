"""Transactional producers on a simulated disk, with a ledger of what each transaction was promised."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from app.engine.appending import AppendOptions
from app.engine.transactions import ProducerIdentity
from app.metrics.metrics import Metrics
from app.service.parts import Parts
from app.settings import Settings
from log_model.clock import ManualClock
from log_model.errors import ProducerFencedError
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager
from tests.crash.disk_faults import Operation
from tests.crash.inline_pools import InlinePools
from tests.crash.ledger import BALLAST_BYTES, DATA_DIR
from tests.crash.simulated_disk import SimulatedDisk
from tests.crash.workload import new_disk
from tests.support.local_parts import local_parts
from tests.support.transactions import TestProducer, settled
from tests.support.writers import valid_batches

TIMEOUT_MS = 60_000
LATE = b"late"
"""The value of appends that arrive after their transaction has ended."""
PRODUCERS = ("one", "two", "three")
CONFIG: dict[str, object] = {
    "segment.bytes": 1500,
    "index.interval.bytes": 150,
    "segment.index.bytes": 240,
    "file.delete.delay.ms": 1000,
    "message.timestamp.after.max.ms": 2**63 - 1,
}
# The internal topic's too: a disk in memory with indexes of 10 MiB is slow.
DEFAULTS: dict[str, object] = {"segment.index.bytes": 2400}

_settings = Settings()
_metrics = Metrics()


def open_parts(disk: SimulatedDisk, clock: ManualClock) -> Parts:
    """A broker over what is on this disk."""
    manager = LogManager.open(
        DATA_DIR, file_system=disk, clock=clock, ballast_bytes=BALLAST_BYTES, topic_defaults=DEFAULTS
    )
    pools = InlinePools()
    disk.on_crash = pools.inline.crash
    return local_parts(manager, _settings, _metrics, pools)


class Promise(Enum):
    """What was said of a transaction; the two in between were asked for and not answered."""

    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTING = "aborting"
    ABORTED = "aborted"


@dataclass
class TransactionLedger:
    """One transaction: what was sent in it, what of that was acknowledged, and what was said of its end."""

    sent: dict[bytes, str] = field(default_factory=dict)
    """Each value, and the topic it was sent to."""
    acknowledged: set[bytes] = field(default_factory=set)
    promise: Promise = Promise.OPEN


@dataclass
class Ledger:
    """Everything that was promised. A topic is named once: none is made again under a name that was used."""

    transactions: list[TransactionLedger] = field(default_factory=list)
    plain: dict[bytes, str] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)
    given: dict[str, ProducerIdentity] = field(default_factory=dict)
    largest_id: int = -1
    now_ms: int = 0

    def copy(self) -> Ledger:
        return Ledger(
            [TransactionLedger(dict(each.sent), set(each.acknowledged), each.promise) for each in self.transactions],
            dict(self.plain),
            set(self.topics),
            dict(self.given),
            self.largest_id,
            self.now_ms,
        )


class TransactionWorkload:
    """Does one random step after the other; ``observe`` is called before every operation of the disk."""

    def __init__(self, seed: int, observe: Callable[[TransactionWorkload, Operation], None]) -> None:
        self.source = random.Random(seed)
        self.clock = ManualClock()
        self.ledger = Ledger()
        self.step_name = "start"
        self._observe = observe
        self._mark = 0
        self._producers: dict[str, TestProducer] = {}
        self._open: dict[str, TransactionLedger] = {}
        self._ends: dict[str, list[tuple[ProducerIdentity, bool]]] = {}
        """Every end that each producer asked for, of which copies are still on their way."""
        self._use(new_disk(self.clock))
        self.parts = open_parts(self.disk, self.clock)

    def _use(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        disk.before_operation = lambda operation: self._observe(self, operation)

    async def step(self) -> None:
        """Do the next thing."""
        if len(self.ledger.topics) < 2:
            self.step_name = "create topic"
            await self._create_topic()
            return
        name = self.source.choice(PRODUCERS)
        if name not in self._producers:
            self.step_name = "initialise"
            await self._initialise(name)
            return
        steps, weights = zip(*self._steps(), strict=True)
        step = self.source.choices(steps, weights)[0]
        self.step_name = step.__name__.strip("_").replace("_", " ")
        await step(name)

    def _steps(self) -> list[tuple[Callable[[str], object], int]]:
        return [
            (self._send, 34),
            (self._commit, 26),
            (self._abort, 12),
            (self._initialise, 6),
            (self._time_out, 3),
            (self._deliver_late, 8),
            (self._append_plain, 4),
            (self._roll, 3),
            (self._checkpoint, 2),
            (self._delete_topic, 3),
            (self._allocate, 1),
            (self._stop_and_start, 2),
            (self._kill_and_start, 2),
        ]

    async def _create_topic(self) -> None:
        self._mark += 1
        name = f"t{self._mark}"
        config = CONFIG | {"flush.policy": self.source.choice(("group", "group", "interval"))}
        await self.parts.engine.topics.ensure(name, self.source.choice((1, 2)), config)
        self.ledger.topics.add(name)

    def _logs(self) -> list[PartitionLog]:
        return [log for name in sorted(self.ledger.topics) for log in self.parts.engine.topic(name).partitions]

    # Producers

    async def _initialise(self, name: str) -> None:
        """Another instance: what the last one left open is aborted."""
        opened = self._open.pop(name, None)
        if opened is not None:
            opened.promise = Promise.ABORTING
        producer = TestProducer(self.parts, name, TIMEOUT_MS)
        await producer.initialise()
        if opened is not None:
            opened.promise = Promise.ABORTED
        self._producers[name] = producer
        self.ledger.given[name] = producer.identity
        self.ledger.largest_id = max(self.ledger.largest_id, producer.identity.producer_id)

    async def _allocate(self, _: str) -> None:
        given = await self.parts.engine.transactions.allocate()
        self.ledger.largest_id = max(self.ledger.largest_id, given.producer_id)

    async def _send(self, name: str) -> None:
        """To some partitions at once; each answer counts when it arrives."""
        transaction = self._open.get(name)
        if transaction is None:
            transaction = self._open[name] = TransactionLedger()
            self.ledger.transactions.append(transaction)
        logs = self._logs()
        chosen = self.source.sample(logs, min(len(logs), self.source.choice((1, 1, 2, 3))))
        await asyncio.gather(*(self._send_to(name, transaction, log) for log in chosen))

    async def _send_to(self, name: str, transaction: TransactionLedger, log: PartitionLog) -> None:
        values = [self._value() for _ in range(self.source.choice((1, 1, 3)))]
        transaction.sent |= dict.fromkeys(values, log.name.topic)
        await self._producers[name].send(log, *values)
        transaction.acknowledged.update(values)

    def _value(self) -> bytes:
        self._mark += 1
        return b"%d:" % self._mark + b"v" * self.source.choice((0, 20, 200))

    async def _commit(self, name: str) -> None:
        await self._end(name, commit=True)

    async def _abort(self, name: str) -> None:
        await self._end(name, commit=False)

    async def _end(self, name: str, *, commit: bool) -> None:
        transaction = self._open.pop(name, None)
        if transaction is None:
            return
        transaction.promise = Promise.COMMITTING if commit else Promise.ABORTING
        self._ends.setdefault(name, []).append((self._producers[name].identity, commit))
        await self._producers[name].end(commit=commit)
        transaction.promise = Promise.COMMITTED if commit else Promise.ABORTED
        self.ledger.given[name] = self._producers[name].identity

    async def _deliver_late(self, name: str) -> None:
        """A copy of an end that was asked for before, and an append of that transaction."""
        if name not in self._ends:
            return
        identity, commit = self.source.choice(self._ends[name])
        with contextlib.suppress(ProducerFencedError):
            await self.parts.engine.transactions.end(name, identity, commit=commit, wait_ms=30_000)
        log = self.source.choice(self._logs())
        with contextlib.suppress(ProducerFencedError):
            await self._producers[name].send_at(log, self.source.choice((0, 1, 5)), LATE, identity=identity)

    async def _time_out(self, _: str) -> None:
        """Everything that is open becomes too old; its producers come again."""
        doomed, self._open = self._open, {}
        for transaction in doomed.values():
            transaction.promise = Promise.ABORTING
        self.clock.advance(TIMEOUT_MS + 1)
        await self.parts.engine.transactions.run_jobs()
        await settled(self.parts)
        for name, transaction in doomed.items():
            transaction.promise = Promise.ABORTED
            del self._producers[name]

    # Around them

    async def _append_plain(self, _: str) -> None:
        log = self.source.choice(self._logs())
        value = self._value()
        options = AppendOptions()
        await self.parts.engine.appends.outcome_of(
            self.parts.engine.appends.submit(log, valid_batches(log, value), options), options
        )
        if log.config.flush_policy == "group":
            self.ledger.plain[value] = log.name.topic

    async def _roll(self, _: str) -> None:
        """A new segment, with a producer snapshot before it."""
        log = self.source.choice(self._logs())
        await self.parts.engine.partitions.run_in_log(log, log.roll)

    async def _checkpoint(self, _: str) -> None:
        self.parts.engine.manager.checkpoint()
        self.parts.engine.manager.checkpoint_high_watermarks()

    async def _delete_topic(self, _: str) -> None:
        """Whatever is open in it."""
        name = self.source.choice(sorted(self.ledger.topics))
        self.ledger.topics.discard(name)
        await self.parts.engine.topics.delete(name)
        self.clock.advance(2000)
        self.parts.engine.manager.delete_due_files()

    async def _stop_and_start(self, _: str) -> None:
        await self.parts.close()
        await self._start()

    async def _kill_and_start(self, _: str) -> None:
        await self._start()

    async def _start(self) -> None:
        self._use(self.disk.killed())
        self.parts = open_parts(self.disk, self.clock)
        await self.parts.engine.transactions.start()
        await settled(self.parts)
        for producer in self._producers.values():
            producer.parts = self.parts
