"""The power goes while a topic is made, or partitions are added: the next start finishes it or knows nothing of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from log_model.clock import ManualClock
from storage.manager.log_manager import LogManager
from tests.crash.ledger import EVERYTHING, append_group, content_of, flush, open_directory, publish
from tests.crash.ledger import PartitionLedger as Expected
from tests.crash.simulated_disk import SimulatedCrash, SimulatedDisk
from tests.crash.workload import TOPIC_CONFIG, new_disk
from tests.model.plain_log import client_batch

TOPIC = "made"


def create(manager: LogManager) -> None:
    manager.create_topic(TOPIC, 3, TOPIC_CONFIG)


def add(manager: LogManager) -> None:
    manager.alter_topic(TOPIC, partition_count=5)


def is_whole(disk: SimulatedDisk, clock: ManualClock, counts: set[int]) -> int:
    """Open the directory: every partition of the topic is there, takes appends, and lasts."""
    manager = open_directory(disk, clock)
    if TOPIC not in manager.topics:
        assert 0 in counts
        assert [path for path in disk.tree() if f"/{TOPIC}-" in path] == []
        return 0
    topic = manager.topics[TOPIC]
    assert len(topic.partitions) in counts
    for log in topic.partitions:
        assert (log.offline_reason, log.snapshot.log_end_offset, log.leader_epoch) == (None, 0, 0)
        metadata = disk.tree()[str(log.directory / "partition.metadata")]
        assert metadata.decode() == f"version: 0\ntopic_id: {topic.topic_id}"
        expected = Expected()
        append_group(log, expected, [[client_batch([clock.now_ms()], 0, 1)]], clock)
        flush(log, expected)
        publish(log, expected)
    reopened = open_directory(disk.power_cut(), clock)
    for log in reopened.topics[TOPIC].partitions:
        assert len(content_of(log.snapshot.read(log.snapshot.log_start_offset, EVERYTHING))) > 60
    return len(topic.partitions)


@pytest.mark.parametrize(("work", "before", "after"), [(create, 0, 3), (add, 3, 5)])
def test_power_cut_before_every_operation(work: Callable[[LogManager], None], before: int, after: int) -> None:
    operations = 0
    found: set[int] = set()
    while True:
        clock = ManualClock()
        disk = new_disk(clock)
        manager = open_directory(disk, clock)
        if before:
            manager.create_topic(TOPIC, before, TOPIC_CONFIG)
        disk.crash_at = len(disk.operations) + operations
        try:
            work(manager)
        except SimulatedCrash:
            operations += 1
        else:
            break
        found |= {is_whole(image.disk, clock, {before, after}) for image in disk.images(operations, 6)}
    assert found == {before, after}
    assert operations > 30
    disk.crash_at = None
    for image in disk.images(1, 12):
        assert is_whole(image.disk, clock, {after}) == after
