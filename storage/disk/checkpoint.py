"""Kafka's checkpoints: small text files with a version, a count, and one entry per line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from log_model.errors import CorruptionError
from log_model.names import PartitionName, topic_name_problem
from log_model.offsets import Offset
from storage.disk.file_system import FileSystem
from storage.disk.whole_files import read_text, write_file_atomically

_VERSION = "0"
_SIZE_BYTES_MAX = 64 * 1024 * 1024
_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)

EntryT = TypeVar("EntryT")


class CorruptCheckpointError(CorruptionError):
    """A checkpoint has been damaged. The message names the file and the line."""


def read_checkpoint(file_system: FileSystem, path: Path, parse: Callable[[list[str]], EntryT]) -> list[EntryT]:
    """Read the entries of a checkpoint; a missing or empty file has none.

    File: UTF-8, each line ends in ``\\n``: the version ``0``, the number of entries, then the entries, with fields
    separated by one space. The reader is stricter than Kafka's in one point: the last line must also end, because a
    number that was cut short is still a number.

    Args:
        parse: makes an entry from the fields of a line; raises ValueError with the reason if it cannot.

    Raises:
        CorruptCheckpointError: wrong version or count, a malformed line, not UTF-8, longer than 64 MiB.
    """
    lines = _read_lines(file_system, path)
    if not lines:
        return []
    if lines[0] != _VERSION:
        raise CorruptCheckpointError(f"{path}: line 1 is {_excerpt(lines[0])}, not the version {_VERSION}")
    if len(lines) < 2 or _NUMBER.fullmatch(lines[1]) is None:
        raise CorruptCheckpointError(f"{path}: line 2 is not the number of entries")
    if int(lines[1]) != len(lines) - 2:
        raise CorruptCheckpointError(f"{path}: line 2 announces {lines[1]} entries, there are {len(lines) - 2}")
    entries = []
    for number, line in enumerate(lines[2:], start=3):
        try:
            entries.append(parse(line.split(" ")))
        except ValueError as error:
            raise CorruptCheckpointError(f"{path}: line {number}, {_excerpt(line)}: {error}") from None
    return entries


def _read_lines(file_system: FileSystem, path: Path) -> list[str]:
    text = read_text(file_system, path, _SIZE_BYTES_MAX, CorruptCheckpointError)
    if text is None:
        return []
    lines = text.split("\n")
    if lines.pop() != "":
        raise CorruptCheckpointError(f"{path}: the last line does not end")
    return lines


def _excerpt(line: str) -> str:
    return repr(line if len(line) <= 100 else line[:100] + "...")


def write_checkpoint(file_system: FileSystem, path: Path, entries: Iterable[Iterable[object]]) -> None:
    """Replace a checkpoint atomically.

    Durable: on return. After a crash during the call the file has the old or the new content.
    """
    write_file_atomically(file_system, path, checkpoint_content(entries))


def checkpoint_content(entries: Iterable[Iterable[object]]) -> bytes:
    """Return the bytes of a checkpoint with these entries."""
    lines = [" ".join(map(str, fields)) for fields in entries]
    return "".join(f"{line}\n" for line in (_VERSION, str(len(lines)), *lines)).encode()


def parse_number(text: str, number_max: int) -> int:
    """Parse a number from 0 to ``number_max`` in plain digits.

    Raises:
        ValueError: ``text`` is anything else.
    """
    if _NUMBER.fullmatch(text) is None or int(text) > number_max:
        raise ValueError(f"not a number from 0 to {number_max}")
    return int(text)


class OffsetCheckpoint:
    """One offset for each of many partitions: recovery points, log start offsets, high watermarks.

    File: see ``read_checkpoint``; entries ``topic partition offset``: ``0\\n2\\norders 0 1500\\norders 1 0\\n``.

    Thread: one at a time.
    """

    def __init__(self, file_system: FileSystem, path: Path) -> None:
        self.path = path
        self._file_system = file_system

    def read(self) -> dict[PartitionName, Offset]:
        """Read the offsets on the disk; there are none if the file is missing or empty.

        Raises:
            CorruptCheckpointError: see ``read_checkpoint``; also two lines for one partition.
        """
        entries = read_checkpoint(self._file_system, self.path, _parse_partition_offset)
        offsets = dict(entries)
        if len(offsets) != len(entries):
            raise CorruptCheckpointError(f"{self.path}: a partition has two lines")
        return offsets

    def write(self, offsets: Mapping[PartitionName, int]) -> None:
        """Replace the file atomically, with partitions sorted. Durable: on return."""
        lines = [(name.topic, name.partition, offset) for name, offset in sorted(offsets.items())]
        write_checkpoint(self._file_system, self.path, lines)


def _parse_partition_offset(fields: list[str]) -> tuple[PartitionName, Offset]:
    if len(fields) != 3:
        raise ValueError("not a topic, a partition and an offset")
    topic, partition, offset = fields
    problem = topic_name_problem(topic)
    if problem is not None:
        raise ValueError(problem)
    return PartitionName(topic, parse_number(partition, 2**31 - 1)), Offset(parse_number(offset, 2**63 - 1))
