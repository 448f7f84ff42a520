"""Fetched records as messages of magic 0 or 1, for readers older than record batches. Synchronous, as fetch_range."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from app.fetch_range import DECOMPRESSED_BYTES_MAX, DecodedBatch, FetchRange, FetchRequest, read_columns
from rollway.records import MESSAGE_OVERHEAD_BYTES, RecordColumns, encode_message_set, walk_entries
from storage.log_snapshot import LogSnapshot
from storage.offsets import Offset


class MessageSetRead(NamedTuple):
    """A message set, where the next fetch begins, and whether its first message is cut off (hard limit only)."""

    content: bytes
    next_offset: Offset
    is_first_incomplete: bool = False


def read_message_set(
    snapshot: LogSnapshot, wanted: FetchRange, request: FetchRequest, *, magic: int, hard_limit: bool
) -> MessageSetRead:
    """The records of the range as plain messages with their absolute offsets, as far as ``max_bytes`` goes.

    Control batches are left out. Headers are dropped, and with magic 0 timestamps too, since the format has none.

    ``max_bytes`` counts stored bytes, of which the first batch always comes. With ``hard_limit`` it counts the bytes
    of the answer, which ends with them, in the middle of a message if need be. A reader drops that part, and doubles
    its ``max_bytes`` when not one message is whole (spec B5, D8).

    Raises:
        CorruptionError: stored bytes are damaged.
        StorageError: as ``LogSnapshot.read``.
    """
    read = read_columns(snapshot, wanted, request)
    parts: list[bytes] = []
    size_bytes = 0
    content_bytes = 0
    next_offset = read.next_offset
    for batch in read.batches:
        content_bytes += batch.content_bytes
        if size_bytes and content_bytes > DECOMPRESSED_BYTES_MAX:
            next_offset = max(wanted.start, Offset(batch.header.base_offset))
            break
        part = _messages_of(batch, magic, request.max_bytes - size_bytes if hard_limit else None)
        parts.append(part)
        size_bytes += len(part)
        if hard_limit and size_bytes > request.max_bytes:
            return _cut(b"".join(parts), request.max_bytes, wanted.start)
    return MessageSetRead(b"".join(parts), next_offset)


def _messages_of(batch: DecodedBatch, magic: int, bytes_max: int | None) -> bytes:
    """The batch's records as messages; with ``bytes_max`` only as many as make more than that."""
    columns = batch.columns
    if bytes_max is not None:
        columns = columns.slice(0, _count_beyond(columns, magic, bytes_max))
    return encode_message_set(columns, magic=magic, timestamp_type=batch.header.timestamp_type)


def _count_beyond(columns: RecordColumns, magic: int, bytes_max: int) -> int:
    sizes = columns.keys.lengths() + columns.values.lengths() + MESSAGE_OVERHEAD_BYTES[magic]
    return min(len(columns), int(np.searchsorted(np.cumsum(sizes), bytes_max, side="right")) + 1)


def _cut(content: bytes, bytes_max: int, start: Offset) -> MessageSetRead:
    """The first ``bytes_max`` bytes; the next fetch begins with the message that they cut."""
    content = content[:bytes_max]
    next_offset = start
    for entry in walk_entries(content):
        next_offset = Offset(entry.offset + 1)
    return MessageSetRead(content, next_offset, is_first_incomplete=next_offset == start)
