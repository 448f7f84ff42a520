"""Fetching many partitions with one budget, one wait and optionally a session (spec D1, D2, D5 to D7).

Thread: the event loop; reading and decoding run in the pool of readers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

from app.access.access import Access
from app.access.operations import Operation, topic_resource
from app.engine.partitions import Partition
from app.engine.reading import ManyReadOptions, PartitionRead
from app.engine.topic_ids import ZERO_TOPIC_ID, check_topic_id
from app.engine.waiting import Waiting
from app.fetch.fetch_sessions import FetchContext
from app.fetch.fetched_records import ISOLATIONS, records_of
from app.fetch.fetching import Fetching
from app.fetch.multi_fetch_body import FetchPartition, MultiFetchRequest
from app.fetch.partition_reads import PartitionAnswer
from app.problems.problem import Problem
from app.record_json.decoding import DECOMPRESSED_BYTES_MAX, DecodingLimits
from app.record_json.record_texts import IN_LIST
from app.record_json.translate import Encoding
from log_model.errors import StorageError, UnknownTopicIdError
from log_model.offsets import Offset
from log_model.reads import FetchData

PARTITIONS_PER_TURN = 256
"""Partitions per iteration of the event loop: the errors for this many that cannot be fetched take some 5 ms."""


class ManyFetch:
    """One request in progress: read, and read again after a wait. ``answers`` has one for each partition."""

    def __init__(
        self,
        fetching: Fetching,
        request: MultiFetchRequest,
        context: FetchContext,
        access: Access,
        *,
        bytes_max: int,
        aborted_count_max: int | None = None,
    ) -> None:
        """Take a request. ``bytes_max`` is the service's own limit beside the request's.

        A partition lists at most ``aborted_count_max`` aborted transactions.
        """
        self.context = context
        self.answers: list[PartitionAnswer] = []
        self._fetching = fetching
        self._access = access
        max_bytes = min(request.max_bytes, bytes_max)
        self._options = ManyReadOptions(
            max_bytes=max_bytes,
            min_bytes=min(request.min_bytes, max_bytes),
            wait_ms=request.max_wait_ms,
            isolation=ISOLATIONS[request.isolation],
            aborted_count_max=aborted_count_max,
        )

    async def begin(self) -> Waiting | None:
        """Read. Return the wait that comes before ``finish``, if there is too little and the request may wait.

        Raises:
            Problem: overloaded, too many requests wait already.
        """
        return await self._read(self._options)

    async def finish(self) -> None:
        """Read all again: the topics, the limits and the records as they are now (spec D6)."""
        await self._read(replace(self._options, wait_ms=0))

    async def _read(self, options: ManyReadOptions) -> Waiting | None:
        answers = await _resolve(self._fetching, self._access, tuple(self.context.partitions))
        found = [answer for answer in answers if answer.read is not None]
        if len(found) < len(answers):
            # Errors are answered immediately.
            options = replace(options, wait_ms=0)
        reads = [answer.read for answer in found if answer.read is not None]
        outcomes, waiting = await self._fetching.engine.reads.many(reads, options)
        if waiting is not None:
            return waiting
        for answer, outcome in zip(found, outcomes, strict=True):
            answer.take(outcome)
        self.answers = answers
        return None


async def _resolve(fetching: Fetching, access: Access, partitions: Sequence[FetchPartition]) -> list[PartitionAnswer]:
    """Return an unread answer for each partition, with the partition or the error. Yields the event loop between many.

    An id without a topic is reported before any other fault. A name that the client may not read is not looked up
    (spec D3).
    """
    finder = _TopicFinder(fetching)
    answers = []
    for count, asked in enumerate(partitions, start=1):
        if count % PARTITIONS_PER_TURN == 0:
            await asyncio.sleep(0)
        answer = PartitionAnswer(asked)
        try:
            name = finder.name_of(asked)
            asked_as = None if asked.topic is not None else f"the topic with the id {asked.topic_id}"
            refusal = access.refusal(Operation.READ, topic_resource(name), asked_as)
            if refusal is None:
                answer.read = PartitionRead(
                    await finder.partition_of(name, asked),
                    Offset(asked.fetch_offset),
                    asked.max_bytes,
                    asked.current_leader_epoch,
                    asked.last_fetched_epoch,
                )
            else:
                answer.fail(refusal)
        except StorageError as error:
            answer.fail(error)
        answers.append(answer)
    access.write_audit()
    return answers


class _TopicFinder:
    """Finds the topics of one request. It scans all topics once at most."""

    def __init__(self, fetching: Fetching) -> None:
        self._fetching = fetching
        self._has_learned = False

    def name_of(self, asked: FetchPartition) -> str:
        """Return the topic's name. A name that the request gives need not exist.

        Raises:
            UnknownTopicIdError
        """
        if asked.topic is not None:
            return asked.topic
        topic_id = asked.topic_id or ZERO_TOPIC_ID
        topic = self._fetching.engine.topic_ids.find(topic_id)
        if topic is None and not self._has_learned:
            self._has_learned = True
            self._fetching.engine.topic_ids.learn()
            topic = self._fetching.engine.topic_ids.find(topic_id)
        if topic is None:
            raise UnknownTopicIdError(f"there is no topic with the id {topic_id}")
        return topic.name

    async def partition_of(self, name: str, asked: FetchPartition) -> Partition:
        """Return the partition of the topic of this name. A topic_id beside the name must be its own (spec D2).

        Raises:
            UnknownTopicOrPartitionError, InconsistentTopicIdError
        """
        topic = self._fetching.engine.topic(name)
        check_topic_id(name, topic.topic_id, asked.topic_id)
        return await self._fetching.engine.partition(name, asked.partition)


def decode_answers(answers: Iterable[PartitionAnswer], encoding: Encoding, limits: DecodingLimits) -> None:
    """Decode the batches into the records that JSON shows, within ``limits`` for all together. Thread: a pool's.

    Records that do not fit are left for the next request.

    Raises:
        NeedsRoomError: the first batch that has records, or its first record, needs more room.
    """
    left_bytes = limits.text_bytes
    decompressed_bytes = limits.meter.decompressed_bytes
    min_one = True
    for answer in answers:
        if answer.data is None or not answer.size_bytes:
            continue
        start = Offset(answer.asked.fetch_offset)
        is_spent = limits.meter.decompressed_bytes - decompressed_bytes >= DECOMPRESSED_BYTES_MAX
        if left_bytes <= 0 or (is_spent and not min_one):
            answer.data = FetchData((), start)
            answer.next_offset = start
            continue
        try:
            decoded = records_of(
                answer.data,
                start,
                None,
                encoding=encoding,
                partition=answer.asked.partition,
                between=IN_LIST,
                limits=replace(limits, text_bytes=left_bytes),
                min_one=min_one,
            )
        except (StorageError, Problem) as error:
            answer.fail(error)
            continue
        answer.records, answer.next_offset = decoded.documents, decoded.next_offset
        left_bytes -= decoded.text_bytes
        min_one = min_one and not decoded.documents
