"""The file that keeps the state of a partition's producers over a restart."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from storage.disk.file_system import FileSystem, read_file, write_file_atomically
from storage.errors import CorruptionError

SNAPSHOT_VERSION = 1

_SIZE_BYTES_MAX = 256 * 1024 * 1024
_VERSION_AND_CRC = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_RECORD = struct.Struct(">qhiqiqiq")
_RECORDS_AT = _VERSION_AND_CRC.size + _COUNT.size


class CorruptSnapshotError(CorruptionError):
    """A producer snapshot is damaged. An older snapshot and the log give the same state."""


class ProducerRecord(NamedTuple):
    """One producer in a snapshot, with its last batch. Without a batch, sequence and offset are -1, the delta 0."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def encode_snapshot(records: Iterable[ProducerRecord]) -> bytes:
    """Lay out a snapshot, big-endian, byte for byte as Kafka does:

    - 0   version  i16  1
    - 2   crc      u32  CRC-32C of everything from byte 6 to the end
    - 6   count    i32
    - 10  records of 46 bytes: producer id i64, epoch i16, last sequence i32, last offset i64, offset delta i32,
      timestamp i64, coordinator epoch i32 (-1: none), first offset of the open transaction i64 (-1: none)
    """
    packed = [_RECORD.pack(*record) for record in records]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _VERSION_AND_CRC.pack(SNAPSHOT_VERSION, crc32c(body)) + body


def decode_snapshot(content: bytes) -> list[ProducerRecord]:
    """Parse the output of ``encode_snapshot``.

    Raises:
        CorruptSnapshotError: too short, another version, a wrong checksum, or a count that does not fit the length.
    """
    if len(content) < _RECORDS_AT:
        raise CorruptSnapshotError(f"{len(content)} bytes are no producer snapshot, the least is {_RECORDS_AT}")
    version, crc = _VERSION_AND_CRC.unpack_from(content)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshotError(f"version {version}, not {SNAPSHOT_VERSION}")
    computed = crc32c(memoryview(content)[_VERSION_AND_CRC.size :])
    if crc != computed:
        raise CorruptSnapshotError(f"the checksum is {crc}, but that of the content {computed}")
    (count,) = _COUNT.unpack_from(content, _VERSION_AND_CRC.size)
    if count < 0 or len(content) != _RECORDS_AT + count * _RECORD.size:
        raise CorruptSnapshotError(f"{len(content)} bytes cannot hold exactly {count} producers")
    return [ProducerRecord(*values) for values in _RECORD.iter_unpack(memoryview(content)[_RECORDS_AT:])]


def write_snapshot(file_system: FileSystem, path: Path, records: Iterable[ProducerRecord]) -> None:
    """Write a snapshot atomically. Durable: on return. A crash during the call leaves the old one, or none."""
    write_file_atomically(file_system, path, encode_snapshot(records))


def read_snapshot(file_system: FileSystem, path: Path) -> list[ProducerRecord]:
    """Read a snapshot file.

    Raises:
        FileNotFoundError: there is none.
        CorruptSnapshotError: see ``decode_snapshot``; also if it is longer than 256 MiB.
    """
    try:
        return decode_snapshot(read_file(file_system, path, _SIZE_BYTES_MAX))
    except CorruptSnapshotError as error:
        raise CorruptSnapshotError(f"{path}: {error}") from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise CorruptSnapshotError(f"{path}: longer than {_SIZE_BYTES_MAX} bytes") from None
        raise
