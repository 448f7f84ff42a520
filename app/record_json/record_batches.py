"""Encoding the records of a request as batches that the log may take. Synchronous; large requests run in a thread."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Protocol, cast

from app.problems.engine import record_problem
from app.record_json.translate import Encoding, ParsedRecords
from log_model.batches.batch_validation import (
    ValidBatch,
    allows_range,
    allows_records,
    own_batch,
    own_section,
    validate_batches,
)
from log_model.batches.message_conversion import check_fits_segment, validate_each
from log_model.batches.recompression import level_of, stored_codec
from log_model.config import TopicConfig
from log_model.errors import InvalidRecordError, MessageTooLargeError, RecordError
from rollway.records import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    Codec,
    RecordSection,
    encode_batches,
    encode_lists,
    parse_header,
)
from rollway.records.compiled import load

_COMPRESSION_OVERHEAD_BYTES = 128

# Measured: from about this many records on columns are quicker than lists.
_LISTS_MAX = 2000

_BATCH_LENGTH = struct.Struct(">i")
_BATCH_LENGTH_AT = 8
_CODEC_AT = 22
_CODEC_MASK = 0x07


class CompiledRecords(Protocol):
    """The function of ``record_batches_c.pyx``."""

    def write_sections(
        self, data: bytes | bytearray | memoryview, is_lines: bool, partition: int, now_ms: int, bytes_max: int
    ) -> list[tuple[memoryview, int, int, int, int, bool]] | None:
        """Return the records of a body in sections of at most ``bytes_max``; ``None`` leaves the body to ``translate``.

        Sections are filled one after the other. Each has its bytes, the number of its records, the first timestamp, the
        least, the greatest, and whether a key is null.
        """


compiled = cast("CompiledRecords | None", load("app.record_json.record_batches_c"))
"""The compiled module, or ``None``. Looked up here with every call. Tests set it to ``None``."""


def plain_batches(
    body: bytes | bytearray | memoryview,
    encoding: Encoding,
    config: TopicConfig,
    partition: int,
    now_ms: int,
    *,
    is_lines: bool = False,
    together: bool = True,
) -> list[ValidBatch] | None:
    """Return ``validated_batches`` of a body of JSON, or of NDJSON, read and encoded in one go.

    ``None`` if ``translate`` must read the body: it finds the words for faults, and reads values that are no plain
    text.

    Thread: any; large bodies are read without the interpreter's lock.
    """
    if compiled is None or encoding != "utf8" or compresses(config):
        return None
    section_bytes_max = _batch_bytes_max(config, Codec.NONE) - HEADER_BYTES
    found = compiled.write_sections(body, is_lines, partition, now_ms, section_bytes_max)
    if found is None:
        return None
    batches = []
    for data, record_count, base_timestamp, oldest, newest, has_null_key in found:
        if not allows_range(config, oldest, newest, now_ms, has_null_key=has_null_key):
            return None
        batches.append(own_section(RecordSection(data, Codec.NONE, record_count, base_timestamp, newest)))
    if together and sum(batch.size_bytes for batch in batches) > config.segment_bytes:
        return None
    return batches


def validated_batches(
    parsed: ParsedRecords,
    config: TopicConfig,
    rows: Sequence[int] | None = None,
    *,
    together: bool = True,
) -> list[ValidBatch]:
    """Encode all records, or these rows, into batches of at most ``max.message.bytes``, and validate them.

    With ``together`` all batches must fit into one segment. Without it each batch must, and is made to fit.

    Raises:
        Problem: records break a rule; names them by their place in the request.
        RefusedError: as ``validate_batches``.
    """
    quick = _one_batch(parsed if rows is None else parsed.chosen(rows), config)
    return _batches(parsed, config, rows, together=together) if quick is None else [quick]


def _batches(
    parsed: ParsedRecords, config: TopicConfig, rows: Sequence[int] | None, *, together: bool
) -> list[ValidBatch]:
    codec = stored_codec(config, Codec.NONE)
    encoded = encode_batches(
        parsed.columns(rows),
        batch_bytes_max=_batch_bytes_max(config, codec),
        codec=codec,
        level=level_of(config, codec),
    )
    try:
        batches = validate_each(encoded, config, parsed.now_ms)
    except (InvalidRecordError, MessageTooLargeError) as error:
        faults = error.record_errors if isinstance(error, InvalidRecordError) else _too_large(encoded, config)
        raise record_problem(error, faults, lambda row: parsed.pointer(row if rows is None else rows[row])) from error
    if together:
        check_fits_segment(batches, config)
    return batches


def _too_large(encoded: Sequence[bytes], config: TopicConfig) -> Iterator[RecordError]:
    """Yield the errors of records that do not even fit into a batch of their own."""
    place = 0
    for batch in encoded:
        if len(batch) > config.max_message_bytes:
            sizes = f"{len(batch)} bytes in a batch of its own; max.message.bytes is {config.max_message_bytes}"
            yield RecordError(place, f"the record takes {sizes}")
        place += parse_header(batch).record_count


def _one_batch(parsed: ParsedRecords, config: TopicConfig) -> ValidBatch | None:
    """Return all records in one valid batch; ``None`` if they are many, large or break a rule."""
    count = len(parsed)
    if not 0 < count <= _LISTS_MAX or compresses(config):
        return None
    if not allows_records(config, parsed.timestamps, parsed.keys, parsed.now_ms):
        return None
    bytes_max = _batch_bytes_max(config, Codec.NONE)
    if parsed.size_bytes > bytes_max:
        return None
    batch = encode_lists(parsed.timestamps, parsed.keys, parsed.values, parsed.headers)
    return own_batch(batch) if len(batch) <= bytes_max else None


def batches_at_once(
    body: bytes | bytearray | memoryview, config: TopicConfig, now_ms: int, size_bytes_max: int
) -> list[ValidBatch] | None:
    """Return the validated batches of a body; ``None`` for a body that takes long and so needs a thread.

    That is a body of more than ``size_bytes_max``, or one that is decompressed or compressed.

    Raises:
        RefusedError: as ``validate_batches``.
    """
    if len(body) > size_bytes_max or needs_codec(body, config):
        return None
    return validate_batches(body, config, now_ms)


def needs_codec(body: bytes | bytearray | memoryview, config: TopicConfig) -> bool:
    """Return whether validating these record batches decompresses or compresses: a few bytes may become many."""
    if compresses(config):
        return True
    position = 0
    while position + HEADER_BYTES <= len(body):
        if body[position + _CODEC_AT] & _CODEC_MASK:
            return True
        (length,) = _BATCH_LENGTH.unpack_from(body, position + _BATCH_LENGTH_AT)
        position += LOG_OVERHEAD_BYTES + max(length, 0)
    return False


def compresses(config: TopicConfig) -> bool:
    """Return whether the service compresses the topic's batches."""
    return stored_codec(config, Codec.NONE) is not Codec.NONE


def _batch_bytes_max(config: TopicConfig, codec: Codec) -> int:
    """Return how large batches may be before compression, which makes random bytes a little larger."""
    bytes_max = min(config.max_message_bytes, config.segment_bytes)
    return bytes_max if codec is Codec.NONE else bytes_max - bytes_max // 64 - _COMPRESSION_OVERHEAD_BYTES
