"""The directory to which partitions are exported: a broker's log directory, or one that becomes a part of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from log_model.errors import DirectoryLockedError, RefusedError
from log_model.names import PartitionName
from log_model.offsets import Offset
from storage.disk.checkpoint import OffsetCheckpoint
from storage.disk.dir_lock import DirectoryLock
from storage.disk.file_names import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from storage.disk.file_system import FileSystem
from storage.disk.topic_metadata import read_meta_properties


class TargetDirectoryError(RefusedError):
    """Nothing can be exported to this directory."""


class TargetDirectory:
    """A log directory, locked against brokers until the end of a ``with`` block.

    Attributes:
        node_id: the broker that it belongs to; ``None`` if no broker has used it.
    """

    def __init__(self, file_system: FileSystem, path: Path, lock: DirectoryLock) -> None:
        """Use ``open``."""
        self.path = path
        self._file_system = file_system
        self._lock = lock
        properties = read_meta_properties(file_system, path)
        self.node_id = None if properties is None else properties.node_id

    @classmethod
    def open(cls, file_system: FileSystem, path: Path, source: Path) -> Self:
        """Lock the directory, which is made if it is absent.

        Raises:
            TargetDirectoryError: a broker uses it, or it is the directory that is exported, or a part of that.
            CorruptMetadataError: its ``meta.properties`` is damaged.
            OSError: the disk refused.
        """
        if path.resolve().is_relative_to(source.resolve()):
            raise TargetDirectoryError(f"{path} is a part of {source}: an export goes to another directory")
        if not file_system.is_directory(path):
            file_system.make_directory(path)
            file_system.sync_directory(path.parent)
        try:
            lock = DirectoryLock.acquire(file_system, path)
        except DirectoryLockedError as error:
            raise TargetDirectoryError(f"a broker uses {path}: stop it, export, and start it again") from error
        try:
            return cls(file_system, path, lock)
        except BaseException:
            lock.release()
            raise

    def merge_log_starts(self, offsets: Mapping[PartitionName, tuple[int, int]]) -> None:
        """Put log starts into the broker's checkpoint, beside those of other partitions. Durable: on return.

        ``offsets`` has the log start and the base offset of the first segment of each partition. A partition that
        starts with its first segment has no line, as a broker writes it.

        Raises:
            CorruptCheckpointError: the file is damaged.
            OSError: the disk refused.
        """
        moved = {name: Offset(start) for name, (start, first_base) in offsets.items() if start > first_base}
        self._merge(LOG_START_OFFSET_CHECKPOINT, offsets, moved)

    def merge_recovery_points(self, offsets: Mapping[PartitionName, int]) -> None:
        """Put recovery points into the broker's checkpoint: it then reads each segment only once. Durable: on return.

        Raises:
            CorruptCheckpointError: the file is damaged.
            OSError: the disk refused.
        """
        self._merge(RECOVERY_POINT_CHECKPOINT, offsets, {name: Offset(end) for name, end in offsets.items()})

    def _merge(
        self, file_name: str, names: Mapping[PartitionName, object], offsets: Mapping[PartitionName, Offset]
    ) -> None:
        checkpoint = OffsetCheckpoint(self._file_system, self.path / file_name)
        known = checkpoint.read()
        merged = {**{name: offset for name, offset in known.items() if name not in names}, **offsets}
        if merged != known or not self._file_system.exists(checkpoint.path):
            checkpoint.write(merged)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
