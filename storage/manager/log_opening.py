"""Opening the partitions of a data directory at start, several at a time.

After a clean stop a partition costs a few small reads. After an unclean stop its newest segments are scanned and some
of its files synced. While one partition waits for the disk, others are read, the largest first, so that no large one is
left for the end.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from log_model.config import TopicConfig
from log_model.errors import CorruptionError
from log_model.names import PartitionName
from log_model.offsets import Offset
from storage.disk.directory_checkpoints import DirectoryCheckpoints
from storage.disk.file_names import partition_directory_name
from storage.disk.file_system import FileSystem
from storage.log.partition_log import PartitionLog
from storage.manager.partition_factory import PartitionFactory
from storage.manager.topic_registry import TopicRecord, TopicRegistry, TopicState
from storage.recovery.recovery_progress import PartitionRecovery, RecoveryMeter
from storage.recovery.segment_recovery import scan_bytes


@dataclass(frozen=True, slots=True)
class _Opening:
    record: TopicRecord
    name: PartitionName
    config: TopicConfig
    directory: Path
    scan_bytes: int


class LogOpening:
    """Opens the partitions of all topics; used once.

    Raises (from ``open``):
        CorruptionError: a file that cannot be rebuilt is damaged, or a partition is missing; the message names it.
        OSError: the disk refused.
    """

    def __init__(
        self,
        file_system: FileSystem,
        logs_directory: Path,
        registry: TopicRegistry,
        checkpoints: DirectoryCheckpoints,
        factory: PartitionFactory,
        meter: RecoveryMeter,
        *,
        clean: bool,
        thread_count: int,
    ) -> None:
        self._file_system = file_system
        self._logs_directory = logs_directory
        self._registry = registry
        self._checkpoints = checkpoints
        self._factory = factory
        self._meter = meter
        self._clean = clean
        self._thread_count = thread_count
        self._waiting: deque[_Opening] = deque()
        self._opened: dict[PartitionName, tuple[PartitionLog, PartitionRecovery]] = {}
        self._failures: dict[PartitionName, BaseException] = {}

    def open(
        self, topics: Sequence[tuple[TopicRecord, TopicConfig]]
    ) -> tuple[list[tuple[PartitionLog, ...]], list[PartitionRecovery]]:
        """Open all partitions; return those of each topic, in order, and the result of recovery for each partition.

        Partitions share the threads, so a slow one does not delay the rest. If one cannot be opened, the partitions in
        progress are finished and no more are begun. Then the error of the first failed one by name is raised.
        """
        openings = [
            self._opening(record, name, config) for record, config in topics for name in record.partition_names()
        ]
        self._meter.expect(len(openings), sum(opening.scan_bytes for opening in openings))
        self._waiting.extend(sorted(openings, key=lambda opening: -opening.scan_bytes))
        # After a clean stop no scan waits for the disk, and threads would only alternate.
        thread_count = 1 if self._clean else min(self._thread_count, len(openings))
        if thread_count <= 1:
            self._work()
        else:
            threads = [
                threading.Thread(target=self._work, name=f"rollway-open-{number}") for number in range(thread_count)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if self._failures:
            first = self._failures.pop(min(self._failures))
            self._failures.clear()
            try:
                raise first
            finally:
                # Its traceback refers to this frame: without the cycle, nothing waits for the garbage collector.
                del first
        found = [self._opened.pop(opening.name) for opening in openings]
        logs = iter([log for log, _ in found])
        partitions = [tuple(next(logs) for _ in range(record.partition_count)) for record, _ in topics]
        return partitions, [report for _, report in found]

    def _opening(self, record: TopicRecord, name: PartitionName, config: TopicConfig) -> _Opening:
        directory = self._logs_directory / partition_directory_name(name)
        byte_count = 0
        if not self._clean:
            recovery_point = self._checkpoints.recovery_points.get(name, Offset(0))
            # The number is only displayed; opening the partition reports the error.
            with contextlib.suppress(OSError):
                byte_count = scan_bytes(self._file_system, directory, recovery_point)
        return _Opening(record, name, config, directory, byte_count)

    def _work(self) -> None:
        while not self._failures:
            try:
                opening = self._waiting.popleft()
            except IndexError:
                return
            try:
                self._opened[opening.name] = self._open(opening)
            except BaseException as error:  # noqa: BLE001 - raised by ``open``, which waits for the threads
                self._failures[opening.name] = error
            else:
                self._meter.opened()

    def _open(self, opening: _Opening) -> tuple[PartitionLog, PartitionRecovery]:
        record, name = opening.record, opening.name
        if self._file_system.is_directory(opening.directory):
            return self._factory.open(record, name, opening.config, self._meter, clean=self._clean)
        if record.state is TopicState.READY and record.was_ready(name):
            raise CorruptionError(
                f"{opening.directory} is missing, but topic {record.name} has {record.partition_count} partitions. "
                f"Restore it, or give the topic up by moving its file {self._registry.path_of(record)} away"
            )
        (log,) = self._factory.create(record, [name], opening.config)
        return log, PartitionRecovery(name, clean=True)
