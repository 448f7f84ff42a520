"""Gaps between segments that a truncation inside a batch made, as opposed to a lost file.

Both look the same on disk: a segment ends below the base offset of the next one. Each gap is therefore written down
before it is made, twice and with a checksum. Recovery treats every other gap as damage (disk rule 5).
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from log_model.names import PartitionName
from log_model.offsets import Offset
from storage.disk.ballast import Ballast
from storage.disk.checked_json import dump_checked, parse_checked
from storage.disk.file_system import FileSystem
from storage.disk.whole_files import read_file, write_file_atomically

_logger = logging.getLogger(__name__)

_VERSION = 1
_MEMBERS = frozenset({"version", "truncation_gaps"})
_FILE_BYTES_MAX = 64 * 1024 * 1024
_COPY = "-copy"


class TruncationGap(NamedTuple):
    """The offsets ``[start, end)``, which have no records. A segment begins at ``end``."""

    start: Offset
    end: Offset


class TruncationGaps:
    """The gaps of all partitions of a log directory. Only a copy that follows a leader makes gaps (spec E21).

    A listed gap that does not exist is harmless until a segment file is lost exactly there. Recovery therefore forgets
    the gaps that it does not find.

    Thread: any; writers take turns. Durable: every change, when the call that makes it returns.
    """

    def __init__(self, file_system: FileSystem, path: Path, ballast: Ballast) -> None:
        """Make an empty list; ``read`` fills it from the disk."""
        self._file_system = file_system
        self.path = path
        self.is_lost = False
        """Whether the only copies are damaged, so that gaps made by truncations may be missing from this list."""
        self._ballast = ballast
        self._writing = threading.Lock()
        self._gaps: dict[PartitionName, frozenset[TruncationGap]] = {}
        self._is_stale = False

    def read(self) -> None:
        """Read both copies and believe the first whole one. Each copy always lists every gap that was made, so either
        may be lost. If both are lost, recovery reports the gaps as damage, which hides nothing."""
        copies = [self._read_copy(path) for path in self._paths()]
        whole = [gaps for gaps, _ in copies if gaps is not None]
        self._gaps = whole[0] if whole else {}
        self.is_lost = not whole and any(is_damaged for _, is_damaged in copies)
        # Two damaged copies stay for a repair by hand, until there is a gap to write.
        self._is_stale = bool(whole) and any(gaps != self._gaps for gaps, _ in copies)

    def _paths(self) -> tuple[Path, Path]:
        return self.path, self.path.with_name(self.path.name + _COPY)

    def _read_copy(self, path: Path) -> tuple[dict[PartitionName, frozenset[TruncationGap]] | None, bool]:
        """Return the content of one copy (``None`` if it is missing or damaged), and whether it is damaged."""
        found: dict[PartitionName, frozenset[TruncationGap]] = {}
        try:
            content = parse_checked(read_file(self._file_system, path, _FILE_BYTES_MAX), _MEMBERS)
            if content["version"] != _VERSION:
                raise ValueError(f"its version is {content['version']!r}")
            for topic, partition, start, end in content["truncation_gaps"]:
                name = PartitionName(topic, partition)
                found[name] = found.get(name, frozenset()) | {TruncationGap(Offset(start), Offset(end))}
        except FileNotFoundError:
            return None, False
        except (ValueError, TypeError, RecursionError) as error:
            _logger.warning("%s is damaged and taken as absent: %s", path, error)
            return None, True
        return found, False

    def of(self, name: PartitionName) -> frozenset[TruncationGap]:
        """Return the gaps of one partition."""
        return self._gaps.get(name, frozenset())

    def add(self, name: PartitionName, gap: TruncationGap) -> None:
        """Write a gap down; call before it is made."""
        with self._writing:
            self._write({**self._gaps, name: self.of(name) | {gap}})

    def keep(self, name: PartitionName, gaps: Iterable[TruncationGap]) -> None:
        """Forget the other gaps of one partition; call after they are closed."""
        with self._writing:
            self._write({**self._gaps, name: self.of(name) & frozenset(gaps)})

    def forget(self, names: Iterable[PartitionName]) -> None:
        """Remove deleted partitions."""
        gone = set(names)
        with self._writing:
            self._write({name: gaps for name, gaps in self._gaps.items() if name not in gone})

    def _write(self, gaps: Mapping[PartitionName, frozenset[TruncationGap]]) -> None:
        wanted = {name: found for name, found in gaps.items() if found}
        if wanted == self._gaps and not self._is_stale:
            return
        entries = [
            [name.topic, name.partition, *gap] for name, found in sorted(wanted.items()) for gap in sorted(found)
        ]
        content = dump_checked({"version": _VERSION, "truncation_gaps": entries})
        self._is_stale = True
        for path in self._paths():
            self._ballast.run(functools.partial(write_file_atomically, self._file_system, path, content))
        self._gaps, self._is_stale = wanted, False
