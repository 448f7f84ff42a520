"""Changes of topics on the disk: each is done durably, or undone, or continued later."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable
from pathlib import Path

from log_model.errors import UnavailableError, outcome_unknown, refused_by_system
from log_model.names import PartitionName
from storage.disk.directory_checkpoints import DirectoryCheckpoints
from storage.disk.whole_files import NotDurableError
from storage.manager.opened_partitions import OpenedPartitions
from storage.manager.partition_factory import PartitionFactory
from storage.manager.refused_changes import RefusedChanges
from storage.manager.topic_directories import TopicDirectories
from storage.manager.topic_registry import Topic, TopicRecord, TopicRegistry, TopicState

_logger = logging.getLogger(__name__)


class TopicChanges:
    """Creates, alters and deletes topics. A topic's file decides, and every step is repeatable.

    Thread: any; one at a time for each topic.
    """

    def __init__(
        self,
        registry: TopicRegistry,
        directories: TopicDirectories,
        factory: PartitionFactory,
        checkpoints: DirectoryCheckpoints,
        refused: RefusedChanges,
        opened: OpenedPartitions,
    ) -> None:
        self._registry = registry
        self._directories = directories
        self._factory = factory
        self._checkpoints = checkpoints
        self._ballast = checkpoints.ballast
        self._refused = refused
        self._opened = opened

    # Creation and growth

    def create(self, record: TopicRecord) -> None:
        """Make the topic's file and its partitions, which rest. Durable: on return.

        The file is written first and last: the next start finishes after a crash in between.

        Raises:
            TopicExistsError: the directory of a partition exists, and belongs to no topic.
            DiskFullError, TooManyOpenFilesError, DiskFailedError: the system refused; the topic is as before.
            ChangeOutcomeUnknownError: the topic is as before, but the next start may find it changed.
        """
        names = record.partition_names()
        self._directories.refuse_existing(names)

        def create() -> None:
            self._registry.save(record.with_state(TopicState.CREATING))
            self._factory.create(names, record.topic_id)
            self._opened.note_new(record.topic_id, 0)
            self._registry.save(record)

        def undo(*, may_be_ready: bool) -> None:
            if self._registry.has(record):
                try:
                    self._ballast.run(lambda: self._registry.save(record.with_state(TopicState.DELETING)))
                except OSError:
                    # The partitions may be all that fills the disk. But a file with state "ready" would miss them.
                    if may_be_ready:
                        raise
            self._directories.remove(names)
            self._registry.remove(record)

        pending = "is not removed yet, after its creation failed"
        self._do_or_undo(record, "created", create, pending, undo)

    def alter(self, before: TopicRecord, after: TopicRecord) -> None:
        """Write the topic's new settings, and make its further partitions, which rest. Durable: on return.

        Raises:
            TopicExistsError, DiskFullError, TooManyOpenFilesError, DiskFailedError, ChangeOutcomeUnknownError: as
                ``create``.
        """
        added = after.partition_names()[before.partition_count :]
        self._directories.refuse_existing(added)
        growing = dataclasses.replace(after, ready_count=before.partition_count)

        def alter() -> None:
            if added:
                self._registry.save(growing)
                self._factory.create(added, after.topic_id)
                self._opened.note_new(after.topic_id, before.partition_count)
            # New settings may be the only means to free a full disk.
            self._ballast.run(lambda: self._registry.save(after))

        def undo(*, may_be_ready: bool) -> None:
            if added:
                if may_be_ready:
                    # A file that counts them as ready would miss them.
                    self._registry.save(growing)
                # And a file that does not count them would not open beside their directories.
                self._directories.remove(added)
            self._registry.save(before)

        pending = "is not restored yet, after its alteration failed"
        self._do_or_undo(after, "altered", alter, pending, undo)

    def _do_or_undo(
        self, record: TopicRecord, done: str, work: Callable[[], None], pending: str, undo: Callable[..., None]
    ) -> None:
        """Do ``work``. If the system refuses it, ``undo`` the part that may be on the disk, now or later.

        ``undo`` receives whether the file may say that the topic is ready.
        """
        untouched = self._registry.last_written.get(record.topic_id)
        try:
            work()
        except OSError as error:
            # Its frames keep the files of the new partitions open.
            error.__traceback__ = None
            what = f"topic {record.name} could not be {done}"
            if self._registry.last_written.get(record.topic_id) is not untouched:
                undo = functools.partial(undo, may_be_ready=isinstance(error, NotDurableError))
                try:
                    self._refused.finish(record.name, pending, lambda: self._ballast.run(undo))
                except UnavailableError as refusal:
                    _logger.warning("%s; it is tried again", refusal)
                    raise outcome_unknown(what, error) from error
            raise refused_by_system(what, error) from error

    # Deletion

    def decide_deletion(self, record: TopicRecord, topic: Topic) -> None:
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
            if isinstance(error, NotDurableError) and not self._withdraw_deletion(record, topic):
                raise outcome_unknown(what, error) from error
            raise refused_by_system(what, error) from error
        topic.partitions.give_up()

    def _withdraw_deletion(self, record: TopicRecord, topic: Topic) -> bool:
        try:
            self._ballast.run(lambda: self._registry.save(record))
        except OSError as error:
            topic.partitions.take_offline(f"deleting the topic failed, and the next start may finish it: {error}")
            return False
        return True

    def carry_out_deletion(self, record: TopicRecord, delay_ms: int, topic: Topic | None = None) -> None:
        """Rename the directories of a topic whose deletion is decided, and forget the topic.

        ``RefusedChanges`` or the next start continues after a refusal of the system.

        Raises:
            DiskFullError, TooManyOpenFilesError, DiskFailedError: the system refused; a part may be done.
        """
        work = functools.partial(self._finish_deletion, record, delay_ms, topic)
        self._refused.finish(record.name, "is not deleted yet", work)

    def _finish_deletion(self, record: TopicRecord, delay_ms: int, topic: Topic | None) -> None:
        def moved(name: PartitionName, doomed: Path) -> None:
            log = None if topic is None else topic.partitions.find(name.partition)
            if log is not None:
                log.moved_to(doomed)

        self._ballast.run(lambda: self._directories.give_up(record.partition_names(), delay_ms, moved))
        self._checkpoints.forget(record.partition_names())
        self._opened.forget(record.topic_id)
        self._ballast.run(lambda: self._registry.remove(record))
