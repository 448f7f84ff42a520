"""A truncation inside a batch: the whole batch goes, the log end is the target, and the gap outlives every stop."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from storage.clock import ManualClock
from storage.log_manager import LogManager
from storage.partition_log import PartitionLog
from tests.crash.ledger import (
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
from tests.crash.simulated_disk import SimulatedDisk
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
