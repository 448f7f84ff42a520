"""Offsets by time (spec ListOffsets)."""

from __future__ import annotations

import functools

from app.access.access import Access
from app.access.operations import Operation, topic_resource
from app.broker import Broker
from app.http.problems import Problem, problem_for
from schemas.errors import Problem as ProblemDocument
from schemas.offsets import OffsetAnswer, OffsetFailure, OffsetQuery, OffsetResult, SpecialTimestamp
from storage.errors import StorageError
from storage.partition_log import PartitionLog


async def find_offset(broker: Broker, log: PartitionLog, timestamp: int | SpecialTimestamp) -> OffsetAnswer:
    """The offset of a time or a special place in one partition; nulls when no visible record is that late."""
    snapshot = log.snapshot
    partition = log.name.partition
    if timestamp == "earliest" or timestamp == "latest":
        offset = snapshot.log_start_offset if timestamp == "earliest" else snapshot.high_watermark
        return OffsetAnswer(partition=partition, offset=offset, timestamp=None, leader_epoch=log.leader_epoch)
    if timestamp == "max_timestamp":
        found = await broker.read(snapshot.max_timestamp)
    else:
        found = await broker.read(functools.partial(snapshot.offset_for_timestamp, timestamp))
    if found is None:
        return OffsetAnswer(partition=partition, offset=None, timestamp=None, leader_epoch=None)
    return OffsetAnswer(
        partition=partition, offset=found.offset, timestamp=found.timestamp, leader_epoch=found.leader_epoch
    )


async def find_offsets(
    broker: Broker, access: Access, queries: list[OffsetQuery], instance: str
) -> tuple[list[OffsetResult | OffsetFailure], list[Problem | None]]:
    """One answer or failure for each question, and the problems, in their order."""
    results: list[OffsetResult | OffsetFailure] = []
    failures: list[Problem | None] = []
    for query in queries:
        try:
            refusal = access.refusal(Operation.DESCRIBE, topic_resource(query.topic))
            if refusal is not None:
                raise refusal
            log = broker.partition(query.topic, query.partition)
            answer = await find_offset(broker, log, query.timestamp)
        except (StorageError, Problem) as error:
            problem = problem_for(error)
            document = ProblemDocument.model_validate(problem.document(instance))
            results.append(OffsetFailure(topic=query.topic, partition=query.partition, error=document))
            failures.append(problem)
        else:
            results.append(OffsetResult(topic=query.topic, **answer.model_dump()))
            failures.append(None)
    return results, failures
