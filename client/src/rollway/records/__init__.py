"""Kafka's record batches and the older message sets: read into columns, and written from them.

Bytes only: no files, no network, no threads. Each error about bytes is a ``RecordFormatError``.

For whole batches: ``split_batches``, ``parse_header``, ``RecordBatch``, ``stamp``. For records in columns, the fastest
form: ``encode_batch``, ``encode_batches``, ``decode_batch``, ``RecordColumns``; ``encode_section`` for a batch that is
sent in two pieces. For records in lists: ``encode_lists``. For single records: ``Record``, ``columns_from_records``,
``records_from_columns``. For messages of magic 0 and 1: ``decode_message_set``, ``encode_message_set``,
``walk_entries``. For answers of Kafka 0.7: ``encode_frame``, ``encode_multi_frame``, ``encode_entries``,
``decode_entries``.

``sections`` reads and writes the records of a batch, in C where it was compiled. ``compression`` has the codecs.
``message_sets`` has the older formats. Start with ``batch``, then ``sections.reader``.
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
from rollway.records.byte_entries import (
    ENTRY_OVERHEAD_BYTES,
    ByteEntry,
    EntryRead,
    decode_entries,
    encode_entries,
    read_entries,
)
from rollway.records.columns import BinaryColumn, HeaderColumns, RecordColumns
from rollway.records.committed import committed_batches
from rollway.records.control import ControlRecord, ControlType, decode_control_record, encode_control_batch
from rollway.records.decode import decode_batch, decode_pieces, decompress_batch
from rollway.records.encode import RecordSection, encode_batch, encode_batches, encode_lists, encode_section
from rollway.records.errors import (
    BrokenBatchError,
    BrokenFrameError,
    BrokenRecordError,
    DecompressedSizeError,
    RecordFormatError,
    UnknownCodecError,
    UnsupportedMagicError,
)
from rollway.records.fetch_framing import (
    FRAME_HEAD_BYTES,
    MessageSetFrame,
    MultiFrame,
    decode_frame,
    decode_multi_frame,
    encode_frame,
    encode_multi_frame,
    frame_head,
    multi_frame_head,
)
from rollway.records.message_sets.decode import DecodedMessages, decode_message_set
from rollway.records.message_sets.encode import encode_message_set
from rollway.records.message_sets.messages import MESSAGE_OVERHEAD_BYTES, SetEntry, walk_entries
from rollway.records.partitioner import murmur2, partition_for_key, partitions_for_keys
from rollway.records.record import Record, columns_from_records, records_from_columns

__all__ = [
    "ENTRY_OVERHEAD_BYTES",
    "FRAME_HEAD_BYTES",
    "HEADER_BYTES",
    "LOG_OVERHEAD_BYTES",
    "MESSAGE_OVERHEAD_BYTES",
    "BatchHeader",
    "BinaryColumn",
    "BrokenBatchError",
    "BrokenFrameError",
    "BrokenRecordError",
    "ByteEntry",
    "Codec",
    "ControlRecord",
    "ControlType",
    "DecodedMessages",
    "DecompressedSizeError",
    "EntryRead",
    "HeaderColumns",
    "MessageSetFrame",
    "MultiFrame",
    "Record",
    "RecordBatch",
    "RecordColumns",
    "RecordFormatError",
    "RecordSection",
    "SetEntry",
    "TimestampType",
    "UnknownCodecError",
    "UnsupportedMagicError",
    "columns_from_records",
    "committed_batches",
    "decode_batch",
    "decode_control_record",
    "decode_entries",
    "decode_frame",
    "decode_message_set",
    "decode_multi_frame",
    "decode_pieces",
    "decompress_batch",
    "encode_batch",
    "encode_batches",
    "encode_control_batch",
    "encode_entries",
    "encode_frame",
    "encode_lists",
    "encode_message_set",
    "encode_multi_frame",
    "encode_section",
    "frame_head",
    "multi_frame_head",
    "murmur2",
    "parse_header",
    "partition_for_key",
    "partitions_for_keys",
    "read_entries",
    "records_from_columns",
    "split_batches",
    "stamp",
    "walk_entries",
]
