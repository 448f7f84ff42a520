"""Producer ids that are never given twice, even after a crash or a power cut."""

from __future__ import annotations

import errno
import hashlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from log_model.errors import CorruptionError, refused_by_system
from storage.disk.checked_json import dump_checked, parse_checked
from storage.disk.file_system import FileSystem
from storage.disk.whole_files import read_file, write_file_atomically

BLOCK_COUNT = 1_000
"""Number of ids that one write reserves. A killed process loses the unused ids of its block, which costs nothing."""

LOST_COUNT = 2**32
"""Number of ids skipped if the file is damaged: some may have been given and be in no log."""

FIRST_ID_STEP = 2**32
_EXACT_DOUBLE_MAX = 2**53
"""Clients whose JSON numbers are doubles, such as JavaScript's, read larger ids inexactly."""

_logger = logging.getLogger(__name__)

_PRODUCER_ID_MAX = 2**63 - 1
_VERSION = 1
_MEMBERS = frozenset({"version", "next_producer_id"})
_FILE_BYTES_MAX = 4_096


def first_id_of(directory_id: str) -> int:
    """Return where the ids of a data directory begin, from its random id: a multiple of ``FIRST_ID_STEP``, never 0.

    Kafka clusters give ids from 0. If the directory moves into a cluster, a new producer of the cluster must not have
    the id of a producer in its batches: the broker would take its first batch for a repeated one, and not store it.
    The 2^32 ids from here on are below 2^53.
    """
    number = int.from_bytes(hashlib.blake2b(directory_id.encode(), digest_size=8).digest(), "big")
    return FIRST_ID_STEP * (1 + number % (_EXACT_DOUBLE_MAX // FIRST_ID_STEP - 1))


class ProducerIds:
    """The file that limits the producer ids that may have been given; ids come from blocks reserved in it first.

    Durable: a block is on the disk before the first id of it is given. Without a file ids begin at the first id of the
    directory, or above those in the logs. A damaged file is replaced: ids continue ``LOST_COUNT`` above these, because
    an id that was given may be in no log. The logs show that a file is outdated if they have ids at or above its
    number. Ids ``LOST_COUNT`` or more above it are ignored: a client made them up.

    Thread: any.
    """

    def __init__(self, file_system: FileSystem, path: Path, find_known_max: Callable[[int], int]) -> None:
        """Read nothing yet. ``find_known_max(below)`` returns the largest id under ``below`` in the logs, -1 for none.
        It is called once, and again if the file is missing or damaged."""
        self._file_system = file_system
        self._path = path
        self._find_known_max = find_known_max
        self._lock = threading.Lock()
        self._next = 0
        self._end = 0
        self._first = 0
        self._first_of_directory = 0
        self._first_was_checked = False

    def begin_at(self, first: int) -> None:
        """Set the first id of the directory. Call before the first id is given. A file that is sound is older, and its
        number is kept."""
        with self._lock:
            self._first_of_directory = first

    def leave_out(self, largest: int) -> None:
        """Skip all ids up to ``largest``, which is known from another source than the logs. Call before the first id is
        given; needed if the file was lost."""
        with self._lock:
            self._first = max(self._first, largest + 1)

    def allocate(self) -> int:
        """Return the next id. One in ``BLOCK_COUNT`` calls writes to the disk.

        Raises:
            CorruptionError: the file cannot be read, or no ids are left; no id is given.
            DiskFullError, TooManyOpenFilesError, DiskFailedError: the disk refused; no id is given.
        """
        with self._lock:
            if self._next >= self._end:
                self._next = self._reserve()
                self._end = self._next + BLOCK_COUNT
            self._next += 1
            return self._next - 1

    def allocate_block(self) -> int:
        """Reserve ``BLOCK_COUNT`` consecutive ids and return the first of them.

        Raises:
            CorruptionError: the file cannot be read, or no ids are left; no id is given.
            DiskFullError, TooManyOpenFilesError, DiskFailedError: the disk refused; no id is given.
        """
        with self._lock:
            return self._reserve()

    def _reserve(self) -> int:
        """Write down that another block is given; return its first id."""
        said = self._read()
        first = max(self._end, self._first, said)
        if not self._first_was_checked:
            first = max(first, self._find_known_max(said + LOST_COUNT) + 1)
            self._first_was_checked = True
        if first > _PRODUCER_ID_MAX - BLOCK_COUNT:
            raise CorruptionError(f"{self._path}: there are no producer ids left")
        end = first + BLOCK_COUNT
        content = dump_checked({"version": _VERSION, "next_producer_id": end})
        try:
            write_file_atomically(self._file_system, self._path, content)
        except OSError as error:
            raise refused_by_system(f"{self._path} could not be written", error) from error
        # In case the file is lost while the service runs: these ids need not be in any log.
        self._first = end
        return first

    def _read(self) -> int:
        if not self._file_system.exists(self._path):
            return self._least()
        try:
            return _parse(read_file(self._file_system, self._path, _FILE_BYTES_MAX))
        except (ValueError, RecursionError) as error:
            why: Exception = error
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise CorruptionError(f"{self._path} cannot be read: {error.strerror or error}") from error
            why = error
        number = self._least() + LOST_COUNT
        _logger.error("%s is damaged (%s): ids go on at %d, above all that were given", self._path, why, number)
        return number

    def _least(self) -> int:
        """Return the least id that may be given if nothing is known but the logs."""
        return max(self._first_of_directory, self._find_known_max(_PRODUCER_ID_MAX) + 1)


def _parse(data: bytes) -> int:
    content = parse_checked(data, _MEMBERS)
    number = content["next_producer_id"]
    if content["version"] != _VERSION:
        raise ValueError(f"version {content['version']!r} is not {_VERSION}")
    if type(number) is not int or not 0 <= number <= _PRODUCER_ID_MAX:
        raise ValueError(f"{number!r} is no producer id")
    return number
