"""Message sets of magic 0 and 1: checked as they arrive, converted to batches, checked again (spec E17).

Stateless and thread-safe, as ``batch_validation``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from log_model.batches.batch_validation import (
    DECOMPRESSED_BYTES_MAX,
    RECORD_ERRORS_MAX,
    ValidBatch,
    refusal,
    validate_batches,
)
from log_model.batches.recompression import level_of, stored_codec
from log_model.config import TopicConfig
from log_model.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    RecordError,
    RecordListTooLargeError,
)
from log_model.offsets import NO_TIMESTAMP
from rollway.records import (
    Codec,
    DecodedMessages,
    RecordFormatError,
    TimestampType,
    decode_message_set,
    encode_batch,
    encode_batches,
    stamp,
    walk_entries,
)


def convert_message_set(buffer: bytes | bytearray | memoryview, config: TopicConfig, now_ms: int) -> list[ValidBatch]:
    """Check every message of a produce body and convert it to batches; return all or raise (spec A11-A13, E17).

    Consecutive plain messages become one batch, or as many as ``max.message.bytes`` requires. Each wrapper becomes a
    batch of its own with its codec, unless ``compression.type`` names another. Timestamps are kept; messages of magic 0
    have none (-1). The log assigns the offsets. A partial last message is left out; no messages give no batches.

    Raises:
        CorruptBatchError: a wrong size, CRC or compressed stream.
        InvalidRecordError: another magic, or messages that break a rule; names them by their index in the body.
        InvalidTimestampError: a timestamp out of range; or log append time claimed on a topic that stamps messages
            itself, or for a message without a timestamp.
        UnsupportedCodecError: a codec that these formats do not have, such as zstd (case V-25).
        MessageTooLargeError: a message, or the batch it becomes, is larger than ``max.message.bytes``.
        RecordListTooLargeError: the batches do not fit into one segment.

    Thread: any; reads ``buffer`` only.
    """
    view = memoryview(buffer).cast("B")
    batches: list[ValidBatch] = []
    record_count = 0
    for messages in _checked(view, config):
        if messages.timestamp_type is TimestampType.LOG_APPEND_TIME:
            _check_append_time(messages, config, record_count)
        try:
            batches += validate_each(_encoded(messages, config), config, now_ms)
        except InvalidRecordError as error:
            raise _moved(error, record_count) from error
        record_count += len(messages)
    check_fits_segment(batches, config)
    return batches


def validate_each(encoded: Iterable[bytes], config: TopicConfig, now_ms: int) -> list[ValidBatch]:
    """Validate batches that the service encoded itself, each as if it came in a request of its own.

    Raises:
        RefusedError: as ``validate_batches``; records are numbered through all batches.
    """
    batches: list[ValidBatch] = []
    record_count = 0
    for batch in encoded:
        buffer = bytearray(batch)
        stamp(buffer, 0, 0, 0)
        try:
            batches += validate_batches(buffer, config, now_ms)
        except InvalidRecordError as error:
            raise _moved(error, record_count) from error
        record_count += batches[-1].header.record_count
    return batches


def check_fits_segment(batches: Sequence[ValidBatch], config: TopicConfig) -> None:
    """Check that batches which are appended together fit into one segment (spec E11).

    Raises:
        RecordListTooLargeError: they do not.
    """
    total_bytes = sum(batch.size_bytes for batch in batches)
    if total_bytes > config.segment_bytes:
        raise RecordListTooLargeError(
            f"{total_bytes} bytes of batches do not fit into a segment of {config.segment_bytes} bytes"
        )


def _checked(view: memoryview, config: TopicConfig) -> Iterator[DecodedMessages]:
    try:
        for entry in walk_entries(view):
            if entry.size_bytes > config.max_message_bytes:
                raise MessageTooLargeError(
                    f"the message at byte {entry.position} has {entry.size_bytes} bytes; "
                    f"max.message.bytes is {config.max_message_bytes}"
                )
        yield from decode_message_set(view, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    except RecordFormatError as error:
        raise refusal(error, str(error)) from error


def _encoded(messages: DecodedMessages, config: TopicConfig) -> list[bytes]:
    """Encode the messages as one batch if it is small enough, otherwise as several."""
    codec = stored_codec(config, messages.codec)
    level = level_of(config, codec) if codec is not messages.codec else None
    batch_bytes_max = min(config.max_message_bytes, config.segment_bytes)
    if codec is not Codec.NONE:
        whole = encode_batch(messages.columns, codec=codec, level=level)
        if len(whole) <= batch_bytes_max:
            return [whole]
    return encode_batches(messages.columns, batch_bytes_max=batch_bytes_max, codec=codec, level=level)


def _check_append_time(messages: DecodedMessages, config: TopicConfig, before: int) -> None:
    """Refuse messages that claim LogAppendTime where a broker refuses them. Other messages keep their timestamps.

    ``before`` is the number of messages that precede them in the body.
    """
    claims = messages.columns.timestamps == NO_TIMESTAMP
    if config.message_timestamp_type != "CreateTime":
        claims[:] = True
    places = np.flatnonzero(claims)[:RECORD_ERRORS_MAX] + before
    if len(places):
        detail = "a producer does not set the timestamp type to LogAppendTime"
        errors = [RecordError(int(place), detail) for place in places]
        raise InvalidTimestampError(f"message {int(places[0])}: {detail}", errors)


def _moved(error: InvalidRecordError, before: int) -> InvalidRecordError:
    """Return the same error with its records numbered from ``before``."""
    if not before:
        return error
    return type(error)(
        str(error), [RecordError(before + refused.batch_index, refused.message) for refused in error.record_errors]
    )
