"""Leader epochs: the numbers of cases LE-1 and LE-2, the file, and a plain list."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log_model.epochs import EpochEntry
from log_model.offsets import LeaderEpoch
from storage.disk.checkpoint import CorruptCheckpointError
from storage.disk.file_system import LocalFileSystem
from storage.log.leader_epochs import LeaderEpochs
from tests.support.recording_file_system import RecordingFileSystem

LOG_END = 99


@pytest.fixture
def make(tmp_path):
    def make(*entries: tuple[int, int]) -> LeaderEpochs:
        epochs = LeaderEpochs(LocalFileSystem(), tmp_path / "leader-epoch-checkpoint")
        for epoch, start_offset in entries:
            epochs.assign(epoch, start_offset)
        return epochs

    return make


def reloaded(epochs: LeaderEpochs) -> tuple[EpochEntry, ...]:
    again = LeaderEpochs(LocalFileSystem(), epochs.path)
    again.load()
    return again.entries


@pytest.mark.parametrize(
    ("entries", "epoch", "expected"),
    [
        (((0, 10), (2, 13), (4, 17)), 0, (0, 13)),
        (((0, 10), (2, 13), (4, 17)), 1, (0, 13)),
        (((0, 10), (2, 13), (4, 17)), 2, (2, 17)),
        (((0, 10), (2, 13), (4, 17)), 3, (2, 17)),
        (((0, 10), (2, 13), (4, 17)), 4, (4, LOG_END)),
        (((0, 10), (2, 13), (4, 17)), 5, None),
        (((0, 10), (2, 13), (4, 17)), -1, None),
        (((5, 11), (6, 12), (7, 13)), 4, (4, 11)),
        ((), 0, None),
        ((), -1, None),
    ],
)
def test_le_1_end_offset_for(make, entries, epoch, expected):
    """E1."""
    assert make(*entries).end_offset_for(epoch, LOG_END) == expected


def test_le_2_assigning_drops_what_contradicts(make):
    epochs = make((5, 11), (6, 12), (7, 13))
    epochs.assign(7, 12)
    assert epochs.entries == ((5, 11), (7, 12))
    assert reloaded(epochs) == epochs.entries


@pytest.mark.parametrize("start_offset", [13, 14, 1000])
def test_assigning_the_latest_epoch_again_changes_nothing(tmp_path, start_offset):
    """E1: nor is the file written."""
    disk = RecordingFileSystem()
    epochs = LeaderEpochs(disk, tmp_path / "leader-epoch-checkpoint")
    epochs.assign(5, 11)
    epochs.assign(7, 13)
    disk.operations.clear()
    epochs.assign(7, start_offset)
    assert epochs.entries == ((5, 11), (7, 13))
    assert disk.operations == []


def test_truncation_that_changes_nothing_writes_nothing(tmp_path):
    disk = RecordingFileSystem()
    epochs = LeaderEpochs(disk, tmp_path / "leader-epoch-checkpoint")
    epochs.assign(5, 11)
    disk.operations.clear()
    for offset in (0, 10, 11):
        epochs.truncate_from_start(offset)
    for offset in (12, 1000):
        epochs.truncate_from_end(offset)
    assert epochs.entries == ((5, 11),)
    assert disk.operations == []


def test_a_new_epoch_at_the_same_offset_replaces_one_without_records(make):
    epochs = make((5, 11), (6, 12))
    epochs.assign(7, 12)
    assert epochs.entries == ((5, 11), (7, 12))


def test_an_older_epoch_takes_the_place_of_all_later_ones(make):
    """As Kafka does when the log and the cache already disagree."""
    epochs = make((1, 5), (2, 6))
    epochs.assign(1, 7)
    assert epochs.entries == ((1, 7),)
    assert epochs.end_offset_for(1, 8) == (1, 8)
    assert epochs.end_offset_for(2, 8) is None


@pytest.mark.parametrize(("epoch", "start_offset"), [(-1, 0), (0, -1)])
def test_negative_numbers_are_refused(make, epoch, start_offset):
    epochs = make()
    with pytest.raises(ValueError, match="negative"):
        epochs.assign(epoch, start_offset)
    assert epochs.entries == ()


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (5, ((2, 6), (3, 8), (4, 11))),
        (6, ((2, 6), (3, 8), (4, 11))),
        (7, ((2, 7), (3, 8), (4, 11))),
        (8, ((3, 8), (4, 11))),
        (9, ((3, 9), (4, 11))),
        (11, ((4, 11),)),
        (15, ((4, 15),)),
    ],
)
def test_le_2_truncate_from_start(make, offset, expected):
    epochs = make((2, 6), (3, 8), (4, 11))
    epochs.truncate_from_start(offset)
    assert epochs.entries == expected
    assert reloaded(epochs) == expected


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (12, ((2, 6), (3, 8), (4, 11))),
        (11, ((2, 6), (3, 8))),
        (9, ((2, 6), (3, 8))),
        (8, ((2, 6),)),
        (6, ()),
        (0, ()),
    ],
)
def test_le_2_truncate_from_end(make, offset, expected):
    epochs = make((2, 6), (3, 8), (4, 11))
    epochs.truncate_from_end(offset)
    assert epochs.entries == expected
    assert reloaded(epochs) == expected


@pytest.mark.parametrize(("offset", "expected"), [(9, ((2, 6), (3, 8))), (6, ((2, 6),)), (5, ((2, 5),))])
def test_the_epoch_of_a_stored_batch_is_not_forgotten_at_the_end_of_a_log(make, offset, expected):
    epochs = make((2, 6), (3, 8), (4, 11))
    epochs.truncate_from_end(offset, LeaderEpoch(2))
    assert epochs.entries == expected
    assert reloaded(epochs) == expected


def test_rt_9_the_first_epoch_follows_deletion(make):
    """RT-9: after deletion up to 100 the first entry starts at 100 and keeps its epoch."""
    epochs = make((0, 0), (3, 812))
    epochs.truncate_from_start(100)
    assert epochs.entries == ((0, 100), (3, 812))


def test_the_epoch_of_an_offset(make):
    epochs = make((2, 6), (3, 8), (4, 11))
    assert [epochs.epoch_for_offset(offset) for offset in (0, 5, 6, 7, 8, 10, 11, 10**9)] == [
        None,
        None,
        2,
        2,
        3,
        3,
        4,
        4,
    ]
    assert make().epoch_for_offset(0) is None


def test_the_latest(make):
    assert make().latest is None
    assert make((2, 6), (3, 8)).latest == (3, 8)


def test_clearing_is_durable_too(make):
    epochs = make((2, 6))
    epochs.clear()
    assert epochs.entries == ()
    assert epochs.path.read_bytes() == b"0\n0\n"


def test_the_documented_bytes(make):
    """on-disk: leader-epoch-checkpoint."""
    assert make((0, 0), (3, 812)).path.read_bytes() == b"0\n2\n0 0\n3 812\n"


def test_a_missing_file_has_no_epochs(make):
    epochs = make()
    epochs.load()
    assert epochs.entries == ()


@pytest.mark.parametrize(
    "content",
    [
        b"0\n2\n1 0\n1 5\n",
        b"0\n2\n2 0\n1 5\n",
        b"0\n2\n1 5\n2 5\n",
        b"0\n2\n1 5\n2 4\n",
        b"0\n1\n1\n",
        b"0\n1\n1 2 3\n",
        b"0\n1\n-1 0\n",
        b"0\n1\n2147483648 0\n",
        b"0\n2\n1 0\n",
        b"7\n1\n1 0\n",
    ],
)
def test_a_damaged_file_is_refused_and_nothing_taken_from_it(make, content):
    """E1: both numbers rise."""
    epochs = make((4, 40))
    epochs.path.write_bytes(content)
    with pytest.raises(CorruptCheckpointError, match="leader-epoch-checkpoint"):
        epochs.load()
    assert epochs.entries == ((4, 40),)


def test_every_change_is_on_the_disk_before_it_is_seen(tmp_path):
    """E1: rewritten and synced on each change; when the disk refuses, nothing changed."""
    disk = RecordingFileSystem()
    epochs = LeaderEpochs(disk, tmp_path / "leader-epoch-checkpoint")
    changes = [
        lambda: epochs.assign(1, 10),
        lambda: epochs.assign(2, 20),
        lambda: epochs.truncate_from_start(15),
        lambda: epochs.truncate_from_end(18),
        epochs.clear,
    ]
    for change in changes:
        before = epochs.entries
        disk.refuse = {"sync"}
        with pytest.raises(OSError, match="refused"):
            change()
        assert epochs.entries == before
        disk.refuse = set()
        disk.operations.clear()
        change()
        assert [operation for operation, _name in disk.operations][-3:] == ["sync", "rename", "sync_directory"]
        assert reloaded(epochs) == epochs.entries != before


@settings(max_examples=200, deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.sampled_from(["assign", "start", "end"]), st.integers(0, 8), st.integers(0, 30)), max_size=12
    )
)
def test_any_changes_leave_both_numbers_rising_and_lookups_right(tmp_path_factory, changes):
    """Beside a map from each offset to its epoch, for the offsets that the epochs cover."""
    epochs = LeaderEpochs(LocalFileSystem(), tmp_path_factory.getbasetemp() / "leader-epoch-checkpoint")
    for what, epoch, offset in changes:
        before = {place: epochs.epoch_for_offset(place) for place in range(32)}
        latest = epochs.latest
        if what == "assign":
            epochs.assign(epoch, offset)
            if latest is None or epoch > latest.epoch:
                after = {place: epoch if place >= offset else before[place] for place in before}
                assert {place: epochs.epoch_for_offset(place) for place in before} == after
        elif what == "start":
            epochs.truncate_from_start(offset)
            after = {place: None if place < offset else before[place] for place in before}
            assert {place: epochs.epoch_for_offset(place) for place in before} == after
        else:
            epochs.truncate_from_end(offset)
            assert all(epochs.epoch_for_offset(place) == before[place] for place in range(offset))
        entries = epochs.entries
        assert list(entries) == sorted(set(entries))
        assert len({entry.epoch for entry in entries}) == len({entry.start_offset for entry in entries}) == len(entries)
