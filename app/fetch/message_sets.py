"""Fetched records as messages of magic 0 or 1, for readers older than record batches. Synchronous."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from app.engine.reading import ReadOutcome
from app.fetch.fetched_records import read_columns
from app.record_json.decoding import (
    DECOMPRESSED_BYTES_MAX,
    DecodedPiece,
    DecodingLimits,
    NeedsRoomError,
    record_too_large,
)
from log_model.offsets import Offset
from rollway.records import MESSAGE_OVERHEAD_BYTES, RecordColumns, encode_message_set, walk_entries


class MessageSetRead(NamedTuple):
    """A message set, where the next fetch begins, and whether its first message is cut off (hard limit only)."""

    content: bytes
    next_offset: Offset
    is_first_incomplete: bool = False


def read_message_set(
    outcome: ReadOutcome,
    *,
    magic: int,
    hard_limit: int | None = None,
    limits: DecodingLimits | None = None,
) -> MessageSetRead:
    """Return the records of the range as plain messages with their absolute offsets.

    Leaves out control batches and headers, and with magic 0 also the timestamps, since the format has none.

    With ``hard_limit`` the message set ends after this many bytes, in the middle of a message if need be. A reader
    drops the partial message, and doubles its limit if not one message is whole (spec B5, D8).

    Raises:
        CorruptionError: stored bytes are damaged.
        NeedsRoomError: a batch, or its first record, needs more room.
        Problem: record_too_large, the first record is larger than a response may be.
    """
    limits = limits or DecodingLimits()
    read = read_columns(outcome, limits)
    parts: list[bytes] = []
    size_bytes = 0
    content_bytes = 0
    next_offset = read.next_offset
    at = outcome.start
    try:
        for piece in read.pieces:
            at = max(outcome.start, Offset(int(piece.columns.offsets[0])))
            content_bytes += piece.content_bytes
            bytes_max = None if hard_limit is None else hard_limit - size_bytes
            if parts and (
                content_bytes > DECOMPRESSED_BYTES_MAX
                or size_bytes + _size_of(piece, magic, bytes_max) > limits.text_bytes
            ):
                next_offset = at
                break
            if not parts:
                _check_room(piece, at, _size_of(piece, magic, bytes_max), limits)
            part = _messages_of(piece, magic, bytes_max)
            parts.append(part)
            size_bytes += len(part)
            if hard_limit is not None and size_bytes > hard_limit:
                return _cut(b"".join(parts), hard_limit, outcome.start)
            at = Offset(int(piece.columns.offsets[-1]) + 1)
    except NeedsRoomError:
        if not parts:
            raise
        next_offset = at
    return MessageSetRead(b"".join(parts), next_offset)


def _size_of(piece: DecodedPiece, magic: int, bytes_max: int | None) -> int:
    """Return about how many bytes of messages a piece becomes."""
    size = piece.content_bytes + len(piece.columns) * MESSAGE_OVERHEAD_BYTES[magic]
    return size if bytes_max is None else min(size, bytes_max + piece.content_bytes)


def _check_room(piece: DecodedPiece, at: Offset, size_bytes: int, limits: DecodingLimits) -> None:
    if size_bytes <= max(limits.first_bytes, limits.text_bytes) or len(piece.columns) > 1:
        return
    if not limits.is_large:
        raise NeedsRoomError
    raise record_too_large(at, f"takes {size_bytes} bytes in an answer, which may have {limits.record_bytes}")


def _messages_of(piece: DecodedPiece, magic: int, bytes_max: int | None) -> bytes:
    """Return the piece's records as messages. With ``bytes_max`` it stops once they exceed this many bytes."""
    columns = piece.columns
    if bytes_max is not None:
        columns = columns.slice(0, _count_beyond(columns, magic, bytes_max))
    return encode_message_set(columns, magic=magic, timestamp_type=piece.header.timestamp_type)


def _count_beyond(columns: RecordColumns, magic: int, bytes_max: int) -> int:
    sizes = columns.keys.lengths() + columns.values.lengths() + MESSAGE_OVERHEAD_BYTES[magic]
    return min(len(columns), int(np.searchsorted(np.cumsum(sizes), bytes_max, side="right")) + 1)


def _cut(content: bytes, bytes_max: int, start: Offset) -> MessageSetRead:
    """Return the first ``bytes_max`` bytes. The next fetch begins with the message that they cut."""
    content = content[:bytes_max]
    next_offset = start
    for entry in walk_entries(content):
        next_offset = Offset(entry.offset + 1)
    return MessageSetRead(content, next_offset, is_first_incomplete=next_offset == start)
