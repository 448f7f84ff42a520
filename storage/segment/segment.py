"""One segment: a log file of record batches and its sparse indexes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from log_model.batches.batch_validation import ValidBatch
from log_model.config import TopicConfig
from log_model.offsets import NO_TIMESTAMP, ByteRange, Offset, OffsetPosition, Position, TimestampOffset
from log_model.reads import TimestampedRecord
from storage.disk.file_names import DELETED_SUFFIX, LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, offset_file_name
from storage.disk.file_system import File, FileSystem
from storage.disk.leftover_files import remove_segment_files
from storage.index.batch_walk import StoredBatch
from storage.index.index_builder import IndexBuilder, IndexSettings
from storage.index.lazy_index import LazyIndex
from storage.index.offset_index import OffsetIndex
from storage.index.time_index import TimeIndex
from storage.segment.batch_search import BatchSearch
from storage.segment.batch_search_py import SegmentRead
from storage.segment.segment_file import SegmentFile, fsync
from storage.segment.segment_indexes import open_offset_index, open_time_index, verified
from storage.segment.segment_transactions import SegmentTransactions
from storage.segment.timestamped_records import find_largest, first_record, first_timestamp

_logger = logging.getLogger(__name__)

IndexT = TypeVar("IndexT", OffsetIndex, TimeIndex)
AnswerT = TypeVar("AnswerT")


class Segment:
    """The batches from ``base_offset`` up to the next segment's, in a file of at most 2 GiB, and two indexes.

    Files and indexes are opened when first used. Only the active segment is appended to; ``seal`` ends that.
    ``size_bytes`` is the size of the written batches. Readers use the limit of their snapshot instead.
    Compiled code reads ``log``, and ``indexer``, ``first_batch_timestamp`` and ``search``, each ``None`` until known.

    Thread: one writer for methods that change the segment, any number of readers for the rest. An opened file stays
    readable for all holders of the segment, also after it was renamed and unlinked.
    """

    def __init__(
        self,
        file_system: FileSystem,
        directory: Path,
        base_offset: Offset,
        settings: IndexSettings,
        *,
        size_bytes: int,
        created_ms: int,
        sealed: bool,
        jitter_ms: int = 0,
    ) -> None:
        self._file_system = file_system
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        self._settings = settings
        self.first_batch_timestamp: int | None = None
        self.indexer: IndexBuilder | None = None
        self._building = threading.Lock()
        self._largest: TimestampOffset | None = None
        self._warned = False
        self.maxima_before: tuple[Offset, Sequence[int]] | None = None  # see ``LogSnapshot._maxima_from``
        self.log = SegmentFile(
            file_system,
            directory / offset_file_name(base_offset, LOG_SUFFIX),
            base_offset,
            size_bytes=size_bytes,
            sealed=sealed,
            has_gaps=settings.has_gaps,
        )
        # The openers hold the log file and not the segment. Descriptors and mappings must close when the last reader
        # drops the segment, not whenever reference cycles are next collected (invariant 4).
        self.offset_index: LazyIndex[OffsetIndex] = LazyIndex(
            partial(open_offset_index, file_system, self.log, settings),
            directory / offset_file_name(base_offset, OFFSET_INDEX_SUFFIX),
        )
        self.time_index: LazyIndex[TimeIndex] = LazyIndex(
            partial(open_time_index, file_system, self.log, settings, self.offset_index),
            directory / offset_file_name(base_offset, TIME_INDEX_SUFFIX),
        )
        self.transactions = SegmentTransactions(file_system, directory, base_offset)
        self.search: BatchSearch | None = None

    @classmethod
    def create(
        cls,
        file_system: FileSystem,
        directory: Path,
        base_offset: Offset,
        config: TopicConfig,
        *,
        created_ms: int,
        jitter_ms: int,
    ) -> Segment:
        """Make the files of a new active segment. The names are durable once the directory was synced.

        Stale files of the same names are removed first (spec E6). With ``preallocate`` the log file is
        ``segment.bytes`` long from the start. ``created_ms`` is elapsed time, the base of the segment's age.
        """
        remove_segment_files(file_system, directory, base_offset)
        segment = cls(
            file_system,
            directory,
            base_offset,
            IndexSettings.of(config),
            size_bytes=0,
            created_ms=created_ms,
            sealed=False,
            jitter_ms=jitter_ms,
        )
        segment.log.create(config.segment_bytes if config.preallocate else 0)
        segment.indexer = IndexBuilder(base_offset, config.index_interval_bytes)
        segment.offset_index.get()
        segment.time_index.get()
        return segment

    def __repr__(self) -> str:
        return f"Segment({self.log.path}, size_bytes={self.size_bytes}, sealed={self.sealed})"

    # Opening

    @property
    def size_bytes(self) -> int:
        """The bytes of the batches that are written so far."""
        return self.log.size_bytes

    @size_bytes.setter
    def size_bytes(self, size_bytes: int) -> None:
        self.log.size_bytes = size_bytes

    @property
    def holes(self) -> tuple[ByteRange, ...]:
        """Damaged bytes between good ones, in order. Only recovery sets them."""
        return self.log.holes

    @holes.setter
    def holes(self, holes: tuple[ByteRange, ...]) -> None:
        self.log.holes = holes

    @property
    def sealed(self) -> bool:
        """Whether appending has ended."""
        return self.log.sealed

    @property
    def file(self) -> File:
        """The log file, opened at first use."""
        return self.log.file

    def close_files(self) -> None:
        """Close the files of a sealed segment until they are next used. Holders of one read on."""
        self.log.close()
        for index in (self.offset_index, self.time_index, self.transactions.index):
            index.release()
        self.search = self.indexer = None

    def hold_open(self) -> None:
        """Open all files, so that holders of this segment can read on when the files are unlinked."""
        _ = self.file
        self.offset_index.get()
        self.time_index.get()
        self.transactions.index.get()

    # Appending: the writer only

    @property
    def builder(self) -> IndexBuilder:
        """The state of the writer for the next index entry."""
        builder = self.indexer
        if builder is None:
            with self._building:
                if self.indexer is None:
                    made = IndexBuilder(self.base_offset, self._settings.interval_bytes)
                    made.restart(self.time_index.get().last_entry)
                    self._largest = None
                    self.indexer = made
                builder = self.indexer
        return builder

    @property
    def is_ready(self) -> bool:
        """Whether an append would find all files open."""
        return self.indexer is not None and self.log.is_open and self.offset_index.is_open and self.time_index.is_open

    def index_room(self) -> int:
        """Return how many more entries both indexes take. The time index keeps one for ``seal`` (spec C8)."""
        offset_index = self.offset_index.get()
        time_index = self.time_index.get()
        return min(
            offset_index.file.max_entry_count - offset_index.entry_count,
            time_index.file.max_entry_count - 1 - time_index.entry_count,
        )

    def append(self, batches: Sequence[ValidBatch]) -> None:
        """Write stamped batches behind the last, then their index entries.

        Raises:
            OSError: the disk refused. ``size_bytes`` is unchanged; ``undo_append`` removes what was written.

        Durable: no, see ``flush``.
        """
        log, builder = self.log, self.builder
        parts = [part for batch in batches for part in (batch.head, batch.body)]
        position = log.size_bytes
        log.check_size(position)
        log.file.write(position, parts)
        for batch in batches:
            last_offset = batch.last_offset
            if position == 0:
                self.first_batch_timestamp = batch.max_timestamp
            if builder.add(last_offset, batch.max_timestamp, batch.size_bytes):
                self.add_index_entries(last_offset, Position(position))
            position += batch.size_bytes
        log.size_bytes = position

    def append_one(self, batch: ValidBatch, last_offset: Offset) -> bool:
        """Append one batch that ends with ``last_offset``. Return whether it got an entry in the indexes."""
        log, builder = self.log, self.builder
        position = log.size_bytes
        log.check_size(position)
        log.file.write(position, (batch.head, batch.body))
        if position == 0:
            self.first_batch_timestamp = batch.max_timestamp
        is_due = builder.add(last_offset, batch.max_timestamp, batch.size_bytes)
        if is_due:
            self.add_index_entries(last_offset, Position(position))
        log.size_bytes = position + batch.size_bytes
        return is_due

    def add_index_entries(self, last_offset: Offset, position: Position) -> None:
        """Give the batch that was just written at ``position`` an entry in both indexes, if they have room."""
        # The log rolls before they are full, but between groups. A missing entry only makes the walk longer.
        if self.index_room() > 0:
            self.offset_index.get().append(last_offset, position)
            self.time_index.get().maybe_append(*self.builder.max_timestamp)

    def undo_append(self, size_bytes: int, log_end: Offset, max_timestamp: TimestampOffset) -> None:
        """Remove the bytes of a failed ``append``, or of one whose aborted transactions could not be noted.

        ``size_bytes``, ``log_end`` and ``max_timestamp`` were true before it.

        Raises:
            OSError: the disk refuses this as well.
        """
        self.size_bytes = size_bytes
        # A disk that became read-only has taken no bytes, and would also refuse the truncation.
        if self.file.size() != size_bytes:
            self.file.truncate(size_bytes)
            if self._settings.preallocated_bytes:
                self.file.truncate(self._settings.preallocated_bytes)
            fsync(self.file.sync)
        for index in (self.offset_index, self.time_index):
            # An index that is not open has no entry of the failed append.
            if index.is_open:
                index.get().truncate_to(log_end)
        self.transactions.undo(log_end)
        self.builder.restart(max_timestamp)

    def flush(self, written_bytes: int | None = None) -> None:
        """Make all appended batches durable, aborted transactions included.

        The indexes follow in ``seal``: recovery rebuilds those of an active segment. Beside an append, which may grow
        the file or be undone, ``written_bytes`` is the size that is certainly written.
        """
        self.log.check(self.size_bytes if written_bytes is None else written_bytes)
        fsync(self.file.sync)
        fsync(self.transactions.flush)

    def seal(self) -> None:
        """End appending: add a last time index entry, cut all files to their used size, make all durable (spec E6).

        A second call does no harm. After the error of a full disk it may be called again.
        """
        time_index = self.time_index.get()
        if self.builder.max_timestamp.timestamp > NO_TIMESTAMP:
            time_index.maybe_append(*self.builder.max_timestamp, skip_full_check=True)
        # Also if the size is the same: the disk may keep room behind it.
        self.file.truncate(self.size_bytes)
        fsync(self.file.sync)
        for index in (self.offset_index.get(), time_index):
            index.file.trim()
            fsync(index.file.flush)
        fsync(self.transactions.flush)
        self.log.sealed = True

    def truncate_to(self, offset: Offset) -> None:
        """Cut at the first batch whose last offset is at or above ``offset`` (spec E21).

        The segment is active afterwards and its indexes have room again.
        """
        target = self.locate(offset, self.size_bytes)
        kept_bytes = self.size_bytes if target is None else target.position
        self.unseal()
        self.offset_index.get().truncate_to(offset)
        self.time_index.get().truncate_to(offset)
        self.transactions.index.get().truncate_to(offset)
        self.size_bytes = kept_bytes
        self.file.truncate(kept_bytes)
        # The search remembers positions. A read in progress adds its own to the old search, which is dropped.
        self.search = None
        fsync(self.file.sync)
        self._reload_max_timestamp()

    def unseal(self) -> None:
        """Let appending begin again. A second call does no harm."""
        self.log.sealed = False
        self._largest = None
        for index in (self.offset_index.get(), self.time_index.get()):
            index.file.make_writable()
            index.file.resize_to_max()

    def _reload_max_timestamp(self) -> None:
        """Find the largest timestamp again: the last entry's, or one of a batch behind that entry."""
        builder = IndexBuilder(self.base_offset, self._settings.interval_bytes)
        builder.restart(self.time_index.get().last_entry)
        entry = self._verified_lower_bound(Offset(builder.max_timestamp.offset), self.size_bytes)
        for batch in self.walk(entry.position, self.size_bytes):
            builder.add(Offset(batch.header.last_offset), batch.header.max_timestamp, 0)
        builder.restart(builder.max_timestamp)
        self.indexer = builder
        self.first_batch_timestamp = None

    # Reading

    def walk(self, position: int, limit: int) -> Iterator[StoredBatch]:
        """Yield the batches in ``[position, limit)``, by their headers.

        Raises:
            CorruptionError: the bytes there are no batches.
        """
        return self.log.walk(position, limit)

    def locate(self, offset: Offset, limit: int) -> StoredBatch | None:
        """Return the first batch below byte ``limit`` that ends at or above ``offset`` (spec A18)."""
        for batch in self.walk(self._verified_lower_bound(offset, limit).position, limit):
            if batch.header.last_offset >= offset:
                return batch
        return None

    @property
    def batch_search(self) -> BatchSearch:
        """Return the search for whole batches, made at its first use. Its ``find_cached`` never waits for the disk."""
        search = self.search
        if search is None:
            settings = self._settings
            search = self.search = BatchSearch(
                self._file_system, self.log, self.offset_index, settings.interval_bytes, has_gaps=settings.has_gaps
            )
        return search

    def read(
        self, offset: Offset, limit: int, max_bytes: int, *, min_one: bool, content_bytes_max: int = 0
    ) -> SegmentRead | None:
        """Return whole batches from the one that holds ``offset`` on, at most ``max_bytes`` of them (spec D14).

        With ``min_one`` the first batch comes whole, however large. ``None`` if no batch at or above ``offset``
        lies below byte ``limit``; a read of 0 bytes if the first batch exceeds ``max_bytes``. It ends before damage.
        A read of at most ``content_bytes_max`` may come with its content.
        """
        found = self.batch_search.find(offset, limit, max_bytes, min_one=min_one, content_bytes_max=content_bytes_max)
        return self._read(offset, limit, max_bytes, min_one=min_one) if found is None else found

    def _read(self, offset: Offset, limit: int, max_bytes: int, *, min_one: bool) -> SegmentRead | None:
        first = self.locate(offset, limit)
        if first is None:
            return None
        limit = self.log.run_end(first.position, limit)
        end_max = first.position + max_bytes
        if first.end > end_max:
            if not min_one:
                return SegmentRead(first.position, 0, offset)
            return SegmentRead(first.position, first.header.size_bytes, Offset(first.header.last_offset + 1))
        start, end, next_offset = first.position, first.end, Offset(first.header.last_offset + 1)
        if end_max - start > 2 * self._settings.interval_bytes:
            # The walk to the last batch that fits begins at the index entry nearest to it.
            place = Position(min(end_max, limit) - 1)
            entry = self._look_up(self.offset_index, lambda index: index.lookup_position(place), self._beginning)
            nearest = self.log.find_batch(entry, limit) if end < entry.position else None
            if nearest is not None:
                start = end = nearest.position
                next_offset = Offset(nearest.header.base_offset)
        for batch in self.walk(start, limit):
            if batch.end > end_max:
                break
            end, next_offset = batch.end, Offset(batch.header.last_offset + 1)
        return SegmentRead(first.position, end - first.position, next_offset)

    def find_timestamp(
        self,
        timestamp: int,
        start_offset: Offset,
        limit: int,
        *,
        latest: int | None = None,
        bytes_max: int | None = None,
    ) -> TimestampedRecord | None:
        """Return the first record, in offset order, at or after ``timestamp`` and at or above ``start_offset``.

        Records after ``latest`` do not count. Only batches that begin within ``bytes_max`` of the first are read.
        """
        nothing = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        entry = self._look_up(self.time_index, lambda index: index.lookup(timestamp), nothing)
        if entry.timestamp == NO_TIMESTAMP or not self._is_true_time_entry(entry, limit):
            entry = nothing
        start = self._verified_lower_bound(Offset(max(entry.offset, start_offset)), limit)
        first: Position | None = None
        for batch in self.walk(start.position, limit):
            if batch.header.last_offset < start_offset:
                continue
            first = batch.position if first is None else first
            if bytes_max is not None and batch.position - first > bytes_max:
                return None
            if batch.header.max_timestamp >= timestamp:
                found = first_record(self.file, batch, timestamp, start_offset, latest)
                if found is not None:
                    return found
        return None

    def find_max_timestamp(self, start_offset: Offset, limit: int) -> TimestampedRecord | None:
        """Return the first record with the largest timestamp among those at or above ``start_offset``."""
        start = self._verified_lower_bound(start_offset, limit).position
        return find_largest(self.file, lambda: self.walk(start, limit), start_offset)

    def first_record_timestamp(self) -> int:
        """Return the timestamp of the segment's first record, ``NO_TIMESTAMP`` without records."""
        return first_timestamp(self.file, self.walk(0, self.size_bytes))

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, the basis of rolling by time (spec E6)."""
        if self.first_batch_timestamp is None:
            first = next(self.walk(0, self.size_bytes), None)
            if first is None:
                return NO_TIMESTAMP
            self.first_batch_timestamp = first.header.max_timestamp
        return self.first_batch_timestamp

    @property
    def largest_timestamp(self) -> TimestampOffset:
        """The largest timestamp and the last offset of the earliest batch that has it."""
        try:
            if not self.sealed:
                return self.builder.max_timestamp
            largest = self._largest
            if largest is None:
                # Retention asks one segment after the other. None stays open for that (spec C4).
                was_open = self.log.is_open
                largest = self._largest = self.time_index.ask(lambda index: index.last_entry)
                if not was_open:
                    self.log.close()
            return largest
        except OSError as error:
            self._warn_unindexed(error)
            builder = IndexBuilder(self.base_offset, self._settings.interval_bytes)
            for batch in self.walk(0, self.size_bytes):
                builder.add(Offset(batch.header.last_offset), batch.header.max_timestamp, 0)
            return builder.max_timestamp

    def retention_timestamp(self) -> int:
        """Return the newest record's timestamp; if there is none, when the log file was last written (spec E5)."""
        timestamp = self.largest_timestamp.timestamp
        return timestamp if timestamp != NO_TIMESTAMP else self.modified_ms()

    def modified_ms(self) -> int:
        """Return when the log file was last written, for segments without timestamps (spec E5)."""
        return self.log.modified_ms()

    def _verified_lower_bound(self, offset: Offset, limit: int) -> OffsetPosition:
        """Return an index entry at or below ``offset`` that the log confirms, or the segment's beginning.

        An index carries no checksum: a garbled entry must never make a read skip records.
        """
        entry = self._look_up(self.offset_index, lambda index: index.lookup(offset), self._beginning)
        return verified(entry, self.log, limit)

    @property
    def _beginning(self) -> OffsetPosition:
        return OffsetPosition(self.base_offset, Position(0))

    def _look_up(self, index: LazyIndex[IndexT], question: Callable[[IndexT], AnswerT], without: AnswerT) -> AnswerT:
        """Ask an index. If the disk cannot open it, return ``without``: a longer walk finds the same (disk rule 8)."""
        try:
            return question(index.get())
        except OSError as error:
            self._warn_unindexed(error)
            return without

    def _warn_unindexed(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            _logger.warning("%s is read without its index: %s", self.log.path, error)

    def _is_true_time_entry(self, entry: TimestampOffset, limit: int) -> bool:
        batch = self.locate(entry.offset, limit)
        return (
            batch is not None
            and batch.header.last_offset == entry.offset
            and batch.header.max_timestamp == entry.timestamp
        )

    # Deleting

    def mark_deleted(self) -> list[Path]:
        """Rename the files to ``.deleted``; holders of the segment read on. Return the new names (spec E7)."""
        if self._file_system.exists(self.log.path):
            self.log.rename(_deleted(self.log.path))
        renamed = [self.log.path]
        for index in (self.offset_index, self.time_index, self.transactions.index):
            if self._file_system.exists(index.path):
                index.rename(self._file_system, _deleted(index.path))
                renamed.append(index.path)
        return renamed

    def moved_to(self, directory: Path) -> None:
        """Note that the directory was renamed to ``directory``."""
        self.log.moved_to(directory)
        for index in (self.offset_index, self.time_index, self.transactions.index):
            index.moved(directory / index.path.name)


def _deleted(path: Path) -> Path:
    return path if path.name.endswith(DELETED_SUFFIX) else path.with_name(path.name + DELETED_SUFFIX)
