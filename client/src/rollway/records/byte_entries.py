"""The entries of Kafka 0.7, and the rule by which they are read (spec B2, B5).

An entry is one message of a partition's stream of bytes, big-endian::

    0  length   int32    bytes after this field: 5 + n
    4  magic    int8
    5  crc      uint32   CRC-32 of the payload
    9  payload  n bytes

Its id is the byte position where it begins, so the next entry's id is ``id + 4 + length``. A reader asks for bytes from
an id on and gets a buffer that may end inside an entry. It drops that part, which it knows by the length, and asks
again from its id. If not even one entry is whole, it asks for twice as many bytes.

Rollway stores no data this way. The codec is for data and clients of that age.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

from rollway.records.batch import Buffer
from rollway.records.errors import BrokenBatchError

ENTRY_OVERHEAD_BYTES = 9
"""Size of an entry without payload."""

_HEAD = struct.Struct(">ibI")
_LENGTH_BYTES = 4
_LENGTH_MIN = ENTRY_OVERHEAD_BYTES - _LENGTH_BYTES
_LENGTH = struct.Struct(">i")

MAGIC = 0


class ByteEntry(NamedTuple):
    """One message. ``entry_id`` is its byte position in the partition's stream."""

    entry_id: int
    payload: bytes
    magic: int = MAGIC

    @property
    def next_id(self) -> int:
        """The id of the entry that follows."""
        return self.entry_id + ENTRY_OVERHEAD_BYTES + len(self.payload)


class EntryRead(NamedTuple):
    """Whole entries, and the id to read on from: that of the first entry that is not whole."""

    entries: tuple[ByteEntry, ...]
    next_id: int


def encode_entries(payloads: Iterable[bytes], magic: int = MAGIC) -> bytes:
    """Return one entry for each payload, end to end.

    Raises:
        ValueError: a payload has 2 GiB, or the magic is no int8.
    """
    parts: list[bytes] = []
    for payload in payloads:
        try:
            parts += (_HEAD.pack(_LENGTH_MIN + len(payload), magic, zlib.crc32(payload)), payload)
        except struct.error as error:
            raise ValueError(f"no entry has {len(payload)} bytes and magic {magic}: {error}") from error
    return b"".join(parts)


def decode_entries(buffer: Buffer, first_id: int = 0) -> EntryRead:
    """Return the whole entries of a buffer whose first byte is that of entry ``first_id``; drop a partial last one.

    An entry that ends where the buffer ends is whole.

    Raises:
        BrokenBatchError: a length is too small, or a CRC is wrong; the message has the id.
    """
    view = memoryview(buffer).cast("B")
    entries: list[ByteEntry] = []
    position = 0
    while position + _LENGTH_BYTES <= len(view):
        (length,) = _LENGTH.unpack_from(view, position)
        if length < _LENGTH_MIN:
            raise BrokenBatchError(f"entry {first_id + position} says it has {length} bytes; it needs {_LENGTH_MIN}")
        end = position + _LENGTH_BYTES + length
        if end > len(view):
            break
        _, magic, crc = _HEAD.unpack_from(view, position)
        payload = bytes(view[position + ENTRY_OVERHEAD_BYTES : end])
        if zlib.crc32(payload) != crc:
            raise BrokenBatchError(f"entry {first_id + position} does not have the CRC it says, {crc:#010x}")
        entries.append(ByteEntry(first_id + position, payload, magic))
        position = end
    return EntryRead(tuple(entries), first_id + position)


def read_entries(
    fetch: Callable[[int, int], Buffer], entry_id: int, *, max_bytes: int, max_bytes_limit: int
) -> EntryRead:
    """Read as a client of that age does: ``fetch(entry_id, max_bytes)``, and twice the bytes if no entry is whole.

    ``fetch`` returns at most ``max_bytes`` from that id on, and no bytes at the end of the stream. The doubling ends at
    ``max_bytes_limit``, the largest entry that this reader accepts.

    Raises:
        ValueError: ``max_bytes`` is not positive, or above the limit.
        BrokenBatchError: an entry is damaged, or larger than the limit.
    """
    if not 0 < max_bytes <= max_bytes_limit:
        raise ValueError(f"a buffer of {max_bytes} bytes, at most {max_bytes_limit}")
    while True:
        content = fetch(entry_id, max_bytes)
        read = decode_entries(content, entry_id)
        if read.entries or len(content) < max_bytes:
            return read
        if max_bytes == max_bytes_limit:
            raise BrokenBatchError(f"entry {entry_id} is larger than {max_bytes_limit} bytes")
        max_bytes = min(2 * max_bytes, max_bytes_limit)
