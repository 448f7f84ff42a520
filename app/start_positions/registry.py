"""Start positions on the event loop: durable in ``__start_positions`` before a caller receives them.

A request whose positions are known needs no write and no lock. A request that pins waits for earlier pins: two
concurrent requests for the same group receive the same positions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from app.engine.engine import Engine
from app.engine.state import Change
from app.engine.topic_ids import check_topic_id
from app.event_loop.lasting_tasks import LastingTasks
from app.event_loop.piecewise import pieces
from app.problems import kinds
from app.problems.problem import Fault, Problem, invalid
from app.start_positions import state
from app.start_positions.records import TOPIC, group_change, read_table
from app.start_positions.state import PinnedGroup, Positions, PositionTable
from log_model.clock import Ages
from log_model.errors import (
    PartitionOfflineError,
    ShuttingDownError,
    StorageError,
    UnknownTopicOrPartitionError,
)

logger = logging.getLogger(__name__)

GROUP_POSITION_COUNT_MAX = 3_000
"""Limit on the positions of one group. One record holds them all, and must fit into a batch."""
SHORTEN_ABOVE_COUNT = 10_000
SHORTEN_ABOVE_RATIO = 10
_RETRY_AFTER_MS = 1_000
_NO_IDS: Mapping[str, str] = MappingProxyType({})


class PositionLimits(NamedTuple):
    """Limits on the number of positions and on the time that they are kept."""

    count_max: int = 100_000
    expiration_ms: int = 604_800_000


class Pinned(NamedTuple):
    """The start positions of a group, and whether some of them are new."""

    positions: Positions
    is_new: bool


class StartPositions:
    """All start positions of one data directory.

    Thread: the event loop. Call ``start`` before every other method.
    """

    def __init__(self, engine: Engine, limits: PositionLimits | None = None) -> None:
        self._engine = engine
        self._limits = limits or PositionLimits()
        self._log = engine.state(TOPIC)
        self._table = PositionTable()
        self._asked: Ages[str] = Ages(engine.protected_clock)
        self._writing = asyncio.Lock()
        # Changes go on when their callers are cancelled, so that the table agrees with the log.
        self._tasks = LastingTasks(logger)
        self._stopping = False
        self._loaded = False
        self._failure: str | None = None

    # Start and stop

    async def start(self) -> None:
        """Read the positions that were known at the last stop.

        A damaged log does not keep the service from starting. Requests for start positions are then refused, and the
        reason is shown.
        """
        try:
            self._table = read_table(await self._log.load())
            for group_id, group in self._table:
                self._asked.restore(group_id, group.asked_ms)
            self._loaded = True
        except (StorageError, OSError) as error:
            self._failure = str(error)
            logger.error("there are no start positions: %s", error)

    async def close(self) -> None:
        """Finish the running work, and take no more."""
        self._stopping = True
        await self._tasks.finished()

    def _check_ready(self) -> None:
        if self._stopping:
            raise ShuttingDownError("the service is stopping")
        if not self._loaded:
            raise PartitionOfflineError(f"there are no start positions: {self._failure or 'they are being read'}")

    # Looking

    def position_count(self) -> int:
        """Return the number of pinned positions."""
        return self._table.position_count

    def find(self, group_id: str) -> Positions:
        """Return the start positions of a group, without topics that no longer exist.

        Raises:
            PartitionOfflineError: the log of start positions could not be read.
        """
        self._check_ready()
        group = self._table.find(group_id)
        return {} if group is None else self._shown(group)

    def _shown(self, group: PinnedGroup) -> Positions:
        return {
            name: dict(sorted(topic.offsets.items()))
            for name, topic in sorted(group.topics.items())
            if self._engine.find_topic_id(name) == topic.topic_id
        }

    # Changing

    async def pin(self, group_id: str, wanted: Positions, topic_ids: Mapping[str, str] = _NO_IDS) -> Pinned:
        """Pin every partition in ``wanted`` that has no pin yet, and return the pins of all of them.

        Durable: on return.

        ``topic_ids`` has the ids of the topics that the caller means, as far as the caller knows them.

        A call keeps a group from being forgotten for the time of ``PositionLimits.expiration_ms``, give or take half.

        Raises:
            Problem: overloaded, or more positions than a group may have.
            UnknownTopicOrPartitionError: there is no such partition, and no position is pinned.
            InconsistentTopicIdError: a topic is not the one that the caller means, and no position is pinned.
            StorageError: the pins could not be written down.
        """
        self._check_ready()
        there = self._check_there(wanted, topic_ids)
        group = self._table.find(group_id)
        if group is not None and self._is_fresh(group_id):
            found = _asked(group, wanted, there)
            if found is not None:
                return Pinned(found, is_new=False)
        return await self._tasks.run(self._pin(group_id, wanted, topic_ids), f"pinning start positions of {group_id!r}")

    async def _pin(self, group_id: str, wanted: Positions, topic_ids: Mapping[str, str]) -> Pinned:
        async with self._writing:
            there = self._check_there(wanted, topic_ids)
            before = self._table.find(group_id)
            group, is_new = state.pin(before, wanted, there, self._engine.now_ms())
            if is_new:
                self._check_limits(group, before)
            if is_new or before is None or not self._is_fresh(group_id):
                await self._write(group_id, group)
                self._asked.note(group_id)
            found = _asked(group, wanted, there)
            assert found is not None, "what was pinned a moment ago is pinned"
            return Pinned(found, is_new)

    def _check_limits(self, group: PinnedGroup, before: PinnedGroup | None) -> None:
        if group.count > GROUP_POSITION_COUNT_MAX:
            detail = f"a group has at most {GROUP_POSITION_COUNT_MAX} positions, and this one would have {group.count}"
            raise invalid([Fault("/positions", "invalid_value", detail)])
        count = self._table.position_count + group.count - (0 if before is None else before.count)
        if count > self._limits.count_max:
            detail = f"there would be {count} start positions, and start_position_count_max is {self._limits.count_max}"
            raise Problem(kinds.OVERLOADED, detail, retry_after_ms=_RETRY_AFTER_MS)

    async def delete(self, group_id: str, topic: str | None) -> Positions:
        """Forget the start positions of a group in one topic or in all, and return them. Durable: on return.

        Raises:
            Problem: overloaded.
            StorageError: the change could not be written down.
        """
        self._check_ready()
        return await self._tasks.run(self._delete(group_id, topic), f"forgetting start positions of {group_id!r}")

    async def _delete(self, group_id: str, topic: str | None) -> Positions:
        async with self._writing:
            group = self._table.find(group_id)
            if group is None:
                return {}
            gone = {name: each for name, each in group.topics.items() if topic in (None, name)}
            left = {name: each for name, each in group.topics.items() if name not in gone}
            if gone:
                await self._write(group_id, replace(group, topics=left) if left else None)
            return self._shown(replace(group, topics=gone))

    async def _write(self, group_id: str, group: PinnedGroup | None) -> None:
        await self._log.write([group_change(group_id, group)])
        self._table.put(group_id, group)
        if group is None:
            self._asked.forget(group_id)

    def _check_there(self, wanted: Positions, asked_ids: Mapping[str, str]) -> dict[str, str]:
        """Return the ids of the requested topics. All requested partitions exist."""
        for name, offsets in wanted.items():
            for partition in offsets:
                self._engine.check_partition(name, partition)
        topic_ids: dict[str, str] = {}
        for name in wanted:
            topic_id = self._engine.find_topic_id(name)
            if topic_id is None:
                raise UnknownTopicOrPartitionError(f"there is no topic {name!r}")
            check_topic_id(name, topic_id, asked_ids.get(name))
            topic_ids[name] = topic_id
        return topic_ids

    def _is_fresh(self, group_id: str) -> bool:
        """Return whether this run has written down a request for the group, within half of the group's life."""
        return not self._asked.is_restored(group_id) and self._asked.age_ms(group_id) < self._limits.expiration_ms // 2

    # Background

    async def run_jobs(self) -> None:
        """Forget groups that no request has named for a long time, and shorten a log of mostly replaced records."""
        if not self._loaded or self._stopping:
            return
        await self._tasks.run(self._expire(), "forgetting old start positions")

    async def _expire(self) -> None:
        async for piece in pieces(self._table):
            for group_id in [name for name, _ in piece if self._is_old(name)]:
                async with self._writing:
                    if self._is_old(group_id) and self._table.find(group_id) is not None:
                        await self._write(group_id, None)
        if self._log.record_count > max(SHORTEN_ABOVE_COUNT, SHORTEN_ABOVE_RATIO * len(self._table)):
            await self._log.shorten(self._live())

    async def _live(self) -> AsyncGenerator[Sequence[Change], None]:
        async with self._writing:
            async for piece in pieces(self._table):
                yield [group_change(group_id, group) for group_id, group in piece]

    def _is_old(self, group_id: str) -> bool:
        return self._asked.age_ms(group_id) >= self._limits.expiration_ms


def _asked(group: PinnedGroup, wanted: Positions, topic_ids: dict[str, str]) -> Positions | None:
    """Return the pins of ``wanted``; ``None`` if one of the positions is not pinned."""
    answer: dict[str, dict[int, int]] = {}
    for name, offsets in wanted.items():
        of_topic = answer[name] = {}
        for partition in offsets:
            offset = group.find(name, topic_ids[name], partition)
            if offset is None:
                return None
            of_topic[partition] = offset
    return answer
