"""The limits on partitions: how many there are by the settings, and how many have files open beside connections.

A partition that is used keeps some files open, and each connection one descriptor. Without a limit, a client that
writes to many partitions takes the descriptors that connections need. The service then closes new connections without a
response, even an administrator's. A partition that rests has no file open.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from app.settings import Settings
from log_model.clock import Clock
from log_model.errors import PolicyViolationError, TooManyOpenFilesError
from storage.manager.log_manager import LogManager
from storage.manager.topic_registry import Topic

SEGMENT_DESCRIPTORS = 8_192
"""Open files that are reserved for segments and their indexes, but never more than half of all descriptors."""
PARTITION_DESCRIPTORS = 3
"""Open files of a partition: its log and two indexes."""
SPARE_DESCRIPTORS = 16
"""Descriptors for files that are open for a moment: checkpoints, snapshots, files that a start reads."""

_COUNT_INTERVAL_MS = 1_000
_OPEN_FILES = Path("/proc/self/fd")
_SOCKET = "socket:"


def connections_within(descriptors: int) -> int:
    """Return the number of connections that may be open at a time if this many descriptors are allowed.

    Example: 12,000 of 20,000; 512 of 1,024.
    """
    return max(descriptors // 2, descriptors - SEGMENT_DESCRIPTORS)


class PartitionRoom:
    """Makes topics and partitions within ``partition_count_max``. A start finds existing partitions in any case.

    Thread: any.
    """

    def __init__(self, topics: LogManager, settings: Settings) -> None:
        self._topics = topics
        self._settings = settings
        self._checking = threading.Lock()
        self._in_work = 0

    def create_topic(self, name: str, partition_count: int, config: Mapping[str, object]) -> tuple[Topic, bool]:
        """Make a topic as ``Topics.create_topic`` does.

        Raises:
            PolicyViolationError: there would be more partitions than the settings allow; no topic was made.
            The errors of ``Topics.create_topic``.
        """
        if name in self._topics.topics:
            return self._topics.create_topic(name, partition_count, config)
        with self._room_for(partition_count):
            return self._topics.create_topic(name, partition_count, config)

    def alter_topic(
        self, name: str, *, config: Mapping[str, object | None], partition_count: int | None = None
    ) -> Topic:
        """Change a topic as ``Topics.alter_topic`` does.

        Raises:
            The errors of ``create_topic``, for added partitions.
        """
        existing = self._topics.topics.get(name)
        before = 0 if existing is None else existing.partition_count
        with self._room_for(max(0, (partition_count or 0) - before)):
            return self._topics.alter_topic(name, config=config, partition_count=partition_count)

    @contextlib.contextmanager
    def _room_for(self, added: int) -> Iterator[None]:
        """Check that there is room, and keep it while the partitions are being made."""
        with self._checking:
            self._check(added)
            self._in_work += added
        try:
            yield
        finally:
            with self._checking:
                self._in_work -= added

    def _check(self, added: int) -> None:
        present = self._in_work + sum(topic.partition_count for topic in tuple(self._topics.topics.values()))
        most = self._settings.partition_count_max
        if added > 0 and present + added > most:
            raise PolicyViolationError(
                f"there are {present} partitions, and {added} more would exceed partition_count_max, {most}: delete "
                "topics, or raise it"
            )


class FileRoom:
    """How many more partitions may open files.

    The open files are counted at most once a second, and each partition that was let in since counts with its files.

    Thread: any.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        *,
        descriptors_allowed: Callable[[], int] | None = None,
        open_file_count: Callable[[], int | None] | None = None,
    ) -> None:
        """Take the descriptors from this process unless functions are given."""
        self._settings = settings
        self._clock = clock
        self._descriptors_allowed = descriptors_allowed or _descriptors_allowed
        self._open_file_count = open_file_count or _open_file_count
        self._counting = threading.Lock()
        self._counted_ms: int | None = None
        self._room = self._left = 0

    def take(self) -> None:
        """Let one more partition open its files.

        Raises:
            TooManyOpenFilesError: connections need the descriptors. Idle partitions give theirs back.
        """
        with self._counting:
            self._count_if_due()
            if self._left <= 0:
                raise TooManyOpenFilesError(
                    f"all open files that partitions may use are in use: of {self._descriptors_allowed()} "
                    f"{self._kept()} are kept for connections; raise the service's limit (ulimit -n, LimitNOFILE), "
                    "lower connections_max, or try again when other partitions are idle"
                )
            self._left -= 1

    @property
    def is_short(self) -> bool:
        """Whether less than a quarter of the room is left."""
        with self._counting:
            self._count_if_due()
            return self._left < self._room // 4

    def _kept(self) -> int:
        return min(self._settings.connections_max, connections_within(self._descriptors_allowed())) + SPARE_DESCRIPTORS

    def _count_if_due(self) -> None:
        now_ms = self._clock.elapsed_ms()
        if self._counted_ms is not None and now_ms - self._counted_ms < _COUNT_INTERVAL_MS:
            return
        self._counted_ms = now_ms
        used = self._open_file_count()
        self._room = max(0, self._descriptors_allowed() - self._kept()) // PARTITION_DESCRIPTORS
        if used is None:
            # The system refuses what goes beyond its limit.
            self._left = self._room
        else:
            self._left = max(0, self._room - -(-used // PARTITION_DESCRIPTORS))


def _descriptors_allowed() -> int:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if allowed == resource.RLIM_INFINITY else allowed


def _open_file_count() -> int | None:
    """Return the number of open descriptors without those of connections; ``None`` if the system does not tell."""
    try:
        numbers = os.listdir(_OPEN_FILES)  # noqa: PTH208 - names alone are wanted
    except OSError:
        return None
    count = 0
    for number in numbers:
        try:
            count += not os.readlink(_OPEN_FILES / number).startswith(_SOCKET)  # noqa: PTH115
        except OSError:
            # The file was closed meanwhile.
            continue
    return count
