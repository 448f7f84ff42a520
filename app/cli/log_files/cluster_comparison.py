"""A partition of a data directory beside the one that a cluster has adopted: the first difference, if there is one.

The records of the directory are those that Rollway stored, and not those that the export wrote. So a fault of the
export is a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from crc32c import crc32c

from app.cli.log_files.cluster_reader import AbortedTransaction, ClusterReader, FetchedBatch
from rollway.records import (
    HEADER_BYTES,
    BatchHeader,
    ControlType,
    RecordBatch,
    RecordColumns,
    RecordFormatError,
    decode_batch,
    decode_control_record,
)
from storage.disk.file_system import FileSystem
from storage.log_export import MovedProducers, PartitionWalk, StoredPartition, producer_shift

DECOMPRESSED_BYTES_MAX = 256 << 20

_CRC_BEGINS_AT = 21
_SAME_FIELDS = ("base_offset", "last_offset_delta", "base_timestamp", "max_timestamp", "attributes", "record_count")
_SHOWN_BYTES = 60


def find_difference(
    file_system: FileSystem,
    partition: StoredPartition,
    cluster: ClusterReader,
    directory_id: str,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> str | None:
    """Return the first difference between a stored partition and the cluster's, as a sentence without its full stop.

    It compares limits, the fields of each batch from the log start on, each record, and which transactions readers of
    committed records skip. Leader epochs, and how LZ4 frames were compressed, may differ. Memory: some batches.

    Raises:
        BrokerConnectionError: a broker cannot be reached, refuses, or answers something else.
        DamagedLogError: a stored segment is damaged.
        OSError: the disk refused.
    """
    limits = cluster.limits(partition.name)
    if limits.log_start_offset != partition.log_start_offset:
        return f"the log starts at {partition.log_start_offset}, and at {limits.log_start_offset} in the cluster"
    if limits.last_stable_offset != limits.high_watermark:
        return f"readers of committed records stop at {limits.last_stable_offset} in the cluster, before its end"
    walk = PartitionWalk(file_system, partition)
    producers = MovedProducers(producer_shift(directory_id))
    transactions = _Transactions()
    fetched = cluster.batches(partition.name, partition.log_start_offset, limits.high_watermark)
    for header, batch, producer in _stored_batches(walk, partition, producers, transactions, on_bytes):
        found = next(fetched, None)
        where = f"offset {header.base_offset}"
        if found is None:
            return f"{where}: the cluster ends at {limits.high_watermark}, before this batch"
        difference = _batch_difference(header._replace(**producer), batch, found)
        if difference is None:
            difference = transactions.compare(header, batch, producer["producer_id"], found)
        if difference is not None:
            return f"{where}: {difference}"
    if limits.high_watermark != walk.end_offset:
        return f"the log ends at {walk.end_offset}, and at {limits.high_watermark} in the cluster"
    return None


def _stored_batches(
    walk: PartitionWalk,
    partition: StoredPartition,
    producers: MovedProducers,
    transactions: _Transactions,
    on_bytes: Callable[[int], None],
) -> Iterator[tuple[BatchHeader, memoryview, dict[str, int]]]:
    """Yield the batches from the log start on, each with the producer that it must have in the cluster."""
    for segment in partition.segments:
        for piece in walk.pieces(segment):
            for header, batch in piece.batches:
                producer = producers.of(header)._asdict()
                if header.last_offset >= partition.log_start_offset:
                    yield header, batch, producer
                else:
                    transactions.see(header, batch, producer["producer_id"])
            on_bytes(len(piece.buffer))


class _Transactions:
    """Which transactions the log has aborted, and which the cluster says.

    A broker reports an aborted transaction with the first fetch that reaches into it, and maybe earlier. So the report
    must have come when the walk has reached the end of the transaction, and need not be kept after that.
    """

    def __init__(self) -> None:
        self._first_offsets: dict[int, int] = {}
        self._reported: set[AbortedTransaction] = set()

    def see(self, header: BatchHeader, batch: memoryview, producer_id: int) -> tuple[AbortedTransaction, bool] | None:
        """Note the next batch; return the transaction that it ends, and whether that is aborted.

        ``producer_id`` is the producer in the cluster.
        """
        if not header.is_transactional:
            return None
        if not header.is_control:
            self._first_offsets.setdefault(producer_id, header.base_offset)
            return None
        first_offset = self._first_offsets.pop(producer_id, None)
        if first_offset is None or not header.record_count:
            return None
        columns = decode_batch(RecordBatch(batch))
        control = decode_control_record(columns.keys[0], columns.values[0])
        return AbortedTransaction(producer_id, first_offset), control.control_type is ControlType.ABORT

    def compare(self, header: BatchHeader, batch: memoryview, producer_id: int, found: FetchedBatch) -> str | None:
        self._reported.update(found.aborted)
        ended = self.see(header, batch, producer_id)
        if ended is None:
            return None
        transaction, is_aborted = ended
        is_reported = transaction in self._reported
        self._reported.discard(transaction)
        if is_aborted == is_reported:
            return None
        says = "does not tell readers of committed records" if is_aborted else "tells readers of committed records"
        return (
            f"the transaction of producer {transaction.producer_id} that begins at offset {transaction.first_offset} "
            f"was {'aborted' if is_aborted else 'committed'}, and the cluster {says} that it was aborted"
        )


def _batch_difference(header: BatchHeader, batch: memoryview, found: FetchedBatch) -> str | None:
    """Return how the cluster's batch differs from the stored one, whose ``header`` has the producer of the cluster."""
    for field in (*_SAME_FIELDS, "producer_id", "producer_epoch", "base_sequence"):
        ours, theirs = getattr(header, field), getattr(found.header, field)
        if ours != theirs:
            return f"{field.replace('_', ' ')} of the batch is {ours}, and {theirs} in the cluster"
    if crc32c(found.batch[_CRC_BEGINS_AT:]) != found.header.crc:
        return "the cluster's batch does not match its CRC"
    if batch[HEADER_BYTES:] == found.batch[HEADER_BYTES:]:
        return None
    try:
        ours, theirs = _decoded(batch), _decoded(found.batch)
    except RecordFormatError as error:
        return f"the records of the batch differ, and cannot be decoded: {error}"
    return _record_difference(ours, theirs)


def _decoded(batch: memoryview) -> RecordColumns:
    return decode_batch(RecordBatch(batch), decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)


def _record_difference(ours: RecordColumns, theirs: RecordColumns) -> str | None:
    our_headers, their_headers = _header_rows(ours), _header_rows(theirs)
    for number in range(len(ours)):
        for name, one, other in (
            ("offset", int(ours.offsets[number]), int(theirs.offsets[number])),
            ("timestamp", int(ours.timestamps[number]), int(theirs.timestamps[number])),
            ("key", ours.keys[number], theirs.keys[number]),
            ("value", ours.values[number], theirs.values[number]),
            ("headers", our_headers[number], their_headers[number]),
        ):
            if one != other:
                record = f"{name} of the record at {int(ours.offsets[number])}"
                return f"{record} is {_shown(one)}, and {_shown(other)} in the cluster"
    return None


def _header_rows(columns: RecordColumns) -> Sequence[object]:
    return [()] * len(columns) if columns.headers is None else columns.headers.to_rows()


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_BYTES else f"{text[:_SHOWN_BYTES]}..."
