"""A reading of one partition that counts the changes of an export and finds what stands in its way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from log_model.names import PartitionName
from log_model.producers import KEYED_PRODUCER_ID_MIN
from rollway.records import BatchHeader, RecordBatch, RecordFormatError, decode_batch, decode_control_record
from storage.disk.file_names import PRODUCER_SNAPSHOT_SUFFIX, offset_file_name
from storage.disk.file_system import FileSystem
from storage.log_export.batch_rewriter import BatchRewriter, RewriteCounts
from storage.log_export.stored_partition import DamagedLogError, PartitionWalk, StoredPartition, StoredSegment
from storage.producers.producer_snapshot import read_snapshot


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that has neither been committed nor aborted in a partition."""

    producer_id: int
    producer_epoch: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class ForgottenKey:
    """An ``Idempotency-Key`` that Rollway remembers and the cluster will not, and the reason.

    ``producer_id`` stands for the key in Rollway. ``last_offset`` is that of the last record of its request.
    """

    producer_id: int
    last_offset: int
    why: str


@dataclass(frozen=True, slots=True)
class PartitionScan:
    """The content of one partition, and what an export of it would change."""

    name: PartitionName
    log_start_offset: int
    log_end_offset: int
    segment_count: int
    size_bytes: int
    batch_count: int
    rewritten: RewriteCounts
    open_transactions: tuple[OpenTransaction, ...]
    remembered_key_count: int
    """The keys that Rollway remembers; those of ``forgotten_keys`` are among them."""
    forgotten_keys: tuple[ForgottenKey, ...]


class OpenTransactions:
    """The transactions that are open behind the last batch seen."""

    def __init__(self) -> None:
        self._open: dict[int, OpenTransaction] = {}

    def see(self, header: BatchHeader, batch: memoryview) -> None:
        """Note the next batch of the partition.

        Raises:
            RecordFormatError: it is a control batch, and its record is damaged.
        """
        if not header.is_transactional:
            return
        if not header.is_control:
            if header.producer_id not in self._open:
                opened = OpenTransaction(header.producer_id, header.producer_epoch, header.base_offset)
                self._open[header.producer_id] = opened
        elif header.record_count:
            columns = decode_batch(RecordBatch(batch))
            decode_control_record(columns.keys[0], columns.values[0])
            self._open.pop(header.producer_id, None)

    def left(self) -> tuple[OpenTransaction, ...]:
        """Return those that are open, the oldest first."""
        return tuple(sorted(self._open.values(), key=lambda opened: opened.first_offset))


def scan_partition(
    file_system: FileSystem,
    partition: StoredPartition,
    *,
    shift: int,
    expired_before_ms: int,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> PartitionScan:
    """Read a partition, and return what an export would do. Changes nothing.

    ``expired_before_ms`` is the time before which the cluster forgets a producer, by the timestamps of its batches.
    ``on_bytes`` is called with the length of each piece that was read.

    Raises:
        DamagedLogError: a segment is damaged.
        OSError: the disk refused.
    """
    walk = PartitionWalk(file_system, partition)
    rewriter = BatchRewriter(shift)
    transactions = OpenTransactions()
    batch_count = 0
    for segment in partition.segments:
        for piece in walk.pieces(segment):
            for header, batch in piece.batches:
                _see(segment, header, batch, rewriter, transactions)
            batch_count += len(piece.batches)
            on_bytes(len(piece.buffer))
    if walk.end_offset < partition.log_start_offset:
        raise DamagedLogError(
            f"{partition.directory}: the log ends at {walk.end_offset}, below its start {partition.log_start_offset}"
        )
    remembered, forgotten = _keys(file_system, partition, walk.end_offset, rewriter.forgotten_ids, expired_before_ms)
    return PartitionScan(
        partition.name,
        partition.log_start_offset,
        walk.end_offset,
        len(partition.segments),
        partition.size_bytes,
        batch_count,
        rewriter.counts,
        transactions.left(),
        remembered,
        forgotten,
    )


def _see(
    segment: StoredSegment,
    header: BatchHeader,
    batch: memoryview,
    rewriter: BatchRewriter,
    transactions: OpenTransactions,
) -> None:
    try:
        transactions.see(header, batch)
        rewriter.rewrite(header, batch)
    except RecordFormatError as error:
        raise DamagedLogError(f"{segment.path}: the batch at offset {header.base_offset}: {error}") from error


def _keys(
    file_system: FileSystem, partition: StoredPartition, end_offset: int, unknown: set[int], expired_before_ms: int
) -> tuple[int, tuple[ForgottenKey, ...]]:
    """Return the number of the keys that Rollway remembers, and those that the cluster will not.

    The snapshot at the end of the log has them; a clean stop writes it.
    """
    path = partition.directory / offset_file_name(end_offset, PRODUCER_SNAPSHOT_SUFFIX)
    if not file_system.exists(path):
        return 0, ()
    records = [record for record in read_snapshot(file_system, path) if record.producer_id >= KEYED_PRODUCER_ID_MIN]
    forgotten = []
    for record in records:
        if record.producer_id in unknown:
            why = "the first batch of its request is not in the log"
        elif record.timestamp < expired_before_ms:
            why = "a broker forgets by the timestamps of records, and these are older than producer.id.expiration.ms"
        else:
            continue
        forgotten.append(ForgottenKey(record.producer_id, record.last_offset, why))
    return len(records), tuple(forgotten)
