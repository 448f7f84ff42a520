"""Kafka's record batches (format 2) to and from columns. Bytes only: no files, no network, no threads.

Whole batches: ``split_batches``, ``parse_header``, ``RecordBatch``, ``stamp``. Records in columns, the fast way:
``encode_batch``, ``encode_batches``, ``decode_batch``, ``RecordColumns``. Records one by one: ``Record``,
``columns_from_records``, ``records_from_columns``. Everything wrong with bytes is a ``RecordFormatError``.
"""

from rollway.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    Codec,
    RecordBatch,
    TimestampType,
    parse_header,
    split_batches,
    stamp,
)
from rollway.records.columns import BinaryColumn, HeaderColumns, RecordColumns
from rollway.records.control import ControlRecord, ControlType, decode_control_record, encode_control_batch
from rollway.records.decode import decode_batch
from rollway.records.encode import encode_batch, encode_batches
from rollway.records.errors import (
    BrokenBatchError,
    BrokenRecordError,
    DecompressedSizeError,
    RecordFormatError,
    UnknownCodecError,
    UnsupportedMagicError,
)
from rollway.records.partitioner import murmur2, partition_for_key, partitions_for_keys
from rollway.records.record import Record, columns_from_records, records_from_columns

__all__ = [
    "HEADER_BYTES",
    "LOG_OVERHEAD_BYTES",
    "BatchHeader",
    "BinaryColumn",
    "BrokenBatchError",
    "BrokenRecordError",
    "Codec",
    "ControlRecord",
    "ControlType",
    "DecompressedSizeError",
    "HeaderColumns",
    "Record",
    "RecordBatch",
    "RecordColumns",
    "RecordFormatError",
    "TimestampType",
    "UnknownCodecError",
    "UnsupportedMagicError",
    "columns_from_records",
    "decode_batch",
    "decode_control_record",
    "encode_batch",
    "encode_batches",
    "encode_control_batch",
    "murmur2",
    "parse_header",
    "partition_for_key",
    "partitions_for_keys",
    "records_from_columns",
    "split_batches",
    "stamp",
]
