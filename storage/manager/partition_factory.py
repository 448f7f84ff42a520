"""Construction of a partition's log: an empty one, or one from the files on the disk."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from log_model.clock import Clock
from log_model.config import ProducerLimits, TopicConfig
from log_model.errors import refused_by_system
from log_model.names import PartitionName
from log_model.offsets import Offset
from storage.disk.directory_checkpoints import DirectoryCheckpoints
from storage.disk.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    TIME_INDEX_SUFFIX,
    offset_file_name,
    partition_directory_name,
)
from storage.disk.file_system import FileSystem
from storage.disk.topic_metadata import partition_metadata, write_partition_metadata
from storage.disk.whole_files import sync_new_file, write_new_file
from storage.log.leader_epochs import LeaderEpochs
from storage.log.partition_log import PartitionLog
from storage.log.written_log import LogParts
from storage.manager.opened_partitions import OpenedPartitions
from storage.manager.resting_states import RestingState
from storage.manager.topic_registry import TopicRecord, TopicState
from storage.producers.producer_state import ProducerState
from storage.producers.transaction_checkpoint import TransactionCheckpoint
from storage.recovery.recovery import PartitionOpener
from storage.recovery.recovery_progress import PartitionRecovery, RecoveryMeter

_logger = logging.getLogger(__name__)

MANY = 10
"""From this number of new partitions on, one sync of the whole file system makes them durable, with all else that waits
to be written there."""
PER_SYNC = 500
"""Most partitions of one sync. While it writes thousands of files, an fsync of records waits."""


class PartitionFactory:
    """Makes and opens the partitions of one log directory.

    Thread: any; one at a time for one partition.
    """

    def __init__(
        self,
        file_system: FileSystem,
        clock: Clock,
        logs_directory: Path,
        checkpoints: DirectoryCheckpoints,
        producer_limits: ProducerLimits,
        opened: OpenedPartitions,
    ) -> None:
        self._file_system = file_system
        self._clock = clock
        self._logs_directory = logs_directory
        self._checkpoints = checkpoints
        self._producer_limits = producer_limits
        self._opened = opened
        # One bound method for all: each of up to 100,000 partitions would keep its own.
        self._elapsed_ms = clock.elapsed_ms
        self._before_change = self._note_opened
        self._random = random.Random()  # noqa: S311 - spreads rolls in time, no secret
        self._counting = threading.Lock()
        self.reports: list[PartitionRecovery] = []
        """The results of the recovery at start, and of later openings that found something unusual."""
        self.take_files: Callable[[], None] = lambda: None
        """Called before a partition opens files that stay open; what it raises, the opening raises."""
        self.opened_count = 0
        """Number of logs that ``open_resting`` has opened; garbage collections meanwhile look at this number."""

    def open(
        self, record: TopicRecord, name: PartitionName, config: TopicConfig, meter: RecoveryMeter, *, clean: bool
    ) -> PartitionLog:
        """Open the partition's directory, with recovery if needed, and return the log.

        ``meter`` receives the number of scanned bytes.

        Raises:
            CorruptionError: see ``PartitionOpener``.
            OSError: the disk refused.
        """
        parts = self._parts(record.topic_id, name, config)
        if record.state is TopicState.CREATING or not record.was_ready(name):
            # A crash may have left any part of the directory.
            write_partition_metadata(self._file_system, parts.directory, record.topic_id)
        opener = PartitionOpener(parts, meter, clean=clean)
        log = opener.open()
        self.reports.append(opener.report)
        return log

    def open_resting(
        self, name: PartitionName, topic_id: str, config: TopicConfig, state: RestingState, began_ms: int
    ) -> PartitionLog:
        """Open a partition that rests since ``began_ms`` of elapsed time.

        It is noted as opened, durably, before its first change. If it has more bytes than ``state`` says, something
        else has written there: then it is recovered as after an unclean stop.

        Raises:
            CorruptionError: see ``PartitionOpener``.
            OSError: the disk refused.
        """
        self.take_files()
        parts = self._parts(topic_id, name, config)
        parts.began_ms = began_ms
        is_clean = self._stored_bytes(parts.directory) <= state.size_bytes
        if not is_clean:
            _logger.warning("%s has more bytes than at the last clean stop, and is recovered", name)
            parts.before_change(topic_id, name, False)
        opener = PartitionOpener(parts, RecoveryMeter(self._clock), clean=is_clean)
        log = opener.open()
        with self._counting:
            self.opened_count += 1
            if opener.report.notes:
                self.reports.append(opener.report)
        return log

    def _stored_bytes(self, directory: Path) -> int:
        names = [name for name in self._file_system.list_directory(directory) if name.endswith(LOG_SUFFIX)]
        return sum(self._file_system.size(directory / name) for name in names)

    def _note_opened(self, topic_id: str, name: PartitionName, was_closed: bool) -> None:
        if was_closed:
            self.take_files()
        try:
            self._opened.note(topic_id, name.partition)
        except OSError as error:
            raise refused_by_system(f"{name} cannot be noted as changed", error) from error

    def create(self, names: Sequence[PartitionName], topic_id: str) -> None:
        """Make the directories and the files of empty partitions, which rest. Durable: on return.

        For ``MANY`` partitions this takes one sync, and another for each further ``PER_SYNC``, if the file system has a
        reliable one.

        Raises:
            OSError: the disk refused. A failed sync must not be tried again: the partitions are of no use.
        """
        with contextlib.ExitStack() as stack:
            # The sync reports only errors after this moment.
            whole = self._file_system.whole_sync(self._logs_directory) if len(names) >= MANY else None
            if whole is not None:
                stack.callback(whole.close)
            for count, name in enumerate(names, start=1):
                self._make(name, topic_id)
                if whole is not None and (count == len(names) or count % PER_SYNC == 0):
                    whole.sync()
            if whole is None:
                self._sync_each(names)

    def _make(self, name: PartitionName, topic_id: str) -> None:
        """Make the files as a clean stop leaves those of an empty partition."""
        directory = self._logs_directory / partition_directory_name(name)
        self._file_system.make_directory(directory)
        write_new_file(self._file_system, directory / PARTITION_METADATA, partition_metadata(topic_id))
        LeaderEpochs(self._file_system, directory / LEADER_EPOCH_CHECKPOINT).begin()
        for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self._file_system.open(directory / offset_file_name(Offset(0), suffix), create=True).close()

    def _parts(self, topic_id: str, name: PartitionName, config: TopicConfig) -> LogParts:
        """Return the parts of an empty log, without a segment yet. Touches no disk."""
        directory = self._logs_directory / partition_directory_name(name)
        return LogParts(
            file_system=self._file_system,
            clock=self._clock,
            name=name,
            topic_id=topic_id,
            directory=directory,
            config=config,
            segments=(),
            log_start_offset=Offset(0),
            log_end_offset=Offset(0),
            epochs=LeaderEpochs(self._file_system, directory / LEADER_EPOCH_CHECKPOINT),
            producers=ProducerState(
                self._file_system, directory, **self._producer_limits._asdict(), elapsed_ms=self._elapsed_ms
            ),
            checkpoints=self._checkpoints,
            transaction_checkpoint=TransactionCheckpoint(self._file_system, directory),
            recovery_point=Offset(0),
            random=self._random,
            before_change=self._before_change,
            began_ms=self._elapsed_ms(),
        )

    def _sync_each(self, names: Sequence[PartitionName]) -> None:
        # All of them at once: the file system then commits its journal once for most files, and not once for each.
        for name in names:
            directory = self._logs_directory / partition_directory_name(name)
            for file_name in (PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT):
                sync_new_file(self._file_system, directory / file_name)
            self._file_system.sync_directory(directory)
        self._file_system.sync_directory(self._logs_directory)
