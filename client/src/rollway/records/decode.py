"""Record batches to columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rollway.records.batch import BatchHeader, Codec, RecordBatch, TimestampType
from rollway.records.columns import RecordColumns
from rollway.records.compression import decompress
from rollway.records.sections.pieces import PIECE_BYTES, section_pieces
from rollway.records.sections.reader import read_section

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024

# Columns of small records are larger than the records. A batch whose columns are larger by more than this is refused.
COLUMNS_RATIO_MAX = 4


def decompress_batch(batch: RecordBatch, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes | memoryview:
    """Return the records of a batch, decompressed and still encoded; a view of the batch if they are not compressed.

    Raises:
        BrokenBatchError: the compressed stream is damaged, or is not one stream and nothing else.
        UnknownCodecError: no such codec.
        DecompressedSizeError: more than ``decompressed_bytes_max`` bytes.

    Thread: any.
    """
    body = batch.body
    if not body and batch.header.record_count == 0:
        # Compaction emptied it, and no bytes are not a compressed stream.
        return body
    return decompress(batch.header.codec, body, decompressed_bytes_max)


def decode_batch(
    batch: RecordBatch,
    *,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    section: bytes | memoryview | None = None,
) -> RecordColumns:
    """Return the records of a batch as columns, after checking every length in it.

    ``section`` is the result of ``decompress_batch``, for callers that have it.

    Checks that each record is exactly as long as it says, that each field lies inside its record, that the count is
    right and that no bytes are left over. The caller checks the CRC, and whether offset deltas are contiguous: they are
    returned as they stand. With log append time every record reports the batch's maximum timestamp. Control batches
    decode like any other. The columns are copies, independent of the batch.

    Example: a batch of base offset 50 with two records has the offsets 50 and 51.

    Raises:
        BrokenRecordError: a record breaks the format, or there are not as many as the header says.
        BrokenBatchError: the compressed stream is damaged, or is not one stream and nothing else.
        UnknownCodecError: no such codec.
        DecompressedSizeError: the records take more than ``decompressed_bytes_max``. Or the batch is compressed, and
            the columns of its many small records would take more than four times that.

    Thread: any.
    """
    header = batch.header
    if section is None:
        section = decompress_batch(batch, decompressed_bytes_max=decompressed_bytes_max)
    columns_bytes_max = None if header.codec is Codec.NONE else COLUMNS_RATIO_MAX * decompressed_bytes_max
    return _absolute(header, read_section(section, header.record_count, columns_bytes_max))


def decode_pieces(
    batch: RecordBatch,
    section: bytes | memoryview,
    *,
    piece_bytes: int = PIECE_BYTES,
    columns_bytes_max: int | None = None,
) -> Iterator[RecordColumns]:
    """Yield the records of a batch piece by piece, for readers that must not hold the columns of all of them.

    ``section`` is the result of ``decompress_batch``. A piece has whole records of ``piece_bytes`` together, or one
    that is longer. Each piece is checked when it is reached, as ``decode_batch`` checks a batch.

    Raises:
        BrokenRecordError: as ``decode_batch``; the number of a record counts from the beginning of its piece.
        DecompressedSizeError: a piece has so many headers that its columns would take more than ``columns_bytes_max``.

    Thread: any.
    """
    view = memoryview(section)
    for piece in section_pieces(view, batch.header.record_count, piece_bytes):
        part = view[piece.start : piece.end]
        yield _absolute(batch.header, read_section(part, piece.record_count, columns_bytes_max))


def _absolute(header: BatchHeader, deltas: RecordColumns) -> RecordColumns:
    """Return records with the offsets and timestamps of the log, from the deltas in the batch."""
    # Adding to arrays wraps around at 2^63, like Java's long.
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        timestamps = np.full(len(deltas), header.max_timestamp, dtype=np.int64)
    else:
        timestamps = deltas.timestamps + header.base_timestamp
    return RecordColumns(deltas.offsets + header.base_offset, timestamps, deltas.keys, deltas.values, deltas.headers)
