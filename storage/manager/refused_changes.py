"""Changes of topics that the system refused half way: continued or undone as soon as it permits."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import NamedTuple

from storage.disk.ballast import Ballast
from storage.disk.file_system import NotDurableError
from storage.errors import UnavailableError, refused_by_system
from storage.manager.topic_directories import TopicDirectories
from storage.manager.topic_registry import TopicRecord, TopicRegistry, TopicState

_logger = logging.getLogger(__name__)


class _Half(NamedTuple):
    """The remaining work, and its description in a message: "topic x <pending>"."""

    pending: str
    work: Callable[[], None]


class RefusedChanges:
    """The remaining work for each topic. Every step is repeatable, and a start finishes the work of a killed process.

    Thread: one at a time.
    """

    def __init__(self, registry: TopicRegistry, directories: TopicDirectories, ballast: Ballast) -> None:
        self._registry = registry
        self._directories = directories
        self._ballast = ballast
        self._halves: dict[str, _Half] = {}

    def finish(self, name: str, pending: str, work: Callable[[], None]) -> None:
        """Do ``work`` for the topic. If the system refuses it, ``go_on`` or the next start continues.

        Raises:
            UnavailableError: the system refused; a part may be done.
        """
        self._halves[name] = _Half(pending, work)
        self.go_on(name)

    def go_on(self, name: str) -> None:
        """Finish refused work; call before the name or the topic is used again. Raises as ``finish``."""
        half = self._halves.get(name)
        if half is None:
            return
        try:
            half.work()
        except OSError as error:
            raise refused_by_system(f"topic {name} {half.pending}", error) from error
        del self._halves[name]

    def go_on_with_all(self) -> None:
        """Finish the refused work of all topics. Raises as ``finish``, after all were tried."""
        failure: UnavailableError | None = None
        for name in tuple(self._halves):
            try:
                self.go_on(name)
            except UnavailableError as error:
                failure = error
        if failure is not None:
            raise failure

    # Taking back

    def undo_creation(self, record: TopicRecord, error: OSError) -> bool:
        """Remove the files of a creation that failed with ``error``; return false if that remains to be done."""
        may_be_ready = isinstance(error, NotDurableError)

        def undo() -> None:
            if self._registry.has(record):
                try:
                    self._ballast.run(lambda: self._registry.save(record.with_state(TopicState.DELETING)))
                except OSError:
                    # The partitions may be all that fills the disk. But a file with state "ready" would miss them.
                    if may_be_ready:
                        raise
            self._directories.remove(record.partition_names())
            self._registry.remove(record)

        return self._take_back(record.name, "is not removed yet, after its creation failed", undo)

    def undo_growth(self, before: TopicRecord, after: TopicRecord, error: OSError) -> bool:
        """Restore a topic to ``before``, after its change to ``after`` failed with ``error``; return false if the disk
        refused, and the restoration remains to be done."""
        added = after.partition_names()[before.partition_count :]
        may_be_ready = isinstance(error, NotDurableError)

        def undo() -> None:
            if added:
                if may_be_ready:
                    # A file that counts them as ready would miss them.
                    self._registry.save(dataclasses.replace(after, ready_count=before.partition_count))
                # And a file that does not count them would not open beside their directories.
                self._directories.remove(added)
            self._registry.save(before)

        return self._take_back(before.name, "is not restored yet, after its alteration failed", undo)

    def _take_back(self, name: str, pending: str, undo: Callable[[], None]) -> bool:
        try:
            self.finish(name, pending, lambda: self._ballast.run(undo))
        except UnavailableError as error:
            _logger.warning("%s; it is tried again", error)
            return False
        return True
