"""Writes one partition as a broker adopts it, and puts it in its place as a whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Self

from crc32c import crc32c

from log_model.errors import RefusedError
from log_model.names import PartitionName
from rollway.records import RecordFormatError
from rollway.records.batch import Buffer
from storage.disk.checkpoint import checkpoint_content
from storage.disk.file_names import (
    FILE_NAME_LENGTH_MAX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    offset_file_name,
    parse_offset_file_name,
    partition_directory_name,
)
from storage.disk.file_system import File, FileSystem
from storage.disk.topic_metadata import CorruptMetadataError, partition_metadata, read_partition_metadata
from storage.disk.whole_files import sync_new_file, write_new_file
from storage.log_export.batch_rewriter import BatchRewriter
from storage.log_export.export_record import WrittenFile, WrittenPartition
from storage.log_export.stored_partition import DamagedLogError, PartitionWalk, StoredPartition

SEGMENT_BYTES_MAX = 2**31 - 1


class OccupiedPartitionError(RefusedError):
    """The target has records of this partition that the export did not write."""


class PartitionWriter:
    """Writes partitions into a broker's log directory while no broker uses it.

    A partition is written under a name that a broker takes for a deleted partition, whose files it removes. So a broker
    that is started too early never serves half a partition. The directory gets its final name by one rename.

    The directory has the ``.log`` files, ``partition.metadata`` and ``leader-epoch-checkpoint``. Indexes and producer
    snapshots are left out together: a broker that finds a ``.log`` without its ``.index`` reads all its batches, and
    rebuilds the three indexes and the snapshot, after a clean stop as well (Kafka's ``LogLoader.loadSegmentFiles``). An
    ``.index`` alone would be believed: a segment without a ``.txnindex`` then has no aborted transactions, and a log
    without snapshots no producers.

    Thread: one at a time.
    """

    def __init__(self, file_system: FileSystem, target: Path, directory_id: str, shift: int) -> None:
        self._file_system = file_system
        self._target = target
        self._directory_id = directory_id
        self._shift = shift

    def is_in_place(self, written: WrittenPartition) -> bool:
        """Return whether the partition is under its final name as it was written: files of the same lengths."""
        return self._matches(self._target / partition_directory_name(written.name), written)

    def is_staged(self, written: WrittenPartition) -> bool:
        """Return whether the whole partition is under its provisional name."""
        return self._matches(self._staging(written.name), written)

    def check_place(self, name: PartitionName, written: WrittenPartition | None) -> None:
        """Check that the target has no records of the partition, or only those that the export wrote.

        Raises:
            OccupiedPartitionError: it has others.
        """
        found = self._segments(self._target / partition_directory_name(name))
        if any(found.values()) and (written is None or found != written.sizes):
            raise OccupiedPartitionError(
                f"{self._target / partition_directory_name(name)} has records that this export did not write"
            )

    def write(
        self, partition: StoredPartition, topic_id: str, on_bytes: Callable[[int], None] = lambda _: None
    ) -> WrittenPartition:
        """Write the partition under a provisional name; what an interrupted export left there is removed.

        ``on_bytes`` is called with the length of each piece that was read. Durable: on return.

        Raises:
            DamagedLogError: a segment is damaged.
            OSError: the disk refused. What was written is removed, as far as the disk lets it.
        """
        staging = self._staging(partition.name)
        self._remove(staging)
        self._file_system.make_directory(staging)
        try:
            written = self._write(partition, staging, topic_id, on_bytes)
            self._file_system.sync_directory(staging)
            self._file_system.sync_directory(self._target)
        except (OSError, DamagedLogError):
            with contextlib.suppress(OSError):
                self._remove(staging)
            raise
        return written

    def clear(self, name: PartitionName, written: WrittenPartition | None) -> None:
        """Remove the directory that has the final name. Durable: on return; it is gone as a whole, or there.

        Raises:
            OccupiedPartitionError: as ``check_place``.
        """
        self.check_place(name, written)
        replaced = self._provisional(name, "replaced")
        self._remove(replaced)
        final = self._target / partition_directory_name(name)
        if self._file_system.is_directory(final):
            self._file_system.rename(final, replaced)
            self._file_system.sync_directory(self._target)
            self._remove(replaced)

    def place(self, name: PartitionName) -> None:
        """Give the written directory its final name, which must be free. Durable: on return."""
        self._file_system.rename(self._staging(name), self._target / partition_directory_name(name))
        self._file_system.sync_directory(self._target)

    def _staging(self, name: PartitionName) -> Path:
        return self._provisional(name, "written")

    def _provisional(self, name: PartitionName, purpose: str) -> Path:
        """Return a directory that a broker takes for a deleted partition. It is the same in each export."""
        identity = blake2b(f"{self._directory_id} {name} {purpose}".encode(), digest_size=16).hexdigest()
        ending = f"-{name.partition}.{identity}-delete"
        return self._target / (name.topic[: FILE_NAME_LENGTH_MAX - len(ending)] + ending)

    def _matches(self, directory: Path, written: WrittenPartition) -> bool:
        if self._segments(directory) != written.sizes:
            return False
        try:
            return read_partition_metadata(self._file_system, directory) == written.topic_id
        except CorruptMetadataError:
            return False

    def _segments(self, directory: Path) -> dict[str, int]:
        if not self._file_system.is_directory(directory):
            return {}
        sizes = {}
        for file_name in self._file_system.list_directory(directory):
            parsed = parse_offset_file_name(file_name)
            if parsed is not None and parsed.suffix == LOG_SUFFIX and not parsed.state:
                sizes[file_name] = self._file_system.size(directory / file_name)
        return sizes

    def _remove(self, directory: Path) -> None:
        if not self._file_system.is_directory(directory):
            return
        for file_name in self._file_system.list_directory(directory):
            self._file_system.unlink(directory / file_name)
        self._file_system.remove_directory(directory)

    def _write(
        self, partition: StoredPartition, staging: Path, topic_id: str, on_bytes: Callable[[int], None]
    ) -> WrittenPartition:
        walk = PartitionWalk(self._file_system, partition)
        rewriter = BatchRewriter(self._shift)
        files: list[WrittenFile] = []
        for segment in partition.segments:
            with SegmentWriter(self._file_system, staging, segment.base_offset) as writer:
                for piece in walk.pieces(segment):
                    try:
                        parts = [
                            (header.base_offset, rewriter.rewrite(header, batch)) for header, batch in piece.batches
                        ]
                    except RecordFormatError as error:
                        raise DamagedLogError(f"{segment.path}: {error}") from error
                    writer.write(parts)
                    on_bytes(len(piece.buffer))
                files += writer.end()
        # The epochs of a broker begin at its log start, and a log without records has none.
        epochs = [(0, partition.log_start_offset)] if walk.end_offset > partition.log_start_offset else []
        for name, content in (
            (LEADER_EPOCH_CHECKPOINT, checkpoint_content(epochs)),
            (PARTITION_METADATA, partition_metadata(topic_id)),
        ):
            write_new_file(self._file_system, staging / name, content)
            sync_new_file(self._file_system, staging / name)
        return WrittenPartition(
            *partition.name,
            topic_id,
            partition.log_start_offset,
            walk.end_offset,
            partition.fingerprint,
            tuple(files),
        )


class SegmentWriter:
    """Writes the batches of one segment; into further files where they do not fit into one.

    Batches that were compressed again may be larger than before. A file holds at most 2^31 - 1 bytes; the next one
    is named by the offset of its first batch.
    """

    def __init__(
        self, file_system: FileSystem, directory: Path, base_offset: int, bytes_max: int = SEGMENT_BYTES_MAX
    ) -> None:
        self._file_system = file_system
        self._directory = directory
        self._bytes_max = bytes_max
        self._files: list[WrittenFile] = []
        self._open(base_offset)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, batches: list[tuple[int, Buffer]]) -> None:
        """Append batches, each with its base offset."""
        parts: list[Buffer] = []
        size = 0
        for base_offset, batch in batches:
            if self._size_bytes + size + len(batch) > self._bytes_max and self._size_bytes + size:
                self._append(parts, size)
                parts, size = [], 0
                self._end_file()
                self._open(base_offset)
            parts.append(batch)
            size += len(batch)
        self._append(parts, size)

    def end(self) -> list[WrittenFile]:
        """Make the files durable, but not their names; return them."""
        self._end_file()
        return self._files

    _file: File

    def _open(self, base_offset: int) -> None:
        self._name = offset_file_name(base_offset, LOG_SUFFIX)
        self._file = self._file_system.open(self._directory / self._name, create=True)
        self._size_bytes = 0
        self._crc = 0

    def _append(self, parts: list[Buffer], size: int) -> None:
        if not parts:
            return
        self._file.write(self._size_bytes, parts)
        for part in parts:
            self._crc = crc32c(part, self._crc)
        self._file.begin_writeback(self._size_bytes, size)
        self._size_bytes += size

    def _end_file(self) -> None:
        # Also gives back space that was reserved behind the end.
        self._file.truncate(self._size_bytes)
        self._file.sync()
        self._file.close()
        self._files.append(WrittenFile(self._name, self._size_bytes, self._crc))
