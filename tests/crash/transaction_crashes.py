"""Crashes transactions before every operation of the disk, recovers, lets the timeout pass, and looks at what is there.

After every crash each transaction is wholly committed or wholly aborted, in all its partitions; one whose commit was
acknowledged is committed; nothing keeps readers of committed records waiting once the timeout has passed; and no
identity of a producer is given a second time.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import NamedTuple

from app.broker import Broker
from storage.clock import ManualClock
from storage.errors import StorageError
from tests.crash.inline_pools import InlinePools
from tests.crash.ledger import ViolationError, require
from tests.crash.simulated_disk import CrashImage, Operation, SimulatedCrash, SimulatedDisk
from tests.crash.transaction_workload import (
    TIMEOUT_MS,
    Ledger,
    Promise,
    TransactionLedger,
    TransactionWorkload,
    open_broker,
)
from tests.transactions import TestProducer, all_values, committed_values, settled

# What the engine's own crash tests look at, and what it is not about here, is crashed seldom.
_CRASHED_AT = {"start": 0.0, "create topic": 0.02, "checkpoint": 0.1, "stop and start": 0.2, "kill and start": 0.2}
SECOND_CRASH_EVERY = 5
SECOND_CRASH_SPAN = 40
GOES_ON_EVERY = 4


class _Crash(NamedTuple):
    image: CrashImage
    ledger: Ledger
    where: str


class TransactionCrashes:
    """One workload and all its crash points.

    Attributes:
        crash_points: operations before which the workload was crashed.
        images: disks that were recovered and checked, those after a second crash included.
        second_crashes: how many of those saw a crash during recovery as well.
        steps: crash points by what the workload was doing.
    """

    def __init__(self, seed: int, images_per_point: int) -> None:
        self.crash_points = 0
        self.images = 0
        self.second_crashes = 0
        self.steps: Counter[str] = Counter()
        self._seed = seed
        self._images_per_point = images_per_point
        self._source = random.Random(seed)
        self._waiting: list[_Crash] = []

    async def run(self, crash_points: int) -> None:
        """Go on until there were ``crash_points``.

        Raises:
            ViolationError: a promise was broken. The message names seed, operation and image.
        """
        # Tasks of a process that is gone have nobody to tell how they ended.
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        workload = TransactionWorkload(self._seed, self._crash_here)
        while self.crash_points < crash_points:
            await workload.step()
            waiting, self._waiting = self._waiting, []
            for crash in waiting:
                await self._judge(crash)

    def _crash_here(self, workload: TransactionWorkload, operation: Operation) -> None:
        often = _CRASHED_AT.get(workload.step_name, 1.0)
        if often < 1 and self._source.random() >= often:
            return
        self.crash_points += 1
        self.steps[workload.step_name] += 1
        ledger = workload.ledger.copy()
        ledger.now_ms = workload.clock.now_ms()
        where = f"seed {self._seed}, crash point {self.crash_points} during '{workload.step_name}' before '{operation}'"
        for image in workload.disk.images(self._seed * 1_000_003 + self.crash_points, self._images_per_point):
            self._waiting.append(_Crash(image, ledger, where))

    async def _judge(self, crash: _Crash) -> None:
        try:
            await self._recover(crash.image.disk, crash.ledger)
        except (ViolationError, StorageError, OSError, TimeoutError) as error:
            raise ViolationError(
                f"{crash.where}, image '{crash.image.label}': {type(error).__name__}: {error}"
            ) from error

    async def _recover(self, disk: SimulatedDisk, ledger: Ledger) -> None:
        self.images += 1
        if self.images % SECOND_CRASH_EVERY == 0:
            disk.crash_at = self._source.randrange(SECOND_CRASH_SPAN)
            try:
                await self._check(disk, ledger)
            except SimulatedCrash:
                for image in disk.images(self._source.randrange(1 << 30), 2):
                    self.images += 1
                    self.second_crashes += 1
                    await self._check(image.disk, ledger)
            return
        await self._check(disk, ledger)

    async def _check(self, disk: SimulatedDisk, ledger: Ledger) -> None:
        """Recover, and look.

        Raises:
            SimulatedCrash: ``disk`` was to crash, and did.
        """
        clock = ManualClock(ledger.now_ms)
        broker = open_broker(disk, clock)
        assert isinstance(broker.pools, InlinePools)
        crashed = broker.pools.inline.crashed
        looking = asyncio.ensure_future(self._look(broker, disk, clock, ledger))
        await asyncio.wait({looking, crashed}, return_when=asyncio.FIRST_COMPLETED)
        if crashed.done():
            # The process is gone, with all that it was doing.
            gone = asyncio.all_tasks() - {asyncio.current_task()}
            for task in gone:
                task.cancel()
            # What looked may have ended by now: of what it saw, nothing counts.
            await asyncio.gather(looking, *gone, return_exceptions=True)
            raise SimulatedCrash("during recovery")
        await looking

    async def _look(self, broker: Broker, disk: SimulatedDisk, clock: ManualClock, ledger: Ledger) -> None:
        await broker.transactions.start()
        await settled(broker)
        clock.advance(TIMEOUT_MS + 1)
        await broker.transactions.run_jobs()
        await settled(broker)
        require(not disk.violations, f"mappings: {disk.violations}")
        require(broker.transactions.open_count() == 0, "a transaction is open after its timeout")
        self._check_logs(broker, ledger)
        if disk.crash_at is None and self.images % GOES_ON_EVERY == 0:
            await self._go_on(broker, ledger)

    def _check_logs(self, broker: Broker, ledger: Ledger) -> None:
        committed: Counter[bytes] = Counter()
        stored: Counter[bytes] = Counter()
        for name in ledger.topics:
            for log in broker.topic(name).partitions:
                snapshot = log.snapshot
                require(
                    snapshot.last_stable_offset == snapshot.high_watermark == snapshot.log_end_offset,
                    f"{log.name} keeps readers waiting at {snapshot.last_stable_offset} of {snapshot.log_end_offset}",
                )
                committed.update(committed_values(snapshot))
                stored.update(all_values(snapshot))
        twice = [value for value, times in stored.items() if times > 1]
        require(not twice, f"stored twice: {twice[:3]!r}")
        for value, topic in ledger.plain.items():
            require(topic not in ledger.topics or value in committed, f"lost: {value[:20]!r}")
        for transaction in ledger.transactions:
            _check_transaction(transaction, committed, ledger.topics)

    async def _go_on(self, broker: Broker, ledger: Ledger) -> None:
        """Producers come again: as later instances, and under no id that was given before."""
        given = await broker.transactions.allocate()
        require(given.producer_id > ledger.largest_id, f"producer id {given.producer_id} was given before")
        if not ledger.given or not ledger.topics:
            return
        name = self._source.choice(sorted(ledger.given))
        producer = TestProducer(broker, name, TIMEOUT_MS)
        await producer.initialise()
        before = ledger.given[name]
        require(producer.identity.producer_id == before.producer_id, f"{name} has another producer id")
        require(producer.identity.producer_epoch > before.producer_epoch, f"epoch {before} of {name} was given before")
        log = broker.partition(self._source.choice(sorted(ledger.topics)), 0)
        await producer.send(log, b"goes on")
        await producer.end(commit=True)
        require(committed_values(log.snapshot)[-1] == b"goes on", "a transaction after recovery is not visible")
        await broker.close()


def _check_transaction(transaction: TransactionLedger, committed: Counter[bytes], topics: set[str]) -> None:
    there = {value for value, topic in transaction.sent.items() if topic in topics}
    seen = {value for value in there if value in committed}
    whole = transaction.acknowledged & there
    match transaction.promise:
        case Promise.COMMITTED:
            require(whole <= seen, f"committed, but {len(whole - seen)} of {len(whole)} records are not there")
        case Promise.COMMITTING:
            require(not seen or whole <= seen, f"half committed: {len(seen)} of {len(whole)} records are there")
        case _:
            require(not seen, f"{transaction.promise.value}, but {len(seen)} records are there")
