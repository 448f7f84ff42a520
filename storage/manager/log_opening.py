"""Opening those partitions of a data directory at start that may not rest, several at a time.

After a clean stop a partition costs a few small reads. After an unclean stop its newest segments are scanned and some
of its files synced. While one partition waits for the disk, others are read, the largest first, so that no large one is
left for the end.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Collection, Sequence
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
from storage.manager.partition_logs import PartitionLogs
from storage.manager.resting_partitions import RestingPartitions
from storage.manager.topic_registry import TopicRecord, TopicRegistry, TopicState
from storage.recovery.recovery_progress import RecoveryMeter
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
        resting: RestingPartitions,
        *,
        began_ms: int,
        clean: bool,
        thread_count: int,
    ) -> None:
        self._file_system = file_system
        self._logs_directory = logs_directory
        self._registry = registry
        self._checkpoints = checkpoints
        self._factory = factory
        self._meter = meter
        self._resting = resting
        self._began_ms = began_ms
        self._clean = clean
        self._thread_count = thread_count
        self._waiting: deque[_Opening] = deque()
        self._opened: dict[PartitionName, PartitionLog] = {}
        self._failures: dict[PartitionName, BaseException] = {}

    def open(self, topics: Sequence[tuple[TopicRecord, TopicConfig]], present: Collection[str]) -> list[PartitionLogs]:
        """Open the partitions that may not rest; return those of each topic.

        ``present`` has the names of the partitions' directories.

        Partitions share the threads, so a slow one does not delay the rest. If one cannot be opened, the partitions in
        progress are finished and no more are begun. Then the error of the first failed one by name is raised.
        """
        states = [
            [(name, self._resting.state_of(record, name)) for name in record.partition_names()] for record, _ in topics
        ]
        openings = []
        for (record, config), named in zip(topics, states, strict=True):
            for name, state in named:
                if state is None:
                    openings.append(self._opening(record, name, config))
                elif partition_directory_name(name) not in present:
                    raise self._missing(record, partition_directory_name(name))
        partition_count = sum(map(len, states))
        self._meter.expect(partition_count, sum(opening.scan_bytes for opening in openings))
        self._meter.opened(partition_count - len(openings))
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
        logs = iter(found)
        partitions = []
        for (record, config), named in zip(topics, states, strict=True):
            of_topic = PartitionLogs(record.name, record.topic_id, config, self._factory.open_resting, self._began_ms)
            for _, state in named:
                of_topic.add(next(logs) if state is None else state)
            partitions.append(of_topic)
        return partitions

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

    def _open(self, opening: _Opening) -> PartitionLog:
        record, name = opening.record, opening.name
        if self._file_system.is_directory(opening.directory):
            return self._factory.open(record, name, opening.config, self._meter, clean=self._clean)
        if record.state is TopicState.READY and record.was_ready(name):
            raise self._missing(record, opening.directory.name)
        self._factory.create([name], record.topic_id)
        return self._factory.open(record, name, opening.config, self._meter, clean=self._clean)

    def _missing(self, record: TopicRecord, directory_name: str) -> CorruptionError:
        return CorruptionError(
            f"{self._logs_directory / directory_name} is missing, but topic {record.name} has {record.partition_count} "
            f"partitions. Restore it, or give the topic up by moving its file {self._registry.path_of(record)} away"
        )
