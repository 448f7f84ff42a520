"""Offsets by time (spec ListOffsets)."""

from __future__ import annotations

import asyncio
import functools
from typing import Any, Literal

from app.access.access import Access
from app.access.operations import Operation, topic_resource
from app.fetch.fetching import Fetching
from app.problems.engine import problem_for
from app.problems.problem import Problem
from log_model.errors import OffsetNotAvailableError, StorageError
from log_model.reads import Isolation, TimestampedRecord
from schemas.offsets import Isolation as IsolationName
from schemas.offsets import OffsetAnswer, OffsetQuery, SpecialTimestamp
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import PartitionLog

QUESTIONS_PER_TURN = 64
"""Writing the errors for this many questions takes some 3 ms of the loop."""


async def find_offset(
    fetching: Fetching,
    log: PartitionLog,
    timestamp: int | SpecialTimestamp,
    isolation: IsolationName = "read_uncommitted",
    current_leader_epoch: int | None = None,
) -> OffsetAnswer:
    """The offset of a time or a special place in one partition; nulls when no visible record is that late.

    Raises:
        FencedLeaderEpochError, UnknownLeaderEpochError: the client knows another leader epoch (spec D11).
        OffsetNotAvailableError: nobody can tell yet, since not all copies have come to the current epoch.
    """
    log.epochs.check_current(current_leader_epoch)
    snapshot = log.snapshot
    partition = log.name.partition
    if timestamp == "earliest":
        start = snapshot.log_start_offset
        epoch = log.epochs.epoch_for_offset(start)
        return OffsetAnswer(partition=partition, offset=start, timestamp=None, leader_epoch=epoch)
    bound = Isolation.LAST_STABLE if isolation == "read_committed" else Isolation.HIGH_WATERMARK
    if timestamp == "latest":
        refuse_behind_epoch(log, snapshot)
        latest = snapshot.bound(bound).offset
        return OffsetAnswer(partition=partition, offset=latest, timestamp=None, leader_epoch=log.leader_epoch)
    found = await _find_record(fetching, snapshot, timestamp, bound)
    if found is None:
        if is_behind_epoch(log, snapshot) and await _find_record(fetching, snapshot, timestamp, Isolation.LOG_END):
            raise _not_available(log, snapshot)
        return OffsetAnswer(partition=partition, offset=None, timestamp=None, leader_epoch=None)
    return OffsetAnswer(
        partition=partition, offset=found.offset, timestamp=found.timestamp, leader_epoch=found.leader_epoch
    )


async def _find_record(
    fetching: Fetching, snapshot: LogSnapshot, timestamp: int | Literal["max_timestamp"], bound: Isolation
) -> TimestampedRecord | None:
    if timestamp == "max_timestamp":
        return await fetching.engine.read(functools.partial(snapshot.max_timestamp, bound))
    return await fetching.engine.read(functools.partial(snapshot.offset_for_timestamp, timestamp, bound))


def is_behind_epoch(log: PartitionLog, snapshot: LogSnapshot) -> bool:
    """Whether the high watermark has not come to the current leader epoch: an older leader may have shown more."""
    latest = log.epochs.latest
    return latest is not None and snapshot.high_watermark < latest.start_offset


def refuse_behind_epoch(log: PartitionLog, snapshot: LogSnapshot) -> None:
    """Return when the end of what can be read is known.

    Raises:
        OffsetNotAvailableError: see ``is_behind_epoch``.
    """
    if is_behind_epoch(log, snapshot):
        raise _not_available(log, snapshot)


def _not_available(log: PartitionLog, snapshot: LogSnapshot) -> OffsetNotAvailableError:
    return OffsetNotAvailableError(
        f"the high watermark of {log.name}, {snapshot.high_watermark}, has not come to leader epoch {log.leader_epoch}"
    )


async def find_offsets(
    fetching: Fetching, access: Access, queries: list[OffsetQuery], instance: str, isolation: IsolationName
) -> tuple[list[dict[str, Any]], list[Problem | None]]:
    """One answer or failure for each question, as ``schemas.offsets.OffsetResults`` has it, and the problems, in their
    order. Other requests get a turn of the loop between many questions."""
    results: list[dict[str, Any]] = []
    failures: list[Problem | None] = []
    for place, query in enumerate(queries, start=1):
        if place % QUESTIONS_PER_TURN == 0:
            await asyncio.sleep(0)
        try:
            refusal = access.refusal(Operation.DESCRIBE, topic_resource(query.topic))
            if refusal is not None:
                raise refusal
            log = fetching.engine.partition(query.topic, query.partition)
            answer = await find_offset(fetching, log, query.timestamp, isolation, query.current_leader_epoch)
        except (StorageError, Problem) as error:
            problem = problem_for(error)
            document = problem.document(instance)
            results.append({"topic": query.topic, "partition": query.partition, "error": document})
            failures.append(problem)
        else:
            results.append({**answer.model_dump(), "topic": query.topic})
            failures.append(None)
    access.write_audit()
    return results, failures
