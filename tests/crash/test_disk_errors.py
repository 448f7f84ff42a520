"""The disk refuses the first operation, the second, the third, ... until none is left.

See docs/explanation/durability.md#promises-under-faults.

Nothing is acknowledged that is not durable, errors are the engine's own, and the directory opens again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from log_model.clock import ManualClock
from log_model.errors import DiskFullError, PartitionFailedError, PartitionOfflineError
from tests.crash.disk_errors import fail_every_operation
from tests.crash.disk_faults import FULL_DISK_KINDS, SPACE_KINDS, Fault
from tests.crash.ledger import (
    EVERYTHING,
    PartitionLedger,
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

SEEDS = max(2, round(2 * float(os.environ.get("CRASH_SCALE", "1"))))


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_every_operation_fails_once(seed: int, error: int, record_property: Callable[[str, object], None]) -> None:
    totals = fail_every_operation(seed, error)
    record_property("failed operations", totals.operations)
    record_property("images after an error", totals.images)
    assert totals.operations > 100
    assert totals.errors > totals.operations // 5
    print(f"seed {seed}: {totals.operations} operations failed, {totals.images} images")


def directory_with_records(clock: ManualClock, *, clean: bool) -> tuple[SimulatedDisk, PartitionLedger]:
    """A stopped directory of some segments."""
    disk = new_disk(clock)
    manager = open_directory(disk, clock)
    log = manager.create_topic("full", 1, TOPIC_CONFIG)[0].partitions[0]
    expected = PartitionLedger()
    for mark in range(12):
        append_group(log, expected, [[client_batch((clock.now_ms(), clock.now_ms()), 120, mark)]], clock)
        flush(log, expected)
        publish(log, expected)
    assert len(log.snapshot.segments) > 1
    if clean:
        assert manager.close()
    return disk.killed(), expected


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "killed"])
def test_a_full_disk_starts_serves_reads_and_takes_appends_again(clean: bool) -> None:
    """Disk rule 8."""
    clock = ManualClock()
    disk, expected = directory_with_records(clock, clean=clean)
    disk.fault = Fault(at=0, error=errno.ENOSPC, lasting=True, kinds=FULL_DISK_KINDS)
    manager = open_directory(disk, clock)
    log = manager.partition("full", 0)
    assert content_of(log.snapshot.read(log.snapshot.log_start_offset, EVERYTHING)) == expected.log.read(
        0, EVERYTHING, expected.log.end_offset
    )
    for _ in range(3):
        answers = append_group(log, expected, [[client_batch((1,), 20)], [client_batch((1,), 20)]], clock)
        assert [type(answer) for answer in answers] == [DiskFullError, DiskFullError]
        publish(log, expected)
    assert log.offline_reason is None
    with pytest.raises(DiskFullError):
        manager.create_topic("another", 1, {})
    disk.fault = None
    check_goes_on(log, expected, clock)
    manager.create_topic("another", 1, {})
    assert manager.close()


def test_a_full_disk_fails_what_has_no_room_and_nothing_else() -> None:
    """A group whose first request still fits: it is written and answered, the others are not."""
    clock = ManualClock()
    disk, expected = directory_with_records(clock, clean=True)
    manager = open_directory(disk, clock)
    log = manager.partition("full", 0)
    # The second request needs a new segment, and there is no room for it.
    size_bytes = log.snapshot.segments[-1].size_bytes
    small, large = client_batch((5,), 10, 1), client_batch((6,), 2000 - size_bytes - 150, 2)
    disk.fault = Fault(at=1, error=errno.ENOSPC, lasting=True, kinds=SPACE_KINDS)
    answers = append_group(log, expected, [[small], [large], [small]], clock)
    assert DiskFullError in [type(answer) for answer in answers]
    disk.fault = None
    check_goes_on(log, expected, clock)
    recovered = open_directory(disk.killed(), clock)
    snapshot = recovered.partition("full", 0).snapshot
    assert content_of(snapshot.read(snapshot.log_start_offset, EVERYTHING)) == expected.log.read(
        0, EVERYTHING, expected.log.end_offset
    )


def test_a_failed_sync_takes_the_partition_offline_and_is_never_tried_again() -> None:
    """Disk rule 3: the second sync would answer yes, and the pages are gone."""
    clock = ManualClock()
    disk, expected = directory_with_records(clock, clean=True)
    manager = open_directory(disk, clock)
    log = manager.partition("full", 0)
    other = manager.create_topic("other", 1, TOPIC_CONFIG)[0].partitions[0]
    append_group(log, expected, [[client_batch((5,), 600, 1)]], clock)
    disk.fault = Fault(at=0, kinds=frozenset({"sync"}))
    with pytest.raises(PartitionFailedError):
        flush(log, expected)
    synced = len([operation for operation in disk.operations if operation.kind == "sync"])
    for _ in range(2):
        with pytest.raises(PartitionFailedError):
            log.flush()
    assert len([operation for operation in disk.operations if operation.kind == "sync"]) == synced
    publish(log, expected)
    assert log.snapshot.high_watermark == expected.durable_end
    with pytest.raises(PartitionOfflineError):
        append_group(log, expected, [[client_batch((5,), 10)]], clock)
    check_goes_on(other, PartitionLedger(), clock)
    assert not manager.close(), "no clean marker: the next start must scan"
    recovered = open_directory(disk.power_cut(), clock).partition("full", 0)
    assert recovered.snapshot.log_end_offset == expected.durable_end
    assert recovered.offline_reason is None
