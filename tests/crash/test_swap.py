"""The power goes while a start puts a finished compaction in its place (case RC-7): both sides of it are whole."""

from __future__ import annotations

from contextlib import suppress

from log_model.clock import ManualClock
from log_model.offsets import Offset
from tests.cases.logs import batch_of
from tests.crash.ledger import DATA_DIR, EVERYTHING, content_of, open_directory
from tests.crash.simulated_disk import SimulatedCrash, SimulatedDisk
from tests.crash.workload import TOPIC_CONFIG, new_disk

TOPIC = "compacted"
DIRECTORY = DATA_DIR / "logs" / f"{TOPIC}-0"
ABORTED = b"\0\0" + b"".join(number.to_bytes(8, "big") for number in (7, 3, 12, 13))


def stored(*offsets: int) -> bytes:
    return b"".join(batch_of(value=b"%d" % offset, base_offset=offset, leader_epoch=0) for offset in offsets)


def stopped(clock: ManualClock) -> SimulatedDisk:
    """Segments 0, 5, 10 and 15, and what compaction kept of the first three, ready to take their places."""
    disk = new_disk(clock)
    manager = open_directory(disk, clock)
    manager.create_topic(TOPIC, 1, {**TOPIC_CONFIG, "cleanup.policy": "compact"})
    manager.checkpoint()
    disk = disk.killed()
    for base, end in ((0, 5), (5, 10), (10, 15), (15, 18)):
        disk.damage(DIRECTORY / f"{base:020d}.log", stored(*range(base, end)))
    for suffix in (".index", ".timeindex"):
        disk.damage(DIRECTORY / f"{0:020d}{suffix}", None)
    disk.damage(DIRECTORY / f"{0:020d}.log.swap", stored(0, 8, 14))
    disk.damage(DIRECTORY / f"{10:020d}.txnindex", ABORTED)
    disk.damage(DATA_DIR / "logs/recovery-point-offset-checkpoint", b"0\n1\n%s 0 18\n" % TOPIC.encode())
    return disk


def check(disk: SimulatedDisk, clock: ManualClock) -> None:
    manager = open_directory(disk, clock)
    log = manager.partition(TOPIC, 0)
    assert log.offline_reason is None
    assert manager.recovery[0].damage == []
    assert log.snapshot.base_offsets == (0, 15)
    found, offset = b"", Offset(0)
    while offset < 18:
        fetched = log.snapshot.read(offset, EVERYTHING)
        found += content_of(fetched)
        offset = fetched.next_offset
    assert found == stored(0, 8, 14, 15, 16, 17)
    assert [entry.producer_id for entry in log.snapshot.segments[0].transactions.entries()] == [7]


def test_power_cut_before_every_operation_of_the_swap() -> None:
    operations = 0
    while True:
        clock = ManualClock()
        disk = stopped(clock)
        disk.crash_at = len(disk.operations) + operations
        with suppress(SimulatedCrash):
            open_directory(disk, clock)
            break
        operations += 1
        for image in disk.images(operations, 6):
            check(image.disk, clock)
    assert operations > 15
    disk.crash_at = None
    check(disk.power_cut(), clock)
