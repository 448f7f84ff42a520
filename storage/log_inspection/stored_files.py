"""The bytes of one stored file as values: batches, index entries, snapshots, checkpoints.

docs/reference/on-disk-format.md describes their layouts.

Readers stream: one batch bounds their memory, whatever the size of the file. They trust no value, least of all a
length. An unreadable part raises ``StoredFileError`` with its position, or ends the iteration where documented.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import crc32c

from storage.disk.file_system import FileSystem
from storage.disk.whole_files import read_file

BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
"""base_offset batch_length partition_leader_epoch magic crc attributes last_offset_delta base_timestamp
max_timestamp producer_id producer_epoch base_sequence record_count: 61 bytes."""

LOG_OVERHEAD_BYTES = 12
BATCH_LENGTH_MIN = BATCH_HEADER.size - LOG_OVERHEAD_BYTES
CRC_START = 21
CODEC_NAMES = ("NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD")

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
TRANSACTION_ENTRY = struct.Struct(">hqqqq")
SNAPSHOT_HEADER = struct.Struct(">hIi")
SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
SNAPSHOT_CRC_START = 6

_PIECE_BYTES = 1 << 20
_SMALL_FILE_BYTES_MAX = 64 << 20
_NUMBER = re.compile(r"[0-9]{1,19}")


class StoredFileError(Exception):
    """The content of a file does not match its name. ``position`` is the first wrong byte, if known."""

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class Readable(Protocol):
    """The bytes of a file, or of a file as the next start will have it."""

    def read(self, position: int, length: int) -> bytes:
        """Return ``length`` bytes; fewer only where the file ends."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """One stored record batch: the fields of its header, its position, and whether its CRC is right."""

    position: int
    size_bytes: int
    base_offset: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    is_crc_valid: bool

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapping after 2^31-1; -1 without one."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFF_FFFF

    @property
    def codec_name(self) -> str:
        codec = self.attributes & 0x07
        return CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else f"unknown codec {codec}"

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & 0x08)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & 0x10)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & 0x20)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & 0x40)


class TransactionEntry(NamedTuple):
    """One aborted transaction of a ``.txnindex``."""

    position: int
    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerEntry(NamedTuple):
    """The last batch of one producer in a ``.snapshot``."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_transaction_first_offset: int


_HOW_TO_CONVERT = (
    ", an older message format unless they are damaged; to convert the messages, produce these bytes as "
    "application/vnd.kafka.message-set"
)


def read_batches(file: Readable, size_bytes: int, *, start: int = 0) -> Iterator[StoredBatch]:
    """Yield the batches in the first ``size_bytes`` of a ``.log``, in order, from the one that begins at ``start``.

    Ends at ``size_bytes``. Also yields batches with a wrong CRC, if their length is plausible.

    Raises:
        StoredFileError: the bytes from ``position`` are not a batch, so that no later batch can be found.
    """
    position = start
    while position < size_bytes:
        header = file.read(position, BATCH_HEADER.size)
        remaining = size_bytes - position
        if len(header) < BATCH_HEADER.size or remaining < BATCH_HEADER.size:
            raise StoredFileError(f"{remaining} bytes at the end are too few for a batch header", position)
        fields = BATCH_HEADER.unpack(header)
        length, magic, crc = fields[1], fields[3], fields[4]
        if length < BATCH_LENGTH_MIN:
            raise StoredFileError(
                f"the {remaining} bytes to the end are not batches: a batch cannot be {length} bytes long", position
            )
        if magic != 2:
            how = _HOW_TO_CONVERT if magic in (0, 1) else ""
            raise StoredFileError(
                f"the {remaining} bytes to the end are not batches of format 2: magic {magic}{how}", position
            )
        size = length + LOG_OVERHEAD_BYTES
        if size > remaining:
            raise StoredFileError(f"a batch of {size} bytes begins, but only {remaining} bytes are left", position)
        is_crc_valid = _crc_of(file, position + CRC_START, position + size) == crc
        yield StoredBatch(*(position, size, fields[0], *fields[2:], is_crc_valid))
        position += size


def _crc_of(file: Readable, start: int, end: int) -> int:
    crc = 0
    while start < end:
        piece = file.read(start, min(_PIECE_BYTES, end - start))
        if not piece:
            return -1
        crc = crc32c.crc32c(piece, crc)
        start += len(piece)
    return crc


def is_zero(file: Readable, start: int, end: int) -> bool:
    """Return whether all bytes in ``[start, end)`` are zero."""
    while start < end:
        piece = file.read(start, min(_PIECE_BYTES, end - start))
        if not piece or piece.count(0) != len(piece):
            return False
        start += len(piece)
    return True


def read_offset_entries(file: Readable, size_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Yield (number, relative offset, position) of an ``.index``; stop at a zero entry that is not the first.

    A partial entry at the end is left out.
    """
    for number, (relative_offset, position) in enumerate(_entries(file, size_bytes, OFFSET_ENTRY)):
        if relative_offset == 0 and position == 0 and (number or is_zero(file, 0, size_bytes)):
            return
        yield number, relative_offset, position


def read_time_entries(file: Readable, size_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Yield (number, timestamp, relative offset) of a ``.timeindex``; stop as ``read_offset_entries`` does.

    A file of exactly twelve zeros is one entry: timestamp 0 at the segment's first offset.
    """
    for number, (timestamp, relative_offset) in enumerate(_entries(file, size_bytes, TIME_ENTRY)):
        if timestamp == 0 and relative_offset == 0:
            is_tail = size_bytes >= 2 * TIME_ENTRY.size and is_zero(file, TIME_ENTRY.size, size_bytes)
            if number or is_tail:
                return
        yield number, timestamp, relative_offset


def read_transaction_entries(file: Readable, size_bytes: int) -> Iterator[TransactionEntry]:
    """Yield the entries of a ``.txnindex``; a partial entry at the end is left out."""
    for number, fields in enumerate(_entries(file, size_bytes, TRANSACTION_ENTRY)):
        yield TransactionEntry(number * TRANSACTION_ENTRY.size, *fields)


def _entries(file: Readable, size_bytes: int, layout: struct.Struct) -> Iterator[tuple[int, ...]]:
    entries_per_piece = 65536 // layout.size
    end = size_bytes - size_bytes % layout.size
    position = 0
    while position < end:
        piece = file.read(position, min(entries_per_piece * layout.size, end - position))
        piece = piece[: len(piece) - len(piece) % layout.size]
        if not piece:
            return
        yield from layout.iter_unpack(piece)
        position += len(piece)


def read_producer_snapshot(content: bytes) -> list[ProducerEntry]:
    """Read the entries of a ``.snapshot``.

    Raises:
        StoredFileError: wrong version, CRC or length.
    """
    if len(content) < SNAPSHOT_HEADER.size:
        raise StoredFileError(f"{len(content)} bytes are too few for a producer snapshot", 0)
    version, crc, count = SNAPSHOT_HEADER.unpack_from(content)
    if version != 1:
        raise StoredFileError(f"version {version} of producer snapshots is unknown", 0)
    actual_crc = crc32c.crc32c(content[SNAPSHOT_CRC_START:])
    if crc != actual_crc:
        raise StoredFileError(f"the CRC is {crc:#010x}, but the bytes give {actual_crc:#010x}", 2)
    if len(content) != SNAPSHOT_HEADER.size + count * SNAPSHOT_ENTRY.size:
        raise StoredFileError(f"{count} entries are announced, but the file has {len(content)} bytes", 6)
    return [ProducerEntry(*fields) for fields in SNAPSHOT_ENTRY.iter_unpack(content[SNAPSHOT_HEADER.size :])]


def read_checkpoint(content: bytes) -> dict[tuple[str, int], int]:
    """Read offsets by (topic, partition) from a checkpoint file.

    Raises:
        StoredFileError: not the checkpoint format (docs/reference/on-disk-format.md#checkpoints).
    """
    offsets: dict[tuple[str, int], int] = {}
    for number, fields in _checkpoint_lines(content, 3):
        try:
            name, offset = (fields[0], int(fields[1])), int(fields[2])
        except ValueError:
            raise StoredFileError(f"line {number} is not a topic, a partition and an offset") from None
        if offset < 0 or name[1] < 0 or name in offsets:
            raise StoredFileError(f"line {number} has a negative number or repeats a partition")
        offsets[name] = offset
    return offsets


def read_epochs(content: bytes) -> list[tuple[int, int]]:
    """Read (epoch, start offset) pairs from a ``leader-epoch-checkpoint``, both strictly rising.

    Raises:
        StoredFileError: not the checkpoint format, or not rising.
    """
    epochs: list[tuple[int, int]] = []
    for number, fields in _checkpoint_lines(content, 2):
        try:
            entry = (int(fields[0]), int(fields[1]))
        except ValueError:
            raise StoredFileError(f"line {number} is not an epoch and an offset") from None
        if entry[0] < 0 or entry[1] < 0:
            raise StoredFileError(f"line {number} has a negative number")
        if epochs and (entry[0] <= epochs[-1][0] or entry[1] <= epochs[-1][1]):
            raise StoredFileError(f"line {number} does not rise above the line before it")
        epochs.append(entry)
    return epochs


def read_index_checkpoint(content: bytes) -> dict[int, tuple[int, int]]:
    """Read (bytes, CRC-32C) of sealed ``.txnindex`` files by base offset, from a ``transaction-index-checkpoint``.

    Raises:
        StoredFileError: not the checkpoint format, or an impossible number.
    """
    contents: dict[int, tuple[int, int]] = {}
    for number, fields in _checkpoint_lines(content, 3):
        if not all(_NUMBER.fullmatch(field) for field in fields):
            raise StoredFileError(f"line {number} is not a base offset, a length and a CRC")
        base_offset, size_bytes, crc = map(int, fields)
        if max(base_offset, size_bytes) >= 1 << 63 or crc >= 1 << 32:
            raise StoredFileError(f"line {number} has a number that is too large")
        if base_offset in contents:
            raise StoredFileError(f"line {number} repeats a base offset")
        contents[base_offset] = (size_bytes, crc)
    return contents


def _checkpoint_lines(content: bytes, field_count: int) -> Iterator[tuple[int, list[str]]]:
    if not content:
        return
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise StoredFileError("it is not UTF-8 text", error.start) from None
    if lines[-1] == "":
        lines.pop()
    if lines[:1] != ["0"]:
        raise StoredFileError(f"line 1 should be the version 0, not {lines[0][:40]!r}")
    if len(lines) < 2 or not _NUMBER.fullmatch(lines[1]):
        raise StoredFileError("line 2 should be the number of entries")
    if len(lines) - 2 != int(lines[1]):
        raise StoredFileError(f"line 2 announces {lines[1]} entries, but {len(lines) - 2} follow")
    for number, line in enumerate(lines[2:], start=3):
        fields = line.split(" ")
        if len(fields) != field_count:
            raise StoredFileError(f"line {number} has {len(fields)} fields, not {field_count}")
        yield number, fields


def read_properties(content: bytes, separator: str = "=") -> dict[str, str]:
    """Read names and values from ``meta.properties``, or with ``": "`` from ``partition.metadata``.

    Raises:
        StoredFileError: not UTF-8, or a line that is no name and value.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StoredFileError("it is not UTF-8 text", error.start) from None
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, found, value = line.partition(separator)
        if not found:
            raise StoredFileError(f"line {number} is not a name and a value")
        values[name.strip()] = value.strip()
    return values


def read_truncation_gaps(content: bytes) -> dict[tuple[str, int], set[tuple[int, int]]]:
    """Read gaps ``[start, end)`` by (topic, partition) from the service's own ``truncation-gaps``.

    JSON: ``{"version": 1, "truncation_gaps": [[topic, partition, start, end], ...], "crc32c": "<8 hex digits>"}``. The
    checksum covers the other members in compact JSON with sorted names. A file written by hand needs none.

    Raises:
        StoredFileError: something else, or the checksum is wrong.
    """
    gaps: dict[tuple[str, int], set[tuple[int, int]]] = {}
    what = "list of truncation gaps"
    try:
        for topic, partition, start, end in _checked_member(content, "truncation_gaps", what):
            if type(topic) is not str or any(type(number) is not int for number in (partition, start, end)):
                raise ValueError
            gaps.setdefault((topic, partition), set()).add((start, end))
    except (ValueError, TypeError):
        raise StoredFileError(f"it is no {what}") from None
    return gaps


def read_log_starts(content: bytes) -> dict[tuple[str, int], int]:
    """Read log start offsets by (topic, partition) from the service's own ``log-start-offsets``.

    Raises:
        StoredFileError: something else, or the checksum is wrong.
    """
    offsets: dict[tuple[str, int], int] = {}
    what = "list of log start offsets"
    try:
        for topic, partition, offset in _checked_member(content, "log_start_offsets", what):
            if type(topic) is not str or type(partition) is not int or type(offset) is not int or offset < 0:
                raise ValueError
            offsets[topic, partition] = offset
    except (ValueError, TypeError):
        raise StoredFileError(f"it is no {what}") from None
    return offsets


def read_next_producer_id(content: bytes) -> int:
    """Read the first producer id that was not given, from the service's own ``producer-ids``.

    Raises:
        StoredFileError: something else, or the checksum is wrong.
    """
    what = "number of the next producer id"
    number = _checked_member(content, "next_producer_id", what)
    if type(number) is not int or not 0 <= number < 1 << 63:
        raise StoredFileError(f"it is no {what}")
    return number


def _checked_member(content: bytes, name: str, what: str) -> Any:
    try:
        stored = json.loads(content)
        checksum = stored.pop("crc32c", None)
        if stored.keys() != {"version", name} or stored["version"] != 1:
            raise ValueError
        actual = crc32c.crc32c(json.dumps(stored, sort_keys=True, separators=(",", ":")).encode())
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise StoredFileError(f"it is no {what}") from None
    if checksum is not None and checksum != f"{actual:08x}":
        raise StoredFileError(f"the checksum of the {what} is wrong")
    return stored[name]


def read_small_file(file_system: FileSystem, path: Path) -> bytes:
    """Read a checkpoint, snapshot or metadata file.

    Raises:
        OSError: it does not exist, or is too long to be one.
    """
    return read_file(file_system, path, _SMALL_FILE_BYTES_MAX)
