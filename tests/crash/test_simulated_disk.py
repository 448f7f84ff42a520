"""The simulated disk itself: it behaves like the machine's, and its crashes lose what they may and nothing else."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from log_model.clock import ManualClock
from storage.disk.file_system import FileSystem, LocalFileSystem
from storage.disk.whole_files import write_file_atomically
from tests.crash.simulated_disk import (
    Fault,
    SimulatedCrash,
    SimulatedDisk,
)
from tests.crash.simulated_nodes import SECTOR_BYTES

ROOT = Path("/")
A = Path("/a")
B = Path("/b")


def made(disk: SimulatedDisk, path: Path, content: bytes) -> None:
    """A file that would survive a power cut."""
    file = disk.open(path, create=True)
    file.write(0, [content])
    file.sync()
    disk.sync_directory(path.parent)


def contents(disk: SimulatedDisk, path: Path, count: int = 300) -> set[bytes | None]:
    """What ``path`` can be after a power cut now, over many images."""
    found = set()
    for image in disk.images(seed=1, count=count):
        if image.label != "process killed":
            found.add(image.disk.tree().get(str(path)))
    return found


def test_behaves_as_the_machine_does(tmp_path: Path) -> None:
    """The same random operations give the same bytes, names and errors here and on a real file system."""
    source = random.Random(5)
    disk = SimulatedDisk()
    pairs: list[tuple[FileSystem, Path]] = [(disk, Path("/")), (LocalFileSystem(), tmp_path)]
    names = ["one", "two", "d", "d/one", "d/two", "e", "e/one"]
    seen: set[str] = set()
    for _ in range(3000):
        step = _random_step(source, names)
        answers = [_answer(step, file_system, root) for file_system, root in pairs]
        assert answers[0] == answers[1], step
        seen.add(f"{step[0]}: {answers[0] if isinstance(answers[0], str) else 'done'}")
    on_disk = {
        f"/{path.relative_to(tmp_path)}{'/' if path.is_dir() else ''}": b"" if path.is_dir() else path.read_bytes()
        for path in tmp_path.rglob("*")
    }
    assert disk.tree() == on_disk
    for kind in ("open", "create", "write", "truncate", "read", "rename", "unlink", "make", "remove", "list"):
        assert f"{kind}: done" in seen
    assert sum(1 for entry in seen if "Error" in entry) > 8


def _random_step(source: random.Random, names: list[str]) -> tuple[str, str, str, int, int]:
    kinds = ("open", "create", "write", "write", "truncate", "read", "rename", "unlink", "make", "remove", "list")
    return (
        source.choice(kinds),
        source.choice(names),
        source.choice(names),
        source.choice((0, 3, 511, 512, 513, 2000)),
        source.choice((0, 1, 10, 600, 1500)),
    )


def _answer(step: tuple[str, str, str, int, int], file_system: FileSystem, root: Path) -> object:
    kind, name, other, position, length = step
    path = root / name
    try:
        match kind:
            case "open" | "create":
                file_system.open(path, create=kind == "create").close()
            case "write":
                file_system.open(path).write(position, [bytes([position % 251]) * length, b"x" * (length % 7)])
            case "truncate":
                file_system.open(path).truncate(position)
            case "read":
                file = file_system.open(path, writable=False)
                return file.size(), file.read(position, length)
            case "rename":
                # Replacing or moving a directory is not in the contract.
                if not file_system.is_directory(path) and not file_system.is_directory(root / other):
                    file_system.rename(path, root / other)
            case "unlink":
                if not file_system.is_directory(path):
                    file_system.unlink(path)
            case "make":
                file_system.make_directory(path)
            case "remove":
                file_system.remove_directory(path)
            case "list":
                return file_system.list_directory(path), file_system.exists(path), file_system.is_directory(path)
    except OSError as error:
        return f"{type(error).__name__} {error.errno}"
    return None


def test_what_was_synced_survives_exactly() -> None:
    disk = SimulatedDisk()
    made(disk, A, b"x" * 2000)
    assert not disk.has_unsynced
    assert [image.label for image in disk.images(seed=1, count=9)] == ["everything was synced"]
    assert contents(disk, A) == {b"x" * 2000}


def test_a_file_whose_name_was_not_synced_may_be_gone() -> None:
    disk = SimulatedDisk()
    file = disk.open(A, create=True)
    file.write(0, [b"data"])
    file.sync()
    assert contents(disk, A) == {None, b"data"}


def test_unsynced_bytes_are_lost_kept_or_zeros_but_nothing_else() -> None:
    disk = SimulatedDisk()
    made(disk, A, b"old")
    disk.open(A).write(3, [b"new"])
    assert contents(disk, A) == {b"old", b"old\0\0\0", b"oldnew"}


def test_a_write_is_torn_at_sectors_in_every_combination() -> None:
    disk = SimulatedDisk()
    made(disk, A, b"o" * 3 * SECTOR_BYTES)
    disk.open(A).write(0, [b"n" * 3 * SECTOR_BYTES])
    images = contents(disk, A)
    assert len(images) == 8
    for image in images:
        assert image is not None
        for at in range(0, 3 * SECTOR_BYTES, SECTOR_BYTES):
            assert image[at : at + SECTOR_BYTES] in {b"n" * SECTOR_BYTES, b"o" * SECTOR_BYTES}


def test_writes_are_reordered_between_sectors_but_not_inside_one() -> None:
    disk = SimulatedDisk()
    made(disk, A, b"-" * 2 * SECTOR_BYTES)
    file = disk.open(A)
    file.write(0, [b"1"])
    file.write(SECTOR_BYTES, [b"2"])
    file.write(1, [b"3"])
    states = {(image[:2], image[SECTOR_BYTES : SECTOR_BYTES + 1]) for image in contents(disk, A) if image}
    assert states == {(first, second) for first in (b"--", b"1-", b"13") for second in (b"-", b"2")}


def test_a_cut_and_what_follows_it_survive_on_their_own() -> None:
    disk = SimulatedDisk()
    made(disk, A, b"o" * 2 * SECTOR_BYTES)
    file = disk.open(A)
    file.truncate(10)
    assert contents(disk, A) >= {b"o" * 10, b"o" * 2 * SECTOR_BYTES}
    file.sync()
    assert contents(disk, A) == {b"o" * 10}
    file.truncate(600)
    file.sync()
    assert contents(disk, A) == {b"o" * 10 + bytes(590)}


def test_names_change_in_any_combination_but_a_rename_is_one_step() -> None:
    disk = SimulatedDisk()
    made(disk, A, b"a")
    made(disk, B, b"b")
    disk.rename(A, Path("/c"))
    disk.unlink(B)
    trees = {tuple(image.disk.tree()) for image in disk.images(seed=1, count=100)}
    assert trees == {("/a", "/b"), ("/a",), ("/b", "/c"), ("/c",)}
    disk.sync_directory(ROOT)
    assert {tuple(image.disk.tree()) for image in disk.images(seed=1, count=100)} == {("/c",)}


def test_a_file_renamed_twice_is_never_doubled() -> None:
    disk = SimulatedDisk()
    made(disk, A, b"a")
    disk.rename(A, B)
    disk.rename(B, Path("/c"))
    assert {tuple(image.disk.tree()) for image in disk.images(seed=1, count=100)} == {("/a",), ("/b",), ("/c",)}


def test_an_unsynced_directory_takes_its_files_with_it() -> None:
    disk = SimulatedDisk()
    disk.make_directory(Path("/d"))
    made(disk, Path("/d/f"), b"1")
    assert {tuple(image.disk.tree()) for image in disk.images(seed=1, count=100)} == {(), ("/d/", "/d/f")}


def test_an_atomic_write_has_the_old_or_the_new_content_at_every_crash_point() -> None:
    disk = SimulatedDisk()
    write_file_atomically(disk, A, b"old" * 500)
    found: set[bytes | None] = set()
    disk.before_operation = lambda _operation: found.update(contents(disk, A, count=20))
    write_file_atomically(disk, A, b"new" * 400)
    assert found == {b"old" * 500, b"new" * 400}
    assert contents(disk, A) == {b"new" * 400}


def test_a_killed_process_loses_nothing_but_a_power_cut_still_can() -> None:
    disk = SimulatedDisk()
    made(disk, A, b"old")
    disk.open(A).write(0, [b"new"])
    killed = disk.killed()
    assert killed.tree() == {"/a": b"new"}
    assert contents(killed, A) == {b"old", b"new"}
    disk.open(A).write(0, [b"two"])
    assert killed.tree() == {"/a": b"new"}


def test_a_crash_stops_everything_before_its_operation() -> None:
    disk = SimulatedDisk()
    disk.crash_at = 1
    file = disk.open(A, create=True)
    with pytest.raises(SimulatedCrash):
        file.write(0, [b"1"])
    for use in (lambda: file.sync(), lambda: file.read(0, 1), lambda: disk.exists(A), lambda: disk.unlink(A)):
        with pytest.raises(SimulatedCrash):
            use()
    assert [operation.kind for operation in disk.operations] == ["create"]
    assert disk.killed().tree() == {"/a": b""}


def test_a_failing_write_may_have_written_a_part() -> None:
    disk = SimulatedDisk()
    disk.fault = Fault(at=1, error=errno.ENOSPC, written=0.5)
    file = disk.open(A, create=True)
    with pytest.raises(OSError, match="No space left") as raised:
        file.write(0, [b"1234", b"5678"])
    assert raised.value.errno == errno.ENOSPC
    assert file.read(0, 100) == b"1234"
    file.write(4, [b"5678"])
    assert file.read(0, 100) == b"12345678"


def test_a_lasting_fault_strikes_its_kinds_until_it_is_lifted() -> None:
    disk = SimulatedDisk()
    file = disk.open(A, create=True)
    disk.fault = Fault(at=0, error=errno.ENOSPC, lasting=True, kinds=frozenset({"extend"}), written=0)
    for _ in range(3):
        with pytest.raises(OSError, match="No space left"):
            file.write(0, [b"1"])
        file.sync()
    assert disk.fault.hits == 3
    disk.fault = None
    file.write(0, [b"1"])


def test_a_failed_sync_drops_the_dirty_pages_and_the_next_one_lies() -> None:
    disk = SimulatedDisk()
    made(disk, A, b"old" * SECTOR_BYTES)
    file = disk.open(A)
    file.write(0, [b"new" * SECTOR_BYTES])
    disk.fault = Fault(at=0)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.sync()
    assert file.read(0, 3) == b"new"
    assert contents(disk, A) == {b"old" * SECTOR_BYTES}
    assert disk.killed().tree() == {"/a": b"new" * SECTOR_BYTES}
    file.write(0, [b"new" * SECTOR_BYTES])
    file.sync()
    assert contents(disk, A) == {b"new" * SECTOR_BYTES}


def test_time_comes_from_the_clock_and_a_lock_excludes() -> None:
    clock = ManualClock(1000)
    disk = SimulatedDisk(clock)
    made(disk, A, b"1")
    clock.advance(500)
    disk.open(A).write(0, [b"2"])
    assert disk.modified_ms(A) == 1500
    lock = disk.lock(B)
    assert disk.is_locked(B)
    with pytest.raises(BlockingIOError):
        disk.lock(B)
    assert not disk.killed().is_locked(B), "a lock dies with its process"
    lock.release()
    disk.lock(B).release()


def test_damage_replaces_bytes_that_every_image_then_has() -> None:
    disk = SimulatedDisk()
    made(disk, A, b"good")
    made(disk, B, b"good")
    disk.damage(A, b"bad")
    disk.damage(B, None)
    assert disk.tree() == {"/a": b"bad"}
    assert contents(disk, A) == {b"bad"}
