"""Defects that can be planted in the engine, to see that the tests would notice.

Each is a mistake somebody could make: a sync left out, two steps in the wrong order, a check forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest

import storage.manager.opened_partitions
import storage.manager.resting_partitions
import storage.manager.resting_states
import storage.recovery.segment_scan
import storage.segment.segment
from log_model.offsets import LogOffsetMetadata, Offset, Position
from log_model.reads import Isolation
from log_model.transactions import UnstableTransactions
from storage.disk.file_names import CLEAN_SHUTDOWN_MARKER
from storage.disk.whole_files import write_file_atomically
from storage.index.offset_index import OffsetIndex
from storage.index.time_index import TimeIndex
from storage.index.transaction_index import TransactionIndex
from storage.log.log_snapshot import LogSnapshot
from storage.log.log_writer import AppendRequest, LogWriter
from storage.log.partition_log import PartitionLog
from storage.log.written_log import WrittenState
from storage.manager.log_manager import LogManager
from storage.manager.opened_partitions import OpenedPartitions
from storage.producers.producer_entry import ProducerEntry
from storage.producers.transaction_checkpoint import TransactionCheckpoint
from storage.recovery.segment_recovery import SegmentRecovery
from storage.recovery.segment_scan import SegmentScanner
from storage.segment.segment import Segment
from storage.segment.segment_transactions import SegmentTransactions

POWER_CUT = "power cut"
DISK_ERRORS = "disk errors"
BIT_ROT = "bit rot"
MODEL = "model"
RACE = "race"
CASES = "cases of transactions"


@dataclass(frozen=True)
class Defect:
    """One mistake, how to plant it, and the suite that must find it; ``found_by`` is the run of it to begin with."""

    name: str
    plant: Callable[[pytest.MonkeyPatch], None]
    suite: str
    found_by: int


DEFECTS: list[Defect] = []

Plant = Callable[[pytest.MonkeyPatch], None]


def defect(
    suite: str, found_by: int = 0
) -> Callable[[Callable[[pytest.MonkeyPatch], None]], Callable[[pytest.MonkeyPatch], None]]:
    """Register a function that plants a defect."""

    def register(plant: Plant) -> Plant:
        DEFECTS.append(Defect(plant.__name__.replace("_", " "), plant, suite, found_by))
        return plant

    return register


class Proxy:
    """A file system that is another one, but for what a subclass says."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class NoDirectorySync(Proxy):
    def sync_directory(self, path: object) -> None:
        """Left out."""


@contextmanager
def swapped(owner: object, name: str, value: object) -> Any:
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


# Durability


@defect(POWER_CUT)
def acknowledge_before_fsync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Segment, "flush", lambda self, written_bytes=None: None)


@defect(POWER_CUT, found_by=4)
def no_directory_fsync_at_roll(patch: pytest.MonkeyPatch) -> None:
    roll = LogWriter.roll

    def roll_without(self: LogWriter, base_offset: Offset) -> None:
        with swapped(self, "_file_system", NoDirectorySync(self._file_system)):
            roll(self, base_offset)

    patch.setattr(LogWriter, "roll", roll_without)


@defect(POWER_CUT)
def no_directory_fsync_after_an_atomic_write(patch: pytest.MonkeyPatch) -> None:
    for module in (
        storage.disk.checkpoint,
        storage.manager.topic_registry,
        storage.disk.topic_metadata,
        storage.manager.opened_partitions,
        storage.manager.resting_partitions,
        storage.manager.resting_states,
    ):
        patch.setattr(
            module,
            "write_file_atomically",
            lambda file_system, path, content: write_file_atomically(NoDirectorySync(file_system), path, content),
        )


@defect(POWER_CUT)
def no_fsync_of_the_old_segment_at_roll(patch: pytest.MonkeyPatch) -> None:
    seal = Segment.seal

    def seal_without(self: Segment) -> None:
        with swapped(storage.segment.segment, "fsync", lambda sync: None):
            seal(self)

    patch.setattr(Segment, "seal", seal_without)


@defect(POWER_CUT, found_by=14)
def log_start_not_durable_before_deletion(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogWriter, "_save_log_start", lambda self, log_start_offset: None)


@defect(POWER_CUT, found_by=6)
def clean_marker_before_the_last_flush(patch: pytest.MonkeyPatch) -> None:
    close = LogManager.close

    def close_late(self: LogManager) -> bool:
        write_file_atomically(self.file_system, self.logs_directory / CLEAN_SHUTDOWN_MARKER, b"{}")
        return close(self)

    patch.setattr(LogManager, "close", close_late)


@defect(POWER_CUT, found_by=12)
def visible_before_durable(patch: pytest.MonkeyPatch) -> None:
    shown = WrittenState.shown
    patch.setattr(WrittenState, "shown", lambda self, _bound, damage: shown(self, self.log_end, damage))


@defect(POWER_CUT, found_by=8)
def recovery_point_ahead_of_the_fsync(patch: pytest.MonkeyPatch) -> None:
    append = LogWriter.append

    def append_and_advance(self: LogWriter, group: Sequence[AppendRequest]) -> Any:
        answers = append(self, group)
        self.fsynced_end = self.written.log_end.offset
        return answers

    patch.setattr(LogWriter, "append", append_and_advance)


# Recovery


@defect(POWER_CUT)
def recovery_ignores_crc(patch: pytest.MonkeyPatch) -> None:
    class Unchecked(storage.recovery.segment_scan.RecordBatch):
        def check_crc(self) -> None:
            """Left out."""

    patch.setattr(storage.recovery.segment_scan, "RecordBatch", Unchecked)


@defect(POWER_CUT)
def recovery_keeps_the_bad_tail(patch: pytest.MonkeyPatch) -> None:
    scan = SegmentScanner.scan

    def scan_and_keep(self: SegmentScanner) -> Any:
        return replace(scan(self), valid_bytes=self._segment.size_bytes, problem=None)

    patch.setattr(SegmentScanner, "scan", scan_and_keep)


@defect(POWER_CUT)
def recovery_trusts_the_page_cache(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SegmentRecovery, "_rewrite", lambda self, file, runs: None)


@defect(POWER_CUT)
def no_directory_fsync_after_an_unclean_stop(patch: pytest.MonkeyPatch) -> None:
    load = LogManager._load

    def load_without(self: LogManager, *arguments: Any) -> None:
        with swapped(self, "file_system", NoDirectorySync(self.file_system)):
            load(self, *arguments)

    patch.setattr(LogManager, "_load", load_without)


@defect(BIT_ROT, found_by=3)
def truncate_below_the_recovery_point(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SegmentRecovery, "durable_end", lambda self, segments: Offset(0))


# Disk errors


@defect(DISK_ERRORS)
def retry_a_failed_fsync(patch: pytest.MonkeyPatch) -> None:
    flush = Segment.flush

    def flush_twice(self: Segment, written_bytes: int | None = None) -> None:
        with suppress(OSError):
            return flush(self, written_bytes)
        return flush(self, written_bytes)

    patch.setattr(Segment, "flush", flush_twice)


@defect(DISK_ERRORS, found_by=2)
def half_an_append_stays_after_a_full_disk(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Segment, "undo_append", lambda self, size_bytes, log_end, max_timestamp: None)


@defect(DISK_ERRORS, found_by=1)
def full_disk_in_an_fsync_is_tried_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(storage.segment.segment, "fsync", lambda sync: sync())


# Reading


@defect(MODEL)
def one_batch_too_few_at_the_visible_end(patch: pytest.MonkeyPatch) -> None:
    read = Segment.read

    def read_short(self: Segment, offset: Offset, limit: int, max_bytes: int, **options: Any) -> Any:
        return read(self, offset, limit - 1, max_bytes, **options)

    patch.setattr(Segment, "read", read_short)


@defect(MODEL)
def reads_go_beyond_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogSnapshot, "bound", lambda self, isolation=Isolation.LOG_END: self.log_end_metadata)


@defect(MODEL)
def index_entries_at_wrong_positions(patch: pytest.MonkeyPatch) -> None:
    append = OffsetIndex.append
    patch.setattr(OffsetIndex, "append", lambda self, offset, position: append(self, offset, Position(position + 1)))


@defect(MODEL)
def no_closing_time_index_entry(patch: pytest.MonkeyPatch) -> None:
    maybe_append = TimeIndex.maybe_append

    def only_in_passing(self: TimeIndex, timestamp: int, offset: Offset, *, skip_full_check: bool = False) -> None:
        if not skip_full_check:
            maybe_append(self, timestamp, offset)

    patch.setattr(TimeIndex, "maybe_append", only_in_passing)


# Transactions


@defect(MODEL)
def last_stable_offset_ignores_open_transactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UnstableTransactions, "first_unstable", lambda self, high_watermark: None)


@defect(CASES, found_by=20)
def a_marker_counts_before_the_high_watermark_is_above_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UnstableTransactions, "first_unstable", lambda self, high_watermark: self.first_open)


@defect(MODEL)
def a_marker_does_not_end_its_transaction(patch: pytest.MonkeyPatch) -> None:
    after = ProducerEntry.after
    patch.setattr(ProducerEntry, "after", lambda self, header, control=None: after(self, header))


@defect(CASES)
def an_aborted_transaction_is_looked_for_in_one_segment_only(patch: pytest.MonkeyPatch) -> None:
    collect = SegmentTransactions.collect
    patch.setattr(
        SegmentTransactions, "collect", lambda self, offset, end: collect(self, offset, end)._replace(is_complete=True)
    )


@defect(POWER_CUT)
def transaction_index_is_not_durable_at_the_roll(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionIndex, "flush", lambda self: None)
    patch.setattr(TransactionCheckpoint, "note", lambda self, base_offset, content, known: None)


@defect(POWER_CUT, found_by=10)
def transaction_index_is_not_made_anew_after_a_crash(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SegmentTransactions, "replace", lambda self, transactions: None)


@defect(RACE)
def transaction_index_written_after_the_publish(patch: pytest.MonkeyPatch) -> None:
    add, late = SegmentTransactions.add, list[Callable[[], None]]()
    patch.setattr(SegmentTransactions, "add", lambda self, transaction: late.append(lambda: add(self, transaction)))
    publish = PartitionLog.publish

    def publish_and_add(self: PartitionLog) -> LogSnapshot:
        snapshot = publish(self)
        time.sleep(0)
        while late:
            late.pop(0)()
        return snapshot

    patch.setattr(PartitionLog, "publish", publish_and_add)


# Readers beside the writer


@defect(RACE)
def publish_before_write(patch: pytest.MonkeyPatch) -> None:
    append = PartitionLog.append

    def publish_first(self: PartitionLog, group: Sequence[AppendRequest]) -> Any:
        written = self.writer.written
        end = LogOffsetMetadata(
            Offset(written.log_end.offset + sum(request.record_count for request in group)),
            written.log_end.segment_base_offset,
            Position(written.log_end.position + sum(request.size_bytes for request in group)),
        )
        self.snapshot = written._replace(log_end=end).shown(end, self.damage)
        time.sleep(0)
        return append(self, group)

    patch.setattr(PartitionLog, "append", publish_first)


@defect(RACE)
def two_step_publish(patch: pytest.MonkeyPatch) -> None:
    publish = PartitionLog.publish

    def end_first(self: PartitionLog) -> LogSnapshot:
        end = self.writer.written.log_end
        self.snapshot = replace(self.snapshot, log_end_metadata=end, high_watermark_metadata=end)
        time.sleep(0)
        return publish(self)

    patch.setattr(PartitionLog, "publish", end_first)


@defect(RACE)
def eager_close_of_retired_files(patch: pytest.MonkeyPatch) -> None:
    retire = LogWriter.retire

    def retire_and_close(self: LogWriter, doomed: Iterable[Segment]) -> None:
        doomed = list(doomed)
        retire(self, doomed)
        for segment in doomed:
            segment.file.close()

    patch.setattr(LogWriter, "retire", retire_and_close)


# Partitions at rest


@defect(POWER_CUT)
def a_first_change_is_not_noted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OpenedPartitions, "note", lambda self, topic_id, partition: None)
