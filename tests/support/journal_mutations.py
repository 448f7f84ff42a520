"""Defects of the journal; see ``mutations``. Workloads with odd seeds are about the journal."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

import storage.journal.pieces
import storage.journal.pieces_py
import storage.journal.replay
import storage.manager.journal_opening
from log_model.errors import PartitionFailedError
from log_model.offsets import LogOffsetMetadata
from storage.disk.topic_metadata import mark_journal
from storage.journal.entries import EntryHeader, parse_header
from storage.journal.journal import Journal
from storage.journal.journal_files import JournalFiles
from storage.journal.replay import JournalReplay
from storage.log.partition_log import PartitionLog
from storage.log.written_log import WrittenLog
from storage.manager.journal_opening import JournalOpening
from tests.support.mutations import DISK_ERRORS, POWER_CUT, NoDirectorySync, Proxy, defect, swapped

# Writing


@defect(POWER_CUT, found_by=1)
def an_entry_is_not_fsynced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JournalFiles, "sync", lambda self: None)


@defect(POWER_CUT, found_by=1)
def an_entry_asks_for_itself_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "_oldest", lambda self: self._sequence + 1)


@defect(POWER_CUT, found_by=1)
def what_is_journaled_counts_as_fsynced(patch: pytest.MonkeyPatch) -> None:
    note_journaled = WrittenLog.note_journaled

    def note_more(self: WrittenLog, log_end: LogOffsetMetadata, journal: Any) -> None:
        note_journaled(self, log_end, journal)
        self.fsynced_end = max(self.fsynced_end, log_end.offset)

    # The compiled module notes it itself.
    patch.setattr(storage.journal.pieces, "compiled", None)
    patch.setattr(WrittenLog, "note_journaled", note_more)


@defect(POWER_CUT, found_by=1)
def the_mark_is_not_durable_before_the_first_entry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        storage.manager.journal_opening,
        "mark_journal",
        lambda file_system, directory, journal_id: mark_journal(NoDirectorySync(file_system), directory, journal_id),
    )


@defect(POWER_CUT, found_by=1)
def the_names_of_the_files_are_not_durable_before_the_mark(patch: pytest.MonkeyPatch) -> None:
    prepare = JournalFiles.prepare

    def prepare_without(self: JournalFiles) -> None:
        with swapped(self, "_file_system", NoDirectorySync(self._file_system)):
            prepare(self)

    patch.setattr(JournalFiles, "prepare", prepare_without)


# Using files again


@defect(POWER_CUT, found_by=3)
def a_full_file_is_used_again_before_its_segments_are_fsynced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "_settle", lambda self, logs: True)


@defect(POWER_CUT, found_by=5)
def a_file_is_used_again_without_the_entry_that_closes_the_last(patch: pytest.MonkeyPatch) -> None:
    go_on = JournalFiles.go_on
    patch.setattr(JournalFiles, "go_on", lambda self, close: go_on(self, lambda: None))


@defect(POWER_CUT, found_by=1)
def a_new_file_is_used_before_its_name_is_durable(patch: pytest.MonkeyPatch) -> None:
    go_on = JournalFiles.go_on

    def go_on_without(self: JournalFiles, close: Any) -> None:
        with swapped(self, "_file_system", NoDirectorySync(self._file_system)):
            go_on(self, close)

    patch.setattr(JournalFiles, "go_on", go_on_without)


# Truncation


@defect(POWER_CUT, found_by=1)
def the_journal_does_not_forget_what_is_truncated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "forget", lambda self, name, topic_id: None)


@defect(POWER_CUT, found_by=5)
def the_journal_forgets_before_the_segment_is_fsynced(patch: pytest.MonkeyPatch) -> None:
    leave_journal = WrittenLog.leave_journal

    def leave_at_once(self: WrittenLog) -> None:
        with swapped(self, "fsynced_end", self.written.log_end.offset):
            leave_journal(self)

    patch.setattr(WrittenLog, "leave_journal", leave_at_once)


# Replaying


@defect(POWER_CUT, found_by=5)
def the_replay_ignores_crc(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(storage.journal.replay, "is_whole", lambda header_bytes, body, header: True)


@defect(POWER_CUT, found_by=1)
def the_replay_takes_entries_of_earlier_journals(patch: pytest.MonkeyPatch) -> None:
    def parse_any(block: bytes, _journal_id: str) -> EntryHeader | None:
        return parse_header(block, block[16:38].decode(errors="replace"))

    patch.setattr(storage.journal.replay, "parse_header", parse_any)


class _NoSync(Proxy):
    def sync(self) -> None:
        """Left out."""


@defect(POWER_CUT, found_by=3)
def replayed_segments_are_not_fsynced(patch: pytest.MonkeyPatch) -> None:
    write_segment = JournalReplay._write_segment
    patch.setattr(
        JournalReplay,
        "_write_segment",
        lambda self, segment, base_offset, pieces: write_segment(self, _NoSync(segment), base_offset, pieces),  # type: ignore[arg-type]
    )


@defect(POWER_CUT, found_by=1)
def the_mark_is_lowered_before_the_replay(patch: pytest.MonkeyPatch) -> None:
    replay = JournalOpening.replay

    def replay_late(self: JournalOpening, journal_id: str, records: Any) -> None:
        self.mark.write(None)
        replay(self, journal_id, records)

    patch.setattr(JournalOpening, "replay", replay_late)


@defect(POWER_CUT, found_by=5)
def pieces_of_a_deleted_topic_go_to_the_next_one_of_its_name(patch: pytest.MonkeyPatch) -> None:
    take, forget, replay = storage.journal.pieces_py.take_piece, Journal.forget, JournalOpening.replay

    def take_by_name(log: PartitionLog) -> Any:
        taken = take(log)
        if isinstance(taken, bool | PartitionFailedError):
            return taken
        end, piece = taken
        return end, piece._replace(topic_id=_id_of(log.name.topic))

    # The compiled module makes descriptors itself.
    patch.setattr(storage.journal.pieces, "compiled", None)
    patch.setattr(storage.journal.pieces_py, "take_piece", take_by_name)
    patch.setattr(Journal, "forget", lambda self, name, topic_id: forget(self, name, _id_of(name.topic)))
    patch.setattr(
        JournalOpening,
        "replay",
        lambda self, journal_id, records: replay(
            self, journal_id, [replace(record, topic_id=_id_of(record.name)) for record in records]
        ),
    )


def _id_of(topic: str) -> str:
    return topic.ljust(22, "_")


# Disk errors


@defect(DISK_ERRORS)
def a_failed_fsync_of_the_journal_is_tried_again(patch: pytest.MonkeyPatch) -> None:
    sync = JournalFiles.sync

    def sync_twice(self: JournalFiles) -> None:
        with suppress(OSError):
            return sync(self)
        return sync(self)

    patch.setattr(JournalFiles, "sync", sync_twice)


@defect(DISK_ERRORS)
def a_file_is_used_again_although_a_log_could_not_be_flushed(patch: pytest.MonkeyPatch) -> None:
    settle = Journal._settle

    def settle_anyhow(self: Journal, logs: Sequence[tuple[PartitionLog, int]]) -> bool:
        settle(self, logs)
        return True

    patch.setattr(Journal, "_settle", settle_anyhow)


@defect(DISK_ERRORS, found_by=1)
def a_file_is_used_again_before_an_older_one(patch: pytest.MonkeyPatch) -> None:
    free = Journal.free

    def free_in_any_order(self: Journal) -> None:
        free(self)
        for file in list(self._files.full):
            if not file.is_stuck:
                self._files.release(file)

    patch.setattr(Journal, "free", free_in_any_order)


@defect(DISK_ERRORS, found_by=2)
def the_journal_begins_again_while_segments_need_its_entries(patch: pytest.MonkeyPatch) -> None:
    begin_again = Journal.begin_again

    def begin_at_once(self: Journal) -> None:
        if self._lacks_room:
            self._is_marked = False
        begin_again(self)

    patch.setattr(Journal, "begin_again", begin_at_once)
