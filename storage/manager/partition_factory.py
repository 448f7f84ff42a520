"""Construction of a partition's log: an empty one, or one from the files on the disk."""

from __future__ import annotations

import random
from collections.abc import Iterable
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
from storage.segment.segment import Segment


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
        self.created_count = 0
        """Number of logs that ``create`` has made."""

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

    def create(self, record: TopicRecord, name: PartitionName, config: TopicConfig) -> PartitionLog:
        """Make the directory and the files of an empty partition. Durable: after ``sync_created``.

        Raises:
            OSError: the disk refused.
        """
        parts = self._parts(record, name, config)
        self._file_system.make_directory(parts.directory)
        write_new_file(self._file_system, parts.directory / PARTITION_METADATA, partition_metadata(record.topic_id))
        parts.epochs.begin()
        segment = Segment.create(
            self._file_system,
            parts.directory,
            Offset(0),
            config,
            created_ms=self._elapsed_ms(),
            jitter_ms=config.draw_segment_jitter_ms(self._random),
        )
        parts.segments = (segment,)
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

    def sync_created(self, names: Iterable[PartitionName]) -> None:
        """Make created partitions durable, including their names.

        All of them at once: the file system then commits its journal once for most files, and not once for each.

        Raises:
            OSError: the disk refused.
        """
        for name in names:
            directory = self._logs_directory / partition_directory_name(name)
            for file_name in (PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT):
                sync_new_file(self._file_system, directory / file_name)
            self._file_system.sync_directory(directory)
        self._file_system.sync_directory(self._logs_directory)
