"""The one way in for everything that produces: charged to its client, told to the load jobs, given to the engine."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import Protocol

from app.engine_local.engine import LocalEngine
from app.engine_local.partitions.pending_append import PendingAppend
from app.engine_local.partitions.produce_waiters import Outcome, ProduceOptions
from app.engine_local.partitions.producer_turns import ProducerTurns
from app.event_loop.pools import INLINE_BYTES_MAX, Pools, call_in
from app.http.bodies.byte_budget import ByteBudget
from app.metrics.metrics import Metrics
from app.produce.partitioning import StickyPartitioner
from app.quotas.limits import QuotaKind
from app.quotas.throttling import Client, Quotas
from app.record_json.record_batches import needs_codec
from app.record_json.work_rooms import WorkRooms
from app.settings import Settings
from log_model.batches.batch_validation import ValidBatch, validate_batches
from log_model.batches.message_conversion import convert_message_set
from storage.log.partition_log import AppendResult, PartitionLog


class AppendObserver(Protocol):
    """The load jobs, as appends see them."""

    def note_append(self, batches: Sequence[ValidBatch], pending: PendingAppend) -> None:
        """Take notice of an append: the job of its producer, if there is one, is at work."""
        ...

    def application_of(self, producer_id: int) -> str | None:
        """Return the application whose load job this producer belongs to, if any."""
        ...


class Producing:
    """Producing, for routes and for the fast path. Thread: the event loop.

    Attributes:
        released: set when the service stops; streams of records end then.
    """

    def __init__(
        self,
        engine: LocalEngine,
        settings: Settings,
        metrics: Metrics,
        pools: Pools,
        quotas: Quotas,
        body_budget: ByteBudget,
        rooms: WorkRooms,
        jobs: AppendObserver,
    ) -> None:
        self.engine = engine
        self.settings = settings
        self.metrics = metrics
        self.pools = pools
        self.quotas = quotas
        self.body_budget = body_budget
        self.rooms = rooms
        self.jobs = jobs
        self.sticky = StickyPartitioner()
        self.turns = ProducerTurns()
        self.released = asyncio.Event()
        engine.topics.on_deleted.append(self.sticky.forget)

    async def validate(self, log: PartitionLog, body: bytes | bytearray | memoryview) -> list[ValidBatch]:
        """Check a body of record batches, in a thread when it is large or needs a codec.

        Raises:
            RefusedError: as ``validate_batches``.
        """
        check = functools.partial(validate_batches, body, log.config, self.engine.now_ms())
        is_quick = len(body) <= INLINE_BYTES_MAX and not needs_codec(body, log.config)
        return check() if is_quick else await call_in(self.pools.read, check)

    async def convert(self, log: PartitionLog, body: bytes | bytearray) -> list[ValidBatch]:
        """Check a body of messages of magic 0 or 1 and make batches of them, in a thread.

        Raises:
            RefusedError: as ``convert_message_set``.
        """
        convert = functools.partial(convert_message_set, body, log.config, self.engine.now_ms())
        return await call_in(self.pools.read, convert)

    def submit(
        self,
        log: PartitionLog,
        batches: Sequence[ValidBatch],
        options: ProduceOptions,
        client: Client,
        *,
        enlisted: bool = False,
    ) -> PendingAppend:
        """Give batches to the engine. ``throttle_ms`` of the result tells how long ``client`` is asked to wait.

        Transactional batches must be ``enlisted`` with the coordinator; see ``enlisting``. The bytes are charged also
        when the log refuses them later: they came over the wire (spec A3).

        Raises:
            Problem: overloaded.
            StorageError: as ``LocalAppends.submit``; nothing was taken.
        """
        pending = self.engine.appends.submit(log, batches, options, enlisted=enlisted)
        self.jobs.note_append(batches, pending)
        pending.throttle_ms = self.quotas.charge(QuotaKind.PRODUCE, client, pending.size_bytes)
        return pending

    async def outcome_of(self, pending: PendingAppend, options: ProduceOptions) -> AppendResult:
        """Wait for one append; as ``LocalAppends.outcome_of``."""
        return await self.engine.appends.outcome_of(pending, options)

    async def outcomes_of(self, pendings: Sequence[PendingAppend], options: ProduceOptions) -> list[Outcome]:
        """Wait for many appends; as ``LocalAppends.outcomes_of``."""
        return await self.engine.appends.outcomes_of(pendings, options)
