"""A broker with its scheduler on a simulated disk, without HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from app.engine_local.broker import Broker, ProduceOptions
from app.engine_local.scheduler import Scheduler
from app.event_loop.pools import Pools
from app.metrics.metrics import Metrics
from app.settings import Settings
from storage.disk.clock import ManualClock
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager
from tests.crash.simulated_disk import SimulatedDisk
from tests.support.writers import DATA, valid_batches


@dataclass
class Stand:
    """A broker over a simulated disk, with a scheduler whose jobs the test runs itself."""

    disk: SimulatedDisk
    clock: ManualClock
    broker: Broker
    scheduler: Scheduler
    metrics: Metrics

    async def topic(self, name: str, partitions: int = 1, **config: object) -> tuple[PartitionLog, ...]:
        settings = {setting.replace("_", "."): value for setting, value in config.items()}
        return (await self.broker.ensure_topic(name, partitions, settings))[0].partitions

    async def append(self, log: PartitionLog, *values: bytes) -> None:
        options = ProduceOptions(acks="1")
        await self.broker.outcome_of(self.broker.submit(log, valid_batches(log, *values), options), options)

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
    broker = Broker(LogManager.open(DATA, file_system=disk, clock=clock), settings, metrics, pools)
    scheduler = Scheduler(broker, settings)
    try:
        yield Stand(disk, clock, broker, scheduler, metrics)
    finally:
        disk.fault = None
        await scheduler.close()
        await broker.close()
        pools.close()


def on_stand(scenario: Callable[[Stand], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), stand() as made:
            await scenario(made)

    asyncio.run(run())
