"""Record batches to columns."""

from __future__ import annotations

import numpy as np

from rollway.records.batch import RecordBatch, TimestampType
from rollway.records.columns import RecordColumns
from rollway.records.compression import decompress
from rollway.records.section_reader import read_section

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024


def decode_batch(batch: RecordBatch, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> RecordColumns:
    """The records of a batch as columns, after checking every length in it.

    Checked: each record is exactly as long as it says, each field lies inside its record, header names are UTF-8, the
    count is right and nothing is left over. Left to the caller: the CRC, and whether offset deltas are contiguous
    (they are returned as they stand). With log append time every record reports the batch's maximum timestamp.
    Control batches decode like any other. The columns are copies, independent of the batch.

    Raises:
        BrokenRecordError: a record breaks the format, or there are not as many as the header says.
        BrokenBatchError: the compressed stream is damaged.
        UnknownCodecError: no such codec.
        DecompressedSizeError: more than ``decompressed_bytes_max`` bytes of records.

    Thread: any.
    """
    header = batch.header
    section = decompress(header.codec, batch.body, decompressed_bytes_max)
    parsed = read_section(section, header.record_count)
    with np.errstate(over="ignore"):
        offsets = np.int64(header.base_offset) + parsed.offset_deltas
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            timestamps = np.full(len(offsets), header.max_timestamp, dtype=np.int64)
        else:
            timestamps = np.int64(header.base_timestamp) + parsed.timestamp_deltas
    return RecordColumns(offsets, timestamps, parsed.keys, parsed.values, parsed.headers)
