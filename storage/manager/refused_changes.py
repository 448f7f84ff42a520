"""Changes of topics that the system refused half way: gone on with, or taken back, as soon as it lets them."""

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
    """What is left to do, and a word on that: "topic x <pending>"."""

    pending: str
    work: Callable[[], None]


class RefusedChanges:
    """What is left to do for each topic. Every step may be repeated, and a start finishes what a kill interrupts.

    Thread: one at a time.
    """

    def __init__(self, registry: TopicRegistry, directories: TopicDirectories, ballast: Ballast) -> None:
        self._registry = registry
        self._directories = directories
        self._ballast = ballast
        self._halves: dict[str, _Half] = {}

    def finish(self, name: str, pending: str, work: Callable[[], None]) -> None:
        """Do ``work`` for the topic. What the system refuses is kept for ``go_on``, or for the next start.

        Raises:
            UnavailableError: the system refused; some of it may be done.
        """
        self._halves[name] = _Half(pending, work)
        self.go_on(name)

    def go_on(self, name: str) -> None:
        """Finish what was refused half way; before the name or the topic is used again. Raises as ``finish``."""
        half = self._halves.get(name)
        if half is None:
            return
        try:
            half.work()
        except OSError as error:
            raise refused_by_system(f"topic {name} {half.pending}", error) from error
        del self._halves[name]

    def go_on_with_all(self) -> None:
        """Finish all that were refused half way. Raises as ``finish``, once all were tried."""
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
        """Remove what a creation left that failed with ``error``; false if that is left for later."""
        may_be_ready = isinstance(error, NotDurableError)

        def undo() -> None:
            if self._registry.has(record):
                try:
                    self._ballast.run(lambda: self._registry.save(record.with_state(TopicState.DELETING)))
                except OSError:
                    # The partitions may be all that fills the disk. But a file that says "ready" would miss them.
                    if may_be_ready:
                        raise
            self._directories.remove(record.partition_names())
            self._registry.remove(record)

        return self._take_back(record.name, "is not taken back yet, after its creation failed", undo)

    def undo_growth(self, before: TopicRecord, after: TopicRecord, error: OSError) -> bool:
        """Let a topic be as ``before`` again, where making it like ``after`` failed with ``error``; false if that is
        left for later."""
        added = after.partition_names()[before.partition_count :]
        may_be_ready = isinstance(error, NotDurableError)

        def undo() -> None:
            if added:
                if may_be_ready:
                    # A file that says that they are ready would miss them.
                    self._registry.save(dataclasses.replace(after, ready_count=before.partition_count))
                # And one that does not know of them would not open beside them.
                self._directories.remove(added)
            self._registry.save(before)

        return self._take_back(before.name, "is not as it was yet, after its alteration failed", undo)

    def _take_back(self, name: str, pending: str, undo: Callable[[], None]) -> bool:
        try:
            self.finish(name, pending, lambda: self._ballast.run(undo))
        except UnavailableError as error:
            _logger.warning("%s; that goes on", error)
            return False
        return True
