"""Partitions at rest: which a start leaves alone, what is known of them, and when the files of the last stop count."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from log_model.clock import ManualClock
from log_model.errors import CorruptionError, DiskFailedError, DiskFullError, UnknownTopicOrPartitionError
from log_model.offsets import Offset
from storage.disk.topic_metadata import new_topic_id
from storage.log.partition_log import AppendResult, PartitionLog
from storage.manager.log_manager import LogManager
from storage.manager.opened_partitions import OpenedList, OpenedPartitions
from storage.manager.resting_states import NEW, RestingFile, RestingState, RestingStates
from tests.support.recording_file_system import RecordingFileSystem
from tests.support.writers import append_request

COUNT = 6


def opened(directory: Path, disk: RecordingFileSystem | None = None) -> LogManager:
    return LogManager.open(directory, clock=ManualClock(), file_system=disk or RecordingFileSystem(), ballast_bytes=1)


def write(log: PartitionLog, value: bytes = b"value") -> int:
    (answer,) = log.append([append_request(log, value)])
    assert isinstance(answer, AppendResult), answer
    log.publish()
    return answer.base_offset


def write_durably(manager: LogManager, number: int) -> None:
    """So that the journal is in use, and its mark is there."""
    log = manager.partition("t", number)
    write(log)
    assert manager.journal.flush([log]) == [True]


def kill(manager: LogManager) -> None:
    manager._lock.release()


def open_numbers(manager: LogManager) -> list[int]:
    return [log.name.partition for log in manager.topic("t").partitions.opened()]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Partitions with two records, one, and none, cleanly stopped."""
    manager = opened(tmp_path / "data")
    manager.create_topic("t", COUNT)
    for number in (0, 0, 1):
        write(manager.partition("t", number))
    assert manager.close()
    return tmp_path / "data"


def test_all_rest_after_a_clean_stop(directory: Path) -> None:
    disk = RecordingFileSystem()
    manager = opened(directory, disk)
    assert open_numbers(manager) == []
    states = dict(manager.topic("t").partitions.resting())
    assert [states[number].log_end_offset for number in range(COUNT)] == [2, 1, 0, 0, 0, 0]
    assert states[0].high_watermark == states[0].last_stable_offset == 2
    assert states[0].size_bytes == 2 * states[1].size_bytes
    assert states[2] == NEW._replace()
    assert manager.partition("t", 1).snapshot.log_end_offset == 1
    assert open_numbers(manager) == [1]
    assert manager.topic("t").partitions.size_bytes() == 3 * states[1].size_bytes
    disk.operations.clear()
    assert manager.close()
    assert not {name for _, name in disk.operations if name.startswith("t-")}, "a stop has nothing to do for them"


def test_what_was_seen_of_one_at_rest_is_what_its_log_says(directory: Path) -> None:
    manager = opened(directory)
    for number, state in list(manager.topic("t").partitions.resting()):
        log = manager.partition("t", number)
        shown = log.snapshot
        assert (state.log_start_offset, state.log_end_offset) == (shown.log_start_offset, shown.log_end_offset)
        assert (state.size_bytes, state.segment_count) == (shown.size_bytes, len(shown.segments))
        assert (state.leader_epoch, state.log_end_offset) == (log.leader_epoch, log.recovery_point)
        assert state.producer_count == len(log.producers)
    assert manager.close()


def test_after_a_kill_only_those_are_opened_that_may_have_changed(directory: Path) -> None:
    manager = opened(directory)
    write_durably(manager, 3)
    write(manager.partition("t", 4))
    # It is read only.
    assert manager.partition("t", 0).snapshot.offset_for_timestamp(0) is not None
    manager.create_topic("u", 2)
    kill(manager)
    manager = opened(directory)
    assert not manager.was_clean
    assert open_numbers(manager) == [3, 4]
    assert [report.name.partition for report in manager.recovery] == [3, 4]
    assert [state for _, state in manager.topic("u").partitions.resting()] == [NEW, NEW]
    # And again: what was recovered is in the new list.
    write_durably(manager, 5)
    kill(manager)
    manager = opened(directory)
    assert open_numbers(manager) == [3, 4, 5]
    assert [log.snapshot.log_end_offset for log in manager.topic("t").partitions] == [2, 1, 0, 1, 1, 1]
    assert manager.close()


def test_a_first_change_is_noted_durably_before_it_and_no_other_is(directory: Path) -> None:
    disk = RecordingFileSystem()
    manager = opened(directory, disk)
    log = manager.partition("t", 1)
    disk.operations.clear()
    write(log)
    kinds = [operation for operation, name in disk.operations if name == "opened-partitions"]
    assert "sync" in kinds, disk.operations
    synced = disk.operations.index(("sync", "opened-partitions"))
    assert not [each for each in disk.operations[:synced] if each[1].startswith(f"{0:020d}")]
    disk.operations.clear()
    write(log)
    assert not [name for _, name in disk.operations if name == "opened-partitions"]
    assert manager.close()


def test_added_partitions_rest_after_a_kill(directory: Path) -> None:
    manager = opened(directory)
    write_durably(manager, 0)
    manager.alter_topic("t", partition_count=COUNT + 3)
    write(manager.partition("t", COUNT + 1))
    kill(manager)
    manager = opened(directory)
    assert open_numbers(manager) == [0, COUNT + 1]
    assert manager.topic("t").partition_count == COUNT + 3
    assert manager.close()


def test_the_age_of_a_segment_counts_from_the_start_or_from_the_making_of_its_partition(directory: Path) -> None:
    clock = ManualClock()
    manager = LogManager.open(directory, clock=clock, file_system=RecordingFileSystem(), ballast_bytes=1)
    started_ms = clock.elapsed_ms()
    clock.advance(1_000)
    manager.alter_topic("t", partition_count=COUNT + 2)
    made_ms = clock.elapsed_ms()
    clock.advance(1_000)
    manager.alter_topic("t", config={"retention.ms": -1})
    manager.alter_topic("t", partition_count=COUNT + 3)
    last_made_ms = clock.elapsed_ms()
    clock.advance(1_000)
    logs = [manager.partition("t", number) for number in range(COUNT + 3)]
    begun = [log.snapshot.segments[-1].created_ms for log in logs]
    assert begun == [started_ms] * COUNT + [made_ms] * 2 + [last_made_ms]
    for log in logs:
        write(log)
    clock.advance(manager.topic("t").config.segment_ms - 2_500)
    assert [log.roll_due() for log in logs] == [True] * COUNT + [False] * 3
    assert manager.close()


def without_journal(directory: Path) -> LogManager:
    from storage.journal.journal_files import JournalLimits

    return LogManager.open(
        directory,
        clock=ManualClock(),
        file_system=RecordingFileSystem(),
        ballast_bytes=1,
        journal_limits=JournalLimits.of(0),
    )


def damage_list(directory: Path) -> None:
    path = directory / "rollway" / "opened-partitions"
    first, _, rest = path.read_bytes().partition(b"\n")
    path.write_bytes(first + b"\n0" + rest[1:] + rest)


def damage_states(directory: Path) -> None:
    path = directory / "rollway" / "resting-partitions"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def another_programs_states(directory: Path) -> None:
    path = directory / "rollway" / "resting-partitions"
    file = RestingFile(RecordingFileSystem(), path)
    found = file.read()
    assert found is not None
    file.write(new_topic_id(), found[1].items())


def lose(name: str) -> Callable[[Path], None]:
    return lambda directory: (directory / "rollway" / name).unlink()


@pytest.mark.parametrize(
    "damage",
    [damage_list, damage_states, another_programs_states, lose("opened-partitions"), lose("resting-partitions")],
)
def test_after_a_kill_all_are_opened_if_a_file_cannot_be_trusted(
    directory: Path, damage: Callable[[Path], None]
) -> None:
    manager = opened(directory)
    write_durably(manager, 0)
    kill(manager)
    damage(directory)
    manager = opened(directory)
    assert open_numbers(manager) == list(range(COUNT))
    assert manager.close()
    manager = opened(directory)
    assert open_numbers(manager) == []
    assert manager.close()


def test_after_a_kill_all_are_opened_where_another_program_may_have_written(directory: Path) -> None:
    """Without the journal's mark a broker starts there. It leaves the files of this service as they are."""
    manager = opened(directory)
    write(manager.partition("t", 0))
    kill(manager)
    manager = opened(directory)
    assert open_numbers(manager) == list(range(COUNT))
    assert not (directory / "rollway" / "opened-partitions").exists()
    assert manager.close()


def test_a_run_without_a_journal_keeps_no_list(directory: Path) -> None:
    manager = without_journal(directory)
    assert open_numbers(manager) == []
    write(manager.partition("t", 0))
    kill(manager)
    manager = opened(directory)
    assert open_numbers(manager) == list(range(COUNT))
    assert manager.close()


@pytest.mark.parametrize("content", [b"", b"version: 0\n", b'{"version":0,"brokerEpoch":17}', b"[]", b"\xff"])
def test_all_are_opened_after_a_clean_stop_of_another_program(directory: Path, content: bytes) -> None:
    (directory / "logs" / ".kafka_cleanshutdown").write_bytes(content)
    manager = opened(directory)
    assert manager.was_clean
    assert open_numbers(manager) == list(range(COUNT))
    assert manager.close()
    assert json.loads((directory / "logs" / ".kafka_cleanshutdown").read_bytes())["brokerEpoch"] == -1
    manager = opened(directory)
    assert open_numbers(manager) == []
    assert manager.close()


def test_a_missing_directory_is_found_at_start(directory: Path) -> None:
    (directory / "logs" / "t-4").rename(directory.parent / "elsewhere")
    with pytest.raises(CorruptionError, match="t-4 is missing"):
        opened(directory)


def test_a_partition_that_cannot_be_opened_leaves_the_others(directory: Path) -> None:
    (directory / "logs" / "t-4" / "partition.metadata").write_text(f"version: 0\ntopic_id: {new_topic_id()}")
    manager = opened(directory)
    with pytest.raises(CorruptionError, match="belongs to topic id"):
        manager.partition("t", 4)
    assert write(manager.partition("t", 5)) == 0
    kill(manager)


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, DiskFullError), (errno.EIO, DiskFailedError)])
def test_what_cannot_be_noted_does_not_change(
    directory: Path, number: int, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = opened(directory)
    log = manager.partition("t", 0)
    before = {path.name: path.read_bytes() for path in log.directory.iterdir()}
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> None:
            raise OSError(number, "refused")

        patch.setattr(OpenedPartitions, "_write", refuse)
        (answer,) = log.append([append_request(log, b"no")])
        assert isinstance(answer, error)
        with pytest.raises(error):
            log.promote()
    assert {path.name: path.read_bytes() for path in log.directory.iterdir()} == before
    assert log.offline_reason is None
    assert write(log) == 2
    assert manager.close()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_one_with_more_bytes_than_it_had_is_recovered(directory: Path, number: int) -> None:
    """As in a copy that was made while the service ran, without the list's last lines."""
    path = directory / "logs" / f"t-{number}" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes() + b"torn" * 30)
    manager = opened(directory)
    log = manager.partition("t", number)
    assert log.snapshot.log_end_offset == [2, 1, 0][number]
    assert [report.truncated_bytes for report in manager.recovery] == [120]
    assert write(log) == [2, 1, 0][number]
    assert manager.close()


def test_readers_change_nothing(directory: Path) -> None:
    manager = opened(directory)
    log = manager.partition("t", 0)
    before = {path.name: path.read_bytes() for path in log.directory.iterdir()}
    log.snapshot.read(Offset(0), 100)
    log.snapshot.offset_for_timestamp(0)
    log.snapshot.segments[-1].hold_open()
    log.expire_producers()
    log.check_files()
    assert {path.name: path.read_bytes() for path in log.directory.iterdir()} == before
    assert log.writer.is_untouched
    assert manager.close()
    assert {path.name: path.read_bytes() for path in log.directory.iterdir()} == before


def test_the_check_finds_readers_that_let_an_index_grow(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the active segment of an untouched log is no sealed one."""
    from storage.segment.segment_file import SegmentFile

    monkeypatch.setattr(SegmentFile, "sealed", property(lambda _: False, lambda *_: None))
    with pytest.raises(AssertionError):
        test_readers_change_nothing(directory)


def test_a_deleted_topic_opens_none(directory: Path) -> None:
    manager = opened(directory)
    partitions = manager.topic("t").partitions
    log = manager.partition("t", 0)
    manager.delete_topic("t")
    assert log.offline_reason == "the topic was deleted"
    with pytest.raises(UnknownTopicOrPartitionError):
        _ = partitions[1]
    assert manager.close()


def test_those_at_rest_go_offline_with_the_others(directory: Path) -> None:
    manager = opened(directory)
    partitions = manager.topic("t").partitions
    assert partitions.online() == list(range(COUNT))
    partitions.take_offline("for the test")
    assert partitions.online() == []
    assert partitions[2].offline_reason == "for the test"
    kill(manager)


def test_settings_that_changed_meanwhile_hold(directory: Path) -> None:
    manager = opened(directory)
    manager.alter_topic("t", config={"segment.bytes": 1234})
    assert manager.partition("t", 0).config.segment_bytes == 1234
    assert manager.close()


@pytest.mark.parametrize(
    ("config", "days", "old"),
    [
        ({}, 7, [0, 1]),
        ({}, 6, []),
        ({"retention.ms": -1}, 999, []),
        ({"retention.bytes": 1}, 0, []),
        ({"retention.bytes": 0}, 0, [0, 1]),
        ({"cleanup.policy": "compact"}, 999, []),
    ],
)
def test_retention_finds_those_at_rest(directory: Path, config: dict[str, object], days: int, old: list[int]) -> None:
    manager = opened(directory)
    manager.alter_topic("t", config=config)
    now_ms = ManualClock().now_ms() + days * 86_400_000 + 1
    partitions = manager.topic("t").partitions
    assert partitions.resting_with_old_segments(now_ms) == old
    # As the logs say themselves.
    assert [log.name.partition for log in partitions if log.has_old_segments(now_ms)] == old
    assert manager.close()


# The files


def test_a_torn_addition_is_left_out(tmp_path: Path) -> None:
    disk = RecordingFileSystem()
    kept = OpenedPartitions(disk, tmp_path / "list")
    kept.begin(OpenedList("id", {"a": {1}}, {"b": 2}))
    kept.note("c", 3)
    whole = (tmp_path / "list").read_bytes()
    kept.note("c", 4)
    grown = (tmp_path / "list").read_bytes()
    for size in range(len(whole), len(grown)):
        (tmp_path / "list").write_bytes(grown[:size])
        found = OpenedPartitions(disk, tmp_path / "list").read()
        assert found is not None
        assert (found.resting_id, found.opened, found.new_from) == ("id", {"a": {1}, "c": {3}}, {"b": 2})
    for torn in (bytes(len(grown) - len(whole)), b"\xff" * 30, b"\n"):
        (tmp_path / "list").write_bytes(whole + torn)
        found = OpenedPartitions(disk, tmp_path / "list").read()
        assert found is not None
        assert found.opened == {"a": {1}, "c": {3}}
    # A whole line behind a torn one: it was no last addition.
    (tmp_path / "list").write_bytes(whole + b"torn\n" + grown[len(whole) :])
    assert OpenedPartitions(disk, tmp_path / "list").read() is None
    for size in range(len(whole)):
        (tmp_path / "list").write_bytes(whole[:size])
        found = OpenedPartitions(disk, tmp_path / "list").read()
        assert found is None or found.opened.get("c") is None


def test_states_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = RestingFile(RecordingFileSystem(), tmp_path / "states")
    assert file.read() is None
    first, second = RestingStates(), RestingStates()
    known = [NEW._replace(log_end_offset=Offset(2**62 + number), oldest_timestamp=-number) for number in range(5)]
    for state in known:
        first.add(state)
    second.add(None)
    file.write("id", [("a", first), ("b", second), ("c", RestingStates())])
    found = file.read()
    assert found is not None
    assert found[0] == "id"
    assert [found[1]["a"].get(number) for number in range(6)] == [*known, None]
    assert [found[1]["b"].get(0), len(found[1]["b"]), len(found[1]["c"])] == [None, 1, 0]
    content = (tmp_path / "states").read_bytes()
    for place in range(len(content)):
        (tmp_path / "states").write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        assert file.read() is None, place
        (tmp_path / "states").write_bytes(content[:place])
        assert file.read() is None, place
    assert isinstance(found[1]["a"].get(0), RestingState)
