"""Index entries compared with the log they point into, in one walk over the batches.

Entries and batches both rise. Each check holds one pending entry and advances with the batches, so memory does not grow
with the file. Spec C6 and DumpLogSegments define the batch that an entry must name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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


class _RisingEntries:
    """The entries of an index that rise, one pending at a time; reports each entry that does not.

    ``fault`` returns the fault of an entry behind the last rising one, ``None`` if the entry rises.
    """

    def __init__(
        self,
        index: IndexFile,
        report: Report,
        entries: Iterable[_Entry],
        fault: Callable[[_Entry, _Entry | None], str | None],
    ) -> None:
        self._path = index.path
        self._report = report
        self.count = 0
        """Number of entries that were read."""
        self.last: _Entry | None = None
        """The last rising entry that was read."""
        self._rising = self._rise(entries, fault)
        self.pending = next(self._rising, None)

    def _rise(
        self, entries: Iterable[_Entry], fault: Callable[[_Entry, _Entry | None], str | None]
    ) -> Iterator[_Entry]:
        for number, entry in enumerate(entries):
            self.count = number + 1
            problem = fault(entry, self.last)
            if problem is None:
                self.last = entry
                yield entry
            else:
                self._report(self._path, f"entry {number} {problem}", entry.at)

    def go_on(self, problem: str | None) -> None:
        """Report the pending entry if it has a problem, and make the next one pending."""
        if problem is not None and self.pending is not None:
            self._report(self._path, problem, self.pending.at)
        self.pending = next(self._rising, None)


_NOT_RISING = "does not rise above the entry before it"


class OffsetIndexCheck:
    """The check that every entry of an ``.index`` names the first byte of a batch and that batch's last offset."""

    def __init__(self, index: IndexFile, report: Report) -> None:
        self._index = index
        self._report = report
        read = read_offset_entries(index.file, index.size_bytes)
        entries = (
            _Entry(number * OFFSET_ENTRY.size, index.base_offset + relative, position)
            for number, relative, position in read
        )
        self.entries = _RisingEntries(index, report, entries, self._fault)

    def _fault(self, entry: _Entry, before: _Entry | None) -> str | None:
        if entry.offset < self._index.base_offset or entry.other < 0:
            return "has a negative number"
        rises = before is None or (entry.offset > before.offset and entry.other > before.other)
        return None if rises else _NOT_RISING

    def see(self, batch: StoredBatch) -> None:
        """Compare the next batch of the log."""
        while (entry := self.entries.pending) is not None and entry.other <= batch.position:
            problem = None
            if entry.other < batch.position:
                problem = f"the entry points to log position {entry.other}, where no batch begins"
            elif entry.offset != batch.last_offset:
                problem = (
                    f"the entry names offset {entry.offset}, but the batch at log position {batch.position} ends with "
                    f"{batch.last_offset}"
                )
            self.entries.go_on(problem)

    def finish(self, *, may_be_ahead: bool) -> None:
        """End the check. ``may_be_ahead``: a server continued to write after the log's length was taken."""
        while not may_be_ahead and (entry := self.entries.pending) is not None:
            self.entries.go_on(f"the entry points to log position {entry.other}, beyond the last batch")
        _check_length(self._index, OFFSET_ENTRY.size, self.entries.count, self._report, may_be_ahead=may_be_ahead)


class TimeIndexCheck:
    """The check that every entry of a ``.timeindex`` names a batch's last offset and the largest timestamp so far."""

    def __init__(self, index: IndexFile, report: Report) -> None:
        self._index = index
        self._report = report
        self._largest_timestamp = -1
        read = read_time_entries(index.file, index.size_bytes)
        entries = (
            _Entry(number * TIME_ENTRY.size, index.base_offset + relative, timestamp)
            for number, timestamp, relative in read
        )
        self.entries = _RisingEntries(index, report, entries, self._fault)

    def _fault(self, entry: _Entry, before: _Entry | None) -> str | None:
        if entry.offset < self._index.base_offset:
            return "has a negative offset"
        rises = before is None or (entry.other > before.other and entry.offset >= before.offset)
        return None if rises else _NOT_RISING

    def see(self, batch: StoredBatch) -> None:
        """Compare the next batch of the log."""
        while (entry := self.entries.pending) is not None and entry.offset <= batch.last_offset:
            largest = max(self._largest_timestamp, batch.max_timestamp)
            problem = None
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
            self.entries.go_on(problem)
        self._largest_timestamp = max(self._largest_timestamp, batch.max_timestamp)

    def finish(self, *, may_be_ahead: bool, is_sealed: bool) -> None:
        """End the check. In a sealed segment the last entry must hold the segment's largest timestamp."""
        while not may_be_ahead and (entry := self.entries.pending) is not None:
            self.entries.go_on(f"the entry names offset {entry.offset}, beyond the last batch")
        last_timestamp = -1 if self.entries.last is None else self.entries.last.other
        if is_sealed and self.entries.count and last_timestamp < self._largest_timestamp:
            self._report(
                self._index.path,
                f"the last entry has timestamp {last_timestamp}, but the segment's largest is "
                f"{self._largest_timestamp}: a lookup between the two would skip this segment",
                None,
            )
        _check_length(self._index, TIME_ENTRY.size, self.entries.count, self._report, may_be_ahead=may_be_ahead)


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
