"""Topics of many partitions: the number of syncs, the files, and what goes on beside a change that takes long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from log_model.clock import ManualClock
from log_model.errors import InvalidTopicError, ShuttingDownError, TopicExistsError
from storage.log.deleted_files import DeletedDirectories
from storage.log.partition_log import PartitionLog
from storage.manager import partition_factory
from storage.manager.log_manager import LogManager
from tests.support.recording_file_system import RecordingFileSystem, RecordingWholeSync
from tests.support.writers import append_request

SYNCS = {"sync", "sync_directory", "sync_all"}
CONFIG: dict[str, object] = {"segment.index.bytes": 245, "index.interval.bytes": 0, "file.delete.delay.ms": 0}


def open_manager(directory: Path, disk: RecordingFileSystem) -> LogManager:
    return LogManager.open(directory / "data", clock=ManualClock(), file_system=disk, ballast_bytes=1)


def syncs_of_changes(directory: Path, count: int) -> list[list[str]]:
    """The syncs of a creation, an alteration, a growth and a deletion."""
    directory.mkdir()
    disk = RecordingFileSystem()
    manager = open_manager(directory, disk)
    changes: list[Callable[[], object]] = [
        lambda: manager.create_topic("t", count, CONFIG),
        lambda: manager.alter_topic("t", config={"retention.ms": 5}),
        lambda: manager.alter_topic("t", partition_count=2 * count),
        lambda: manager.delete_topic("t"),
    ]
    found = []
    for change in changes:
        disk.operations.clear()
        change()
        found.append(sorted(operation for operation, _ in disk.operations if operation in SYNCS))
    assert manager.close()
    return found


def test_the_number_of_syncs_does_not_grow_with_the_partitions(tmp_path: Path) -> None:
    few, many = (syncs_of_changes(tmp_path / str(count), count) for count in (10, 500))
    assert few == many
    assert [len(syncs) for syncs in few] == [6, 2, 5, 4]


def test_each_further_number_of_partitions_takes_another_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_factory, "PER_SYNC", 20)
    assert [syncs_of_changes(tmp_path / str(count), count)[0].count("sync_all") for count in (20, 21, 41)] == [1, 2, 3]


def test_the_check_finds_syncs_of_each_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a file system without a sync of the whole, as Linux before 5.8."""
    monkeypatch.setattr(RecordingFileSystem, "whole_sync", lambda _self, _path: None)
    few, many = (syncs_of_changes(tmp_path / str(count), count) for count in (10, 50))
    assert [len(syncs) for syncs in few] == [36, 2, 35, 4]
    assert [len(syncs) for syncs in many] == [156, 2, 155, 4]


def test_the_sync_is_made_before_the_first_file(tmp_path: Path) -> None:
    """Otherwise it does not report an error that comes before."""
    disk = RecordingFileSystem()
    manager = open_manager(tmp_path, disk)
    disk.operations.clear()
    manager.create_topic("t", 10, CONFIG)
    names = [operation for operation, name in disk.operations if name == "logs" or name.startswith("t-")]
    assert (names[0], names[1], names[-1]) == ("whole_sync", "make_directory", "sync_all")
    assert manager.close()


def test_a_sync_that_cannot_be_had_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[RecordingWholeSync] = []
    monkeypatch.setattr(RecordingWholeSync, "close", lambda whole: closed.append(whole))
    disk = RecordingFileSystem()
    manager = open_manager(tmp_path, disk)
    disk.refuse = {"make_directory"}
    with pytest.raises(Exception, match="could not be created"):
        manager.create_topic("t", 10, CONFIG)
    assert len(closed) == 1


def files_of(log: PartitionLog) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in log.directory.iterdir()}
    del found["partition.metadata"]
    return found


@pytest.mark.parametrize("preallocate", [False, True])
def test_files_are_the_same_whether_few_partitions_are_made_or_many(tmp_path: Path, preallocate: bool) -> None:
    manager = open_manager(tmp_path, RecordingFileSystem())
    config = CONFIG | {"preallocate": preallocate, "segment.bytes": 1000}
    (few,) = manager.create_topic("few", 1, config)[0].partitions
    many = manager.create_topic("many", 10, config)[0].partitions[3]
    assert not many.snapshot.segments[-1].log.is_open
    assert files_of(few) == files_of(many)
    assert {len(content) for name, content in files_of(many).items() if "index" in name} == {0}
    for number in range(30):
        for log in (few, many):
            log.append([append_request(log, b"value" * 10)])
            log.flush()
            log.publish()
        assert files_of(few) == files_of(many), number
        assert {len(content) for name, content in files_of(many).items() if "index" in name} >= {240}
    assert len(many.snapshot.segments) > 2
    entries = [segment.offset_index.get().entry_count for segment in many.snapshot.segments]
    assert entries == [segment.offset_index.get().entry_count for segment in few.snapshot.segments]
    assert entries[0] > 3
    assert manager.close()
    assert files_of(few) == files_of(many)


def test_retention_opens_no_file_of_a_new_partition(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, RecordingFileSystem())
    for log in manager.create_topic("t", 10, CONFIG)[0].partitions:
        assert not log.has_old_segments(ManualClock().now_ms())
        assert not log.roll_due()
        assert not log.snapshot.segments[-1].offset_index.was_opened
        assert not log.snapshot.segments[-1].log.is_open
    assert manager.close()


class HeldUp:
    """A creation of the topic ``big`` in a thread, which waits in its sync."""

    def __init__(self, manager: LogManager, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.go_on, self.failures = threading.Event(), threading.Event(), list[BaseException]()
        sync = RecordingWholeSync.sync

        def held_up(whole: RecordingWholeSync) -> None:
            self.reached.set()
            assert self.go_on.wait(30)
            sync(whole)

        def create() -> None:
            try:
                manager.create_topic("big.one", 10, CONFIG)
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                self.failures.append(error)

        monkeypatch.setattr(RecordingWholeSync, "sync", held_up)
        self.thread = threading.Thread(target=create)
        self.thread.start()
        assert self.reached.wait(30)

    def finish(self) -> None:
        self.go_on.set()
        self.thread.join(30)
        assert not self.thread.is_alive()
        assert self.failures == []


def test_other_topics_change_while_a_creation_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = open_manager(tmp_path, RecordingFileSystem())
    held_up = HeldUp(manager, monkeypatch)
    try:
        topic, _ = manager.create_topic("small", 1, CONFIG)
        topic.partitions[0].append([append_request(topic.partitions[0], b"value")])
        assert len(manager.alter_topic("small", partition_count=3).partitions) == 3
        manager.delete_topic("small")
        manager.create_topic("small", 2, CONFIG)
        manager.checkpoint()
        manager.checkpoint_high_watermarks()
        assert manager.delete_due_files() == 3
        assert set(manager.topics) == {"small"}
        # The name is taken already.
        with pytest.raises(InvalidTopicError, match="collides"):
            manager.create_topic("big_one", 1, CONFIG)
    finally:
        held_up.finish()
    assert set(manager.topics) == {"small", "big.one"}
    with pytest.raises(InvalidTopicError, match="collides"):
        manager.create_topic("big_one", 1, CONFIG)
    assert manager.close()


def test_changes_of_one_topic_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = open_manager(tmp_path, RecordingFileSystem())
    held_up = HeldUp(manager, monkeypatch)
    answers: list[object] = []

    def create_otherwise() -> None:
        try:
            manager.create_topic("big.one", 1, CONFIG)
        except TopicExistsError as error:
            answers.append(error.field)

    second = threading.Thread(target=create_otherwise)
    second.start()
    assert answers == []
    held_up.finish()
    second.join(30)
    assert answers == ["partitions"]
    assert manager.close()


def test_a_stop_waits_for_the_changes_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = open_manager(tmp_path, RecordingFileSystem())
    held_up = HeldUp(manager, monkeypatch)
    stopped: list[bool] = []
    stop = threading.Thread(target=lambda: stopped.append(manager.close()))
    stop.start()
    assert stopped == []
    held_up.finish()
    stop.join(30)
    assert stopped == [True]
    with pytest.raises(ShuttingDownError):
        manager.create_topic("late", 1, CONFIG)
    reopened = open_manager(tmp_path, RecordingFileSystem())
    assert reopened.was_clean
    assert len(reopened.topic("big.one").partitions) == 10
    assert reopened.close()


def test_the_check_finds_one_lock_for_all_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the turn of every topic is the same one."""
    create, lock = LogManager.create_topic, threading.Lock()

    def one_at_a_time(manager: LogManager, name: str, count: int, config: dict[str, object]) -> object:
        assert lock.acquire(timeout=0 if name == "small" else 30), "it waits"
        try:
            return create(manager, name, count, config)
        finally:
            lock.release()

    monkeypatch.setattr(LogManager, "create_topic", one_at_a_time)
    with pytest.raises(AssertionError, match="it waits"):
        test_other_topics_change_while_a_creation_takes_long(tmp_path, monkeypatch)


def test_partitions_are_counted_as_they_are_opened_by_all_threads(tmp_path: Path) -> None:
    """So that garbage collections meanwhile leave out the ones before, and stay short."""
    manager = open_manager(tmp_path, RecordingFileSystem())
    for number in range(6):
        manager.create_topic(f"t{number}", 10, CONFIG)
    assert manager.factory.opened_count == 0
    threads = [
        threading.Thread(target=list, args=(manager.topic(f"t{number}").partitions,), daemon=True)
        for number in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert manager.factory.opened_count == 60
    assert [log.name.partition for log in manager.topic("t5").partitions] == list(range(10))
    assert manager.factory.opened_count == 60
    assert manager.close()


def test_directories_are_added_while_others_are_removed(tmp_path: Path) -> None:
    """Those that the disk refuses stay in the list, before the ones that were added meanwhile."""
    disk = RecordingFileSystem()
    deleted = DeletedDirectories(disk, ManualClock())
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).mkdir()
    removed: list[str] = []
    remove = RecordingFileSystem.remove_directory

    def removing(_self: RecordingFileSystem, path: Path) -> None:
        if path.name == "a" and not removed:
            deleted.add(tmp_path / "d", 0)
        if path.name == "b" and "b" not in removed:
            removed.append("b")
            raise OSError("refused")
        removed.append(path.name)
        remove(disk, path)

    disk.remove_directory = removing.__get__(disk)  # type: ignore[method-assign]
    for name in ("a", "b", "c"):
        deleted.add(tmp_path / name, 0)
    with pytest.raises(OSError, match="refused"):
        deleted.remove_due()
    assert removed == ["a", "b", "c"]
    assert deleted.remove_due() == 2
    assert removed == ["a", "b", "c", "b", "d"]
    assert deleted.remove_due() == 0
