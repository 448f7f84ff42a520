"""The power goes while a start splits a segment whose offsets lie too far apart (spec E20): nothing is lost."""

from __future__ import annotations

from contextlib import suppress

from log_model.clock import ManualClock
from log_model.offsets import Offset
from tests.cases.logs import batch_of
from tests.crash.ledger import DATA_DIR, EVERYTHING, content_of, open_directory
from tests.crash.simulated_disk import SimulatedCrash, SimulatedDisk
from tests.crash.workload import TOPIC_CONFIG, new_disk

FAR = 2**31
OFFSETS = [0, 1, FAR - 1, FAR, FAR + 1, 2 * FAR + 5, 2 * FAR + 6]
END = OFFSETS[-1] + 1
TOPIC = "far"


def stored() -> bytes:
    return b"".join(batch_of(value=b"%d" % offset, base_offset=offset, leader_epoch=0) for offset in OFFSETS)


def stopped(clock: ManualClock) -> SimulatedDisk:
    """A compacted log with a hand-made segment, copied while nothing ran."""
    disk = new_disk(clock)
    manager = open_directory(disk, clock)
    manager.create_topic(TOPIC, 1, {**TOPIC_CONFIG, "cleanup.policy": "compact"})
    manager.checkpoint()
    disk = disk.killed()
    logs = DATA_DIR / "logs"
    disk.damage(logs / f"{TOPIC}-0" / f"{0:020d}.log", stored())
    disk.damage(logs / "recovery-point-offset-checkpoint", b"0\n1\n%s 0 %d\n" % (TOPIC.encode(), END))
    for suffix in (".index", ".timeindex"):
        disk.damage(logs / f"{TOPIC}-0" / f"{0:020d}{suffix}", None)
    return disk


def check(disk: SimulatedDisk, clock: ManualClock) -> None:
    log = open_directory(disk, clock).partition(TOPIC, 0)
    assert log.offline_reason is None
    assert log.snapshot.base_offsets == (0, FAR, 2 * FAR + 5)
    found, offset = b"", Offset(0)
    while offset < END:
        fetched = log.snapshot.read(offset, EVERYTHING)
        found += content_of(fetched)
        offset = fetched.next_offset
    assert found == stored()


def test_power_cut_before_every_operation_of_the_split() -> None:
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
    assert operations > 30
    disk.crash_at = None
    check(disk.power_cut(), clock)
