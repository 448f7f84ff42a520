"""A topic of many partitions, which one sync of the whole disk makes durable: power cuts, refusals, planted defects."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple

import pytest

from log_model.clock import ManualClock
from log_model.errors import PartitionFailedError, StorageError
from storage.manager import partition_factory
from storage.manager.log_manager import LogManager
from storage.manager.topic_registry import TopicRecord, TopicState
from tests.crash.disk_faults import SPACE_KINDS, Fault
from tests.crash.ledger import PartitionLedger, append_group, flush, open_directory
from tests.crash.simulated_disk import SimulatedCrash, SimulatedDisk, SimulatedWholeSync
from tests.crash.test_topic_creation import TOPIC, is_whole
from tests.crash.workload import TOPIC_CONFIG, new_disk
from tests.model.plain_log import client_batch

DELAY_MS = 2000
assert TOPIC_CONFIG["file.delete.delay.ms"] == DELAY_MS


FOUND = (AssertionError, StorageError, KeyError)
"""The directory does not open, or is not as it must be, or a file is missing in it."""


class Change(NamedTuple):
    """A change of a topic, and how many partitions there are before and after it; 0: there is no topic."""

    work: Callable[[LogManager], object]
    before: int
    after: int


CREATE = Change(lambda manager: manager.create_topic(TOPIC, 5, TOPIC_CONFIG), 0, 5)
ADD = Change(lambda manager: manager.alter_topic(TOPIC, partition_count=7), 3, 7)
DELETE = Change(lambda manager: manager.delete_topic(TOPIC), 4, 0)
CHANGES = pytest.mark.parametrize("change", [CREATE, ADD, DELETE], ids=["create", "add", "delete"])


@pytest.fixture(autouse=True)
def three_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few operations take the path of many partitions, with two syncs."""
    monkeypatch.setattr(partition_factory, "MANY", 3)
    monkeypatch.setattr(partition_factory, "PER_SYNC", 3)


def opened(change: Change) -> tuple[SimulatedDisk, ManualClock, LogManager]:
    clock = ManualClock()
    disk = new_disk(clock)
    manager = open_directory(disk, clock)
    if change.before:
        manager.create_topic(TOPIC, change.before, TOPIC_CONFIG)
    return disk, clock, manager


def found_on(disk: SimulatedDisk, clock: ManualClock, counts: set[int]) -> int:
    """Open the directory as ``is_whole`` does, once the directories of a deleted topic are gone."""
    manager = open_directory(disk, clock)
    clock.advance(2 * DELAY_MS)
    manager.delete_due_files()
    return is_whole(disk.killed(), clock, counts)


def cut_before_every_operation(change: Change) -> set[int]:
    """Cut the power before each operation of the change; the numbers of partitions that starts found."""
    operations = 0
    found: set[int] = set()
    while True:
        disk, clock, manager = opened(change)
        disk.crash_at = len(disk.operations) + operations
        try:
            change.work(manager)
        except SimulatedCrash:
            operations += 1
        else:
            break
        found |= {found_on(image.disk, clock, {change.before, change.after}) for image in disk.images(operations, 5)}
    disk.crash_at = None
    for image in disk.images(1, 12):
        assert found_on(image.disk, clock, {change.after}) == change.after
    return found


@CHANGES
def test_power_cut_before_every_operation(change: Change) -> None:
    assert cut_before_every_operation(change) == {change.before, change.after}


@pytest.mark.parametrize(("change", "noted"), [(CREATE, 1), (ADD, 0)])
def test_the_syncs_are_those_of_the_whole_disk(change: Change, noted: int) -> None:
    disk, _, manager = opened(change)
    disk.operations.clear()
    change.work(manager)
    kinds = [operation.kind for operation in disk.operations]
    assert kinds.count("sync_all") == 2
    # Besides them there is the topic's file, written before and after, and the note that all of a new topic rest.
    assert (kinds.count("sync"), kinds.count("sync_directory")) == (2 + noted, 2)


@pytest.mark.parametrize("change", [CREATE, ADD])
def test_a_sync_that_is_left_out_is_found(change: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted."""
    monkeypatch.setattr(SimulatedWholeSync, "sync", lambda _self: None)
    with pytest.raises(FOUND):
        cut_before_every_operation(change)


@pytest.mark.parametrize("change", [CREATE, ADD])
def test_a_last_sync_that_is_left_out_is_found(change: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the partitions behind the last full number."""
    sync = SimulatedWholeSync.sync
    calls: list[SimulatedWholeSync] = []

    def first_alone(whole: SimulatedWholeSync) -> None:
        if not any(known is whole for known in calls):
            calls.append(whole)
            sync(whole)

    monkeypatch.setattr(SimulatedWholeSync, "sync", first_alone)
    with pytest.raises(FOUND):
        cut_before_every_operation(change)


def test_a_topic_that_is_ready_before_the_sync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the file says from the beginning that all partitions are there."""
    with_state = TopicRecord.with_state

    def ready_at_once(record: TopicRecord, state: TopicState) -> TopicRecord:
        return record if state is TopicState.CREATING else with_state(record, state)

    monkeypatch.setattr(TopicRecord, "with_state", ready_at_once)
    with pytest.raises(FOUND):
        cut_before_every_operation(CREATE)


def test_partitions_that_count_as_ready_before_the_sync_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the file of a growing topic does not say which partitions are new."""
    monkeypatch.setattr(TopicRecord, "was_ready", lambda _self, _name: True)
    with pytest.raises(FOUND):
        cut_before_every_operation(ADD)


@CHANGES
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_every_operation_fails_once(change: Change, error: int) -> None:
    """Whatever the answer is, the directory opens, and the topic is as before, or as asked, or finished later."""
    kinds = None if error == errno.EIO else SPACE_KINDS
    refusals = number = 0
    while True:
        disk, clock, manager = opened(change)
        fault = disk.fault = Fault(at=number, error=error, kinds=kinds)
        try:
            change.work(manager)
        except StorageError:
            refusals += 1
            count = len(manager.topics[TOPIC].partitions) if TOPIC in manager.topics else 0
            assert count == change.before
        allowed = {change.before, change.after}
        for image in disk.images(number, 3):
            found_on(image.disk, clock, allowed)
        if fault.seen <= number:
            break
        number += 1
    assert number > 5
    # What a full disk refuses to a deletion, the ballast gives.
    assert (refusals > 0) == (change is not DELETE or error == errno.EIO)


@pytest.mark.parametrize("change", [CREATE, ADD])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_a_failed_sync_is_not_tried_again_and_undoes_the_change(change: Change, error: int) -> None:
    disk, clock, manager = opened(change)
    disk.operations.clear()
    disk.fault = Fault(at=0, error=error, lasting=True, kinds=frozenset({"sync_all"}))
    with pytest.raises(StorageError, match="could not be"):
        change.work(manager)
    assert disk.fault.hits == 1
    assert len([path for path in disk.tree() if f"/{TOPIC}-" in path and path.endswith("/")]) == change.before
    for image in disk.images(3, 12):
        assert found_on(image.disk, clock, {change.before}) == change.before
    disk.fault = None
    change.work(manager)
    assert found_on(disk.power_cut(), clock, {change.after}) == change.after


def test_records_that_a_failed_sync_lost_are_not_acknowledged() -> None:
    """It wrote the records of another topic as well. Their own fsync must not say that they are on the disk."""
    disk, clock, manager = opened(CREATE)
    log = manager.create_topic("other", 1, TOPIC_CONFIG)[0].partitions[0]
    expected = PartitionLedger()
    append_group(log, expected, [[client_batch((5,), 600, 1)]], clock)
    disk.fault = Fault(at=0, lasting=True, kinds=frozenset({"sync_all"}))
    with pytest.raises(StorageError):
        CREATE.work(manager)
    disk.fault = None
    with pytest.raises(PartitionFailedError):
        flush(log, expected)
    assert log.offline_reason is not None
