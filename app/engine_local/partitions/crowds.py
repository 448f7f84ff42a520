"""Crowds: fetches that wait for the same records of one partition, and are answered together.

A fetch that waits alone is woken by a future, and makes an answer of its own. The fetches of a crowd wait as one
operation of the purgatory, and what wakes it answers all of them with one answer. The purgatory counts each of them.

Answering is spread over turns of the loop of about ``TURN_SECONDS`` each, so that other requests go on in between.
An answer, ``leave`` or ``expire`` ends the wait of a member. Each of them first calls ``_take``, which ends it once.

Thread: the event loop.
"""

from __future__ import annotations

import asyncio
import functools
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import islice
from typing import Any, Protocol

from app.engine_local.partitions.fetch_waiters import FetchWaiter, FetchWaiters, Wake
from app.event_loop.deadlines import Deadlines
from log_model.offsets import LogOffsetMetadata
from log_model.reads import Isolation
from storage.log.partition_log import PartitionLog

TURN_SECONDS = 0.001
"""Members are answered for about this long in a turn of the loop."""

ANSWERED_BETWEEN_LOOKS = 8
"""Members that are answered between two looks at the clock, as many as alone are woken in a turn.

Each takes a hundredth of a millisecond, or up to 0.2 ms in the application.
"""


class Member(Protocol):
    """A fetch that waits in a crowd. Only ``Crowds`` sets the attributes."""

    crowd: Any
    """Its ``Crowd``; ``None`` while it does not wait."""
    deadline: Any


class Crowd(FetchWaiter):
    """All fetches that wait with one key, and the function that answers some of them."""

    __slots__ = ("key", "members")

    def __init__(
        self, key: Hashable, log: PartitionLog, place: LogOffsetMetadata, min_bytes: int, isolation: Isolation
    ) -> None:
        super().__init__(log, place, min_bytes, isolation)
        self.key = key
        self.members: dict[Any, None] = {}

    @property
    def log(self) -> PartitionLog:
        """The log that they wait for."""
        return self._log

    @abstractmethod
    def answer(self, members: list[Any], wake: Wake) -> bool:
        """Answer each of ``members``, whose wait is over; it must not raise.

        Return whether the application answers any of them, which takes its time in a coming turn.
        """


class Crowds:
    """All crowds of one data directory. ``waiters`` limits and wakes them.

    Each member is answered exactly once: when its crowd is woken, when its time is up, or when it is told to expire;
    or never, if it leaves before.
    """

    def __init__(self, waiters: FetchWaiters, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._purgatory = waiters.purgatory
        self._clock = clock
        self._crowds: dict[Hashable, Crowd] = {}
        self._deadlines: Deadlines[Member] = Deadlines(self._answer_soon, clock=clock)
        # Members that are to be answered, if they still wait.
        self._due: deque[Iterator[Member]] = deque()
        self._is_scheduled = False

    def __len__(self) -> int:
        """Return the number of crowds."""
        return len(self._crowds)

    def join(self, key: Hashable, member: Member, wait_ms: float, begin: Callable[[], Crowd]) -> None:
        """Let ``member`` wait at most ``wait_ms`` in the crowd with ``key``; ``begin`` makes one if there is none.

        Call it with no ``await`` behind the look that found too little (invariant 7).

        Raises:
            Problem: overloaded; too many fetches wait already.
        """
        crowd = self._crowds.get(key)
        if crowd is None or crowd.done.done():
            crowd = begin()
            # It may be complete at once. Then it is answered in a later turn, as if it were woken then.
            self._purgatory.watch(crowd, (crowd.log.name,), wait_ms=None)
            self._crowds[key] = crowd
            crowd.done.add_done_callback(functools.partial(self._completed, crowd))
        else:
            self._purgatory.join(crowd)
        crowd.members[member] = None
        member.crowd = crowd
        self._deadlines.set(member, wait_ms)

    def leave(self, member: Member) -> bool:
        """Let ``member`` wait no more. Return whether it waited; if not, it was or will be answered."""
        return self._take(member) is not None

    def expire(self, member: Member) -> None:
        """Answer ``member`` soon with what there is, if it waits."""
        self._answer_soon([member])

    def close(self) -> None:
        """Drop the timer. Behind the end of the purgatory, which has every member answered."""
        self._deadlines.close()

    def _completed(self, crowd: Crowd, _: object) -> None:
        if self._crowds.get(crowd.key) is crowd:
            del self._crowds[crowd.key]
        # Its members still wait, each until it is answered or leaves, but it needs no list of them any more.
        members, crowd.members = crowd.members, {}
        if members:
            self._answer_soon(members)

    def _take(self, member: Member) -> Crowd | None:
        """End the wait of ``member`` and return its crowd; ``None`` if the wait has ended before."""
        crowd: Crowd | None = member.crowd
        if crowd is not None:
            member.crowd = None
            self._deadlines.drop(member)
            if not crowd.done.done():
                self._purgatory.part(crowd)
            crowd.members.pop(member, None)
        return crowd

    def _answer_soon(self, members: Iterable[Member]) -> None:
        self._due.append(iter(tuple(members)))
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        """Answer who is due, for about ``TURN_SECONDS``."""
        self._is_scheduled = False
        until = self._clock() + TURN_SECONDS
        try:
            while self._due:
                members = self._due.popleft()
                some = list(islice(members, ANSWERED_BETWEEN_LOOKS))
                if len(some) == ANSWERED_BETWEEN_LOOKS:
                    # The others' turn comes first: a small crowd does not wait for a large one.
                    self._due.append(members)
                if self._answer(some) or self._clock() >= until:
                    break
        finally:
            if self._due:
                self._schedule()

    def _answer(self, some: list[Member]) -> bool:
        """Answer those that still wait, crowd by crowd. Return whether the application answers any of them."""
        members: dict[Crowd, list[Member]] = {}
        wakes: dict[Crowd, Wake] = {}
        for member in some:
            crowd = member.crowd
            if crowd is None:
                continue
            if crowd not in members:
                # Not later: the last one that leaves cancels the crowd.
                wakes[crowd] = crowd.done.result() if crowd.done.done() else Wake.TIMEOUT
                members[crowd] = []
            self._take(member)
            members[crowd].append(member)
        is_dear = False
        for crowd, taken in members.items():
            is_dear = crowd.answer(taken, wakes[crowd]) or is_dear
        return is_dear
