"""The replay of a journal: what it writes, what it refuses, and what it leaves alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from log_model.errors import CorruptionError
from storage.disk.file_names import LOG_SUFFIX, offset_file_name
from storage.journal.entries import BLOCK_BYTES, Piece, encode
from storage.journal.journal_files import JournalLimits
from storage.journal.replay import JournalReplay
from storage.log.partition_log import PartitionLog
from tests.crash.disk_faults import Operation
from tests.crash.simulated_disk import SimulatedDisk
from tests.support.writers import append_request
from tests.unit.storage.journal.journal_stand import (
    JOURNAL_DIRECTORY,
    LARGE,
    META_PROPERTIES,
    SMALL,
    JournalStand,
    content_of,
    ends,
)

FIRST = JOURNAL_DIRECTORY / "0.journal"
SEGMENT = offset_file_name(0, LOG_SUFFIX)


def committed(count: int = 3, limits: JournalLimits = LARGE) -> JournalStand:
    """A directory in which only the journal has this many records of each of three logs."""
    stand = JournalStand(limits)
    for number in range(count):
        stand.commit(*stand.logs, value=b"value %d" % number)
    return stand


def again(disk: SimulatedDisk) -> JournalStand:
    return JournalStand(disk=disk)


def damaged(disk: SimulatedDisk, path: Path, change: Callable[[bytearray], object]) -> SimulatedDisk:
    """The disk after a power cut, with other bytes in one file."""
    disk = disk.power_cut()
    content = bytearray(disk.tree()[str(path)])
    change(content)
    disk.damage(path, bytes(content))
    return disk


def test_segments_get_what_they_lack() -> None:
    stand = committed()
    assert stand.disk.power_cut().size(stand.logs[0].directory / SEGMENT) == 0
    after = stand.after_power_cut()
    assert ends(after) == [3, 3, 3]
    for before, found in zip(stand.logs, after.logs, strict=True):
        assert content_of(found.snapshot) == content_of(before.snapshot)
    assert not after.is_marked()


def keep_one(number: int, cut: Callable[[], SimulatedDisk], kept: list[SimulatedDisk], operation: Operation) -> None:
    """Keep the disk that a crash before the operation of this number leaves."""
    if operation.number == number:
        kept.append(cut())


def test_a_replay_that_is_cut_short_is_repeated() -> None:
    """At every operation, by a power cut that loses everything, and by a kill."""
    stand = committed()
    expected = [content_of(log.snapshot) for log in stand.logs]
    started = stand.disk.power_cut()
    probe = started.killed()
    again(probe)
    count = len(probe.operations)
    assert count > 10
    for number in range(count):
        for cut in (SimulatedDisk.power_cut, SimulatedDisk.killed):
            disk = started.killed()
            disks: list[SimulatedDisk] = []
            disk.before_operation = functools.partial(keep_one, number, functools.partial(cut, disk), disks)
            again(disk)
            (left,) = disks
            found = again(left)
            assert [content_of(log.snapshot) for log in found.logs] == expected


def test_what_was_replayed_is_durable_before_the_mark_is_gone() -> None:
    after = committed().after_power_cut()
    assert not after.is_marked()
    assert ends(after.after_power_cut()) == [3, 3, 3]


def test_a_segment_that_is_lost_is_damage_and_no_tail_of_a_crash() -> None:
    stand = committed()
    disk = stand.disk.power_cut()
    disk.damage(stand.logs[0].directory / SEGMENT, None)
    found = again(disk)
    assert "damaged" in (found.logs[0].offline_reason or "")
    assert ends_of_others(found) == [3, 3]


def ends_of_others(stand: JournalStand) -> list[int]:
    return [log.written_end_offset for log in stand.logs[1:]]


# The folder and its files


def test_a_missing_folder_is_refused() -> None:
    disk = committed().disk.power_cut()
    for name in disk.list_directory(JOURNAL_DIRECTORY):
        disk.unlink(JOURNAL_DIRECTORY / name)
    disk.remove_directory(JOURNAL_DIRECTORY)
    with pytest.raises(CorruptionError, match=r"journal is missing.*restore it, or give up"):
        again(disk.killed())


def test_an_empty_folder_gives_up_what_only_the_journal_had(caplog: pytest.LogCaptureFixture) -> None:
    """The remedy that the errors name."""
    disk = committed().disk.power_cut()
    for name in disk.list_directory(JOURNAL_DIRECTORY):
        disk.unlink(JOURNAL_DIRECTORY / name)
    found = again(disk)
    assert ends(found) == [0, 0, 0]
    assert "given up" in caplog.text
    assert not found.is_marked()
    found.commit(*found.logs)
    assert ends(found.after_power_cut()) == [1, 1, 1]


def full_files(count: int) -> JournalStand:
    stand = JournalStand(SMALL)
    while len(stand.journal._files.full) < count:
        stand.commit(*stand.logs)
    stand.commit(*stand.logs)
    return stand


@pytest.mark.parametrize("name", ["0.journal", "1.journal"])
def test_a_missing_file_is_refused(name: str) -> None:
    disk = full_files(2).disk.power_cut()
    disk.damage(JOURNAL_DIRECTORY / name, None)
    with pytest.raises(CorruptionError, match=r"entry [0-9]+ of the journal .* is damaged"):
        again(disk)


def test_a_new_file_without_an_entry_is_none_that_is_missed() -> None:
    stand = full_files(1)
    before = ends(stand.after_power_cut())
    stand.journal._files.go_on(lambda: None)
    assert ends(stand.after_power_cut()) == before


# Entries


def entry_positions(disk: SimulatedDisk, path: Path = FIRST) -> list[int]:
    content = disk.tree()[str(path)]
    return [at for at in range(0, len(content), BLOCK_BYTES) if content[at : at + 8] == b"RWJOURN1"]


@pytest.mark.parametrize("place", [0, 8, 20, 45, 90, 400])
@pytest.mark.parametrize("number", [0, 1])
def test_a_damaged_entry_in_the_middle_is_refused(number: int, place: int) -> None:
    stand = committed(4)
    position = entry_positions(stand.disk)[number] + place

    def flip(content: bytearray) -> None:
        content[position] ^= 1

    with pytest.raises(CorruptionError, match=rf"entry {number + 1} of the journal"):
        again(damaged(stand.disk, FIRST, flip))


@pytest.mark.parametrize("place", [0, 8, 20, 90, 400])
def test_the_last_entry_may_be_torn(place: int) -> None:
    stand = committed(4)
    position = entry_positions(stand.disk)[-1] + place

    def flip(content: bytearray) -> None:
        content[position] ^= 1

    assert ends(again(damaged(stand.disk, FIRST, flip))) == [3, 3, 3]


def test_no_entry_at_all_is_the_torn_first_one() -> None:
    stand = committed(1)
    assert ends(again(damaged(stand.disk, FIRST, lambda content: content.__setitem__(0, 0)))) == [0, 0, 0]


def test_entries_of_the_files_earlier_use_do_not_count() -> None:
    stand = JournalStand(SMALL)
    for _ in range(20):
        stand.commit(*stand.logs)
        if stand.journal.needs_freeing:
            stand.journal.free()
    assert ends(stand.after_power_cut()) == [20, 20, 20]


def test_entries_of_an_earlier_journal_do_not_count() -> None:
    stand = committed(4)
    stand.logs[0].truncate_to(1)
    assert stand.manager.close()
    found = again(stand.disk.power_cut())
    found.commit(found.logs[1])
    assert len(entry_positions(found.disk)) > 1
    assert ends(found.after_power_cut()) == [1, 5, 4]


def test_parts_that_do_not_fit_are_refused() -> None:
    """The CRC is right: the writer was wrong."""
    stand = committed(1)
    journal_id = stand.journal._id
    assert journal_id is not None
    piece = Piece(stand.logs[0].topic_id, 0, 0, -2, 5, b"")
    content = b"".join(encode(journal_id, 2, 1, [piece]))
    disk = damaged(stand.disk, FIRST, lambda found: found.__setitem__(slice(BLOCK_BYTES, None), content))
    with pytest.raises(CorruptionError, match=r"0\.journal at byte 4096: piece 0"):
        again(disk)


# Logs


def test_batches_of_another_program_are_not_overwritten() -> None:
    """A broker that did not know the mark has appended, say."""
    stand = committed(3)
    disk = stand.disk.power_cut()
    other = JournalStand()
    for _ in range(3):
        other.append(other.logs[0], b"of a broker")
    path = stand.logs[0].directory / SEGMENT
    disk.damage(path, other.content(other.logs[0].directory / SEGMENT))
    before = disk.tree()
    with pytest.raises(CorruptionError, match="has another batch at byte 0 than the journal"):
        again(disk)
    assert disk.tree()[str(path)] == before[str(path)]
    assert b"rollway.journal.id" in disk.tree()[str(META_PROPERTIES)]


def test_torn_and_missing_bytes_are_overwritten() -> None:
    stand = committed(3)
    path = stand.logs[0].directory / SEGMENT
    content = stand.content(path)
    for left in (content[:100], content[:-1], bytes(len(content)), content[:70] + bytes(len(content) - 70)):
        disk = stand.disk.power_cut()
        disk.damage(path, left)
        found = again(disk)
        assert ends(found) == [3, 3, 3]
        assert content_of(found.logs[0].snapshot) == content


@pytest.mark.parametrize("torn_bytes", range(1, 20))
def test_a_batch_whose_first_bytes_did_not_arrive_is_no_other_programs(torn_bytes: int) -> None:
    """A sector may end in the base offset, which the CRC of the batch does not cover."""
    stand = committed(2)
    log = stand.logs[0]
    path = log.directory / SEGMENT
    content = stand.content(path)
    start = len(content) // 2
    disk = stand.disk.power_cut()
    disk.damage(path, content[:start] + bytes(torn_bytes) + content[start + torn_bytes :])
    found = again(disk)
    assert ends(found) == [2, 2, 2]
    assert content_of(found.logs[0].snapshot) == content


def test_a_loss_of_fsynced_bytes_is_reported_as_damage() -> None:
    stand = committed(2)
    stand.logs[0].flush(to_segment=True)
    stand.manager.checkpoint()
    stand.commit(*stand.logs)
    path = stand.logs[0].directory / SEGMENT
    disk = stand.disk.power_cut()
    piece_start = len(stand.content(path)) // 3 * 2
    journal_id = stand.journal._id
    assert journal_id is not None
    # The file with the first two pieces was used again, because the segment has them.
    piece = Piece(stand.logs[0].topic_id, 0, 0, piece_start, 3, stand.content(path)[piece_start:])
    disk.damage(FIRST, b"".join(encode(journal_id, 9, 9, [piece])))
    disk.damage(path, stand.content(path)[: piece_start // 2])
    found = again(disk)
    assert "damaged" in (found.logs[0].offline_reason or "")
    assert ends_of_others(found) == [0, 0]


def test_pieces_of_a_deleted_topic_are_dropped() -> None:
    stand = committed(3)
    stand.manager.delete_topic("t")
    stand.manager.create_topic("other", 1, {})
    disk = stand.disk.power_cut()
    assert set(again(disk).manager.topics) == {"t", "other"}


def test_a_topic_of_the_same_name_gets_nothing_of_the_deleted_one() -> None:
    stand = committed(3)
    stand.manager.delete_topic("t")
    stand.manager.create_topic("t", 3, {})
    log = stand.logs[1]
    stand.append(log, b"new")
    log.flush()
    log.publish()
    found = stand.after_power_cut()
    assert ends(found) == [0, 1, 0]
    assert content_of(found.logs[1].snapshot) == content_of(log.snapshot)


def test_partitions_that_there_are_not_any_more_are_passed_by() -> None:
    stand = committed(1)
    calls: list[tuple[str, int]] = []

    def find(topic_id: str, partition: int) -> Path | None:
        calls.append((topic_id, partition))
        return None

    journal_id = stand.journal._id
    assert journal_id is not None
    replay = JournalReplay(stand.disk, JOURNAL_DIRECTORY, journal_id)
    assert replay.run(find) == {}
    assert replay.replayed_bytes == 0
    assert calls == [(stand.logs[0].topic_id, number) for number in range(3)]


def test_deleted_segments_stay_deleted() -> None:
    stand = committed(2)
    log = stand.logs[0]
    log.roll()
    stand.commit(log)
    log.delete_records(2)
    stand.append(log, b"x")
    log.writer.drop_oldest(1)
    log.publish()
    found = stand.after_power_cut()
    assert found.logs[0].snapshot.log_start_offset == 2
    assert found.logs[0].written_end_offset == 3
    assert SEGMENT not in found.disk.list_directory(log.directory)


def test_forgotten_pieces_are_not_replayed_and_later_ones_are() -> None:
    stand = committed(4)
    log = stand.logs[0]
    log.truncate_to(1)
    stand.commit(log, value=b"other")
    found = stand.after_power_cut()
    assert ends(found) == [2, 4, 4]
    assert content_of(found.logs[0].snapshot) == content_of(log.snapshot)


def test_pieces_of_several_segments_and_entries_go_to_their_places() -> None:
    stand = JournalStand(LARGE, segment_bytes=400)

    def append(log: PartitionLog, number: int) -> None:
        log.append((append_request(log, b"%03d" % number * 20),))

    for number in range(20):
        for log in stand.logs[: 1 + number % 3]:
            append(log, number)
        assert False not in stand.flush(*stand.logs)
        for log in stand.logs:
            log.publish()
    assert len(stand.logs[0].snapshot.segments) > 3
    found = stand.after_power_cut()
    assert ends(found) == [log.written_end_offset for log in stand.logs]
    for before, after in zip(stand.logs, found.logs, strict=True):
        assert content_of(after.snapshot) == content_of(before.snapshot)


def test_a_preallocated_segment_gets_its_pieces() -> None:
    stand = JournalStand(LARGE, preallocate=True, segment_bytes=4000)
    for _ in range(3):
        stand.commit(*stand.logs)
    assert ends(stand.after_power_cut()) == [3, 3, 3]
    assert ends(stand.after_kill()) == [3, 3, 3]


def test_the_marker_of_another_programs_clean_stop_does_not_count() -> None:
    """It stopped without the entries of the journal, so every log is scanned."""
    stand = committed(2)
    disk = stand.disk.power_cut()
    disk.damage(META_PROPERTIES.with_name(".kafka_cleanshutdown"), b'{"version":0,"brokerEpoch":-1}')
    found = again(disk)
    assert not found.manager.was_clean
    assert ends(found) == [2, 2, 2]


def test_offsets_below_the_end_of_the_journal_count_as_durable() -> None:
    stand = committed(3)
    found = stand.after_power_cut()
    assert [log.recovery_point for log in found.logs] == [3, 3, 3]


def test_a_lost_meta_properties_gives_up_no_records() -> None:
    """It names the journal: a new file would let the next start pass the journal by."""
    stand = committed(2)
    disk = stand.disk.power_cut()
    disk.unlink(META_PROPERTIES)
    with pytest.raises(CorruptionError, match=r"meta\.properties is missing, and the service was not stopped cleanly"):
        again(disk)
    for name in disk.list_directory(JOURNAL_DIRECTORY):
        disk.unlink(JOURNAL_DIRECTORY / name)
    assert len(again(disk).logs) == 3


def test_a_lost_meta_properties_after_a_clean_stop_is_made_again() -> None:
    stand = committed(2)
    assert stand.manager.close()
    stand.disk.unlink(META_PROPERTIES)
    assert ends(again(stand.disk)) == [2, 2, 2]
