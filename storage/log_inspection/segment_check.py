"""The check of one segment: every batch of its log, and its indexes against the batches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from log_model.offsets import NO_TIMESTAMP
from rollway.records import Codec, HeaderColumns, RecordFormatError, TimestampType, decode_batch, split_batches
from rollway.records.compression import find_lz4_obstacle
from storage.disk.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
)
from storage.disk.file_system import FileSystem
from storage.log_inspection.findings import Findings
from storage.log_inspection.index_checks import IndexFile, OffsetIndexCheck, Report, TimeIndexCheck
from storage.log_inspection.replayed_segment import SEGMENT_OFFSETS_MAX, ReplayedSegment
from storage.log_inspection.stored_files import (
    CODEC_NAMES,
    TRANSACTION_ENTRY,
    ProducerEntry,
    Readable,
    StoredBatch,
    StoredFileError,
    is_zero,
    read_batches,
    read_transaction_entries,
)
from storage.log_inspection.stored_journal import JournalPiece
from storage.log_inspection.transaction_check import TransactionWalk

DECODED_BATCH_BYTES_MAX = 64 << 20
DECOMPRESSED_BYTES_MAX = 256 << 20


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """The segment to check, and its state according to the directory."""

    directory: Path
    base_offset: int
    is_active: bool
    """Whether it is the partition's last, which may end in preallocated zeros unless the server stopped cleanly."""
    is_live: bool
    """Whether a server writes here now."""
    is_recovered_at_start: bool
    """Whether the next start, after an unclean stop, checks the tail and rebuilds the indexes."""
    pieces: Sequence[JournalPiece] = ()
    """The pieces of the journal that the next start writes to it. The check reads the segment as if it had them."""

    def path(self, suffix: str) -> Path:
        return self.directory / offset_file_name(self.base_offset, suffix)


@dataclass(slots=True)
class PartitionWalk:
    """The state that a check carries from batch to batch and from segment to segment of one partition."""

    findings: Findings
    is_compacted: bool | None
    """Whether gaps are normal; ``None`` if the topic's configuration is unknown."""
    epochs: list[tuple[int, int]]
    producer_entries: dict[int, list[tuple[Path, ProducerEntry]]]
    """Entries of producer snapshots by the last offset of their batch, until that batch is found."""
    decodes: bool
    next_offset: int
    transactions: TransactionWalk
    leader_epoch: int = -1
    batch_count: int = 0
    record_count: int = 0
    index_entry_count: int = 0
    first_offset: int | None = None
    missing_indexes: list[Path] = field(default_factory=list)
    on_batch: Callable[[int, int], None] = field(default=lambda _size, _records: None)

    def report_gap(self, path: Path, offset: int, before: str, position: int | None = None) -> None:
        """Report missing offsets if ``offset``, the next one found, is above the expected one."""
        if offset <= self.next_offset:
            return
        missing = f"offsets {self.next_offset} to {offset - 1} are missing before {before}"
        if self.is_compacted is False:
            self.findings.damage(path, missing, position)
        elif self.is_compacted is None:
            self.findings.note(path, f"{missing}, which is normal in a compacted topic and a loss in another", position)


class SegmentCheck:
    """Walks one segment's log once and reports every fault."""

    def __init__(self, file_system: FileSystem, place: SegmentPlace, walk: PartitionWalk) -> None:
        self._file_system = file_system
        self._place = place
        self._walk = walk
        self._log_path = place.path(LOG_SUFFIX)
        self._offset_index: OffsetIndexCheck | None = None
        self._time_index: TimeIndexCheck | None = None

    def run(self) -> int:
        """Check the segment; return the length of its log in bytes.

        Raises:
            FileNotFoundError: the log is gone (retention, if the directory is live).
        """
        with ExitStack() as stack:
            # Open the log last: a server writes bytes first and entries later, so only entries written during this
            # check can be ahead of the log.
            offset_index = self._open_index(stack, OFFSET_INDEX_SUFFIX)
            time_index = self._open_index(stack, TIME_INDEX_SUFFIX)
            stored = self._file_system.open(self._log_path, writable=False)
            stack.callback(stored.close)
            log = ReplayedSegment(stored, self._place.pieces)
            size = log.size()
            if offset_index is not None:
                self._offset_index = OffsetIndexCheck(offset_index, self._index_report())
            if time_index is not None:
                self._time_index = TimeIndexCheck(time_index, self._index_report())
            self._check_batches(log, size)
            self._finish_indexes()
            self._check_transaction_index(stack)
            return size

    def _index_report(self) -> Report:
        if not self._place.is_recovered_at_start:
            return self._walk.findings.damage

        def note(path: Path, message: str, position: int | None = None) -> None:
            self._walk.findings.note(path, f"{message}; the next start rebuilds this index", position)

        return note

    def _open_index(self, stack: ExitStack, suffix: str) -> IndexFile | None:
        path = self._place.path(suffix)
        try:
            file = self._file_system.open(path, writable=False)
        except FileNotFoundError:
            self._walk.missing_indexes.append(path)
            return None
        stack.callback(file.close)
        has_zero_tail = self._place.is_active and (self._place.is_live or self._place.is_recovered_at_start)
        return IndexFile(file, file.size(), self._place.base_offset, has_zero_tail)

    def _finish_indexes(self) -> None:
        may_be_ahead = self._place.is_live and self._place.is_active
        if self._offset_index is not None:
            self._offset_index.finish(may_be_ahead=may_be_ahead)
            self._walk.index_entry_count += self._offset_index.entries.count
        if self._time_index is not None:
            self._time_index.finish(may_be_ahead=may_be_ahead, is_sealed=not self._place.is_active)
            self._walk.index_entry_count += self._time_index.entries.count

    def _check_batches(self, log: Readable, size: int) -> None:
        walk = self._walk
        try:
            for batch in read_batches(log, size):
                if not batch.is_crc_valid:
                    self._report_crc(batch, size)
                else:
                    self._check_header(batch)
                    if walk.decodes:
                        self._check_records(log, batch)
                self._check_continuity(batch)
                walk.transactions.see(log, batch)
                if self._offset_index is not None:
                    self._offset_index.see(batch)
                if self._time_index is not None:
                    self._time_index.see(batch)
                walk.batch_count += 1
                walk.record_count += batch.record_count
                walk.on_batch(batch.size_bytes, batch.record_count)
        except StoredFileError as error:
            if not self._place.is_active:
                walk.transactions.is_known = False
            self._report_tail(log, size, error)

    def _report_crc(self, batch: StoredBatch, size: int) -> None:
        message = f"the batch at offset {batch.base_offset} does not match its CRC {batch.crc:#010x}"
        if self._place.is_recovered_at_start and self._place.is_active and batch.position + batch.size_bytes == size:
            self._walk.findings.note(self._log_path, f"{message}; the next start cuts it off", batch.position)
        else:
            self._walk.findings.damage(self._log_path, message, batch.position)

    def _report_tail(self, log: Readable, size: int, error: StoredFileError) -> None:
        position = error.position or 0
        if self._place.is_active and is_zero(log, position, size):
            if self._place.is_live or self._place.is_recovered_at_start:
                return
            self._walk.findings.damage(self._log_path, "zeros follow the last batch after a clean stop", position)
        elif self._place.is_active and self._place.is_live:
            self._walk.findings.note(self._log_path, f"{error}; the server may be writing it now", position)
        elif self._place.is_active and self._place.is_recovered_at_start:
            self._walk.findings.note(self._log_path, f"{error}; the next start cuts them off", position)
        else:
            self._walk.findings.damage(self._log_path, str(error), position)

    def _check_header(self, batch: StoredBatch) -> None:
        if batch.producer_id >= 0 and batch.producer_epoch < 0 <= batch.base_sequence:
            # A broker stores such a batch, though no client sends it.
            self._walk.findings.note(
                self._log_path,
                f"the batch at offset {batch.base_offset} has producer {batch.producer_id} with epoch "
                f"{batch.producer_epoch}",
                batch.position,
            )
        if batch.producer_id < 0 <= batch.base_sequence:
            # A broker and the service store the batch as the client sent it. The sequence has no meaning.
            self._walk.findings.note(
                self._log_path,
                f"the batch at offset {batch.base_offset} has sequence {batch.base_sequence} and no producer",
                batch.position,
            )
        for problem in self._header_problems(batch):
            self._walk.findings.damage(
                self._log_path, f"batch at offset {batch.base_offset}: {problem}", batch.position
            )

    def _header_problems(self, batch: StoredBatch) -> Iterable[str]:
        if batch.last_offset_delta < 0 or batch.record_count < 0:
            yield f"last offset delta {batch.last_offset_delta} or record count {batch.record_count} is negative"
        elif batch.record_count > batch.last_offset_delta + 1:
            yield f"{batch.record_count} records do not fit into offsets 0 to {batch.last_offset_delta}"
        elif batch.record_count != batch.last_offset_delta + 1 and self._walk.is_compacted is False:
            yield f"it has {batch.record_count} records for {batch.last_offset_delta + 1} offsets"
        if batch.attributes & 0x07 >= len(CODEC_NAMES):
            yield f"it has {batch.codec_name}"
        if batch.is_control and batch.record_count > 1:
            yield f"it is a control batch of {batch.record_count} records"
        if batch.producer_id >= 0 and batch.producer_epoch < 0 and batch.base_sequence < 0:
            yield f"producer {batch.producer_id} has epoch {batch.producer_epoch}"
        if batch.is_transactional and batch.producer_id < 0:
            yield "it is transactional and has no producer"

    def _check_records(self, log: Readable, batch: StoredBatch) -> None:
        if batch.size_bytes > DECODED_BATCH_BYTES_MAX:
            self._walk.findings.note(
                self._log_path, f"the records of a batch of {batch.size_bytes} bytes were not decoded", batch.position
            )
            return
        report = self._walk.findings.damage
        try:
            (stored,) = split_batches(log.read(batch.position, batch.size_bytes))
            columns = decode_batch(stored, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
        except RecordFormatError as error:
            report(
                self._log_path,
                f"the records of the batch at offset {batch.base_offset} are broken: {error}",
                batch.position,
            )
            return
        obstacle = find_lz4_obstacle(stored.body) if stored.header.codec is Codec.LZ4 else None
        if obstacle is not None:
            self._walk.findings.note(
                self._log_path,
                f"the batch at offset {batch.base_offset} is an lz4 frame {obstacle}, which Kafka's Java clients and "
                "tools cannot read",
                batch.position,
            )
        offsets, timestamps = columns.offsets, columns.timestamps
        if columns.headers is not None:
            self._check_header_names(batch, columns.headers)
        if len(offsets) != batch.record_count:
            report(
                self._log_path,
                f"the header says {batch.record_count} records, but there are {len(offsets)}",
                batch.position,
            )
        if len(offsets) == 0:
            return
        if int(offsets[0]) < batch.base_offset or int(offsets[-1]) > batch.last_offset:
            report(self._log_path, f"offsets {offsets[0]} to {offsets[-1]} are outside their batch", batch.position)
        if not bool((offsets[1:] > offsets[:-1]).all()):
            report(self._log_path, f"offsets in the batch at offset {batch.base_offset} do not rise", batch.position)
        # A broker starts its search for the largest with -1.
        largest = max(int(timestamps.max()), NO_TIMESTAMP)
        if stored.header.timestamp_type is TimestampType.CREATE_TIME and largest != batch.max_timestamp:
            report(
                self._log_path,
                f"the header of the batch at offset {batch.base_offset} says the largest timestamp is "
                f"{batch.max_timestamp}, but it is {largest}",
                batch.position,
            )

    def _check_header_names(self, batch: StoredBatch, headers: HeaderColumns) -> None:
        """Note header names that are not UTF-8. Brokers store them; Java's clients show replacement characters."""
        names = headers.names
        if int(names.data[int(names.offsets[0]) : int(names.offsets[-1])].max(initial=0)) < 0x80:
            return
        for name in names.to_list():
            try:
                (name or b"").decode()
            except UnicodeDecodeError:
                self._walk.findings.note(
                    self._log_path,
                    f"a record of the batch at offset {batch.base_offset} has a header name that is not UTF-8",
                    batch.position,
                )
                return

    def _check_continuity(self, batch: StoredBatch) -> None:
        walk = self._walk
        report = walk.findings.damage
        if walk.first_offset is None:
            walk.first_offset = batch.base_offset
        if batch.base_offset < walk.next_offset:
            report(
                self._log_path,
                f"a batch begins with offset {batch.base_offset}, but offset {walk.next_offset} should follow",
                batch.position,
            )
        walk.report_gap(self._log_path, batch.base_offset, "this batch", batch.position)
        if batch.last_offset - self._place.base_offset > SEGMENT_OFFSETS_MAX:
            report(self._log_path, f"offset {batch.last_offset} is too far from the segment's base", batch.position)
        self._check_epoch(batch)
        self._check_producer(batch)
        walk.next_offset = max(walk.next_offset, batch.last_offset + 1)

    def _check_epoch(self, batch: StoredBatch) -> None:
        walk = self._walk
        epoch = batch.partition_leader_epoch
        if epoch < walk.leader_epoch:
            walk.findings.damage(
                self._log_path, f"leader epoch {epoch} follows leader epoch {walk.leader_epoch}", batch.position
            )
        walk.leader_epoch = max(walk.leader_epoch, epoch)
        if not walk.epochs:
            return
        following = bisect_right(walk.epochs, batch.base_offset, key=lambda entry: entry[1])
        expected = walk.epochs[following - 1][0] if following else epoch
        if expected != epoch:
            walk.findings.damage(
                self._log_path,
                f"the batch at offset {batch.base_offset} has leader epoch {epoch}, but the epoch checkpoint says "
                f"{expected}",
                batch.position,
            )

    def _check_producer(self, batch: StoredBatch) -> None:
        for path, entry in self._walk.producer_entries.pop(batch.last_offset, ()):
            stored = (batch.producer_id, batch.producer_epoch)
            if (entry.producer_id, entry.producer_epoch) != stored or (
                not batch.is_control and entry.last_sequence != batch.last_sequence
            ):
                self._walk.findings.damage(
                    path,
                    f"producer {entry.producer_id}, epoch {entry.producer_epoch}, is said to have ended offset "
                    f"{entry.last_offset} with sequence {entry.last_sequence}, but the log has producer "
                    f"{batch.producer_id}, epoch {batch.producer_epoch}, sequence {batch.last_sequence} there",
                )

    def _check_transaction_index(self, stack: ExitStack) -> None:
        path = self._place.path(TRANSACTION_INDEX_SUFFIX)
        report = self._index_report()
        is_written = self._place.is_live and self._place.is_active
        try:
            file = self._file_system.open(path, writable=False)
        except FileNotFoundError:
            self._walk.transactions.check_index(path, (), report, is_written=is_written)
            return
        stack.callback(file.close)
        self._walk.transactions.check_index(
            path, list(read_transaction_entries(file, file.size())), report, is_written=is_written
        )
        size = file.size()
        if size % TRANSACTION_ENTRY.size:
            report(path, f"{size} bytes are no whole number of entries of {TRANSACTION_ENTRY.size} bytes", None)
        last_offset = -1
        for entry in read_transaction_entries(file, size):
            if entry.version != 0:
                report(path, f"version {entry.version} of transaction entries is unknown", entry.position)
            if not 0 <= entry.first_offset <= entry.last_offset:
                report(
                    path,
                    f"a transaction cannot last from offset {entry.first_offset} to {entry.last_offset}",
                    entry.position,
                )
            if entry.last_offset <= last_offset:
                report(path, "the last offset does not rise above the entry before it", entry.position)
            if not self._place.base_offset <= entry.last_offset < max(self._walk.next_offset, 1):
                report(path, f"last offset {entry.last_offset} is not in this segment", entry.position)
            last_offset = max(last_offset, entry.last_offset)
