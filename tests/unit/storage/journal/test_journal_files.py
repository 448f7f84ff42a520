"""The circle of files: how it grows, when a file is used again, and what is durable before that."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from storage.journal.entries import BLOCK_BYTES, ENTRY_BYTES_MAX
from storage.journal.journal_files import JournalFile, JournalFiles, JournalLimits, NoRoomError
from tests.crash.disk_faults import Fault
from tests.crash.simulated_disk import SimulatedDisk

DIRECTORY = Path("/journal")
LIMITS = JournalLimits(file_count_max=3, file_bytes=4 * BLOCK_BYTES, step_bytes=BLOCK_BYTES)
MIB = 1024 * 1024
BLOCK = bytes(BLOCK_BYTES)


def prepared(limits: JournalLimits = LIMITS, disk: SimulatedDisk | None = None) -> tuple[SimulatedDisk, JournalFiles]:
    disk = disk or SimulatedDisk()
    files = JournalFiles(disk, DIRECTORY, limits)
    files.prepare()
    return disk, files


def current(files: JournalFiles) -> JournalFile:
    assert files.current is not None
    return files.current


def put(files: JournalFiles, mark: bytes = b"x", blocks: int = 1) -> None:
    size_bytes = blocks * BLOCK_BYTES
    files.put([mark * size_bytes], size_bytes)
    current(files).position += size_bytes


def fill(files: JournalFiles) -> None:
    while files.has_room(BLOCK_BYTES):
        put(files)


def never() -> None:
    raise AssertionError("no file is used again")


def sizes(disk: SimulatedDisk) -> dict[str, int]:
    return {name: disk.size(DIRECTORY / name) for name in disk.list_directory(DIRECTORY)}


@pytest.mark.parametrize(
    ("bytes_max", "count", "file_bytes"),
    [
        (0, 0, 64 * MIB),
        (-1, 0, 64 * MIB),
        (1, 3, MIB),
        (3 * MIB - 1, 3, MIB),
        (7 * MIB, 3, 2 * MIB),
        (48 * MIB, 3, 16 * MIB),
        (64 * MIB, 4, 16 * MIB),
        (256 * MIB, 4, 64 * MIB),
        (1024 * MIB, 4, 256 * MIB),
    ],
)
def test_limits_of_all_files_together(bytes_max: int, count: int, file_bytes: int) -> None:
    limits = JournalLimits.of(bytes_max)
    assert (limits.file_count_max, limits.file_bytes) == (count, file_bytes)
    assert JournalFiles(SimulatedDisk(), DIRECTORY, limits).is_off == (count == 0)


@pytest.mark.parametrize(("file_bytes", "expected"), [(MIB, MIB - BLOCK_BYTES), (64 * MIB, ENTRY_BYTES_MAX)])
def test_an_entry_fits_into_a_file(file_bytes: int, expected: int) -> None:
    assert JournalFiles(SimulatedDisk(), DIRECTORY, JournalLimits(3, file_bytes)).entry_bytes_max == expected


def test_the_first_file_is_durable_with_its_name_and_zeros() -> None:
    disk, _ = prepared()
    after = disk.power_cut()
    assert sizes(after) == {"0.journal": BLOCK_BYTES}
    assert after.tree()["/journal/0.journal"] == BLOCK


def test_a_file_grows_by_steps_that_double_up_to_a_few_times_the_first() -> None:
    disk, files = prepared(JournalLimits(1, 40 * BLOCK_BYTES, BLOCK_BYTES))
    found = []
    while files.has_room(BLOCK_BYTES):
        put(files)
        if not found or found[-1] != current(files).written_bytes // BLOCK_BYTES:
            found.append(current(files).written_bytes // BLOCK_BYTES)
        assert sizes(disk) == {"0.journal": current(files).written_bytes}
    assert found == [1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40]


def test_a_file_grows_by_what_a_large_entry_needs() -> None:
    disk, files = prepared(JournalLimits(1, 40 * BLOCK_BYTES, BLOCK_BYTES))
    put(files, blocks=30)
    assert sizes(disk) == {"0.journal": 30 * BLOCK_BYTES}


def test_zeros_are_durable_before_the_entry_behind_them() -> None:
    """An fsync of the entry alone need not change the length of the file."""
    disk, files = prepared()
    put(files)
    put(files)
    assert sizes(disk.power_cut()) == {"0.journal": 2 * BLOCK_BYTES}
    files.sync()
    assert disk.power_cut().tree()["/journal/0.journal"] == b"x" * (2 * BLOCK_BYTES)


def test_there_is_room_for_the_entry_that_closes_a_file() -> None:
    _, files = prepared()
    fill(files)
    assert current(files).position == 3 * BLOCK_BYTES


def test_an_empty_file_has_room_for_any_entry() -> None:
    """It would otherwise be passed by for another that is no larger."""
    _, files = prepared()
    assert files.has_room(100 * BLOCK_BYTES)
    put(files, blocks=100)
    assert not files.has_room(1)


def test_new_files_come_before_those_that_were_used_and_their_names_are_durable() -> None:
    disk, files = prepared()
    for count in (1, 2, 3):
        assert len(sizes(disk.power_cut())) == count
        fill(files)
        if count < 3:
            files.go_on(never)
    assert [file.file.path.name for file in files.full] == ["0.journal", "1.journal"]


def test_without_a_free_file_there_is_no_room() -> None:
    _, files = prepared()
    for _ in range(2):
        files.go_on(never)
    before = current(files)
    with pytest.raises(NoRoomError):
        files.go_on(never)
    assert current(files) is before


def test_a_released_file_is_used_again_once_the_closing_entry_is_written() -> None:
    _, files = prepared()
    first = current(files)
    for _ in range(2):
        fill(files)
        files.go_on(never)
    files.release(first)
    assert [file.file.path.name for file in files.full] == ["1.journal"]
    before = current(files)
    calls = []

    def close() -> None:
        assert current(files) is before
        calls.append(first.position)

    files.go_on(close)
    assert calls == [3 * BLOCK_BYTES]
    assert current(files) is first
    assert (first.position, first.first, len(first.logs)) == (0, 0, 0)
    assert files.oldest().file.path.name == "1.journal"


def test_a_closing_entry_that_fails_leaves_the_free_file_free() -> None:
    _, files = prepared()
    first = current(files)
    for _ in range(2):
        files.go_on(never)
    files.release(first)
    before = current(files)

    def close() -> None:
        raise OSError(errno.EIO, "refused")

    with pytest.raises(OSError, match="refused"):
        files.go_on(close)
    assert current(files) is before
    files.go_on(lambda: None)
    assert current(files) is first


def test_files_of_an_earlier_journal_are_used_again_and_grow_again() -> None:
    disk, files = prepared()
    for _ in range(2):
        fill(files)
        files.go_on(never)
    before = sizes(disk)
    _, files = prepared(disk=disk)
    assert current(files).file.path.name == "0.journal"
    assert current(files).written_bytes == 0
    put(files, b"y")
    assert disk.tree()["/journal/0.journal"].startswith(b"y" * BLOCK_BYTES + b"x")
    fill(files)
    files.go_on(lambda: None)
    files.go_on(lambda: None)
    with pytest.raises(NoRoomError):
        files.go_on(never)
    assert sizes(disk).keys() == before.keys()


def test_more_files_than_allowed_are_removed() -> None:
    """The limit may have been lowered since the last start, whose entries are in the segments by now."""
    disk, files = prepared()
    for _ in range(2):
        files.go_on(never)
    _, files = prepared(JournalLimits(1, 4 * BLOCK_BYTES, BLOCK_BYTES), disk)
    with pytest.raises(NoRoomError):
        files.go_on(never)
    assert len(sizes(disk)) == 1


def test_a_name_that_is_taken_is_passed_by() -> None:
    disk, _ = prepared()
    disk.rename(DIRECTORY / "0.journal", DIRECTORY / "1.journal")
    disk.open(DIRECTORY / "notes", create=True)
    _, files = prepared(disk=disk)
    files.go_on(never)
    assert disk.list_directory(DIRECTORY) == ["0.journal", "1.journal", "notes"]


@pytest.mark.parametrize("kind", ["create", "extend", "sync", "sync_directory"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_disk_that_refuses_a_new_file_is_heard(kind: str, error: int) -> None:
    disk, files = prepared()
    disk.fault = Fault(0, error, lasting=True, kinds=frozenset({kind}))
    before = current(files)
    with pytest.raises(OSError, match=r"error|space") as refused:
        files.go_on(never)
    assert refused.value.errno == error
    assert current(files) is before
