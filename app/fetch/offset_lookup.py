"""Offsets by time (spec ListOffsets)."""

from __future__ import annotations

import asyncio
from typing import Any

from app.access.access import Access
from app.access.operations import Operation, topic_resource
from app.engine.partitions import Partition
from app.fetch.fetched_records import ISOLATIONS
from app.fetch.fetching import Fetching
from app.problems.engine import problem_for
from app.problems.problem import Problem
from log_model.errors import StorageError
from schemas.offsets import Isolation as IsolationName
from schemas.offsets import OffsetAnswer, OffsetQuery, SpecialTimestamp

QUESTIONS_PER_TURN = 64
"""Writing the errors for this many questions takes some 3 ms of the loop."""


async def find_offset(
    fetching: Fetching,
    partition: Partition,
    timestamp: int | SpecialTimestamp,
    isolation: IsolationName = "read_uncommitted",
    current_leader_epoch: int | None = None,
) -> OffsetAnswer:
    """Return the offset of a time or a special place in one partition; nulls if no visible record is that late.

    Raises:
        FencedLeaderEpochError, UnknownLeaderEpochError: the client knows another leader epoch (spec D11).
        OffsetNotAvailableError: the high watermark has not reached the current leader epoch.
        StorageError: the engine refuses the read.
    """
    found = await fetching.engine.reads.find_offset(partition, timestamp, ISOLATIONS[isolation], current_leader_epoch)
    number = partition.name.partition
    if found is None:
        return OffsetAnswer(partition=number, offset=None, timestamp=None, leader_epoch=None)
    return OffsetAnswer(
        partition=number, offset=found.offset, timestamp=found.timestamp, leader_epoch=found.leader_epoch
    )


async def find_offsets(
    fetching: Fetching, access: Access, queries: list[OffsetQuery], instance: str, isolation: IsolationName
) -> tuple[list[dict[str, Any]], list[Problem | None]]:
    """Return one answer or failure for each question, as ``schemas.offsets.OffsetResults`` has it, and the problems.

    Both are in the order of the questions. Other requests get a turn of the loop between many questions.
    """
    results: list[dict[str, Any]] = []
    failures: list[Problem | None] = []
    for place, query in enumerate(queries, start=1):
        if place % QUESTIONS_PER_TURN == 0:
            await asyncio.sleep(0)
        try:
            refusal = access.refusal(Operation.DESCRIBE, topic_resource(query.topic))
            if refusal is not None:
                raise refusal
            partition = await fetching.engine.partition(query.topic, query.partition)
            answer = await find_offset(fetching, partition, query.timestamp, isolation, query.current_leader_epoch)
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
