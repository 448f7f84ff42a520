"""The progress and the results of a start: reported by the modules that open and check logs, read for display."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from log_model.clock import Clock
from log_model.errors import DISK_FULL_ERRNOS
from log_model.names import PartitionName
from log_model.offsets import Offset
from log_model.reads import OffsetRange


class RecoveryProgress(NamedTuple):
    """The progress of opening the logs.

    ``byte_count`` is the number of bytes to scan after an unclean stop, 0 after a clean one. ``remaining_ms`` is an
    estimate by the rate so far, ``None`` before there is one. Example: 600 of 1000 bytes in 3 s leave 2000 ms.
    """

    partitions_done: int
    partition_count: int
    scanned_bytes: int
    byte_count: int
    bytes_per_second: int
    elapsed_ms: int
    remaining_ms: int | None


class RecoveryMeter:
    """Counts finished work. Thread: any, for everything."""

    def __init__(self, clock: Clock) -> None:
        """Start to measure time."""
        self._clock = clock
        self._lock = threading.Lock()
        self._began_ms = clock.elapsed_ms()
        self._partitions_done = 0
        self._partition_count = 0
        self._scanned_bytes = 0
        self._byte_count = 0

    def expect(self, partition_count: int, byte_count: int) -> None:
        """Set the total work, before it begins."""
        with self._lock:
            self._partition_count = partition_count
            self._byte_count = byte_count
            self._began_ms = self._clock.elapsed_ms()

    def scanned(self, byte_count: int) -> None:
        """Count ``byte_count`` more bytes as scanned."""
        with self._lock:
            self._scanned_bytes += byte_count

    def opened(self, count: int = 1) -> None:
        """Count more partitions as done: they are open, or rest."""
        with self._lock:
            self._partitions_done += count

    def progress(self) -> RecoveryProgress | None:
        """Return all numbers of one moment; ``None`` before the total work is known."""
        with self._lock:
            if not self._partition_count:
                return None
            done, count = self._partitions_done, self._partition_count
            scanned, byte_count = self._scanned_bytes, max(self._byte_count, self._scanned_bytes)
            elapsed_ms = self._clock.elapsed_ms() - self._began_ms
        # If there are bytes to scan, they take the time. After a clean stop every partition takes about as long.
        part, whole = (scanned, byte_count) if byte_count else (done, count)
        return RecoveryProgress(
            partitions_done=done,
            partition_count=count,
            scanned_bytes=scanned,
            byte_count=byte_count,
            bytes_per_second=scanned * 1000 // elapsed_ms if elapsed_ms else 0,
            elapsed_ms=elapsed_ms,
            remaining_ms=elapsed_ms * (whole - part) // part if part else None,
        )


@dataclass(slots=True)
class PartitionRecovery:
    """The results of opening one partition, for operators.

    Thread: the one that opens the partition.
    """

    name: PartitionName
    clean: bool
    """Whether the last stop was clean."""
    scanned_bytes: int = 0
    truncated_bytes: int = 0
    damage: list[OffsetRange] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # A tuple, because most partitions have none, and each of up to 100,000 keeps this object.
    log_lines: tuple[tuple[int, str], ...] = ()
    """The messages about the partition with their levels, for the service's log."""

    def note(self, text: str) -> None:
        """Add a note, and a warning with the same text."""
        self.log_lines += ((logging.WARNING, text),)
        self.notes.append(text)

    def report_damage(self, start: Offset, end: Offset, why: str) -> None:
        """Add the damaged offsets ``[start, end)``, with a note and an error message."""
        self.damage.append(OffsetRange(start, end))
        self.log_lines += ((logging.ERROR, f"offsets {start} to {end} are damaged on disk: {why}"),)
        self.notes.append(f"offsets {start} to {end} are damaged: {why}")

    @contextmanager
    def tolerating_full_disk(self, consequence: str) -> Iterator[None]:
        """Note ``consequence`` if the disk is too full for the work inside: that must not prevent reads (disk rule 8).

        Raises:
            OSError: the disk refused for another reason.
        """
        try:
            yield
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            self.note(f"{consequence}: {error.strerror}")
