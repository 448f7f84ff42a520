"""Decoding stored batches to JSON or columns, piece by piece, within limits that hold before memory is taken.

A few KiB of a batch may be 64 MiB of records, a record may have millions of headers, and a byte of a record may be 25
bytes of JSON. So a batch is decompressed up to a limit, its records become columns 256 KiB at a time, and a record is
measured before its text is written. Records that do not fit are left for the next fetch. Synchronous, stateless;
thread: any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from app.problems import kinds
from app.problems.problem import Problem
from app.record_json.record_documents import TooManyValuesError
from app.record_json.record_texts import RecordText, bounded_texts
from app.record_json.translate import Encoding
from log_model.errors import CorruptionError
from log_model.offsets import Offset
from rollway.records import (
    BatchHeader,
    DecompressedSizeError,
    RecordBatch,
    RecordColumns,
    RecordFormatError,
    TimestampType,
    decode_pieces,
    decompress_batch,
)

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
"""The largest batch that a producer may send, decompressed; also the limit for all batches of one response."""

_HEADER_TEXT_BYTES_MIN = 22
_HEADER_COLUMN_BYTES = 64

TIMESTAMP_TYPE_NAMES = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}


class NeedsRoomError(Exception):
    """A batch or a record is larger than the room of this request. It may be readable in a large room."""


@dataclass(slots=True)
class DecodingMeter:
    """Counts of the bytes and records that decoding has made, so that tests can check its limits."""

    decompressed_bytes: int = 0
    record_count: int = 0
    header_count: int = 0
    text_bytes: int = 0
    piece_text_bytes_max: int = 0


@dataclass(frozen=True, slots=True)
class DecodingLimits:
    """The limits on decoding one response.

    ``text_bytes``: the records of the response, as JSON. ``first_bytes``: the first record, which is read even if it is
    larger than ``text_bytes``. ``record_bytes``: the largest record that any response may have. ``batch_bytes``: a
    batch, decompressed. ``is_large``: no request has a larger room, so a record that needs one is a permanent error.
    """

    text_bytes: int = DECOMPRESSED_BYTES_MAX
    first_bytes: int = DECOMPRESSED_BYTES_MAX
    record_bytes: int = DECOMPRESSED_BYTES_MAX
    batch_bytes: int = DECOMPRESSED_BYTES_MAX
    is_large: bool = True
    meter: DecodingMeter = field(default_factory=DecodingMeter)


class DecodedRecords(NamedTuple):
    """Records for JSON, their end, and how many bytes they take.

    ``is_cut``: records of the range are left for later.
    """

    documents: list[RecordText]
    next_offset: Offset
    text_bytes: int
    is_cut: bool


class DecodedPiece(NamedTuple):
    """Some of a batch's records inside a range. ``content_bytes``: the size of their keys and values."""

    header: BatchHeader
    columns: RecordColumns
    content_bytes: int


def record_too_large(offset: int, detail: str) -> Problem:
    """Return the answer to a record that cannot be shown in this form: it says how to read around the record."""
    return Problem(
        kinds.RECORD_TOO_LARGE,
        f"the record at offset {offset} {detail}; read it as raw record batches at .../record-batches, its value "
        f"alone at .../records/{offset}/value, or go on at offset {offset + 1}",
        record_offset=offset,
        next_offset=offset + 1,
    )


def decoded_pieces(
    batch: RecordBatch, start: Offset, end: Offset | None, limits: DecodingLimits, *, shows_headers: bool = True
) -> Iterator[DecodedPiece]:
    """Yield the batch's records inside ``[start, end)``, some 256 KiB of them at a time.

    A reader that shows no headers gets records with as many headers as a producer may send.

    Raises:
        NeedsRoomError: the batch is larger, decompressed, than ``limits`` allow.
        CorruptionError: stored bytes are damaged.
        Problem: record_too_large, a record has more headers than can be shown.
    """
    base_offset = batch.header.base_offset
    try:
        batch.check_crc()
        section = decompress_batch(batch, decompressed_bytes_max=limits.batch_bytes)
    except DecompressedSizeError as error:
        if not limits.is_large:
            raise NeedsRoomError from None
        raise _damaged(base_offset, error) from error
    except RecordFormatError as error:
        raise _damaged(base_offset, error) from error
    limits.meter.decompressed_bytes += len(section)
    headers_max = limits.first_bytes // _HEADER_TEXT_BYTES_MIN
    columns_bytes_max: int | None = (headers_max + 1) * _HEADER_COLUMN_BYTES
    if limits.is_large and not shows_headers:
        # No limit: the log has accepted records of this size.
        columns_bytes_max = None
    next_offset = base_offset
    pieces = decode_pieces(batch, section, columns_bytes_max=columns_bytes_max)
    while True:
        try:
            columns = next(pieces, None)
        except DecompressedSizeError:
            if not limits.is_large:
                raise NeedsRoomError from None
            detail = (
                f"has more than {headers_max} headers, which take more than {limits.first_bytes} bytes in an answer"
            )
            raise record_too_large(max(next_offset, start), detail) from None
        except RecordFormatError as error:
            raise _damaged(base_offset, error) from error
        if columns is None:
            return
        if not len(columns):
            continue
        next_offset = int(columns.offsets[-1]) + 1
        # Most ranges begin and end with a batch, and those are not searched for.
        first = 0 if start <= int(columns.offsets[0]) else int(np.searchsorted(columns.offsets, start))
        last = len(columns) if end is None or next_offset <= end else int(np.searchsorted(columns.offsets, end))
        if first < last:
            limits.meter.record_count += last - first
            limits.meter.header_count += 0 if columns.headers is None else len(columns.headers.names)
            content_bytes = columns.keys.size_bytes + columns.values.size_bytes
            inside = columns if last - first == len(columns) else columns.slice(first, last)
            yield DecodedPiece(batch.header, inside, content_bytes)
        if last < len(columns):
            return


def _damaged(base_offset: int, error: RecordFormatError) -> CorruptionError:
    return CorruptionError(f"the stored batch of offset {base_offset} is damaged: {error}")


def records_of(
    batches: Iterable[RecordBatch],
    start: Offset,
    end: Offset | None,
    next_offset: Offset,
    *,
    encoding: Encoding,
    partition: int,
    between: bytes | None,
    limits: DecodingLimits,
    min_one: bool = True,
) -> DecodedRecords:
    """Return the records of ``[start, end)`` in ``batches``, as many as fit. ``next_offset`` is the end of the batches.

    Documents are as in ``record_texts``. With ``min_one`` the first record comes in any case, up to
    ``limits.record_bytes``.

    Raises:
        NeedsRoomError: the first batch or record is larger than ``limits`` allow here.
        CorruptionError: stored bytes are damaged.
        Problem: record_too_large, the first record cannot be shown in any room.
    """
    answer = _Answer(encoding, partition, between, limits, min_one=min_one)
    for batch in batches:
        if end is not None and batch.header.base_offset >= end:
            break
        at = max(start, Offset(batch.header.base_offset))
        if answer.documents and answer.decompressed_bytes >= DECOMPRESSED_BYTES_MAX:
            return answer.cut(at)
        try:
            for piece in decoded_pieces(batch, start, end, limits):
                at = Offset(int(piece.columns.offsets[0]))
                stopped_at = answer.add(piece)
                if stopped_at is not None:
                    return answer.cut(stopped_at)
                at = Offset(int(piece.columns.offsets[-1]) + 1)
        except (NeedsRoomError, Problem) as error:
            if answer.documents or (isinstance(error, NeedsRoomError) and not min_one):
                # The next fetch begins at this record, and raises the error.
                return answer.cut(at)
            raise
    return DecodedRecords(answer.documents, next_offset, answer.text_bytes, is_cut=False)


class _Answer:
    """The records of one response while they are gathered."""

    def __init__(
        self, encoding: Encoding, partition: int, between: bytes | None, limits: DecodingLimits, *, min_one: bool
    ) -> None:
        self.documents: list[RecordText] = []
        self.text_bytes = 0
        self._encoding = encoding
        self._partition = partition
        self._between = between
        self._limits = limits
        self._min_one = min_one
        self._decompressed_before = limits.meter.decompressed_bytes
        self._missing_bytes = 0

    @property
    def decompressed_bytes(self) -> int:
        return self._limits.meter.decompressed_bytes - self._decompressed_before

    def cut(self, at: Offset) -> DecodedRecords:
        return DecodedRecords(self.documents, at, self.text_bytes, is_cut=True)

    def add(self, piece: DecodedPiece) -> Offset | None:
        """Take the records that fit. Return the offset of the first that does not, ``None`` if all do.

        Raises:
            NeedsRoomError, Problem: nothing is taken yet, and the first is too large.
        """
        columns = piece.columns
        taken = self._take(piece, columns, self._limits.text_bytes - self.text_bytes)
        if taken == len(columns):
            return None
        at = Offset(int(columns.offsets[taken]))
        if self.documents:
            return at
        if self._missing_bytes > self._limits.record_bytes:
            raise self._too_large(at)
        if not self._min_one:
            return at
        self._take_first(piece, at)
        return Offset(at + 1) if len(columns) > 1 else None

    def _take(self, piece: DecodedPiece, columns: RecordColumns, bytes_max: int) -> int:
        try:
            texts = bounded_texts(
                columns,
                encoding=self._encoding,
                timestamp_type=TIMESTAMP_TYPE_NAMES[piece.header.timestamp_type],
                partition=self._partition,
                between=self._between,
                bytes_max=bytes_max,
            )
        except TooManyValuesError as error:
            raise record_too_large(int(columns.offsets[0]), f"{error}; encoding=utf8 or base64 shows it") from None
        self._missing_bytes = texts.missing_bytes
        self.documents += texts.documents
        self.text_bytes += texts.size_bytes
        meter = self._limits.meter
        meter.text_bytes += texts.size_bytes
        meter.piece_text_bytes_max = max(meter.piece_text_bytes_max, texts.size_bytes)
        return texts.record_count

    def _take_first(self, piece: DecodedPiece, at: Offset) -> None:
        """Take the first record, which is the only one of its response."""
        limits = self._limits
        if self._missing_bytes <= limits.first_bytes and self._take(
            piece, piece.columns.slice(0, 1), limits.first_bytes
        ):
            return
        if self._missing_bytes > limits.record_bytes or limits.is_large:
            raise self._too_large(at)
        raise NeedsRoomError

    def _too_large(self, at: Offset) -> Problem:
        limit_bytes = min(self._limits.record_bytes, self._limits.first_bytes)
        return record_too_large(
            at, f"takes about {self._missing_bytes} bytes in an answer, which may have {limit_bytes}"
        )
