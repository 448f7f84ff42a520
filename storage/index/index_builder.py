"""The rule for index entries, and indexes rebuilt from a log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from log_model.config import TopicConfig
from log_model.offsets import NO_TIMESTAMP, Offset, TimestampOffset
from storage.disk.file_system import FileSystem
from storage.disk.whole_files import write_file_atomically
from storage.index.batch_walk import StoredBatch
from storage.index.offset_index import OffsetIndex
from storage.index.time_index import TimeIndex


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Settings of a segment's files: space for each index, log bytes between two entries, length of a new log.

    ``has_gaps``: offsets may be missing between batches, as compaction leaves them.
    """

    max_bytes: int
    interval_bytes: int
    preallocated_bytes: int
    has_gaps: bool

    @classmethod
    def of(cls, config: TopicConfig) -> IndexSettings:
        return cls(
            config.segment_index_bytes,
            config.index_interval_bytes,
            config.segment_bytes if config.preallocate else 0,
            config.compacts,
        )


class IndexBuilder:
    """The rule that decides which batches get index entries, for appends and rebuilds alike (spec C6).

    A batch gets an entry if more than ``interval_bytes`` were written since the last entry, so the same batches always
    give the same files. Example with 4096: batches of 3000 bytes at 0, 3000, 6000 and 9000; only that at 6000 gets one.

    Compiled appends follow the rule themselves: they read and change ``bytes_since_entry`` and ``max_timestamp``.
    """

    __slots__ = ("bytes_since_entry", "interval_bytes", "max_timestamp")

    def __init__(self, base_offset: Offset, interval_bytes: int) -> None:
        self.interval_bytes = interval_bytes
        self.bytes_since_entry = 0
        self.max_timestamp = TimestampOffset(NO_TIMESTAMP, base_offset)

    def restart(self, max_timestamp: TimestampOffset) -> None:
        """Start counting from 0, as on opening and after truncation."""
        self.bytes_since_entry = 0
        self.max_timestamp = max_timestamp

    def add(self, last_offset: Offset, max_timestamp: int, size_bytes: int) -> bool:
        """Count one batch; return whether it gets an entry in both indexes."""
        if max_timestamp > self.max_timestamp.timestamp:
            self.max_timestamp = TimestampOffset(max_timestamp, last_offset)
        due = self.bytes_since_entry > self.interval_bytes
        if due:
            self.bytes_since_entry = 0
        self.bytes_since_entry += size_bytes
        return due


def write_offset_index(
    file_system: FileSystem, path: Path, base_offset: Offset, settings: IndexSettings, batches: Iterable[StoredBatch]
) -> None:
    """Rebuild a segment's offset index: the same entries as when its batches were appended (spec C6).

    Raises:
        CorruptionError: the log itself is damaged.
    """
    builder = IndexBuilder(base_offset, settings.interval_bytes)
    entries = bytearray()
    for batch in batches:
        header = batch.header
        if builder.add(Offset(header.last_offset), header.max_timestamp, header.size_bytes):
            entries += OffsetIndex.ENTRY.pack(header.last_offset - base_offset, batch.position)
    write_file_atomically(file_system, path, bytes(entries))


def write_time_index(
    file_system: FileSystem, path: Path, base_offset: Offset, settings: IndexSettings, batches: Iterable[StoredBatch]
) -> None:
    """Rebuild a sealed segment's time index, including its closing entry (spec C6, E6).

    Raises:
        CorruptionError: the log itself is damaged.
    """
    builder = IndexBuilder(base_offset, settings.interval_bytes)
    entries = bytearray()
    written = NO_TIMESTAMP
    for batch in batches:
        header = batch.header
        due = builder.add(Offset(header.last_offset), header.max_timestamp, header.size_bytes)
        if due and builder.max_timestamp.timestamp > written:
            written = builder.max_timestamp.timestamp
            entries += TimeIndex.ENTRY.pack(written, builder.max_timestamp.offset - base_offset)
    if builder.max_timestamp.timestamp > written:
        entries += TimeIndex.ENTRY.pack(builder.max_timestamp.timestamp, builder.max_timestamp.offset - base_offset)
    write_file_atomically(file_system, path, bytes(entries))
