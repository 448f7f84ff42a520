"""The expected content of every segment's transaction index, so that a lost or garbled index is noticed.

Kafka's format has no checksum for these files, and a lost file leaves no trace. Without this checkpoint, readers of
committed records would then receive aborted ones.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from log_model.offsets import Offset
from storage.disk.checkpoint import CorruptCheckpointError, parse_number, read_checkpoint, write_checkpoint
from storage.disk.file_names import TRANSACTION_INDEX_CHECKPOINT
from storage.disk.file_system import FileSystem

_logger = logging.getLogger(__name__)


class IndexContent(NamedTuple):
    """The length of a transaction index and the CRC-32C of all of it."""

    size_bytes: int
    crc: int

    @classmethod
    def of(cls, content: bytes) -> IndexContent:
        return cls(len(content), crc32c(content))


class TransactionCheckpoint:
    """The sealed segments of a partition that have a transaction index, and the content of each.

    File: ``transaction-index-checkpoint`` in the partition's directory, a checkpoint with an entry
    ``base-offset bytes crc`` for each. Only Rollway uses it; Kafka ignores it. Written at a roll and a stop if changed.

    Thread: the partition's writer only.
    """

    __slots__ = ("_contents", "_directory", "_file_system")

    def __init__(self, file_system: FileSystem, directory: Path) -> None:
        """Make an empty checkpoint; ``load`` fills it."""
        self._directory = directory
        self._file_system = file_system
        self._contents: dict[Offset, IndexContent] = {}

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._directory / TRANSACTION_INDEX_CHECKPOINT

    def load(self) -> bool:
        """Read the file; a missing one is empty. Return whether it is undamaged."""
        try:
            self._contents = dict(read_checkpoint(self._file_system, self.path, _parse_entry))
        except CorruptCheckpointError as error:
            _logger.warning("transaction indexes are rebuilt: %s", error)
            return False
        return True

    def agrees(self, base_offset: Offset, content: bytes) -> bool:
        """Return whether a segment's index is as noted; also true if it was never noted."""
        noted = self._contents.get(base_offset)
        return noted is None or noted == IndexContent.of(content)

    def note(self, base_offset: Offset, content: bytes, known: Collection[Offset]) -> None:
        """Note the content of a segment's index, and forget segments that are not ``known``. Durable: on return."""
        contents = {base: noted for base, noted in self._contents.items() if base in known and base != base_offset}
        if content:
            contents[base_offset] = IndexContent.of(content)
        if contents == self._contents:
            return
        write_checkpoint(self._file_system, self.path, [(base, *noted) for base, noted in sorted(contents.items())])
        self._contents = contents


def _parse_entry(fields: list[str]) -> tuple[Offset, IndexContent]:
    if len(fields) != 3:
        raise ValueError("not a base offset, a length and a CRC")
    base, size_bytes, crc = fields
    return Offset(parse_number(base, 2**63 - 1)), IndexContent(
        parse_number(size_bytes, 2**63 - 1), parse_number(crc, 2**32 - 1)
    )
