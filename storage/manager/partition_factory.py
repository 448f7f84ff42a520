"""Construction of a partition's log: an empty one, or one from the files on the disk."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Sequence
from pathlib import Path

from log_model.clock import Clock
from log_model.config import ProducerLimits, TopicConfig
from log_model.names import PartitionName
from log_model.offsets import Offset
from storage.disk.directory_checkpoints import DirectoryCheckpoints
from storage.disk.file_names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, partition_directory_name
from storage.disk.file_system import FileSystem
from storage.disk.topic_metadata import partition_metadata, write_partition_metadata
from storage.disk.whole_files import sync_new_file, write_new_file
from storage.log.leader_epochs import LeaderEpochs
from storage.log.partition_log import PartitionLog
from storage.log.written_log import LogParts
from storage.manager.topic_registry import TopicRecord, TopicState
from storage.producers.producer_state import ProducerState
from storage.producers.transaction_checkpoint import TransactionCheckpoint
from storage.recovery.recovery import PartitionOpener
from storage.recovery.recovery_progress import PartitionRecovery, RecoveryMeter
from storage.segment.closed_segment import create_closed
from storage.segment.segment import Segment

MANY = 10
"""From this number of new partitions on, one sync of the whole file system makes them durable, with all else that waits
to be written there, and their files are closed until they are used."""
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
    ) -> None:
        self._file_system = file_system
        self._clock = clock
        self._logs_directory = logs_directory
        self._checkpoints = checkpoints
        self._producer_limits = producer_limits
        # One bound method for all: each of up to 100,000 partitions would keep its own.
        self._elapsed_ms = clock.elapsed_ms
        self._random = random.Random()  # noqa: S311 - spreads rolls in time, no secret
        self._counting = threading.Lock()
        self.created_count = 0
        """Number of logs that ``create`` has made; garbage collections in the midst of it look at this number."""

    def open(
        self, record: TopicRecord, name: PartitionName, config: TopicConfig, meter: RecoveryMeter, *, clean: bool
    ) -> tuple[PartitionLog, PartitionRecovery]:
        """Open the partition's directory, with recovery if needed; return the log and the result of recovery.

        ``meter`` receives the number of scanned bytes.

        Raises:
            CorruptionError: see ``PartitionOpener``.
            OSError: the disk refused.
        """
        parts = self._parts(record, name, config)
        if record.state is TopicState.CREATING or not record.was_ready(name):
            # A crash may have left any part of the directory.
            write_partition_metadata(self._file_system, parts.directory, record.topic_id)
        opener = PartitionOpener(parts, meter, clean=clean)
        return opener.open(), opener.report

    def create(
        self, record: TopicRecord, names: Sequence[PartitionName], config: TopicConfig
    ) -> tuple[PartitionLog, ...]:
        """Make the directories and the files of empty partitions. Durable: on return.

        For ``MANY`` partitions this takes one sync, and another for each further ``PER_SYNC``, if the file system has a
        reliable one. It leaves no file open.

        Raises:
            OSError: the disk refused. A failed sync must not be tried again: the partitions are of no use.
        """
        with contextlib.ExitStack() as stack:
            # The sync reports only errors after this moment.
            is_many = len(names) >= MANY
            whole = self._file_system.whole_sync(self._logs_directory) if is_many else None
            if whole is not None:
                stack.callback(whole.close)
            logs: list[PartitionLog] = []
            for name in names:
                logs.append(self._make(record, name, config, keep_open=not is_many))
                if whole is not None and (len(logs) == len(names) or len(logs) % PER_SYNC == 0):
                    whole.sync()
            if whole is None:
                self._sync_each(names)
        return tuple(logs)

    def _make(self, record: TopicRecord, name: PartitionName, config: TopicConfig, *, keep_open: bool) -> PartitionLog:
        parts = self._parts(record, name, config)
        self._file_system.make_directory(parts.directory)
        write_new_file(self._file_system, parts.directory / PARTITION_METADATA, partition_metadata(record.topic_id))
        parts.epochs.begin()
        create_segment = Segment.create if keep_open else create_closed
        segment = create_segment(
            self._file_system,
            parts.directory,
            Offset(0),
            config,
            created_ms=self._elapsed_ms(),
            jitter_ms=config.draw_segment_jitter_ms(self._random),
        )
        parts.segments = (segment,)
        with self._counting:
            self.created_count += 1
        return PartitionLog(parts)

    def _parts(self, record: TopicRecord, name: PartitionName, config: TopicConfig) -> LogParts:
        """Return the parts of an empty log, without a segment yet. Touches no disk."""
        directory = self._logs_directory / partition_directory_name(name)
        return LogParts(
            file_system=self._file_system,
            clock=self._clock,
            name=name,
            topic_id=record.topic_id,
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
        )

    def _sync_each(self, names: Sequence[PartitionName]) -> None:
        # All of them at once: the file system then commits its journal once for most files, and not once for each.
        for name in names:
            directory = self._logs_directory / partition_directory_name(name)
            for file_name in (PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT):
                sync_new_file(self._file_system, directory / file_name)
            self._file_system.sync_directory(directory)
        self._file_system.sync_directory(self._logs_directory)
