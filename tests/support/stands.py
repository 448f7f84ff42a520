"""The parts of a service with their scheduler on a simulated disk, without HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from app.engine.appending import AppendOptions
from app.engine_local.engine import LocalEngine
from app.event_loop.pools import Pools
from app.metrics.metrics import Metrics
from app.service.parts import Parts
from app.service.scheduler import Scheduler
from app.settings import Settings
from log_model.clock import ManualClock
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager
from tests.crash.simulated_disk import SMALL_INDEXES, SimulatedDisk
from tests.support.local_parts import local_parts
from tests.support.writers import DATA, valid_batches


@dataclass
class Stand:
    """The parts over a simulated disk, with a scheduler whose jobs the test runs itself."""

    disk: SimulatedDisk
    clock: ManualClock
    parts: Parts
    scheduler: Scheduler
    metrics: Metrics

    @property
    def engine(self) -> LocalEngine:
        return self.parts.engine

    async def topic(self, name: str, partitions: int = 1, **config: object) -> tuple[PartitionLog, ...]:
        settings = {setting.replace("_", "."): value for setting, value in config.items()}
        return (await self.engine.topics.ensure(name, partitions, settings))[0].partitions

    async def append(self, log: PartitionLog, *values: bytes) -> None:
        options = AppendOptions(acks="1")
        appends = self.engine.appends
        await appends.outcome_of(appends.submit(log, valid_batches(log, *values), options), options)

    def count(self, name: str, job: str) -> float:
        return self.metrics.registry.get_sample_value(name, {"job": job}) or 0.0


@contextlib.asynccontextmanager
async def stand() -> AsyncIterator[Stand]:
    clock = ManualClock()
    disk = SimulatedDisk(clock)
    disk.make_directory(DATA)
    # With gates in the disk, so nothing may be written on the loop.
    settings = Settings(inline_append_bytes_max=0)
    pools = Pools(settings)
    metrics = Metrics()
    manager = LogManager.open(DATA, file_system=disk, clock=clock, topic_defaults=SMALL_INDEXES)
    parts = local_parts(manager, settings, metrics, pools)
    scheduler = parts.scheduler()
    try:
        yield Stand(disk, clock, parts, scheduler, metrics)
    finally:
        disk.fault = None
        await scheduler.close()
        await parts.close()
        pools.close()


def on_stand(scenario: Callable[[Stand], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), stand() as made:
            await scenario(made)

    asyncio.run(run())
