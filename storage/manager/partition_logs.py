"""The logs of a topic's partitions. An unused partition rests: it has no log, but a few numbers."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import overload

from log_model.config import TopicConfig
from log_model.errors import UnknownTopicOrPartitionError
from log_model.names import PartitionName
from storage.log.partition_log import PartitionLog
from storage.manager.resting_states import NEW, RestingState, RestingStates, may_have_old_segments

Opener = Callable[[PartitionName, str, TopicConfig, RestingState, int], PartitionLog]
"""Opens the log of a partition that rests, by its name, the topic's id, the settings, its state, and since when."""


class PartitionLogs(Sequence[PartitionLog]):
    """The logs of one topic, in order. To ask for the log of a partition at rest opens it.

    That reads a few small files, so it is no work for an event loop: ``find`` and ``opened`` open nothing.

    Thread: any. Changes of the topic take turns.

    Raises (from everything that returns one log, or iterates over all):
        UnknownTopicOrPartitionError: the topic was deleted.
        CorruptionError: a file is damaged without which the partition cannot be opened.
        OSError: the disk refused.
    """

    def __init__(self, name: str, topic_id: str, config: TopicConfig, open_log: Opener, began_ms: int) -> None:
        """Begin without partitions, at ``began_ms`` of elapsed time; see ``add``."""
        self._name = name
        self._topic_id = topic_id
        self._config = config
        self._open = open_log
        self._began = [(0, began_ms)]
        """Since when partitions rest, from each of these numbers on."""
        self._opening = threading.Lock()
        self.logs: list[PartitionLog | None] = []
        """The logs that are open, by number. Compiled code reads it; only this class changes it."""
        self._states = RestingStates()
        self._offline_reason: str | None = None
        self._is_deleted = False

    def add(self, found: PartitionLog | RestingState) -> None:
        """Add the next partition, open or at rest."""
        with self._opening:
            self._states.add(None if isinstance(found, PartitionLog) else found)
            self.logs.append(found if isinstance(found, PartitionLog) else None)

    def add_new(self, count: int, began_ms: int) -> None:
        """Add partitions that were just made, at ``began_ms`` of elapsed time."""
        if not count:
            return
        with self._opening:
            self._began.append((len(self), began_ms))
        for _ in range(count):
            self.add(NEW)

    # Looking

    def __len__(self) -> int:
        return len(self.logs)

    @overload
    def __getitem__(self, number: int) -> PartitionLog: ...
    @overload
    def __getitem__(self, number: slice) -> list[PartitionLog]: ...
    def __getitem__(self, number: int | slice) -> PartitionLog | list[PartitionLog]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        log = self.logs[number]
        return self._opened(range(len(self))[number]) if log is None else log

    def find(self, number: int) -> PartitionLog | None:
        """Return the log of a partition if it is open; ``None`` if it rests, or if there is no such partition."""
        return self.logs[number] if 0 <= number < len(self.logs) else None

    def opened(self) -> list[PartitionLog]:
        """Return the logs that are open, in order."""
        return [log for log in self.logs if log is not None]

    def resting(self) -> Iterator[tuple[int, RestingState]]:
        """Yield number and state of each partition that rests."""
        for number in range(len(self)):
            seen = self.seen(number)
            if isinstance(seen, RestingState):
                yield number, seen

    def seen(self, number: int) -> PartitionLog | RestingState:
        """Return the log of a partition, or its state if it rests."""
        log = self.logs[number]
        seen = self._states.get(number) if log is None else log
        assert seen is not None
        return seen

    def resting_with_old_segments(self, now_ms: int) -> list[int]:
        """Return the numbers of those that rest and have segments which retention may delete."""
        return [number for number, state in self.resting() if may_have_old_segments(state, self._config, now_ms)]

    @property
    def offline_reason(self) -> str | None:
        """Why the partitions that rest take no appends; ``None`` if they do."""
        return self._offline_reason

    def online(self) -> list[int]:
        """Return the numbers of the partitions that take appends, in order."""
        rest_online = self._offline_reason is None
        logs = enumerate(self.logs)
        return [number for number, log in logs if (rest_online if log is None else log.offline_reason is None)]

    def size_bytes(self) -> int:
        """Return the bytes of record batches in all partitions."""
        sizes = zip(self.logs, self._states.size_bytes(), strict=False)
        return sum(size if log is None else log.snapshot.size_bytes for log, size in sizes)

    # Changing

    def update_config(self, config: TopicConfig) -> None:
        """Open further logs with these settings. Those that are open get them from their writers."""
        with self._opening:
            self._config = config

    def take_offline(self, reason: str) -> None:
        """Refuse appends from now on; see ``PartitionLog.take_offline``."""
        with self._opening:
            self._offline_reason = self._offline_reason or reason
            opened = self.opened()
        for log in opened:
            log.take_offline(reason)

    def give_up(self) -> None:
        """Open none any more: the topic was deleted."""
        self.take_offline("the topic was deleted")
        with self._opening:
            self._is_deleted = True

    def _opened(self, number: int) -> PartitionLog:
        # One after the other: the work is done by this process's one interpreter in any case.
        with self._opening:
            log = self.logs[number]
            if log is None:
                if self._is_deleted:
                    raise UnknownTopicOrPartitionError(f"topic {self._name!r} was deleted")
                state = self._states.get(number)
                assert state is not None
                name = PartitionName(self._name, number)
                began_ms = self._began[bisect_right(self._began, number, key=itemgetter(0)) - 1][1]
                log = self._open(name, self._topic_id, self._config, state, began_ms)
                if self._offline_reason is not None:
                    log.take_offline(self._offline_reason)
                self.logs[number] = log
            return log
