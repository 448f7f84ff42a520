"""Deletion of topics: decided by a topic's file, done in repeatable steps, or undone."""

from __future__ import annotations

import functools
from pathlib import Path

from storage.disk.ballast import Ballast
from storage.disk.directory_checkpoints import DirectoryCheckpoints
from storage.disk.file_names import PartitionName
from storage.disk.file_system import NotDurableError
from storage.errors import outcome_unknown, refused_by_system
from storage.manager.refused_changes import RefusedChanges
from storage.manager.topic_directories import TopicDirectories
from storage.manager.topic_registry import Topic, TopicRecord, TopicRegistry, TopicState


class TopicDeletions:
    """Deletes topics. Thread: one at a time."""

    def __init__(
        self,
        registry: TopicRegistry,
        directories: TopicDirectories,
        checkpoints: DirectoryCheckpoints,
        ballast: Ballast,
        refused: RefusedChanges,
    ) -> None:
        self._registry = registry
        self._directories = directories
        self._checkpoints = checkpoints
        self._ballast = ballast
        self._refused = refused

    def decide(self, record: TopicRecord, topic: Topic) -> None:
        """Write the decision to delete the topic, whose file holds ``record`` so far. Durable: on return.

        Raises:
            DiskFullError, TooManyOpenFilesError, DiskFailedError: the system refused. The topic exists.
            ChangeOutcomeUnknownError: the topic's file may have the deletion. The topic exists, and is offline, because
                the next start might delete records that it acknowledges.
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

    def carry_out(self, record: TopicRecord, delay_ms: int, topic: Topic | None = None) -> None:
        """Rename the directories of a topic whose deletion is decided, and forget the topic.

        ``RefusedChanges`` or the next start continues after a refusal of the system.

        Raises:
            DiskFullError, TooManyOpenFilesError, DiskFailedError: the system refused; a part may be done.
        """
        work = functools.partial(self._finish, record, delay_ms, topic)
        self._refused.finish(record.name, "is not deleted yet", work)

    def _finish(self, record: TopicRecord, delay_ms: int, topic: Topic | None) -> None:
        def moved(name: PartitionName, doomed: Path) -> None:
            if topic is not None:
                topic.partitions[name.partition].moved_to(doomed)

        self._ballast.run(lambda: self._directories.give_up(record.partition_names(), delay_ms, moved))
        self._checkpoints.forget(record.partition_names())
        self._ballast.run(lambda: self._registry.remove(record))
