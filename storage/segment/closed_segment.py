"""New segments whose files stay closed until they are used: one of thousands of new partitions may never be."""

from __future__ import annotations

import contextlib
from pathlib import Path

from log_model.config import TopicConfig
from log_model.offsets import Offset
from storage.disk.file_names import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, offset_file_name
from storage.disk.file_system import FileSystem
from storage.index.index_builder import IndexBuilder, IndexSettings
from storage.index.offset_index import OffsetIndex
from storage.index.time_index import TimeIndex
from storage.segment.segment import Segment


def create_closed(
    file_system: FileSystem,
    directory: Path,
    base_offset: Offset,
    config: TopicConfig,
    *,
    created_ms: int,
    jitter_ms: int,
) -> Segment:
    """Make the same files as ``Segment.create``, in a new directory, and leave none open."""
    settings = IndexSettings.of(config)
    for suffix, length in (
        (LOG_SUFFIX, settings.preallocated_bytes),
        (OFFSET_INDEX_SUFFIX, settings.max_bytes - settings.max_bytes % OffsetIndex.ENTRY_BYTES),
        (TIME_INDEX_SUFFIX, settings.max_bytes - settings.max_bytes % TimeIndex.ENTRY_BYTES),
    ):
        with contextlib.closing(
            file_system.open(directory / offset_file_name(base_offset, suffix), create=True)
        ) as file:
            file.truncate(length)
    segment = Segment(
        file_system,
        directory,
        base_offset,
        settings,
        size_bytes=0,
        created_ms=created_ms,
        sealed=False,
        jitter_ms=jitter_ms,
    )
    segment.indexer = IndexBuilder(base_offset, settings.interval_bytes)
    return segment
