"""The principals that producer ids were given to, so that no other principal can write under an id.

A principal's first id takes a block of 1,000 consecutive ids, which is written down before an id of it is given. A file
of 10,000 blocks has some 500 KB. Beyond that, the oldest block of the principal with the most blocks is forgotten. Its
ids are refused from then on, and their producers ask for new ids.
"""

from __future__ import annotations

import itertools
import logging
import threading
from bisect import bisect_right
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from log_model.errors import refused_by_system
from storage.disk.checked_json import dump_checked, parse_checked
from storage.disk.file_system import FileSystem
from storage.disk.whole_files import NotDurableError, read_file, write_file_atomically
from storage.producers.producer_ids import BLOCK_COUNT, ProducerIds

logger = logging.getLogger(__name__)

FILE = "producer-owners"
BLOCKS_MAX = 10_000
_VERSION = 1
_MEMBERS = frozenset({"version", "blocks"})
_FILE_BYTES_MAX = 64 * 1024 * 1024


class OwnedBlock(NamedTuple):
    """The ids ``[first, end)`` of one principal."""

    first: int
    end: int
    principal: str


class ProducerOwners:
    """The principals of producer ids that were given without a transactional id.

    Durable: the owner of an id, before the id is given. Ids of a block that a stopped process has not given are lost.

    Thread: any thread for ``principal_of``; ``load`` and ``allocate`` may touch the disk.
    """

    def __init__(self, file_system: FileSystem, own_directory: Path, ids: ProducerIds) -> None:
        """Begin without owners; ``load`` reads them."""
        self._file_system = file_system
        self._path = own_directory / FILE
        self._ids = ids
        self._lock = threading.Lock()
        # Blocks by rising ids. The tuple is replaced as a whole, so that a reader sees the old or the new blocks.
        self._blocks: tuple[OwnedBlock, ...] = ()
        self._left: dict[str, OwnedBlock] = {}

    def load(self) -> None:
        """Read the owners of earlier ids. A damaged file does not prevent a start: its ids are refused."""
        try:
            if not self._file_system.exists(self._path):
                return
            content = parse_checked(read_file(self._file_system, self._path, _FILE_BYTES_MAX), _MEMBERS)
            if content["version"] != _VERSION:
                raise ValueError(f"version {content['version']!r} is not {_VERSION}")
            blocks = sorted(_block(entry) for entry in content["blocks"])
            if any(after.first < before.end for before, after in itertools.pairwise(blocks)):
                raise ValueError("blocks overlap")
        except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
            logger.error(
                "%s is damaged: %s. The owners of the producer ids given so far are unknown: producers get new ones "
                "from POST /v1/producers",
                self._path,
                error,
            )
            return
        self._blocks = tuple(blocks)

    @property
    def largest_id(self) -> int:
        """The largest id that may have been given to a principal; -1 for none. Thread: any."""
        blocks = self._blocks
        return blocks[-1].end - 1 if blocks else -1

    def principal_of(self, producer_id: int) -> str | None:
        """Return the principal that this id was given to; ``None`` if it was not given, or is forgotten since."""
        blocks = self._blocks
        place = bisect_right(blocks, producer_id, key=lambda block: block.first) - 1
        return blocks[place].principal if place >= 0 and producer_id < blocks[place].end else None

    def allocate(self, principal: str | None) -> int:
        """Give an id that no producer had before to ``principal``, which is ``None`` without authentication.

        Raises:
            CorruptionError, DiskFullError, TooManyOpenFilesError: no id is available.
        """
        if principal is None:
            return self._ids.allocate()
        with self._lock:
            left = self._left.get(principal)
            if left is None or left.first >= left.end:
                left = self._take_block(principal)
            self._left[principal] = left._replace(first=left.first + 1)
            return left.first

    def _take_block(self, principal: str) -> OwnedBlock:
        first = self._ids.allocate_block()
        taken = OwnedBlock(first, first + BLOCK_COUNT, principal)
        blocks = _joined([*self._blocks, taken])
        while len(blocks) > BLOCKS_MAX:
            (busiest, _), *_ = Counter(block.principal for block in blocks).most_common(1)
            doomed = next(block for block in blocks if block.principal == busiest)
            blocks.remove(doomed)
            if self._left.get(busiest, taken).end == doomed.end:
                self._left.pop(busiest, None)
        content = dump_checked({"version": _VERSION, "blocks": [list(block) for block in blocks]})
        try:
            write_file_atomically(self._file_system, self._path, content)
        except OSError as error:
            if isinstance(error, NotDurableError):
                # The file has the block, though its ids are never given.
                self._blocks = tuple(blocks)
            raise refused_by_system(f"{self._path} could not be written", error) from error
        self._blocks = tuple(blocks)
        return taken


def _joined(blocks: list[OwnedBlock]) -> list[OwnedBlock]:
    """Return the blocks by rising ids, with adjacent blocks of one principal joined."""
    joined: list[OwnedBlock] = []
    for block in sorted(blocks):
        if joined and joined[-1].end == block.first and joined[-1].principal == block.principal:
            joined[-1] = joined[-1]._replace(end=block.end)
        else:
            joined.append(block)
    return joined


def _block(entry: list[object]) -> OwnedBlock:
    first, end, principal = entry
    if type(first) is not int or type(end) is not int or not 0 <= first < end or not isinstance(principal, str):
        raise ValueError(f"{entry!r} is no block of ids")
    return OwnedBlock(first, end, principal)
