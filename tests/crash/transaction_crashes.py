"""Crashes transactions before every operation of the disk, recovers, lets the timeout pass, and looks at what is there.

After every crash each transaction is wholly committed or wholly aborted, in all its partitions; one whose commit was
acknowledged is committed; nothing keeps readers of committed records waiting once the timeout has passed; and no
identity of a producer is given a second time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

from app.service.parts import Parts
from log_model.clock import ManualClock
from tests.crash.ledger import require
from tests.crash.service_crashes import ServiceCrashes
from tests.crash.simulated_disk import SimulatedDisk
from tests.crash.transaction_workload import (
    LATE,
    TIMEOUT_MS,
    Ledger,
    Promise,
    TransactionLedger,
    TransactionWorkload,
)
from tests.support.transactions import TestProducer, all_values, committed_values, settled

GOES_ON_EVERY = 4


class TransactionCrashes(ServiceCrashes[Ledger]):
    """Transactions of some producers, over some topics."""

    # What the engine's own crash tests look at, and what it is not about here, is crashed seldom.
    CRASHED_AT: ClassVar[Mapping[str, float]] = {
        "start": 0.0,
        "create topic": 0.02,
        "checkpoint": 0.1,
        "stop and start": 0.2,
        "kill and start": 0.2,
    }

    def make_workload(self, seed: int) -> TransactionWorkload:
        """See ``ServiceCrashes``."""
        return TransactionWorkload(seed, lambda load, operation: self.crash_here(load, load.ledger, operation))

    async def look(self, parts: Parts, disk: SimulatedDisk, clock: ManualClock, ledger: Ledger) -> None:
        """See ``ServiceCrashes``."""
        await parts.engine.transactions.start()
        await settled(parts)
        clock.advance(TIMEOUT_MS + 1)
        await parts.engine.transactions.run_jobs()
        await settled(parts)
        require(not disk.violations, f"mappings: {disk.violations}")
        require(parts.engine.transactions.open_count() == 0, "a transaction is open after its timeout")
        self._check_logs(parts, ledger)
        if disk.crash_at is None and self.images % GOES_ON_EVERY == 0:
            await self._go_on(parts, ledger)

    def _check_logs(self, parts: Parts, ledger: Ledger) -> None:
        committed: Counter[bytes] = Counter()
        stored: Counter[bytes] = Counter()
        for name in ledger.topics:
            for log in parts.engine.topic(name).partitions:
                snapshot = log.snapshot
                require(
                    snapshot.last_stable_offset == snapshot.high_watermark == snapshot.log_end_offset,
                    f"{log.name} keeps readers waiting at {snapshot.last_stable_offset} of {snapshot.log_end_offset}",
                )
                committed.update(committed_values(snapshot))
                stored.update(all_values(snapshot))
        twice = [value for value, times in stored.items() if times > 1]
        require(not twice, f"stored twice: {twice[:3]!r}")
        require(LATE not in stored, "a late append of an ended transaction is there")
        for value, topic in ledger.plain.items():
            require(topic not in ledger.topics or value in committed, f"lost: {value[:20]!r}")
        for transaction in ledger.transactions:
            _check_transaction(transaction, committed, ledger.topics)

    async def _go_on(self, parts: Parts, ledger: Ledger) -> None:
        """Producers come again: as later instances, and under no id that was given before."""
        given = await parts.engine.transactions.allocate()
        require(given.producer_id > ledger.largest_id, f"producer id {given.producer_id} was given before")
        if not ledger.given or not ledger.topics:
            return
        name = self._source.choice(sorted(ledger.given))
        producer = TestProducer(parts, name, TIMEOUT_MS)
        await producer.initialise()
        before = ledger.given[name]
        require(producer.identity.producer_id == before.producer_id, f"{name} has another producer id")
        require(producer.identity.producer_epoch > before.producer_epoch, f"epoch {before} of {name} was given before")
        log = parts.engine.manager.partition(self._source.choice(sorted(ledger.topics)), 0)
        await producer.send(log, b"goes on")
        await producer.end(commit=True)
        require(committed_values(log.snapshot)[-1] == b"goes on", "a transaction after recovery is not visible")
        await parts.close()


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
