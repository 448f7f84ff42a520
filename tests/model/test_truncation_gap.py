"""A truncation inside a batch: the whole batch goes, the log end is the target, and the gap outlives every stop."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from log_model.clock import ManualClock
from log_model.errors import StorageError
from log_model.offsets import Offset
from storage.disk.truncation_gaps import TruncationGap
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager
from tests.crash.ledger import (
    DATA_DIR,
    EVERYTHING,
    DirectoryCheck,
    Ledger,
    PartitionLedger,
    TopicLedger,
    TopicState,
    append_group,
    check_goes_on,
    content_of,
    flush,
    open_directory,
    publish,
)
from tests.crash.simulated_disk import SimulatedCrash, SimulatedDisk
from tests.crash.workload import TOPIC_CONFIG, new_disk
from tests.model.plain_log import client_batch

TOPIC = "gap"
BATCHES = 7
RECORDS = 4


def close(manager: LogManager, disk: SimulatedDisk) -> SimulatedDisk:
    assert manager.close()
    return disk.killed()


def kill(_manager: LogManager, disk: SimulatedDisk) -> SimulatedDisk:
    return disk.killed()


def cut_power(_manager: LogManager, disk: SimulatedDisk) -> SimulatedDisk:
    return disk.power_cut()


Stop = Callable[[LogManager, SimulatedDisk], SimulatedDisk]
STOPS: dict[str, Stop] = {"clean stop": close, "killed": kill, "power cut": cut_power}


def fill(log: PartitionLog, expected: PartitionLedger, clock: ManualClock, count: int) -> None:
    for _ in range(count):
        mark = len(expected.log.batches)
        timestamps = [clock.now_ms() - place for place in range(RECORDS)]
        append_group(log, expected, [[client_batch(timestamps, 100, mark)]], clock)
        flush(log, expected)
        publish(log, expected)


def truncate(log: PartitionLog, expected: PartitionLedger, target: int) -> None:
    log.truncate_to(target)
    expected.log.truncate_to(target)
    expected.written_end = expected.durable_end = expected.seen_end = target


def check(manager: LogManager, expected: PartitionLedger) -> None:
    ledger = Ledger()
    ledger.topics[TOPIC] = TopicLedger(TOPIC, [expected], TopicState.EXISTS)
    log = manager.partition(TOPIC, 0)
    assert log.snapshot.log_end_offset == expected.log.end_offset
    assert log.offline_reason is None
    if expected.log.batches and expected.log.batches[-1].next_offset == expected.log.end_offset:
        DirectoryCheck(ledger, random.Random(1), killed=True).run(manager)
    everything = content_of(log.snapshot.read(log.snapshot.log_start_offset, EVERYTHING))
    assert everything == expected.log.read(0, EVERYTHING, expected.log.end_offset)


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
@pytest.mark.parametrize("appends", [0, 1, 9])
@pytest.mark.parametrize("target", [1, 2 * RECORDS, 2 * RECORDS + 1, 5 * RECORDS - 1, BATCHES * RECORDS - 2])
def test_the_gap_survives(target: int, appends: int, stop: Stop) -> None:
    """Spec E21, TR-1: truncated, maybe appended to, stopped; opened, appended to, stopped; opened again."""
    clock = ManualClock()
    disk = new_disk(clock)
    manager = open_directory(disk, clock)
    log = manager.create_topic(TOPIC, 1, TOPIC_CONFIG)[0].partitions[0]
    expected = PartitionLedger()
    fill(log, expected, clock, BATCHES)
    truncate(log, expected, target)
    assert log.publish().log_end_offset == target
    check(manager, expected)
    fill(log, expected, clock, appends)
    for _ in range(2):
        disk = stop(manager, disk)
        manager = open_directory(disk, clock)
        check(manager, expected)
        check_goes_on(manager.partition(TOPIC, 0), expected, clock)
        check(manager, expected)


def test_two_gaps() -> None:
    clock = ManualClock()
    disk = new_disk(clock)
    manager = open_directory(disk, clock)
    log = manager.create_topic(TOPIC, 1, TOPIC_CONFIG)[0].partitions[0]
    expected = PartitionLedger()
    fill(log, expected, clock, BATCHES)
    truncate(log, expected, 4 * RECORDS + 1)
    fill(log, expected, clock, 2)
    truncate(log, expected, expected.log.end_offset - 2)
    fill(log, expected, clock, 2)
    for stop in (kill, close, cut_power):
        disk = stop(manager, disk)
        manager = open_directory(disk, clock)
        check(manager, expected)
    log = manager.partition(TOPIC, 0)
    truncate(log, expected, 1)
    check(manager, expected)
    manager = open_directory(kill(manager, disk), clock)
    check(manager, expected)


def epochs_and_a_gap(disk: SimulatedDisk, clock: ManualClock) -> tuple[LogManager, PartitionLedger, SimulatedDisk]:
    """A log of several segments and three leader epochs, two of which begin with a segment, and one gap."""
    manager = open_directory(disk, clock)
    log = manager.create_topic(TOPIC, 1, TOPIC_CONFIG)[0].partitions[0]
    expected = PartitionLedger()
    for _ in range(3):
        fill(log, expected, clock, 5)
        log.roll()
        log.publish()
        disk = disk.killed()
        manager = open_directory(disk, clock)
        log = manager.partition(TOPIC, 0)
    truncate(log, expected, expected.log.end_offset - 2)
    fill(log, expected, clock, 5)
    manager.checkpoint()
    return manager, expected, disk


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "killed"])
def test_a_lost_segment_file_is_never_taken_for_a_gap(clean: bool) -> None:
    """Also where a leader epoch begins behind it: every file in turn."""
    clock = ManualClock()
    manager, expected, disk = epochs_and_a_gap(new_disk(clock), clock)
    log = manager.partition(TOPIC, 0)
    starts = {entry.start_offset for entry in log.epochs.entries}
    bases = log.snapshot.base_offsets
    assert len(starts) >= 3
    assert len(starts.intersection(bases)) >= 2
    if clean:
        manager.close()
    for base_offset, next_base in zip(bases, [*bases[1:], expected.log.end_offset], strict=True):
        damaged = disk.killed()
        damaged.damage(log.directory / f"{base_offset:020d}.log", None)
        found = open_directory(damaged, clock).partition(TOPIC, 0)
        records = expected.log.batches_from(base_offset, next_base)
        if not records:
            continue
        assert found.offline_reason is not None, f"the loss of segment {base_offset} was not noticed"
        assert found.snapshot.log_end_offset == expected.log.end_offset
        for batch in records:
            with pytest.raises(StorageError):
                found.snapshot.read(Offset(batch.base_offset), 1)
    check(open_directory(disk.killed(), clock), expected)


def test_a_gap_that_never_came_to_be_is_forgotten() -> None:
    """Written down before the cut, and the power goes: the batch is there, and its loss would be damage again."""
    clock = ManualClock()
    disk = new_disk(clock)
    manager = open_directory(disk, clock)
    log = manager.create_topic(TOPIC, 1, TOPIC_CONFIG)[0].partitions[0]
    expected = PartitionLedger()
    fill(log, expected, clock, 1)
    log.roll()
    fill(log, expected, clock, 1)
    log.roll()
    fill(log, expected, clock, 1)
    manager.checkpoint()
    gap = TruncationGap(Offset(RECORDS), Offset(2 * RECORDS))
    manager._checkpoints.gaps.add(log.name, gap)
    disk = disk.killed()
    manager = open_directory(disk, clock)
    assert manager._checkpoints.gaps.of(log.name) == frozenset()
    disk = disk.killed()
    disk.damage(log.directory / f"{RECORDS:020d}.log", None)
    found = open_directory(disk, clock).partition(TOPIC, 0)
    assert found.damage == ((RECORDS, 2 * RECORDS),)


LISTS = [DATA_DIR / "rollway" / name for name in ("truncation-gaps", "truncation-gaps-copy")]


def damaged(content: bytes, gap: TruncationGap, variant: str) -> bytes | None:
    flipped = bytearray(content)
    flipped[content.index(b"%d" % gap.end)] ^= 1
    return {"flipped bit": bytes(flipped), "cut": content[:-9], "emptied": b"", "deleted": None}[variant]


@pytest.mark.parametrize("variant", ["flipped bit", "cut", "emptied", "deleted"])
@pytest.mark.parametrize("number", [0, 1])
def test_one_damaged_list_of_gaps_is_made_good_by_the_other(number: int, variant: str) -> None:
    clock = ManualClock()
    manager, expected, disk = epochs_and_a_gap(new_disk(clock), clock)
    (gap,) = manager._checkpoints.gaps.of(manager.partition(TOPIC, 0).name)
    content = disk.tree()[str(LISTS[number])]
    disk = disk.killed()
    disk.damage(LISTS[number], damaged(content, gap, variant))
    check(open_directory(disk, clock), expected)
    assert disk.tree()[str(LISTS[0])] == disk.tree()[str(LISTS[1])] == content


@pytest.mark.parametrize("variant", ["flipped bit", "cut", "emptied", "deleted"])
def test_two_damaged_lists_of_gaps_hide_nothing(variant: str) -> None:
    """A gap that nobody vouches for is reported, and the records around it are served. Who corrects the list, or
    writes the gap down by hand, has the partition back."""
    clock = ManualClock()
    manager, expected, disk = epochs_and_a_gap(new_disk(clock), clock)
    name = manager.partition(TOPIC, 0).name
    (gap,) = manager._checkpoints.gaps.of(name)
    content = damaged(disk.tree()[str(LISTS[0])], gap, variant)
    disk = disk.killed()
    for path in LISTS:
        disk.damage(path, content)
    log = open_directory(disk, clock).partition(TOPIC, 0)
    assert log.damage == (tuple(gap),)
    assert log.offline_reason is not None
    assert ("truncation-gaps" in log.offline_reason) == (variant != "deleted")
    assert log.snapshot.log_end_offset == expected.log.end_offset
    assert content_of(log.snapshot.read(gap.end, EVERYTHING)) == expected.log.read(gap.end, EVERYTHING, 1 << 40)
    disk = disk.killed()
    assert [disk.tree().get(str(path)) for path in LISTS] == [content, content]
    disk.damage(LISTS[0], b'{"version": 1, "truncation_gaps": [["%s", 0, %d, %d]]}' % (TOPIC.encode(), *gap))
    check(open_directory(disk, clock), expected)


def test_power_cut_between_the_two_lists() -> None:
    """Whatever a crash leaves of a truncation, either list alone vouches for every gap that came to be."""
    operations = 0
    while True:
        clock = ManualClock()
        disk = new_disk(clock)
        manager, _, disk = epochs_and_a_gap(disk, clock)
        log = manager.partition(TOPIC, 0)
        disk.crash_at = len(disk.operations) + operations
        with suppress(SimulatedCrash):
            log.truncate_to(log.written_end_offset - 2)
            return
        operations += 1
        for image in disk.images(operations, 4):
            for path in LISTS:
                one_lost = image.disk.killed()
                one_lost.damage(path, b"")
                found = open_directory(one_lost, clock).partition(TOPIC, 0)
                assert found.offline_reason is None, f"{operations} {image.label} {path}: {found.offline_reason}"


def test_a_deleted_topic_takes_its_gaps_along() -> None:
    clock = ManualClock()
    manager, _, disk = epochs_and_a_gap(new_disk(clock), clock)
    name = manager.partition(TOPIC, 0).name
    assert manager._checkpoints.gaps.of(name)
    manager.delete_topic(TOPIC)
    assert open_directory(disk.killed(), clock)._checkpoints.gaps.of(name) == frozenset()


@pytest.mark.parametrize("target", [1, 2 * RECORDS + 1, 5 * RECORDS - 1, BATCHES * RECORDS - 2])
@pytest.mark.parametrize("log_start", [0, 3 * RECORDS])
def test_power_cut_in_a_truncation(target: int, log_start: int) -> None:
    """Before every operation: the log comes back whole, cut somewhere, or as wanted; never with damage, never with
    other bytes, and it goes on."""
    operations = 0
    while operations < 500:
        clock = ManualClock()
        disk = new_disk(clock)
        manager = open_directory(disk, clock)
        log = manager.create_topic(TOPIC, 1, TOPIC_CONFIG)[0].partitions[0]
        expected = PartitionLedger()
        fill(log, expected, clock, 2)
        log.roll()
        fill(log, expected, clock, BATCHES - 2)
        log.delete_records(log_start)
        log.delete_old_segments(clock.now_ms())
        publish(log, expected)
        expected.log.start_offset = log.snapshot.log_start_offset
        manager.checkpoint()
        disk.crash_at = len(disk.operations) + operations
        with suppress(SimulatedCrash):
            log.truncate_to(target)
            assert operations > 20
            return
        operations += 1
        for image in disk.images(operations, 6):
            manager = open_directory(image.disk, clock)
            found = manager.partition(TOPIC, 0)
            assert found.offline_reason is None, f"{image.label}: {found.offline_reason}"
            end = found.snapshot.log_end_offset
            start = found.snapshot.log_start_offset
            everything = content_of(found.snapshot.read(start, EVERYTHING))
            assert everything == b"".join(batch.stored for batch in expected.log.batches_from(start, end))
            after = expected.copy()
            after.log.truncate_to(end)
            after.restart(found.snapshot)
            check_goes_on(found, after, clock)
