"""The files that keep the state of a partition's producers over a restart."""

from __future__ import annotations

import errno
import logging
import struct
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from log_model.errors import CorruptionError
from log_model.offsets import Offset
from storage.disk.file_names import DELETED_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX, offset_file_name, parse_offset_file_name
from storage.disk.file_system import FileSystem
from storage.disk.whole_files import read_file, write_file_atomically

_logger = logging.getLogger(__name__)

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


class ProducerSnapshots:
    """The snapshots of one partition: ``<offset in 20 digits>.snapshot`` in its directory.

    Each has the state of everything below its offset: ``00000000000000000010.snapshot`` that of offsets 0 to 9.
    Deletion is durable on return. ``mark_deleted`` is not: the caller syncs the directory.

    Thread: the partition's writer only.
    """

    __slots__ = ("_directory", "_file_system")

    def __init__(self, file_system: FileSystem, directory: Path) -> None:
        self._file_system = file_system
        self._directory = directory

    def path_of(self, offset: Offset) -> Path:
        """Return the path of the snapshot of ``offset``, which need not exist."""
        return self._directory / offset_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX)

    def offsets(self) -> list[Offset]:
        """Return the offsets of all snapshots, rising."""
        names = map(parse_offset_file_name, self._file_system.list_directory(self._directory))
        return sorted(
            Offset(name.offset)
            for name in names
            if name is not None and name.suffix == PRODUCER_SNAPSHOT_SUFFIX and not name.state
        )

    def write(self, offset: Offset, records: Iterable[ProducerRecord]) -> Path:
        """Write the snapshot of ``offset`` atomically; return its path. Durable: on return.

        Raises:
            OSError: the disk refused; there is no new snapshot, or the whole one.
        """
        path = self.path_of(offset)
        write_file_atomically(self._file_system, path, encode_snapshot(records))
        return path

    def load_newest(
        self, log_start: Offset, log_end: Offset, newest: Offset | None = None
    ) -> tuple[Offset, list[ProducerRecord]]:
        """Return the offset and the records of the newest valid snapshot; ``log_start`` and none if there is no such.

        It lies in ``[log_start, log_end]``, and not above ``newest`` if that is set; undamaged ones above it stay.
        Damaged snapshots and those out of the range are deleted, because the log may grow to their offset again.
        """
        found: tuple[Offset, list[ProducerRecord]] | None = None
        doomed: list[Offset] = []
        for offset in reversed(self.offsets()):
            if not log_start <= offset <= log_end:
                doomed.append(offset)
            elif found is None:
                try:
                    records = read_snapshot(self._file_system, self.path_of(offset))
                except CorruptSnapshotError as error:
                    _logger.warning("dropping a damaged producer snapshot: %s", error)
                    doomed.append(offset)
                    continue
                if newest is None or offset <= newest:
                    found = offset, records
        self._delete(doomed)
        return (log_start, []) if found is None else found

    def mark_deleted(self, offset: Offset) -> Path | None:
        """Add ``.deleted`` to the name of a snapshot, with its segment's files (spec E7); ``None`` if there is none."""
        path = self.path_of(offset)
        if not self._file_system.exists(path):
            return None
        target = path.with_name(path.name + DELETED_SUFFIX)
        self._file_system.rename(path, target)
        return target

    def delete_stray(self, segment_base_offsets: Collection[int]) -> None:
        """Delete the snapshots that belong to no segment, except the newest if it is above all segments' base offsets:
        a clean stop wrote that one (case RC-11)."""
        offsets = self.offsets()
        stray = [offset for offset in offsets if offset not in segment_base_offsets]
        if stray and stray[-1] == offsets[-1] and stray[-1] > max(segment_base_offsets, default=-1):
            stray.pop()
        self._delete(stray)

    def delete_all(self) -> None:
        """Delete all snapshots."""
        self._delete(self.offsets())

    def _delete(self, offsets: Collection[Offset]) -> None:
        for offset in offsets:
            self._file_system.unlink(self.path_of(offset))
        if offsets:
            self._file_system.sync_directory(self._directory)
