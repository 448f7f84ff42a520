"""The single path of all appends: charged to the client, noted by the load jobs, submitted to the engine."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import Protocol

from app.access.capabilities import refuse_missing
from app.engine.appending import AppendOptions, Enlistment, Outcome, PendingAppend
from app.engine.engine import Engine
from app.engine.partitions import Partition
from app.event_loop.pools import INLINE_BYTES_MAX, Pools, call_in
from app.http.bodies.byte_budget import ByteBudget
from app.metrics.metrics import Metrics
from app.produce.partitioning import StickyPartitioner
from app.produce.producer_turns import ProducerTurns
from app.quotas.limits import QuotaKind
from app.quotas.throttling import Client, Quotas
from app.record_json.record_batches import batches_at_once
from app.record_json.work_rooms import WorkRooms
from app.settings import Settings
from log_model.batches.append_request import AppendResult
from log_model.batches.batch_validation import ValidBatch, validate_batches
from log_model.batches.message_conversion import convert_message_set


class AppendObserver(Protocol):
    """The load jobs, as appends see them."""

    def note_append(self, batches: Sequence[ValidBatch], pending: PendingAppend) -> None:
        """Note an append: if its producer has a load job, the job is active."""
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
        engine: Engine,
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

    async def validate(self, log: Partition, body: bytes | bytearray | memoryview) -> list[ValidBatch]:
        """Check a body of record batches, in a thread when it is large or needs a codec.

        Raises:
            RefusedError: as ``validate_batches``.
        """
        config, now_ms = log.config, self.engine.now_ms()
        batches = batches_at_once(body, config, now_ms, INLINE_BYTES_MAX)
        if batches is None:
            batches = await call_in(self.pools.read, functools.partial(validate_batches, body, config, now_ms))
        return batches

    async def convert(self, log: Partition, body: bytes | bytearray) -> list[ValidBatch]:
        """Check a body of messages of magic 0 or 1 and make batches of them, in a thread.

        Raises:
            RefusedError: as ``convert_message_set``.
        """
        convert = functools.partial(convert_message_set, body, log.config, self.engine.now_ms())
        return await call_in(self.pools.read, convert)

    def submit(
        self,
        log: Partition,
        batches: Sequence[ValidBatch],
        options: AppendOptions,
        client: Client,
        enlistment: Enlistment | None = None,
    ) -> PendingAppend:
        """Submit batches to the engine. ``throttle_ms`` of the result says how long ``client`` must wait.

        Every append of a client comes here. Transactional batches need their ``enlistment``; see ``enlisting``. The
        bytes are charged even if the log refuses them later, because they came over the wire (spec A3).

        Raises:
            Problem: overloaded, or there are several batches and the engine cannot append them together.
            StorageError: as ``Appends.submit``; nothing was taken.
        """
        self.refuse_several(batches)
        pending = self.engine.appends.submit(log, batches, options, enlistment)
        self.jobs.note_append(batches, pending)
        pending.throttle_ms = self.quotas.charge(QuotaKind.PRODUCE, client, pending.size_bytes)
        return pending

    def refuse_several(self, batches: Sequence[ValidBatch]) -> None:
        """Return if the engine can append these batches of one partition together.

        Raises:
            Problem: unsupported_by_engine.
        """
        if len(batches) > 1:
            refuse_missing("atomic_batches", self.engine.capabilities)

    async def outcome_of(self, pending: PendingAppend, options: AppendOptions) -> AppendResult:
        """Wait for one append, as ``Appends.outcome_of``."""
        return await self.engine.appends.outcome_of(pending, options)

    async def outcomes_of(self, pendings: Sequence[PendingAppend], options: AppendOptions) -> list[Outcome]:
        """Wait for many appends, as ``Appends.outcomes_of``."""
        return await self.engine.appends.outcomes_of(pendings, options)
