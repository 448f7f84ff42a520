"""Delayed operations: requests that wait until every look at what they watch says that they can be answered.

An operation is looked at, put under each of its keys, looked at again, and given a timer; there is no ``await``
between, so nothing that happens on the loop falls between a look and the watch (invariant 7). From then on whoever
changes something says which key changed, and the purgatory looks again. An operation completes exactly once.

Completions are deferred: ``notify`` only remembers the key, and the looks run in the loop's next turn, after whoever
notified has done its own work (spec A1). So no publication pays for the requests it wakes, several in one turn cost
one look, and nothing a woken request does runs inside the publication that woke it.

Kafka leaves completed operations under their other keys and purges every 1000 of them (spec A6). Here they leave all
keys at once, which costs what entering did, so neither keys nor operations pile up, however long a key is quiet.

Thread: the event loop.
"""

from __future__ import annotations

import abc
import asyncio
import logging
from collections.abc import Hashable, Iterable, Iterator
from enum import Enum
from typing import Any, Generic, TypeVar

from app.problems import kinds
from app.problems.problem import Problem

logger = logging.getLogger(__name__)

WAITERS_RETRY_AFTER_MS = 1_000

LOOKS_PER_TURN = 1_000
"""This many operations are looked at in one turn of the loop, about a microsecond each."""

Key = TypeVar("Key", bound=Hashable)


class Wake(Enum):
    """Why an operation was completed."""

    AVAILABLE = "available"
    """A look said so."""
    TIMEOUT = "timeout"
    GONE = "gone"
    """Something it watched does not exist any more."""
    FAILED = "failed"
    """Something it watched broke: it may never change again."""
    SHUTDOWN = "shutdown"


class DelayedOperation(abc.ABC):
    """Something that waits. ``done`` completes exactly once, or is cancelled when nobody waits any more."""

    __slots__ = ("_keys", "_purgatory", "_timer", "done")

    def __init__(self) -> None:
        self.done: asyncio.Future[Wake] = asyncio.get_running_loop().create_future()
        self._keys: tuple[Hashable, ...] = ()
        self._timer: asyncio.TimerHandle | None = None
        self._purgatory: Purgatory[Any] | None = None

    @abc.abstractmethod
    def is_ready(self) -> bool:
        """Look whether there is an answer now. Called often, on the loop: it reads no disk and waits for nothing.

        One that raises is completed: whoever waits looks for itself, meets the same error, and tells its client.
        """

    def is_ready_at(self, key: Hashable) -> bool:  # noqa: ARG002 - of operations with more keys than one
        """As ``is_ready``, when only what is under ``key`` has changed since the last look.

        An operation of many keys need not look at the others again, so what happens to one costs the same however
        many there are.
        """
        return self.is_ready()

    def cancel(self) -> None:
        """Nobody waits any more: leave the purgatory, if not complete. Calling it again is fine."""
        if self._purgatory is not None:
            self._purgatory.cancel(self)
        else:
            self.done.cancel()

    def expire(self) -> None:
        """Wait no longer: complete as if the time were up, if not complete. Calling it again is fine."""
        if self._purgatory is not None and not self.done.done():
            self._purgatory.expire(self)


class Purgatory(Generic[Key]):
    """Operations that wait for something to happen to their keys.

    At most ``count_max`` operations, under at most ``watch_count_max`` keys all together. ``what`` names them in the
    refusal of one more, as "fetches". What is notified completes ``completed_per_turn`` of them in a turn of the loop.
    """

    def __init__(
        self,
        what: str,
        *,
        count_max: int,
        watch_count_max: int | None = None,
        completed_per_turn: int = LOOKS_PER_TURN,
    ) -> None:
        self._what = what
        self._completed_per_turn = completed_per_turn
        self._count_max = count_max
        self._watch_count_max = count_max * 100 if watch_count_max is None else watch_count_max
        # Dictionaries, not sets: who waits longest is looked at first.
        self.watching: dict[Hashable, dict[DelayedOperation, None]] = {}
        """Who watches which key; for others to see whether anybody does."""
        self._operations: dict[DelayedOperation, None] = {}
        self._watch_count = 0
        self._notified: dict[Hashable, None] = {}
        # By key, the operations that are still to be looked at, of those that watched it when the look began.
        self._rounds: dict[Hashable, Iterator[DelayedOperation]] = {}
        self._is_scheduled = False
        self._closed = False

    def __len__(self) -> int:
        """Operations that wait."""
        return len(self._operations)

    @property
    def key_count(self) -> int:
        """Keys that some operation watches."""
        return len(self.watching)

    @property
    def watch_count(self) -> int:
        """Keys of all operations that wait, each counted for each operation."""
        return self._watch_count

    def watch(self, operation: DelayedOperation, keys: Iterable[Key], *, wait_ms: float) -> bool:
        """Let a new ``operation`` wait for its keys, at most ``wait_ms``. True if it is complete on return.

        Raises:
            Problem: overloaded; too many wait already. The operation was not taken.
        """
        if self._completes_now(operation):
            return True
        watched = tuple(dict.fromkeys(keys))
        if len(self._operations) >= self._count_max or self._watch_count + len(watched) > self._watch_count_max:
            raise Problem(
                kinds.OVERLOADED,
                f"{len(self._operations)} {self._what} wait already",
                retry_after_ms=WAITERS_RETRY_AFTER_MS,
            )
        operation._keys, operation._purgatory = watched, self  # noqa: SLF001 - the two classes are one mechanism
        self._operations[operation] = None
        self._watch_count += len(watched)
        for key in watched:
            self.watching.setdefault(key, {})[operation] = None
        # The second look is for what threads change: an event between the first look and the watch told nobody.
        if self._is_ready(operation):
            self._complete(operation, Wake.AVAILABLE)
            return True
        loop = asyncio.get_running_loop()
        operation._timer = loop.call_later(max(0.0, wait_ms) / 1000, self.expire, operation)  # noqa: SLF001
        return False

    def notify(self, key: Key) -> None:
        """Look at the operations that watch ``key``, to which something happened, after the caller's turn of the loop.

        A few are completed in each turn of the loop, those that wait longest first, as each wakes a request.
        """
        if key not in self.watching:
            return
        self._notified[key] = None
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._check_notified)

    def check_and_complete(self, key: Key) -> int:
        """Look at who watches ``key``, now, and complete those that are ready. How many that were.

        For whoever has nothing left to do in its turn on the loop; all others ``notify``.
        """
        return self._check(key)

    def complete_all(self, keys: Iterable[Key], wake: Wake) -> int:
        """Complete every operation under one of ``keys`` whatever it waits for. How many that were."""
        return sum(self._complete(operation, wake) for key in keys for operation in tuple(self.watching.get(key, ())))

    def cancel(self, operation: DelayedOperation) -> None:
        """Take back an operation nobody waits for any more; one that is complete stays as it is."""
        self._leave(operation)
        operation.done.cancel()

    def close(self) -> None:
        """Complete all, and from now on let none wait. Calling it again is fine."""
        self._closed = True
        for operation in tuple(self._operations):
            self._complete(operation, Wake.SHUTDOWN)

    def _completes_now(self, operation: DelayedOperation) -> bool:
        if self._is_ready(operation):
            return self._complete(operation, Wake.AVAILABLE)
        return self._closed and self._complete(operation, Wake.SHUTDOWN)

    def _is_ready(self, operation: DelayedOperation, key: Hashable | None = None) -> bool:
        """Look at all of it, or at what is under ``key``."""
        if operation.done.done():
            return False
        try:
            return operation.is_ready() if key is None else operation.is_ready_at(key)
        except Exception:
            # Neither the others that wait nor whoever notified may suffer from it.
            logger.exception("one of the %s that wait failed to look", self._what)
            return True

    def _check_notified(self) -> None:
        self._is_scheduled = False
        # A key that is being looked at has its next look behind that, so that those at its end have one.
        for key in [key for key in self._notified if key not in self._rounds]:
            del self._notified[key]
            self._rounds[key] = iter(tuple(self.watching.get(key, ())))
        look_count = completed_count = 0
        while self._rounds and look_count < LOOKS_PER_TURN and completed_count < self._completed_per_turn:
            key = next(iter(self._rounds))
            operation = next(self._rounds[key], None)
            if operation is None:
                del self._rounds[key]
                continue
            look_count += 1
            if self._is_ready(operation, key):
                completed_count += self._complete(operation, Wake.AVAILABLE)
        if self._rounds or self._notified:
            self._schedule()

    def _check(self, key: Hashable) -> int:
        count = 0
        for operation in tuple(self.watching.get(key, ())):
            if self._is_ready(operation, key):
                count += self._complete(operation, Wake.AVAILABLE)
        return count

    def expire(self, operation: DelayedOperation) -> None:
        """Complete an operation whose time is up."""
        # A last look: what it waits for may have happened in this very turn of the loop.
        self._complete(operation, Wake.AVAILABLE if self._is_ready(operation) else Wake.TIMEOUT)

    def _complete(self, operation: DelayedOperation, wake: Wake) -> bool:
        """Complete ``operation``; false if it is complete already."""
        self._leave(operation)
        if operation.done.done():
            return False
        operation.done.set_result(wake)
        return True

    def _leave(self, operation: DelayedOperation) -> None:
        if operation._timer is not None:  # noqa: SLF001
            operation._timer.cancel()  # noqa: SLF001
            operation._timer = None  # noqa: SLF001
        if operation not in self._operations:
            return
        del self._operations[operation]
        keys, operation._keys = operation._keys, ()  # noqa: SLF001
        self._watch_count -= len(keys)
        for key in keys:
            watching = self.watching[key]
            del watching[operation]
            if not watching:
                del self.watching[key]
