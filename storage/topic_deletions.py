"""Topics that are being deleted: decided by their files, carried out in steps that may be repeated, or taken back."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from storage.ballast import Ballast
from storage.directory_checkpoints import DirectoryCheckpoints
from storage.errors import UnavailableError, outcome_unknown, refused_by_system
from storage.file_names import PartitionName
from storage.file_system import NotDurableError
from storage.topic_directories import TopicDirectories
from storage.topic_registry import Topic, TopicRecord, TopicRegistry, TopicState


class _Deletion(NamedTuple):
    """A deletion that the system refused half way. ``topic`` is ``None`` for one that a start found."""

    record: TopicRecord
    delay_ms: int
    topic: Topic | None


class TopicDeletions:
    """Deletes topics. Thread: one at a time."""

    def __init__(
        self,
        registry: TopicRegistry,
        directories: TopicDirectories,
        checkpoints: DirectoryCheckpoints,
        ballast: Ballast,
    ) -> None:
        self._registry = registry
        self._directories = directories
        self._checkpoints = checkpoints
        self._ballast = ballast
        self._halves: dict[str, _Deletion] = {}

    def decide(self, record: TopicRecord, topic: Topic) -> None:
        """Write down that the topic is deleted, whose file says ``record`` so far. Durable: on return.

        Raises:
            DiskFullError, TooManyOpenFilesError, DiskFailedError: the system refused. The topic is there.
            ChangeOutcomeUnknownError: its file may say that it is deleted. It is there, and offline, as the next start
                would delete what is acknowledged from now on.
        """
        deleted = record.with_state(TopicState.DELETING)
        try:
            self._ballast.run(lambda: self._registry.save(deleted))
        except OSError as error:
            what = f"topic {record.name} could not be deleted"
            if isinstance(error, NotDurableError) and not self._take_back(record, topic):
                raise outcome_unknown(what, error) from error
            raise refused_by_system(what, error) from error
        for log in topic.partitions:
            log.take_offline("the topic was deleted")

    def _take_back(self, record: TopicRecord, topic: Topic) -> bool:
        try:
            self._ballast.run(lambda: self._registry.save(record))
        except OSError as error:
            for log in topic.partitions:
                log.take_offline(f"deleting the topic failed, and the next start may finish it: {error}")
            return False
        return True

    def remove_later(self, record: TopicRecord) -> None:
        """Remove what the failed creation of a topic has left, by ``go_on``. Nobody has written to it."""
        self._halves[record.name] = _Deletion(record, 0, None)

    def carry_out(self, record: TopicRecord, delay_ms: int, topic: Topic | None = None) -> None:
        """Give up the directories of a topic whose deletion is decided, and forget it.

        What the system refuses is gone on with by ``go_on``, or by the next start.

        Raises:
            DiskFullError, TooManyOpenFilesError, DiskFailedError: the system refused; some of it may be done.
        """
        self._halves[record.name] = _Deletion(record, delay_ms, topic)
        self.go_on(record.name)

    def go_on(self, name: str) -> None:
        """Finish a deletion that was refused half way; before its name is used again. Raises as ``carry_out``."""
        half = self._halves.get(name)
        if half is None:
            return
        try:
            self._finish(*half)
        except OSError as error:
            raise refused_by_system(f"topic {name} is not deleted yet", error) from error
        del self._halves[name]

    def go_on_with_all(self) -> None:
        """Finish all that were refused half way. Raises as ``carry_out``, once all were tried."""
        failure: UnavailableError | None = None
        for name in tuple(self._halves):
            try:
                self.go_on(name)
            except UnavailableError as error:
                failure = error
        if failure is not None:
            raise failure

    def _finish(self, record: TopicRecord, delay_ms: int, topic: Topic | None) -> None:
        def moved(name: PartitionName, doomed: Path) -> None:
            if topic is not None:
                topic.partitions[name.partition].moved_to(doomed)

        self._ballast.run(lambda: self._directories.give_up(record.partition_names(), delay_ms, moved))
        self._checkpoints.forget(record.partition_names())
        self._ballast.run(lambda: self._registry.remove(record))
