"""The record of what an export has written, by which an interrupted one goes on."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crc32c import crc32c

from log_model.errors import CorruptionError
from log_model.names import PartitionName
from storage.disk.file_system import FileSystem
from storage.disk.whole_files import read_file, write_file_atomically

_VERSION = 1
_SIZE_BYTES_MAX = 1 << 30
_CRC_DIGITS = 8


class ExportRecordError(CorruptionError):
    """The record in the target directory is damaged, or belongs to another export."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One ``.log`` file that was written: its name, its length, and the CRC-32C of its bytes."""

    name: str
    size_bytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class WrittenPartition:
    """One partition that was written completely, and what it was made of."""

    topic: str
    partition: int
    topic_id: str
    log_start_offset: int
    log_end_offset: int
    source: str
    """``StoredPartition.fingerprint`` of what it was made of."""
    files: tuple[WrittenFile, ...]

    @property
    def name(self) -> PartitionName:
        return PartitionName(self.topic, self.partition)

    @property
    def sizes(self) -> dict[str, int]:
        """The lengths of the files by their names."""
        return {file.name: file.size_bytes for file in self.files}


class ExportRecord:
    """A file in the target directory, with one line for each partition that is written. Brokers pass it by.

    File, text: each line begins with the CRC-32C of its JSON in 8 hexadecimal digits and a space. The first line has
    the version, the id of the source directory and the constant by which producer ids are moved. Each further line is
    a ``WrittenPartition``; the last one of a partition counts. Only the last line may be torn, and then does not count.

    Durable: each line, before the partition gets its final name.

    Thread: one at a time.
    """

    def __init__(self, file_system: FileSystem, path: Path, directory_id: str, shift: int) -> None:
        self._file_system = file_system
        self._path = path
        self._head = {"version": _VERSION, "directory_id": directory_id, "producer_shift": shift}
        self._written: dict[PartitionName, WrittenPartition] = {}
        self._size_bytes = 0

    @property
    def written(self) -> Mapping[PartitionName, WrittenPartition]:
        return self._written

    def read(self) -> None:
        """Read the record, if there is one. Changes nothing.

        Raises:
            ExportRecordError: a line other than the last is damaged, or the first line is of another export.
            OSError: the disk refused.
        """
        try:
            content = read_file(self._file_system, self._path, _SIZE_BYTES_MAX)
        except FileNotFoundError:
            return
        lines = content.split(b"\n")[:-1]
        for number, line in enumerate(lines, start=1):
            try:
                self._take(_parse(line), is_first=number == 1)
            except (ValueError, TypeError, KeyError) as error:
                if number == len(lines) > 1:
                    # A power cut may keep the end of the last line without its beginning.
                    return
                raise ExportRecordError(
                    f"{self._path}, line {number}: {error}. Remove the file to export everything again"
                ) from error
            self._size_bytes += len(line) + 1

    def _take(self, entry: dict[str, Any], *, is_first: bool) -> None:
        if not is_first:
            written = _written_partition(entry)
            self._written[written.name] = written
        elif entry != self._head:
            raise ValueError(f"it belongs to another export: {json.dumps(entry)}")

    def add(self, written: WrittenPartition) -> None:
        """Add a partition. Durable: on return."""
        if not self._size_bytes:
            head = _line(self._head)
            write_file_atomically(self._file_system, self._path, head)
            self._size_bytes = len(head)
        line = _line(asdict(written))
        with contextlib.closing(self._file_system.open(self._path)) as file:
            # Cuts off a torn line.
            file.truncate(self._size_bytes)
            file.write(self._size_bytes, [line])
            file.sync()
        self._size_bytes += len(line)
        self._written[written.name] = written


def _line(entry: Mapping[str, object]) -> bytes:
    text = json.dumps(entry, separators=(",", ":")).encode()
    return b"%08x %s\n" % (crc32c(text), text)


def _parse(line: bytes) -> dict[str, Any]:
    text = line[_CRC_DIGITS + 1 :]
    if line[: _CRC_DIGITS + 1] != b"%08x " % crc32c(text):
        raise ValueError("its checksum is wrong")
    entry = json.loads(text)
    if not isinstance(entry, dict):
        raise ValueError("it is no JSON object")
    return entry


def _written_partition(entry: dict[str, Any]) -> WrittenPartition:
    files = tuple(WrittenFile(**file) for file in entry.pop("files"))
    return WrittenPartition(**entry, files=files)
