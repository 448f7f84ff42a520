"""The power goes, or the disk is full, while a directory is exported: no half partition has its final name, and the
next export ends as one that nothing interrupted."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pytest

from log_model.clock import ManualClock
from storage.log_export import LogExport
from tests.crash.disk_faults import SPACE_KINDS, Fault
from tests.crash.simulated_disk import SimulatedCrash, SimulatedDisk
from tests.unit.storage.log_export.exported_directory import CLUSTERS, make_source
from tests.unit.storage.log_export.parsed_batches import NOON_MS

SOURCE = Path("/data")
TARGET = Path("/broker")
EMPTY = ("orders-0", "orders-1", "orders-2", "a.b-0")
STARTS = {"orders-0": "orders 0 24", "orders-1": "orders 1 10"}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the data directory."""
    path = make_source(tmp_path_factory.mktemp("export") / "data").path
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def disk_with(stored: dict[str, bytes]) -> SimulatedDisk:
    """A disk with the data directory, and a broker's directory with the empty partitions of the new topics."""
    disk = SimulatedDisk(ManualClock(NOON_MS))
    files = {SOURCE / name: content for name, content in stored.items()}
    files |= {TARGET / name / f"{0:020d}.{suffix}": b"" for name in EMPTY for suffix in ("log", "index")}
    files[TARGET / "recovery-point-offset-checkpoint"] = b"0\n1\nothers 0 3\n"
    for path, content in files.items():
        for directory in reversed(path.parents[:-1]):
            disk.make_directory(directory)
        file = disk.open(path, create=True)
        if content:
            file.write(0, [content])
        file.close()
    disk.sync_all(Path("/"))
    return disk


def export(disk: SimulatedDisk) -> dict[str, bytes]:
    """Export everything; return the files of the target, without those that tell when they were written."""
    LogExport(SOURCE, file_system=disk, clock=ManualClock(NOON_MS)).run(TARGET, CLUSTERS)
    return {
        name: b"\n".join(sorted(content.split(b"\n"))) if "rollway-export" in name else content
        for name, content in disk.tree().items()
        if name.startswith(f"{TARGET}/")
    }


def check_half(disk: SimulatedDisk, wanted: dict[str, bytes]) -> None:
    """A broker that starts now finds whole partitions with their log starts, and otherwise none with records."""
    found = disk.tree()
    starts = found.get(f"{TARGET}/log-start-offset-checkpoint", b"").decode().splitlines()
    for name in EMPTY:
        segments = {path: content for path, content in found.items() if path.startswith(f"{TARGET}/{name}/0")}
        logs = {path: content for path, content in segments.items() if path.endswith(".log")}
        if not any(logs.values()):
            continue
        whole = {path: content for path, content in wanted.items() if path.startswith(f"{TARGET}/{name}/")}
        assert {path: content for path, content in found.items() if path.startswith(f"{TARGET}/{name}/")} == whole
        assert name not in STARTS or STARTS[name] in starts


def test_power_cut_before_every_operation(stored: dict[str, bytes]) -> None:
    wanted = export(disk_with(stored))
    operations = 0
    while True:
        disk = disk_with(stored)
        disk.crash_at = len(disk.operations) + operations
        try:
            export(disk)
        except SimulatedCrash:
            operations += 1
        else:
            break
        for number, image in enumerate(disk.images(operations, 5)):
            check_half(image.disk, wanted)
            if number % 3 == 2:
                _crash_again(image.disk, operations, wanted)
            else:
                assert export(image.disk) == wanted, image.label
    assert operations > 60


def _crash_again(disk: SimulatedDisk, seed: int, wanted: dict[str, bytes]) -> None:
    disk.crash_at = len(disk.operations) + seed * 7 % 23
    # An export that has little left to do ends before.
    with contextlib.suppress(SimulatedCrash):
        export(disk)
    for image in disk.images(seed, 2):
        check_half(image.disk, wanted)
        assert export(image.disk) == wanted, image.label


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_full_or_broken_disk(stored: dict[str, bytes], error: int, lasting: bool) -> None:
    wanted = export(disk_with(stored))
    at = 0
    while True:
        disk = disk_with(stored)
        disk.fault = fault = Fault(at=at, error=error, lasting=lasting, kinds=SPACE_KINDS)
        try:
            export(disk)
        except OSError:
            assert fault.hits
        else:
            if fault.seen <= at:
                break
            assert not fault.hits
        check_half(disk, wanted)
        if lasting and error == errno.ENOSPC and ".log" in fault.struck:
            assert not [name for name in disk.tree() if name.endswith("-delete/")]
        disk.fault = None
        assert export(disk) == wanted, fault.struck
        at += 1
    assert at > 60
