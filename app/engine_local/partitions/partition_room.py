"""The limits on the number of partitions: the settings, and the files that can be open beside connections.

Each partition that is written to keeps some files open, and each connection one descriptor. Without a limit, a client
that may CREATE takes the descriptors that connections need. The service then closes new connections without a response,
even an administrator's.
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
from log_model.errors import PolicyViolationError, TooManyOpenFilesError
from storage.manager.log_manager import LogManager
from storage.manager.topic_registry import Topic

SEGMENT_DESCRIPTORS = 8_192
"""Open files that are reserved for segments and their indexes, but never more than half of all descriptors."""
PARTITION_DESCRIPTORS = 3
"""Open files of a partition: its log and two indexes."""
SPARE_DESCRIPTORS = 16
"""Descriptors for files that are open for a moment: checkpoints, snapshots, files that a start reads."""

_OPEN_FILES = Path("/proc/self/fd")
_SOCKET = "socket:"


def connections_within(descriptors: int) -> int:
    """Return the number of connections that may be open at a time if this many descriptors are allowed.

    Example: 12,000 of 20,000; 512 of 1,024.
    """
    return max(descriptors // 2, descriptors - SEGMENT_DESCRIPTORS)


class PartitionRoom:
    """Makes topics and partitions within the limits. A start opens existing partitions in any case.

    A partition that was made since the start counts with the files that it will open, before it has opened them.

    Thread: any.
    """

    def __init__(
        self,
        topics: LogManager,
        settings: Settings,
        *,
        descriptors_allowed: Callable[[], int] | None = None,
        open_file_count: Callable[[], int | None] | None = None,
    ) -> None:
        """Take the limits from ``settings``, and the descriptors from this process unless functions are given."""
        self._topics = topics
        self._settings = settings
        self._descriptors_allowed = descriptors_allowed or _descriptors_allowed
        self._open_file_count = open_file_count or _open_file_count
        self._checking = threading.Lock()
        self._in_work = 0
        # By topic id, the first partition that was made since the start.
        self._made_from: dict[str, int] = {}

    def create_topic(self, name: str, partition_count: int, config: Mapping[str, object]) -> tuple[Topic, bool]:
        """Make a topic as ``Topics.create_topic`` does. An existing topic needs no descriptors.

        Raises:
            PolicyViolationError: there would be more partitions than the settings allow; no topic was made.
            TooManyOpenFilesError: connections need the descriptors; no topic was made.
            The errors of ``Topics.create_topic``.
        """
        if name in self._topics.topics:
            return self._topics.create_topic(name, partition_count, config)
        with self._room_for(partition_count):
            topic, is_new = self._topics.create_topic(name, partition_count, config)
            self._made_from.setdefault(topic.topic_id, 0)
            return topic, is_new

    def alter_topic(
        self, name: str, *, config: Mapping[str, object | None], partition_count: int | None = None
    ) -> Topic:
        """Change a topic as ``Topics.alter_topic`` does.

        Raises:
            The errors of ``create_topic``, for added partitions.
        """
        existing = self._topics.topics.get(name)
        before = 0 if existing is None else len(existing.partitions)
        with self._room_for(max(0, (partition_count or 0) - before)):
            altered = self._topics.alter_topic(name, config=config, partition_count=partition_count)
            self._made_from.setdefault(altered.topic_id, before)
            return altered

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

    def _resting_count(self) -> int:
        """Return the number of partitions that were made since the start and have opened no file yet."""
        made_from = dict(self._made_from)
        present = {topic.topic_id: topic.partitions for topic in tuple(self._topics.topics.values())}
        for topic_id in made_from.keys() - present.keys():
            del self._made_from[topic_id]
        made = (log for topic_id, logs in present.items() for log in logs[made_from.get(topic_id, len(logs)) :])
        return sum(not log.snapshot.segments[-1].log.is_open for log in made)

    def _check(self, added: int) -> None:
        if added <= 0:
            return
        present = self._in_work + sum(len(topic.partitions) for topic in tuple(self._topics.topics.values()))
        most = self._settings.partition_count_max
        if present + added > most:
            raise PolicyViolationError(
                f"there are {present} partitions, and {added} more would exceed partition_count_max, {most}: delete "
                "topics, or raise it"
            )
        allowed = self._descriptors_allowed()
        used = self._open_file_count()
        if used is None:
            used = present * PARTITION_DESCRIPTORS
        else:
            used += (self._in_work + self._resting_count()) * PARTITION_DESCRIPTORS
        kept = min(self._settings.connections_max, connections_within(allowed)) + SPARE_DESCRIPTORS
        room = max(0, (allowed - kept - used) // PARTITION_DESCRIPTORS)
        if added > room:
            raise TooManyOpenFilesError(
                f"there is room for {room} more partitions, not {added}: {kept} of {allowed} open files are kept for "
                "connections; raise the service's limit (ulimit -n, LimitNOFILE), or lower connections_max"
            )


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
