"""Delayed operations: requests that wait until a look at their keys says that they can be completed.

The purgatory looks at an operation, puts it under each of its keys, looks again, and starts a timer. There is no
``await`` between, so no event on the loop falls between a look and the watch (invariant 7). From then on each change of
a key is followed by ``notify``, and the purgatory looks again. An operation completes exactly once.

Completions are deferred: ``notify`` only records the key, and the looks run in the loop's next turn, after the
notifying code has finished (spec A1). So no publication pays for the requests it wakes, several publications in one
turn cost one look, and no code of a woken request runs inside the publication that woke it.

Kafka leaves completed operations under their other keys and purges every 1000 of them (spec A6). Here they leave all
keys at once. That costs as much as entering did, and neither keys nor operations pile up if a key is quiet for long.

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
"""Limit on the looks in one turn of the loop. Each takes about a microsecond."""

Key = TypeVar("Key", bound=Hashable)


class Wake(Enum):
    """The cause of an operation's completion."""

    AVAILABLE = "available"
    """A look found the operation ready."""
    TIMEOUT = "timeout"
    GONE = "gone"
    """A partition that it watched no longer exists."""
    FAILED = "failed"
    """A partition that it watched failed, and may never change again."""
    SHUTDOWN = "shutdown"


class DelayedOperation(abc.ABC):
    """A request that waits. ``done`` completes exactly once, or is cancelled when the request has gone."""

    __slots__ = ("_keys", "_purgatory", "_request_count", "_timer", "done")

    def __init__(self) -> None:
        self.done: asyncio.Future[Wake] = asyncio.get_running_loop().create_future()
        # Requests that wait as this operation; see ``Purgatory.join``.
        self._request_count = 1
        self._keys: tuple[Hashable, ...] = ()
        self._timer: asyncio.TimerHandle | None = None
        self._purgatory: Purgatory[Any] | None = None

    @abc.abstractmethod
    def is_ready(self) -> bool:
        """Return whether the operation can be completed now.

        The purgatory calls it often, on the loop, so an implementation must not read a disk or wait. If it raises, the
        operation is completed: the waiting request then looks itself, meets the same error, and reports it.
        """

    def is_ready_at(self, key: Hashable) -> bool:  # noqa: ARG002 - of operations with more keys than one
        """Return the same as ``is_ready``, if only the state under ``key`` has changed since the last look.

        An operation of many keys need not look at its other keys again, so an event costs the same for any number of
        keys.
        """
        return self.is_ready()

    def cancel(self) -> None:
        """Leave the purgatory, unless complete, because the request has gone. A second call does nothing."""
        if self._purgatory is not None:
            self._purgatory.cancel(self)
        else:
            self.done.cancel()

    def expire(self) -> None:
        """Complete as if the time were up, unless complete. A second call does nothing."""
        if self._purgatory is not None and not self.done.done():
            self._purgatory.expire(self)


class Purgatory(Generic[Key]):
    """Operations that wait for events of their keys.

    At most ``count_max`` requests wait, under at most ``watch_count_max`` keys all together. ``what`` names them in
    the refusal of one more, such as "fetches". An operation is one request, or several that ``join`` it. Notifications
    complete at most ``completed_per_turn`` operations in a turn of the loop.
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
        # Dictionaries, not sets: the operation that has waited longest is looked at first.
        self.watching: dict[Hashable, dict[DelayedOperation, None]] = {}
        """The operations by the key that they watch, so that callers see whether a key is watched."""
        self._operations: dict[DelayedOperation, None] = {}
        self._request_count = 0
        self._watch_count = 0
        self._notified: dict[Hashable, None] = {}
        # The operations that watched a key when its round began and have no look yet, by key.
        self._rounds: dict[Hashable, Iterator[DelayedOperation]] = {}
        self._is_scheduled = False
        self._closed = False

    def __len__(self) -> int:
        """Return the number of requests that wait."""
        return self._request_count

    @property
    def key_count(self) -> int:
        """Number of keys that an operation watches."""
        return len(self.watching)

    @property
    def watch_count(self) -> int:
        """Number of keys of all operations that wait, each key counted for each operation."""
        return self._watch_count

    def watch(self, operation: DelayedOperation, keys: Iterable[Key], *, wait_ms: float | None) -> bool:
        """Let a new ``operation`` wait for its keys, at most ``wait_ms``. Return whether it is complete already.

        Without ``wait_ms`` its owner cancels it in time.

        Raises:
            Problem: overloaded; too many operations wait already. The operation was not taken.
        """
        if self._completes_now(operation):
            return True
        watched = tuple(dict.fromkeys(keys))
        if self._request_count >= self._count_max or self._watch_count + len(watched) > self._watch_count_max:
            raise self._overloaded()
        operation._keys, operation._purgatory = watched, self  # noqa: SLF001 - the two classes are one mechanism
        self._operations[operation] = None
        self._request_count += 1
        self._watch_count += len(watched)
        for key in watched:
            self.watching.setdefault(key, {})[operation] = None
        # The second look is for changes by threads: an event between the first look and the watch had no watcher.
        if self._is_ready(operation):
            self._complete(operation, Wake.AVAILABLE)
            return True
        if wait_ms is not None:
            loop = asyncio.get_running_loop()
            operation._timer = loop.call_later(max(0.0, wait_ms) / 1000, self.expire, operation)  # noqa: SLF001
        return False

    def join(self, operation: DelayedOperation) -> None:
        """Let one more request wait as ``operation``, which waits already and watches what the request would watch.

        Raises:
            Problem: overloaded; too many requests wait already.
        """
        if self._request_count >= self._count_max:
            raise self._overloaded()
        operation._request_count += 1  # noqa: SLF001
        self._request_count += 1

    def part(self, operation: DelayedOperation) -> None:
        """Let one request of ``operation`` wait no more. The last one cancels it. A complete one stays as it is."""
        if operation not in self._operations:
            return
        if operation._request_count == 1:  # noqa: SLF001
            self.cancel(operation)
            return
        operation._request_count -= 1  # noqa: SLF001
        self._request_count -= 1

    def _overloaded(self) -> Problem:
        return Problem(
            kinds.OVERLOADED,
            f"{self._request_count} {self._what} wait already",
            retry_after_ms=WAITERS_RETRY_AFTER_MS,
        )

    def notify(self, key: Key) -> None:
        """Look at the operations that watch ``key``, which has changed, after the caller's turn of the loop.

        Each completion wakes a request, so only a few are completed in each turn of the loop: the longest waits first.
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
        """Look now at the operations that watch ``key``, and complete the ready ones. Return their number.

        The call suits a caller that does nothing more in this turn of the loop. Every other caller uses ``notify``.
        """
        return self._check(key)

    def complete_all(self, keys: Iterable[Key], wake: Wake) -> int:
        """Complete every operation under one of ``keys``, whatever it waits for. Return their number."""
        return sum(self._complete(operation, wake) for key in keys for operation in tuple(self.watching.get(key, ())))

    def cancel(self, operation: DelayedOperation) -> None:
        """Remove an operation whose request has gone. A complete operation stays as it is."""
        self._leave(operation)
        operation.done.cancel()

    def close(self) -> None:
        """Complete all operations, and let none wait from now on. A second call does nothing."""
        self._closed = True
        for operation in tuple(self._operations):
            self._complete(operation, Wake.SHUTDOWN)

    def _completes_now(self, operation: DelayedOperation) -> bool:
        if self._is_ready(operation):
            return self._complete(operation, Wake.AVAILABLE)
        return self._closed and self._complete(operation, Wake.SHUTDOWN)

    def _is_ready(self, operation: DelayedOperation, key: Hashable | None = None) -> bool:
        """Look at a whole operation, or at its state under ``key``. A look that fails counts as ready."""
        if operation.done.done():
            return False
        try:
            return operation.is_ready() if key is None else operation.is_ready_at(key)
        except Exception:
            # The failure must reach neither other operations nor the notifying code.
            logger.exception("one of the %s that wait failed to look", self._what)
            return True

    def _check_notified(self) -> None:
        self._is_scheduled = False
        # A key whose round is under way has its next round behind it, so that the operations at its end get a look.
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
        # A last look: the awaited event may have happened in this very turn of the loop.
        self._complete(operation, Wake.AVAILABLE if self._is_ready(operation) else Wake.TIMEOUT)

    def _complete(self, operation: DelayedOperation, wake: Wake) -> bool:
        """Complete ``operation``. Return false if it is complete already."""
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
        self._request_count -= operation._request_count  # noqa: SLF001
        keys, operation._keys = operation._keys, ()  # noqa: SLF001
        self._watch_count -= len(keys)
        for key in keys:
            watching = self.watching[key]
            del watching[operation]
            if not watching:
                del self.watching[key]
