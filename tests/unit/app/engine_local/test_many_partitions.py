"""Waiting for many partitions: what one publication costs, and what is remembered of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.engine.reading import PartitionRead
from app.engine_local.partitions.purgatory import Purgatory
from app.engine_local.reading.many_partitions import DelayedRead, Watched
from log_model.batches.batch_validation import validate_batches
from log_model.names import PartitionName
from log_model.offsets import Offset
from log_model.reads import Isolation
from storage.log.partition_log import AppendRequest, PartitionLog
from storage.manager.log_manager import LogManager
from tests.cases.logs import START_MS, CaseLog, sized_batch

PARTITIONS = 20


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[list[PartitionLog]]:
    case = CaseLog(tmp_path, partition_count=PARTITIONS)
    manager: LogManager = case.manager
    yield [manager.partition("cases", number) for number in range(PARTITIONS)]
    case.kill()


def append(log: PartitionLog, size_bytes: int) -> None:
    log.append([AppendRequest(validate_batches(sized_batch(size_bytes), log.config, START_MS))])
    log.publish()


def test_a_publication_looks_at_its_own_partition_alone(
    logs: list[PartitionLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[PartitionName] = []
    look_at = DelayedRead._look_at

    def seen(self: DelayedRead, name: PartitionName, watched: Watched) -> bool:
        looks.append(name)
        return look_at(self, name, watched)

    monkeypatch.setattr(DelayedRead, "_look_at", seen)

    async def run() -> None:
        purgatory: Purgatory[PartitionName] = Purgatory("fetches", count_max=10)
        watched = [Watched(log, PartitionRead(log, Offset(0), 1000), log.snapshot.log_end_metadata) for log in logs]
        waiting = DelayedRead(watched, 700, Isolation.HIGH_WATERMARK)
        assert not purgatory.watch(waiting, (log.name for log in logs), wait_ms=60_000)
        looks.clear()
        for number, size_bytes in ((3, 300), (7, 300)):
            append(logs[number], size_bytes)
            assert purgatory.check_and_complete(logs[number].name) == 0
            # Nothing new there.
            assert purgatory.check_and_complete(logs[number].name) == 0
        assert looks == [logs[3].name] * 2 + [logs[7].name] * 2
        append(logs[9], 200)
        assert purgatory.check_and_complete(logs[9].name) == 1
        assert waiting.done.done()
        assert len(looks) == 5

    asyncio.run(run())


def test_more_than_a_partition_may_bring_does_not_count(logs: list[PartitionLog]) -> None:
    async def run() -> None:
        watched = [Watched(log, PartitionRead(log, Offset(0), 100), log.snapshot.log_end_metadata) for log in logs[:2]]
        waiting = DelayedRead(watched, 150, Isolation.HIGH_WATERMARK)
        assert not waiting.is_ready()
        append(logs[0], 5000)
        assert not waiting.is_ready_at(logs[0].name)
        append(logs[1], 90)
        assert waiting.is_ready_at(logs[1].name)

    asyncio.run(run())
