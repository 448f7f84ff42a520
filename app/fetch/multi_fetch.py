"""Fetching many partitions with one budget, one wait and, if the client likes, a session (spec D1, D2, D5 to D7).

Thread: the event loop; reading and decoding go to the pool of readers.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

from app.access.access import Access
from app.access.operations import Operation, topic_resource
from app.engine.topic_ids import ZERO_TOPIC_ID, check_topic_id
from app.engine_local.partitions.fetch_waiters import available_bytes, known_place
from app.engine_local.partitions.purgatory import DelayedOperation, Wake
from app.event_loop.pools import call_in
from app.fetch.fetch_range import ISOLATIONS, records_of
from app.fetch.fetch_sessions import FetchContext
from app.fetch.fetching import Fetching
from app.fetch.multi_fetch_body import FetchPartition, MultiFetchRequest
from app.fetch.partition_reads import PartitionAnswer, check_leader_epoch, find_divergence, read_partitions
from app.problems.problem import Problem
from app.record_json.decoding import DECOMPRESSED_BYTES_MAX, DecodingLimits
from app.record_json.record_texts import IN_LIST
from app.record_json.translate import Encoding
from log_model.errors import (
    StorageError,
    UnknownTopicIdError,
)
from log_model.names import PartitionName
from log_model.offsets import LogOffsetMetadata, Offset
from log_model.reads import FetchData, Isolation
from storage.log.partition_log import PartitionLog

PARTITIONS_PER_TURN = 256
"""Finding why so many cannot be fetched takes some 5 ms of the loop."""


class Watched(NamedTuple):
    """One partition of a fetch that waits: where its next batch lies, as far as that is known."""

    log: PartitionLog
    asked: FetchPartition
    place: LogOffsetMetadata


class DelayedFetch(DelayedOperation):
    """A fetch of many partitions that waits for ``min_bytes`` in all of them, or for an error (spec D6).

    A publication in one of them looks at that one alone: what the others had at the last look is remembered.
    """

    __slots__ = ("_available", "_isolation", "_min_bytes", "_total_bytes", "_watched")

    def __init__(self, watched: Sequence[Watched], min_bytes: int, isolation: Isolation) -> None:
        super().__init__()
        self._watched = {one.log.name: one for one in watched}
        self._available = dict.fromkeys(self._watched, 0)
        self._total_bytes = 0
        self._min_bytes = min_bytes
        self._isolation = isolation

    def is_ready(self) -> bool:
        return any(self._look_at(name, one) for name, one in self._watched.items())

    def is_ready_at(self, key: Hashable) -> bool:
        name = cast("PartitionName", key)
        return self._look_at(name, self._watched[name])

    def _look_at(self, name: PartitionName, watched: Watched) -> bool:
        """Note what one partition has now; whether that makes an answer of it all."""
        log, asked, place = watched
        snapshot = log.snapshot
        if not snapshot.log_start_offset <= place.offset <= snapshot.log_end_offset:
            return True
        if asked.minds_epochs and _is_refused(log, asked):
            return True
        available = available_bytes(snapshot, place, self._isolation)
        if available is None:
            return True
        counted = min(available, asked.max_bytes)
        self._total_bytes += counted - self._available[name]
        self._available[name] = counted
        return self._total_bytes >= self._min_bytes


def _is_refused(log: PartitionLog, asked: FetchPartition) -> bool:
    """Whether the leader epochs have changed so that the answer is an error or a divergence."""
    try:
        check_leader_epoch(log, asked)
        return find_divergence(log, log.snapshot, asked) is not None
    except StorageError:
        return True


class ManyFetch:
    """One request on its way: read, perhaps waited for and read anew. ``answers`` has one for each partition."""

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
        """``bytes_max`` is the service's own limit beside the request's; a partition lists ``aborted_count_max``
        aborted transactions at most.
        """
        self.context = context
        self.answers: list[PartitionAnswer] = []
        self._fetching = fetching
        self._access = access
        self._wait_ms = request.max_wait_ms
        self._isolation = ISOLATIONS[request.isolation]
        self._max_bytes = min(request.max_bytes, bytes_max)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._aborted_count_max = aborted_count_max

    async def begin(self) -> DelayedFetch | None:
        """Read. What to wait for before ``finish``, if that is too little and the request may wait.

        Raises:
            Problem: overloaded, too many wait already.
        """
        await self.finish()
        if self._wait_ms <= 0 or _is_enough(self.answers, self._min_bytes):
            return None
        watched = await _places(self._fetching, self.answers)
        # What was read is not kept: it would keep files open that retention has deleted meanwhile.
        self.answers = []
        delayed = DelayedFetch(watched, self._min_bytes, self._isolation)
        if not all(self._fetching.engine.partitions.is_there(log) for log, _, _ in watched):
            # Deleted since it was read: nobody would tell.
            delayed.done.set_result(Wake.GONE)
            return delayed
        names = (log.name for log, _, _ in watched)
        self._fetching.engine.partitions.waiters.purgatory.watch(delayed, names, wait_ms=self._wait_ms)
        return delayed

    async def finish(self) -> None:
        """Read all anew: the topics, the limits and the records of this moment (spec D6)."""
        self.answers = await _resolve(self._fetching, self._access, tuple(self.context.partitions))
        await self._fetching.engine.read(
            functools.partial(read_partitions, self.answers, self._max_bytes, self._isolation, self._aborted_count_max)
        )


async def _resolve(fetching: Fetching, access: Access, partitions: Sequence[FetchPartition]) -> list[PartitionAnswer]:
    """The logs that are meant, or why there is none; unread. Other requests get a turn between many partitions.

    An id nobody has is that before anything else; a name the client may not read is not looked for (spec D3).
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
                answer.log = finder.log_of(name, asked)
            else:
                answer.fail(refusal)
        except StorageError as error:
            answer.fail(error)
        answers.append(answer)
    access.write_audit()
    return answers


class _TopicFinder:
    """Finds the topics of one request; all topics are looked through once at most."""

    def __init__(self, fetching: Fetching) -> None:
        self._fetching = fetching
        self._has_learned = False

    def name_of(self, asked: FetchPartition) -> str:
        """The topic's name, which need not exist when it is given.

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

    def log_of(self, name: str, asked: FetchPartition) -> PartitionLog:
        """The partition of the topic of this name; a topic_id beside the name must be its own (spec D2).

        Raises:
            UnknownTopicOrPartitionError, InconsistentTopicIdError
        """
        topic = self._fetching.engine.topic(name)
        check_topic_id(name, topic.topic_id, asked.topic_id)
        return self._fetching.engine.partition(name, asked.partition)


def _is_enough(answers: Sequence[PartitionAnswer], min_bytes: int) -> bool:
    """Whether to answer now (spec D5)."""
    return (
        not answers
        or any(answer.error is not None or answer.diverging is not None for answer in answers)
        or sum(answer.size_bytes for answer in answers) >= min_bytes
    )


async def _places(fetching: Fetching, answers: Sequence[PartitionAnswer]) -> list[Watched]:
    """Where each fetch offset lies; the disk is only asked for those that have records already, but too few."""
    watched = []
    for answer in answers:
        assert answer.log is not None
        assert answer.snapshot is not None
        offset = Offset(answer.asked.fetch_offset)
        place = known_place(answer.snapshot, offset)
        if place is None and answer.size_bytes:
            place = await call_in(fetching.pools.read, functools.partial(answer.snapshot.place_of, offset))
        watched.append(Watched(answer.log, answer.asked, place or LogOffsetMetadata(offset)))
    return watched


def decode_answers(answers: Iterable[PartitionAnswer], encoding: Encoding, limits: DecodingLimits) -> None:
    """Decode what was read into the records JSON shows, within ``limits`` for all together. In a thread.

    What does not fit is left for the next request.

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
