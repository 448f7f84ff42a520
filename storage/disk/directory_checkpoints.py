"""The three checkpoint files of a log directory: recovery points, log start offsets, high watermarks (spec E25).

A flipped bit in a recovery point or a high watermark costs a scan or is found by one. In a log start offset it would
hide records without a trace. Log start offsets therefore have a second, checked copy outside Kafka's tree.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from log_model.names import PartitionName
from log_model.offsets import Offset
from storage.disk.ballast import Ballast
from storage.disk.checked_json import dump_checked, parse_checked
from storage.disk.checkpoint import CorruptCheckpointError, OffsetCheckpoint
from storage.disk.file_names import HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from storage.disk.file_system import FileSystem
from storage.disk.truncation_gaps import TruncationGaps
from storage.disk.whole_files import read_file, write_file_atomically

_logger = logging.getLogger(__name__)

_VERSION = 1
_MEMBERS = frozenset({"version", "log_start_offsets"})
_FILE_BYTES_MAX = 64 * 1024 * 1024
_TRUNCATION_GAPS = "truncation-gaps"


class LogStarts(NamedTuple):
    """Log start offsets, and the base offset of the first segment of each partition."""

    offsets: Mapping[PartitionName, Offset]
    first_bases: Mapping[PartitionName, Offset]


class DirectoryCheckpoints:
    """The content of the checkpoint files when they were read, and writers of new content.

    The checked copy of the log start offsets is written first and believed first. A partition that is missing in it
    came from a Kafka broker; Kafka's file counts for that partition.

    Thread: any; writers take turns.
    """

    def __init__(self, file_system: FileSystem, directory: Path, checked_path: Path, ballast: Ballast) -> None:
        self.ballast = ballast
        self.gaps = TruncationGaps(file_system, checked_path.with_name(_TRUNCATION_GAPS), ballast)
        self._file_system = file_system
        self._checked_path = checked_path
        self._recovery_points = OffsetCheckpoint(file_system, directory / RECOVERY_POINT_CHECKPOINT)
        self._log_starts = OffsetCheckpoint(file_system, directory / LOG_START_OFFSET_CHECKPOINT)
        self._high_watermarks = OffsetCheckpoint(file_system, directory / HIGH_WATERMARK_CHECKPOINT)
        self._writing = threading.Lock()
        self._durable_log_starts: dict[PartitionName, Offset] = {}
        # Base offsets of first segments, as far as they are known to be durable. Kafka's file lists the partitions
        # whose log start lies above.
        self._first_bases: dict[PartitionName, Offset] = {}
        self._written_log_starts: dict[PartitionName, Offset] = {}
        self._known: frozenset[PartitionName] = frozenset()
        self._written_high_watermarks: dict[PartitionName, Offset] | None = None
        # A failed write may have changed the file: until the next write succeeds, its content is unknown.
        self._recovery_points_are_stale = False
        self._log_starts_are_stale = False
        self.recovery_points: dict[PartitionName, Offset] = {}
        self.high_watermarks: dict[PartitionName, Offset] = {}

    def read(self) -> None:
        """Read the files. A damaged file counts as absent, which costs only more scanning (case RC-10)."""
        self.recovery_points = _read(self._recovery_points)
        self.high_watermarks = _read(self._high_watermarks)
        self.gaps.read()
        checked = self._read_checked()
        self._known = frozenset(checked)
        self._written_log_starts = _read(self._log_starts)
        self._durable_log_starts = {**self._written_log_starts, **checked}
        # A partition without a line began with its first segment when the file was written.
        self._first_bases = {name: offset for name, offset in checked.items() if name not in self._written_log_starts}

    def keep(self, names: Collection[PartitionName]) -> None:
        """Forget the recovery points and high watermarks of all other partitions, which a new one could inherit."""
        self.recovery_points = {name: offset for name, offset in self.recovery_points.items() if name in names}
        self.high_watermarks = {name: offset for name, offset in self.high_watermarks.items() if name in names}

    @property
    def log_starts(self) -> Mapping[PartitionName, Offset]:
        """The log start offsets on the disk. A partition that is absent starts at 0."""
        return self._durable_log_starts

    def is_log_start_certain(self, name: PartitionName) -> bool:
        """Return whether the checked copy has this partition's log start offset, so that no other source is needed."""
        return name in self._known

    def write_recovery_points(self, find: Callable[[], Mapping[PartitionName, Offset]]) -> None:
        """Write the recovery points that ``find`` returns, if one has moved; all others stay. Durable: on return.

        ``find`` runs while no other change does. A partition that was deleted before cannot come back with its offset,
        which a new partition of the same name would inherit.
        """
        with self._writing:
            offsets = {**self.recovery_points, **find()}
            if offsets != self.recovery_points or self._recovery_points_are_stale:
                self._write_recovery_points(offsets, self.ballast.run)

    def raise_recovery_point(self, name: PartitionName, offset: Offset) -> None:
        """Let recovery know that everything below ``offset`` is durable. Only before the partition is opened."""
        self.recovery_points[name] = max(self.recovery_points.get(name, Offset(0)), offset)

    def lower_recovery_point(self, name: PartitionName, offset: Offset) -> None:
        """Move one partition's recovery point down to ``offset``, before the log is truncated. Durable: on return."""
        with self._writing:
            known = self.recovery_points.get(name, Offset(0))
            if known > offset or self._recovery_points_are_stale:
                lowered = {**self.recovery_points, name: min(known, offset)}
                self._write_recovery_points(lowered, lambda work: work())

    def _write_recovery_points(
        self, offsets: Mapping[PartitionName, Offset], run: Callable[[Callable[[], None]], None]
    ) -> None:
        self._recovery_points_are_stale = True
        run(lambda: self._recovery_points.write(offsets))
        self.recovery_points = dict(offsets)
        self._recovery_points_are_stale = False

    def raise_log_starts(self, find: Callable[[], LogStarts]) -> None:
        """Raise the log start offsets to those that ``find`` returns; none falls. Durable: on return.

        ``find`` runs as that of ``write_recovery_points``. A partition that starts at its first base offset has
        no line in Kafka's file, as a broker writes it (case RT-8). Segments below must already be durably deleted.
        """
        with self._writing:
            offsets, first_bases = find()
            raised = dict(self._durable_log_starts)
            for name, offset in offsets.items():
                raised[name] = max(raised.get(name, Offset(0)), offset)
            self._first_bases.update(first_bases)
            self._write_log_starts(raised)

    def set_log_start(self, name: PartitionName, offset: Offset) -> None:
        """Set one partition's log start offset; truncation may also lower it. Durable: on return."""
        with self._writing:
            if offset < self._first_bases.get(name, Offset(0)):
                del self._first_bases[name]
            self._write_log_starts({**self._durable_log_starts, name: offset})

    def forget(self, names: Iterable[PartitionName]) -> None:
        """Remove deleted partitions, so that new ones of the same name begin at 0. Durable: on return."""
        gone = set(names)
        self.gaps.forget(gone)
        with self._writing:
            self.high_watermarks = {name: end for name, end in self.high_watermarks.items() if name not in gone}
            for name in gone:
                self._first_bases.pop(name, None)
            self._write_log_starts(
                {name: offset for name, offset in self._durable_log_starts.items() if name not in gone}
            )
            if not gone.isdisjoint(self.recovery_points) or self._recovery_points_are_stale:
                remaining = {name: offset for name, offset in self.recovery_points.items() if name not in gone}
                self._write_recovery_points(remaining, self.ballast.run)

    def write_high_watermarks(self, find: Callable[[], Mapping[PartitionName, Offset]]) -> None:
        """Write the high watermarks of ``find``, if one has moved; all others stay. See ``write_recovery_points``."""
        with self._writing:
            offsets = {**self.high_watermarks, **find()}
            if offsets != self._written_high_watermarks:
                self._written_high_watermarks = None
                self._high_watermarks.write(offsets)
                self._written_high_watermarks = self.high_watermarks = offsets

    def _write_log_starts(self, offsets: Mapping[PartitionName, Offset]) -> None:
        moved = {name: offset for name, offset in offsets.items() if offset > self._first_bases.get(name, 0)}
        is_checked_due = offsets != self._durable_log_starts or self._log_starts_are_stale
        if not is_checked_due and moved == self._written_log_starts:
            return
        self._log_starts_are_stale = True
        if is_checked_due:
            self.ballast.run(lambda: self._write_checked(offsets))
        self.ballast.run(lambda: self._log_starts.write(moved))
        self._written_log_starts = moved
        self._durable_log_starts = dict(offsets)
        self._log_starts_are_stale = False

    def _write_checked(self, offsets: Mapping[PartitionName, Offset]) -> None:
        entries = [[name.topic, name.partition, offset] for name, offset in offsets.items()]
        content = dump_checked({"version": _VERSION, "log_start_offsets": entries})
        write_file_atomically(self._file_system, self._checked_path, content)

    def _read_checked(self) -> dict[PartitionName, Offset]:
        try:
            content = parse_checked(read_file(self._file_system, self._checked_path, _FILE_BYTES_MAX), _MEMBERS)
            if content["version"] != _VERSION:
                raise ValueError(f"its version is {content['version']!r}")
            return {
                PartitionName(topic, partition): Offset(offset)
                for topic, partition, offset in content["log_start_offsets"]
            }
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, RecursionError) as error:
            _logger.warning("%s is damaged and taken as absent: %s", self._checked_path, error)
            return {}


def _read(checkpoint: OffsetCheckpoint) -> dict[PartitionName, Offset]:
    try:
        return checkpoint.read()
    except CorruptCheckpointError as error:
        _logger.warning("taken as absent: %s", error)
        return {}
