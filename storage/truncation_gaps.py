"""Which offsets are missing because a truncation cut inside a batch, and not because a file was lost.

Such a gap and a lost segment file look the same: a segment ends below where the next one begins. So every gap is
written down before it comes to be, with a checksum, and recovery takes any other for damage (reliability rule 5).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from storage.ballast import Ballast
from storage.checked_json import dump_checked, parse_checked
from storage.file_names import PartitionName
from storage.file_system import FileSystem, read_file, write_file_atomically
from storage.offsets import Offset

_logger = logging.getLogger(__name__)

_VERSION = 1
_MEMBERS = frozenset({"version", "truncation_gaps"})
_FILE_BYTES_MAX = 64 * 1024 * 1024


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
        self._path = path
        self._ballast = ballast
        self._writing = threading.Lock()
        self._gaps: dict[PartitionName, frozenset[TruncationGap]] = {}

    def read(self) -> None:
        """Read the file. A damaged one says nothing: then gaps are reported as damage, which hides nothing."""
        try:
            content = parse_checked(read_file(self._file_system, self._path, _FILE_BYTES_MAX), _MEMBERS)
            if content["version"] != _VERSION:
                raise ValueError(f"its version is {content['version']!r}")
            self._gaps = {}
            for topic, partition, start, end in content["truncation_gaps"]:
                name = PartitionName(topic, partition)
                self._gaps[name] = self.of(name) | {TruncationGap(Offset(start), Offset(end))}
        except FileNotFoundError:
            self._gaps = {}
        except (ValueError, TypeError, RecursionError) as error:
            _logger.warning("%s is damaged and taken as absent: %s", self._path, error)
            self._gaps = {}

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
        if wanted == self._gaps:
            return
        entries = [
            [name.topic, name.partition, *gap] for name, found in sorted(wanted.items()) for gap in sorted(found)
        ]
        content = dump_checked({"version": _VERSION, "truncation_gaps": entries})
        self._ballast.run(lambda: write_file_atomically(self._file_system, self._path, content))
        self._gaps = wanted
