"""Index entries compared with the log they point into, in one walk over the batches.

Entries and batches both rise. Each check holds one pending entry and advances with the batches, so memory does not grow
with the file. Spec C6 and DumpLogSegments define the batch that an entry must name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from storage.disk.file_system import File
from storage.log_inspection.stored_files import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    StoredBatch,
    is_zero,
    read_offset_entries,
    read_time_entries,
)

Report = Callable[[Path, str, int | None], None]


class IndexFile(NamedTuple):
    """An index to check: its file, its length when it was opened, and its segment's base offset."""

    file: File
    size_bytes: int
    base_offset: int
    has_zero_tail: bool
    """Whether preallocated space behind the entries is normal: in the active segment, unless cleanly stopped."""

    @property
    def path(self) -> Path:
        return self.file.path


class _Entry(NamedTuple):
    at: int
    offset: int
    other: int  # a position in the log, or a timestamp


class OffsetIndexCheck:
    """The check that every entry of an ``.index`` names the first byte of a batch and that batch's last offset."""

    def __init__(self, index: IndexFile, report: Report) -> None:
        self._index = index
        self._report = report
        self.entry_count = 0
        self._entries = self._rising_entries()
        self._pending = next(self._entries, None)

    def _rising_entries(self) -> Iterator[_Entry]:
        index = self._index
        before: _Entry | None = None
        for number, relative_offset, position in read_offset_entries(index.file, index.size_bytes):
            self.entry_count = number + 1
            entry = _Entry(number * OFFSET_ENTRY.size, index.base_offset + relative_offset, position)
            if relative_offset < 0 or position < 0:
                self._report(index.path, f"entry {number} has a negative number", entry.at)
            elif before is not None and (entry.offset <= before.offset or entry.other <= before.other):
                self._report(index.path, f"entry {number} does not rise above the entry before it", entry.at)
            else:
                before = entry
                yield entry

    def see(self, batch: StoredBatch) -> None:
        """Compare the next batch of the log."""
        while self._pending is not None and self._pending.other <= batch.position:
            entry = self._pending
            if entry.other < batch.position:
                self._report(
                    self._index.path, f"the entry points to log position {entry.other}, where no batch begins", entry.at
                )
            elif entry.offset != batch.last_offset:
                self._report(
                    self._index.path,
                    f"the entry names offset {entry.offset}, but the batch at log position {batch.position} ends with "
                    f"{batch.last_offset}",
                    entry.at,
                )
            self._pending = next(self._entries, None)

    def finish(self, *, may_be_ahead: bool) -> None:
        """End the check. ``may_be_ahead``: a server continued to write after the log's length was taken."""
        while self._pending is not None and not may_be_ahead:
            entry = self._pending
            self._report(
                self._index.path, f"the entry points to log position {entry.other}, beyond the last batch", entry.at
            )
            self._pending = next(self._entries, None)
        _check_length(self._index, OFFSET_ENTRY.size, self.entry_count, self._report, may_be_ahead=may_be_ahead)


class TimeIndexCheck:
    """The check that every entry of a ``.timeindex`` names a batch's last offset and the largest timestamp so far."""

    def __init__(self, index: IndexFile, report: Report) -> None:
        self._index = index
        self._report = report
        self._largest_timestamp = -1
        self._last_timestamp = -1
        self.entry_count = 0
        self._entries = self._rising_entries()
        self._pending = next(self._entries, None)

    def _rising_entries(self) -> Iterator[_Entry]:
        index = self._index
        before: _Entry | None = None
        for number, timestamp, relative_offset in read_time_entries(index.file, index.size_bytes):
            self.entry_count = number + 1
            entry = _Entry(number * TIME_ENTRY.size, index.base_offset + relative_offset, timestamp)
            if relative_offset < 0:
                self._report(index.path, f"entry {number} has a negative offset", entry.at)
            elif before is not None and (entry.other <= before.other or entry.offset < before.offset):
                self._report(index.path, f"entry {number} does not rise above the entry before it", entry.at)
            else:
                before = entry
                self._last_timestamp = timestamp
                yield entry

    def see(self, batch: StoredBatch) -> None:
        """Compare the next batch of the log."""
        while self._pending is not None and self._pending.offset <= batch.last_offset:
            entry = self._pending
            largest = max(self._largest_timestamp, batch.max_timestamp)
            if entry.offset < batch.last_offset:
                problem = f"the entry names offset {entry.offset}, with which no batch ends"
            elif entry.other != batch.max_timestamp:
                problem = (
                    f"the entry says timestamp {entry.other} for offset {entry.offset}, but that batch's largest is "
                    f"{batch.max_timestamp}"
                )
            elif largest > entry.other:
                problem = (
                    f"the entry says nothing up to offset {entry.offset} is later than {entry.other}, but timestamp "
                    f"{largest} is"
                )
            else:
                problem = ""
            if problem:
                self._report(self._index.path, problem, entry.at)
            self._pending = next(self._entries, None)
        self._largest_timestamp = max(self._largest_timestamp, batch.max_timestamp)

    def finish(self, *, may_be_ahead: bool, is_sealed: bool) -> None:
        """End the check. In a sealed segment the last entry must hold the segment's largest timestamp."""
        while self._pending is not None and not may_be_ahead:
            entry = self._pending
            self._report(self._index.path, f"the entry names offset {entry.offset}, beyond the last batch", entry.at)
            self._pending = next(self._entries, None)
        if is_sealed and self.entry_count and self._last_timestamp < self._largest_timestamp:
            self._report(
                self._index.path,
                f"the last entry has timestamp {self._last_timestamp}, but the segment's largest is "
                f"{self._largest_timestamp}: a lookup between the two would skip this segment",
                None,
            )
        _check_length(self._index, TIME_ENTRY.size, self.entry_count, self._report, may_be_ahead=may_be_ahead)


def _check_length(index: IndexFile, entry_bytes: int, entry_count: int, report: Report, *, may_be_ahead: bool) -> None:
    used_bytes = entry_count * entry_bytes
    rest = index.size_bytes - used_bytes
    if index.size_bytes % entry_bytes:
        report(index.path, f"{index.size_bytes} bytes are no whole number of entries of {entry_bytes} bytes", None)
    if rest < entry_bytes or may_be_ahead:
        return
    if not is_zero(index.file, used_bytes, index.size_bytes - index.size_bytes % entry_bytes):
        report(index.path, "entries follow a zero entry", used_bytes)
    elif not index.has_zero_tail:
        report(index.path, f"{rest} bytes of zeros follow the last entry: the file was not trimmed", used_bytes)
