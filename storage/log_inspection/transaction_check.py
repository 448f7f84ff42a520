"""The transactions of a partition according to its batches, and transaction indexes compared with them."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rollway.records import RecordFormatError, decode_batch, split_batches
from storage.log_inspection.index_checks import Report
from storage.log_inspection.stored_files import Readable, StoredBatch, TransactionEntry

_CONTROL_KEY = struct.Struct(">hh")
_ABORT = 0


class ControlRecord(NamedTuple):
    """The record of a control batch."""

    type_number: int
    coordinator_epoch: int | None

    @property
    def name(self) -> str:
        return {0: "ABORT", 1: "COMMIT"}.get(self.type_number, f"type {self.type_number}")


class Abort(NamedTuple):
    """A transaction that an abort marker ended, in the form of its index entry."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def read_control_record(log: Readable, batch: StoredBatch) -> ControlRecord | None:
    """Return the record of a control batch; ``None`` if it is not readable."""
    try:
        (stored,) = split_batches(log.read(batch.position, batch.size_bytes))
        columns = decode_batch(stored)
    except RecordFormatError:
        return None
    key, value = (columns.keys.to_list() or [None])[0], (columns.values.to_list() or [None])[0]
    if key is None or len(key) < _CONTROL_KEY.size:
        return None
    epoch = struct.unpack_from(">hi", value)[1] if value is not None and len(value) >= 6 else None
    return ControlRecord(_CONTROL_KEY.unpack_from(key)[1], epoch)


class TransactionWalk:
    """The open transactions, from batch to batch and from segment to segment.

    ``opened`` are the transactions that were open where the log begins, by producer. ``is_known`` becomes false at
    unreliable batches: entries are not checked from there on.
    """

    def __init__(self, opened: dict[int, int] | None) -> None:
        self.is_known = opened is not None
        self._opened = dict(opened or {})
        self._aborts: list[Abort] = []

    def see(self, log: Readable, batch: StoredBatch) -> None:
        """Record the next batch."""
        if not batch.is_crc_valid:
            self.is_known = False
        elif batch.producer_id >= 0 and batch.is_control:
            control = read_control_record(log, batch)
            if control is None:
                self.is_known = False
            elif control.type_number in {0, 1}:
                self._end(batch, control)
        elif batch.producer_id >= 0 and batch.is_transactional:
            self._opened.setdefault(batch.producer_id, batch.base_offset)

    def _end(self, marker: StoredBatch, control: ControlRecord) -> None:
        first_offset = self._opened.pop(marker.producer_id, None)
        if first_offset is not None and control.type_number == _ABORT:
            stable = min([*self._opened.values(), marker.base_offset + 1])
            self._aborts.append(Abort(marker.producer_id, first_offset, marker.base_offset, stable))

    def check_index(self, path: Path, entries: Iterable[TransactionEntry], report: Report, *, is_written: bool) -> None:
        """Compare the entries of a segment's index with the aborts since the last call.

        With ``is_written`` a server may be writing both files, and either may be ahead.
        """
        expected = {abort.last_offset: abort for abort in self._aborts}
        self._aborts = []
        if not self.is_known:
            return
        for entry in entries:
            abort = expected.pop(entry.last_offset, None)
            found = Abort(entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset)
            if abort is None and not is_written:
                report(path, f"no transaction was aborted at offset {entry.last_offset}", entry.position)
            elif abort is not None and abort != found:
                report(path, f"the log says {_told(abort)}, but the entry says {_told(found)}", entry.position)
        for abort in expected.values():
            if not is_written:
                report(path, f"{_told(abort)} is missing", None)


def _told(abort: Abort) -> str:
    return (
        f"producer {abort.producer_id} aborted offsets {abort.first_offset} to {abort.last_offset} with last stable "
        f"offset {abort.last_stable_offset}"
    )
