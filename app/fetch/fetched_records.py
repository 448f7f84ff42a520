"""The records of a read: decoded for JSON, as columns, or a single record.

Synchronous: batches may be read from the disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

import msgspec

from app.engine.reading import ReadOutcome
from app.record_json import decoding
from app.record_json.decoding import DecodedPiece, DecodedRecords, DecodingLimits, NeedsRoomError, decoded_pieces
from app.record_json.record_texts import IN_LIST, RecordText
from app.record_json.translate import Encoding
from log_model.errors import CorruptionError
from log_model.offsets import Offset
from log_model.reads import FetchData, Isolation
from rollway.records import RecordBatch, RecordFormatError, committed_batches, parse_header

ISOLATIONS = {"read_uncommitted": Isolation.HIGH_WATERMARK, "read_committed": Isolation.LAST_STABLE}
"""The end of a read for each kind of consumer (spec D12)."""


class ReadRecords(NamedTuple):
    """Records for JSON, and where the next fetch begins."""

    documents: list[RecordText]
    next_offset: Offset


def read_records(
    outcome: ReadOutcome,
    *,
    encoding: Encoding,
    partition: int,
    between: bytes | None = None,
    limits: DecodingLimits | None = None,
) -> ReadRecords:
    """Return exactly the records of the range, decoded for JSON as far as ``limits`` go, as ``record_texts``.

    Raises:
        CorruptionError: stored bytes are damaged.
        NeedsRoomError, Problem: as ``decoding.records_of``.
    """
    start, end = outcome.start, outcome.read_end
    found = records_of(outcome.data, start, end, encoding=encoding, partition=partition, between=between, limits=limits)
    return ReadRecords(found.documents, _cut(found.next_offset, outcome))


class ColumnRead(NamedTuple):
    """The records of a range, decoded piece by piece, and where the next fetch begins after all of them."""

    pieces: Iterator[DecodedPiece]
    next_offset: Offset


def read_columns(outcome: ReadOutcome, limits: DecodingLimits) -> ColumnRead:
    """Return exactly the records of the range, in columns.

    Raises:
        CorruptionError, NeedsRoomError: while pieces are taken.
    """
    pieces = (
        piece
        for batch in _visible(outcome.data)
        for piece in decoded_pieces(batch, outcome.start, outcome.read_end, limits, shows_headers=False)
    )
    return ColumnRead(pieces, _cut(outcome.data.next_offset, outcome))


def _cut(next_offset: Offset, outcome: ReadOutcome) -> Offset:
    """Return ``next_offset``, or the end of the visible records if it is sooner."""
    return next_offset if outcome.read_end is None else min(next_offset, max(outcome.read_end, outcome.start))


def records_of(
    data: FetchData,
    start: Offset,
    end: Offset | None,
    *,
    encoding: Encoding,
    partition: int,
    between: bytes | None = None,
    limits: DecodingLimits | None = None,
    min_one: bool = True,
) -> DecodedRecords:
    """Return the records of ``[start, end)`` in ``data``, as many as ``limits`` allow.

    Without ``limits`` it uses those of a large room. Leaves out control records, and the records of the transactions
    that ``data`` lists as aborted. Raises as ``decoding.records_of``.
    """
    return decoding.records_of(
        _visible(data),
        start,
        end,
        data.next_offset,
        encoding=encoding,
        partition=partition,
        between=between,
        limits=limits or DecodingLimits(),
        min_one=min_one,
    )


def read_record(
    outcome: ReadOutcome, *, encoding: Encoding, partition: int, limits: DecodingLimits | None = None
) -> bytes | None:
    """Return the JSON of the first record of a read of one offset.

    ``None`` if the log has no record there, which truncation may cause, or if it is a marker or not visible.

    Raises:
        CorruptionError: stored bytes are damaged.
        NeedsRoomError, Problem: as ``decoding.records_of``.
    """
    read = read_records(outcome, encoding=encoding, partition=partition, between=IN_LIST, limits=limits)
    return b"".join(map(bytes, cast("list[msgspec.Raw]", read.documents))) if read.documents else None


def read_value(outcome: ReadOutcome, limits: DecodingLimits | None = None) -> tuple[bytes | None, int] | None:
    """Return the record's value, null or not, and its timestamp; ``None`` as ``read_record``.

    Raises:
        CorruptionError: stored bytes are damaged.
        NeedsRoomError: the batch of the record, or its value, needs more room.
    """
    limits = limits or DecodingLimits()
    for piece in read_columns(outcome, limits).pieces:
        if not limits.is_large and piece.columns.values.size_bytes > limits.first_bytes:
            raise NeedsRoomError
        return piece.columns.values[0], int(piece.columns.timestamps[0])
    return None


def _batches(data: FetchData) -> Iterator[RecordBatch]:
    """Yield the batches, each read only when it is taken: a caller that stops early has not read the rest."""
    for piece in data.slices:
        content = memoryview(piece.read())
        position = 0
        try:
            while position < len(content):
                end = position + parse_header(content, position).size_bytes
                yield RecordBatch(content[position:end])
                position = end
        except RecordFormatError as error:
            raise CorruptionError(f"{piece.file.path}: {error}") from error


def _visible(data: FetchData) -> Iterator[RecordBatch]:
    """Yield the batches of records, without the batches of aborted transactions that ``data`` lists."""
    return committed_batches(_batches(data), [transaction[:2] for transaction in data.aborted or ()])
