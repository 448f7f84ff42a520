"""Which offsets are missing because a truncation cut inside a batch, and not because a file was lost.

Such a gap and a lost segment file look the same: a segment ends below where the next one begins. So every gap is
written down before it comes to be, twice and with a checksum, and recovery takes any other for damage (disk
rule 5).
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from storage.disk.ballast import Ballast
from storage.disk.checked_json import dump_checked, parse_checked
from storage.disk.file_names import PartitionName
from storage.disk.file_system import FileSystem, read_file, write_file_atomically
from storage.offsets import Offset

_logger = logging.getLogger(__name__)

_VERSION = 1
_MEMBERS = frozenset({"version", "truncation_gaps"})
_FILE_BYTES_MAX = 64 * 1024 * 1024
_COPY = "-copy"


class TruncationGap(NamedTuple):
    """The offsets ``[start, end)``, which have no records; a segment begins at ``end``."""

    start: Offset
    end: Offset


class TruncationGaps:
    """The gaps of all partitions of a log directory; there are none unless a copy follows a leader (spec E21).

    A gap that is written down and not there does no harm until a segment file is lost just there; so recovery
    forgets those it does not find.

    Thread: any; writers take turns. Durable: every change, when the call that makes it returns.
    """

    def __init__(self, file_system: FileSystem, path: Path, ballast: Ballast) -> None:
        """Know nothing until ``read``."""
        self._file_system = file_system
        self.path = path
        self.is_lost = False
        """Whether neither copy could be read, so that there may have been gaps that nobody vouches for."""
        self._ballast = ballast
        self._writing = threading.Lock()
        self._gaps: dict[PartitionName, frozenset[TruncationGap]] = {}
        self._is_stale = False

    def read(self) -> None:
        """Read both copies and believe the first that is whole. At every moment each has every gap that was made, so
        either may be lost; without both, gaps are reported as damage, which hides nothing."""
        copies = [self._read_copy(path) for path in self._paths()]
        whole = [gaps for gaps, _ in copies if gaps is not None]
        self._gaps = whole[0] if whole else {}
        self.is_lost = not whole and any(is_damaged for _, is_damaged in copies)
        # Two damaged copies stay as they are for whoever repairs them, until there is a gap to write.
        self._is_stale = bool(whole) and any(gaps != self._gaps for gaps, _ in copies)

    def _paths(self) -> tuple[Path, Path]:
        return self.path, self.path.with_name(self.path.name + _COPY)

    def _read_copy(self, path: Path) -> tuple[dict[PartitionName, frozenset[TruncationGap]] | None, bool]:
        """What a copy says, if it is there and whole, and whether it is damaged."""
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
        """The gaps of one partition."""
        return self._gaps.get(name, frozenset())

    def add(self, name: PartitionName, gap: TruncationGap) -> None:
        """Note a gap, before it is made."""
        with self._writing:
            self._write({**self._gaps, name: self.of(name) | {gap}})

    def keep(self, name: PartitionName, gaps: Iterable[TruncationGap]) -> None:
        """Forget every other gap of one partition, after it is gone."""
        with self._writing:
            self._write({**self._gaps, name: self.of(name) & frozenset(gaps)})

    def forget(self, names: Iterable[PartitionName]) -> None:
        """Take deleted partitions out."""
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
