"""Idempotent producers: duplicates, gaps, epochs, expiry, snapshots."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log_model.clock import ManualClock
from log_model.errors import OutOfOrderSequenceError, ProducerFencedError
from log_model.offsets import Offset
from log_model.producers import ProducerBatch, add_sequence
from rollway.records import BatchHeader
from storage.disk.file_system import LocalFileSystem
from storage.producers.producer_snapshot import ProducerRecord, decode_snapshot, encode_snapshot
from storage.producers.producer_state import ProducerState
from tests.support.recording_file_system import RecordingFileSystem

NOW_MS = 1_700_000_000_000
SEQUENCE_MAX = 2**31 - 1
CONTROL = 0x20


def batch(
    sequence: int,
    count: int = 1,
    *,
    offset: int = 0,
    producer_id: int = 7,
    epoch: int = 0,
    timestamp: int = NOW_MS,
    attributes: int = 0,
) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        batch_length=49,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def state(tmp_path, clock):
    return ProducerState(LocalFileSystem(), tmp_path, elapsed_ms=clock.elapsed_ms)


def append(state: ProducerState, *headers: BatchHeader) -> None:
    for header in headers:
        assert state.check(header) is None
        state.update(header)


@pytest.mark.parametrize(
    ("sequence", "increment", "expected"),
    [(0, 1, 1), (SEQUENCE_MAX, 1, 0), (SEQUENCE_MAX - 2, 5, 2), (0, -1, SEQUENCE_MAX), (2, -5, SEQUENCE_MAX - 2)],
)
def test_sequences_wrap_around(sequence, increment, expected):
    assert add_sequence(sequence, increment) == expected


def test_ps_1_a_duplicate_is_answered_with_the_original(state):
    """E19: its offsets and its timestamp."""
    append(state, batch(0, 5, offset=100, timestamp=NOW_MS + 3))
    assert state.check(batch(0, 5)) == ProducerBatch(0, 4, Offset(100), Offset(104), NOW_MS + 3)
    assert state.check(batch(0, 5)) is not None


def test_ps_1_the_last_five_batches_are_remembered(state):
    """E19: older ones are out of order."""
    append(state, *(batch(10 * number, 10, offset=10 * number) for number in range(7)))
    for number in range(2, 7):
        assert state.check(batch(10 * number, 10)) == (
            10 * number,
            10 * number + 9,
            10 * number,
            10 * number + 9,
            NOW_MS,
        )
    for number in range(2):
        with pytest.raises(OutOfOrderSequenceError):
            state.check(batch(10 * number, 10))


@pytest.mark.parametrize(("sequence", "count"), [(0, 4), (0, 6), (1, 4), (3, 4), (4, 1)])
def test_a_partial_overlap_is_out_of_order(state, sequence, count):
    """E19: first and last sequence must both be the same."""
    append(state, batch(0, 5))
    with pytest.raises(OutOfOrderSequenceError):
        state.check(batch(sequence, count))


def test_ps_5_a_gap_is_refused_and_the_right_sequence_follows(state):
    append(state, batch(0, 5))
    with pytest.raises(OutOfOrderSequenceError, match="sent the sequences 6 to 6, expected 5"):
        state.check(batch(6, 1))
    append(state, batch(5, 1, offset=5))
    assert state.entries[7].last_sequence == 5


def test_after_the_last_sequence_comes_zero(state):
    """E19: 2^31-1, then 0; inside a batch and between two."""
    append(state, batch(SEQUENCE_MAX - 1, 2, offset=0))
    with pytest.raises(OutOfOrderSequenceError):
        state.check(batch(1, 1))
    append(state, batch(0, 3, offset=2))
    append(state, batch(3, 1, offset=5))


def test_a_batch_may_run_over_the_last_sequence(state):
    append(state, batch(SEQUENCE_MAX - 1, 4, offset=10))
    assert state.entries[7].last_sequence == 1
    assert state.check(batch(SEQUENCE_MAX - 1, 4)) == (SEQUENCE_MAX - 1, 1, 10, 13, NOW_MS)
    append(state, batch(2, 1, offset=14))


def test_an_unknown_producer_may_begin_anywhere(state):
    """E19."""
    append(state, batch(12345, 2, epoch=9))
    append(state, batch(12347, 1, epoch=9))


def test_batches_without_a_producer_are_not_remembered(state):
    append(state, batch(-1, 3, producer_id=-1, epoch=-1), batch(-1, 3, producer_id=-1, epoch=-1))
    assert state.entries == {}


def test_producers_do_not_disturb_each_other(state):
    append(state, batch(0, 5, producer_id=1), batch(0, 7, producer_id=2), batch(5, 1, producer_id=1))
    assert {producer_id: entry.last_sequence for producer_id, entry in state.entries.items()} == {1: 5, 2: 6}


def test_an_older_epoch_is_fenced(state):
    """E19: 47, whatever the sequence, a duplicate of its own included."""
    append(state, batch(0, 5, epoch=1), batch(0, 5, epoch=2, offset=5))
    for sequence, count in ((0, 5), (5, 1)):
        with pytest.raises(ProducerFencedError, match="epoch 2 has written"):
            state.check(batch(sequence, count, epoch=1))


def test_a_newer_epoch_begins_at_zero(state):
    """E19: 45 otherwise; the old epoch's batches are no duplicates any more."""
    append(state, batch(0, 5, epoch=1))
    for sequence in (1, 5):
        with pytest.raises(OutOfOrderSequenceError, match="not 0"):
            state.check(batch(sequence, 1, epoch=2))
    append(state, batch(0, 5, epoch=2, offset=5))
    assert state.check(batch(0, 5, epoch=2)) == (0, 4, 5, 9, NOW_MS)
    append(state, batch(5, 1, epoch=2, offset=10))


def test_a_marker_of_a_newer_epoch_resets_the_sequence(state):
    """E22: next 0."""
    append(state, batch(0, 5, epoch=1))
    state.update(batch(-1, 1, epoch=2, offset=5, attributes=CONTROL))
    with pytest.raises(OutOfOrderSequenceError):
        state.check(batch(5, 1, epoch=2))
    with pytest.raises(ProducerFencedError):
        state.check(batch(5, 1, epoch=1))
    append(state, batch(0, 1, epoch=2, offset=6))


def test_a_marker_of_the_same_epoch_keeps_the_sequence(state):
    append(state, batch(0, 5))
    state.update(batch(-1, 1, offset=5, attributes=CONTROL))
    append(state, batch(5, 1, offset=6))


def test_checking_changes_nothing(state):
    append(state, batch(0, 5))
    before = state.entries
    state.check(batch(5, 5))
    state.check(batch(0, 5))
    with pytest.raises(OutOfOrderSequenceError):
        state.check(batch(50, 5))
    assert state.entries == before


def test_a_draft_sees_its_own_batches_and_changes_nothing_until_accepted(state):
    """Two batches of one request: both or none."""
    append(state, batch(0, 5))
    draft = state.draft()
    for header in (batch(5, 2, offset=5), batch(7, 2, offset=7), batch(0, 1, producer_id=8, offset=9)):
        assert draft.check(header) is None
        draft.update(header)
    with pytest.raises(OutOfOrderSequenceError):
        draft.check(batch(5, 3))
    assert draft.check(batch(7, 2)) == (7, 8, 7, 8, NOW_MS)
    assert draft.check(batch(0, 5)) == (0, 4, 0, 4, NOW_MS)
    assert state.entries[7].last_sequence == 4
    state.accept(draft)
    assert {producer_id: entry.last_sequence for producer_id, entry in state.entries.items()} == {7: 8, 8: 0}


def test_ps_6_an_idle_producer_is_forgotten_and_may_begin_anywhere(state, clock):
    """E19: producer.id.expiration.ms 86400000."""
    append(state, batch(0, 5))
    clock.advance(1)
    append(state, batch(0, 5, producer_id=8))
    clock.advance(86_399_998)
    assert state.expire() == 0
    clock.advance(1)
    assert state.expire() == 1
    assert set(state.entries) == {8}
    append(state, batch(1000, 1))


@pytest.mark.parametrize("distance_ms", [-(10**11), 10**11])
def test_ps_6_timestamps_of_records_and_steps_of_the_wall_clock_make_no_producer_idle(state, clock, distance_ms):
    append(state, batch(0, 5, timestamp=NOW_MS + distance_ms))
    for step_ms in (10**11, -2 * 10**11, 10**11):
        clock.jump(step_ms)
        clock.advance(1000)
        assert state.expire() == 0
    assert state.check(batch(0, 5)) == (0, 4, 0, 4, NOW_MS + distance_ms)
    clock.advance(86_397_000)
    assert state.expire() == 1


def test_ps_6_a_producer_in_a_transaction_is_never_forgotten(tmp_path):
    clock = ManualClock()
    state = ProducerState(LocalFileSystem(), tmp_path, producer_count_max=2, elapsed_ms=clock.elapsed_ms)
    record = ProducerRecord(7, 0, 4, 4, 4, NOW_MS, 0, 3)
    path = state.snapshots.path_of(Offset(5))
    path.write_bytes(encode_snapshot([record]))
    state.load(Offset(0), Offset(5))
    clock.advance(10**12)
    assert state.expire() == 0
    append(state, *(batch(0, producer_id=producer_id) for producer_id in (8, 9, 10)))
    assert set(state.entries) == {7, 10}


def test_the_longest_idle_producers_make_room(tmp_path):
    """Everything has a limit (invariant 9)."""
    state = ProducerState(LocalFileSystem(), tmp_path, producer_count_max=3)
    append(state, *(batch(0, producer_id=producer_id) for producer_id in (1, 2, 3)))
    append(state, batch(1, producer_id=1))
    append(state, batch(0, producer_id=4))
    assert set(state.entries) == {1, 3, 4}


def test_a_snapshot_restores_the_last_batch_of_each_producer(state, tmp_path):
    """E19, case PS-1: duplicates of the last batch are known after a restart, older ones are not."""
    append(state, batch(0, 5, offset=0), batch(5, 3, offset=5), batch(9, 2, offset=8, producer_id=8, epoch=4))
    path = state.take_snapshot(Offset(10))
    assert path == tmp_path / "00000000000000000010.snapshot"
    again = ProducerState(LocalFileSystem(), tmp_path)
    assert again.load(Offset(0), Offset(10)) == 10
    assert again.check(batch(5, 3)) == (5, 7, 5, 7, NOW_MS)
    with pytest.raises(OutOfOrderSequenceError):
        again.check(batch(0, 5))
    append(again, batch(8, 1, offset=10), batch(11, 1, offset=11, producer_id=8, epoch=4))


def test_a_snapshot_of_a_batch_over_the_last_sequence(state, tmp_path):
    """on-disk: the first sequence is last - delta, modulo 2^31."""
    append(state, batch(SEQUENCE_MAX - 1, 4, offset=10))
    state.take_snapshot(Offset(14))
    again = ProducerState(LocalFileSystem(), tmp_path)
    again.load(Offset(0), Offset(14))
    assert again.entries == state.entries


def test_a_snapshot_of_a_producer_without_batches(state, tmp_path):
    state.update(batch(-1, 1, epoch=2, offset=5, attributes=CONTROL))
    path = state.take_snapshot(Offset(6))
    assert decode_snapshot(path.read_bytes()) == [ProducerRecord(7, 2, -1, -1, 0, NOW_MS, -1, -1)]
    again = ProducerState(LocalFileSystem(), tmp_path)
    again.load(Offset(0), Offset(6))
    assert again.entries == state.entries
    append(again, batch(0, 1, epoch=2, offset=6))


def test_an_empty_state_has_a_snapshot_of_ten_bytes(state):
    assert len(state.take_snapshot(Offset(0)).read_bytes()) == 10


def snapshots(directory) -> list[int]:
    return sorted(int(path.name.partition(".")[0]) for path in directory.iterdir() if path.suffix == ".snapshot")


def take_three(state: ProducerState) -> None:
    append(state, batch(0, 5, offset=0))
    state.take_snapshot(Offset(5))
    append(state, batch(5, 5, offset=5))
    state.take_snapshot(Offset(10))
    append(state, batch(10, 5, offset=10))
    state.take_snapshot(Offset(15))


@pytest.mark.parametrize(
    ("log_start", "log_end", "restored", "left", "last_sequence"),
    [
        (0, 15, 15, [5, 10, 15], 14),
        (0, 100, 15, [5, 10, 15], 14),
        (0, 14, 10, [5, 10], 9),
        (0, 9, 5, [5], 4),
        (0, 4, 0, [], None),
        (10, 15, 15, [10, 15], 14),
        (15, 20, 15, [15], 14),
        (16, 20, 16, [], None),
    ],
)
def test_rc_11_the_newest_snapshot_in_the_log_is_loaded(
    state, tmp_path, log_start, log_end, restored, left, last_sequence
):
    """E20, E21: those above the log's end go, for the log may grow to their offset again with other records."""
    take_three(state)
    again = ProducerState(LocalFileSystem(), tmp_path)
    assert again.load(Offset(log_start), Offset(log_end)) == restored
    assert snapshots(tmp_path) == left
    assert (again.entries[7].last_sequence if again.entries else None) == last_sequence


@pytest.mark.parametrize("damage", ["empty", "half", "crc", "version"])
def test_rc_11_a_corrupt_snapshot_is_dropped_and_an_older_one_used(state, tmp_path, damage):
    take_three(state)
    path = state.snapshots.path_of(Offset(15))
    content = bytearray(path.read_bytes())
    if damage == "empty":
        content.clear()
    elif damage == "half":
        del content[len(content) // 2 :]
    elif damage == "crc":
        content[-1] ^= 1
    else:
        content[1] = 2
    path.write_bytes(content)
    again = ProducerState(LocalFileSystem(), tmp_path)
    assert again.load(Offset(0), Offset(15)) == 10
    assert snapshots(tmp_path) == [5, 10]
    append(again, batch(10, 5, offset=10), batch(15, 1, offset=15))


def test_rc_11_without_a_valid_snapshot_everything_is_replayed(state, tmp_path):
    take_three(state)
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    again = ProducerState(LocalFileSystem(), tmp_path)
    append(again, batch(0))
    assert again.load(Offset(3), Offset(15)) == 3
    assert again.entries == {}
    assert snapshots(tmp_path) == []


def test_deleting_snapshots_is_durable(state, tmp_path):
    take_three(state)
    disk = RecordingFileSystem()
    again = ProducerState(disk, tmp_path)
    again.load(Offset(0), Offset(9))
    assert disk.operations[-1] == ("sync_directory", tmp_path.name)
    disk.operations.clear()
    again.load(Offset(0), Offset(9))
    assert [operation for operation, _name in disk.operations] == ["open"]


@pytest.mark.parametrize(
    ("bases", "left"),
    [
        ([0, 5, 10, 15], [5, 10, 15]),
        ([0, 10], [10, 15]),
        ([0], [15]),
        ([0, 20], []),
        ([5, 20], [5]),
        ([], [15]),
    ],
)
def test_rc_11_stray_snapshots_are_removed_except_that_of_a_clean_stop(state, tmp_path, bases, left):
    take_three(state)
    state.snapshots.delete_stray(bases)
    assert snapshots(tmp_path) == left


def test_a_snapshot_is_marked_deleted_with_its_segment(state, tmp_path):
    """E7; a marked one is no snapshot any more."""
    take_three(state)
    assert state.snapshots.mark_deleted(Offset(5)) == tmp_path / "00000000000000000005.snapshot.deleted"
    assert state.snapshots.mark_deleted(Offset(5)) is None
    assert state.snapshots.offsets() == [10, 15]
    assert (tmp_path / "00000000000000000005.snapshot.deleted").exists()


def test_other_files_are_no_snapshots(state, tmp_path):
    take_three(state)
    for name in (
        "00000000000000000020.log",
        "00000000000000000020.snapshot.tmp",
        "a.snapshot",
        "leader-epoch-checkpoint",
    ):
        (tmp_path / name).write_bytes(b"")
    assert state.snapshots.offsets() == [5, 10, 15]


def test_truncating_fully_forgets_everything(state, tmp_path):
    """E21."""
    take_three(state)
    state.truncate_fully()
    assert state.entries == {}
    assert snapshots(tmp_path) == []
    append(state, batch(500, 1))


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename"])
def test_a_snapshot_that_fails_leaves_none(tmp_path, operation):
    disk = RecordingFileSystem()
    state = ProducerState(disk, tmp_path)
    append(state, batch(0))
    disk.refuse = {operation}
    with pytest.raises(OSError, match="refused"):
        state.take_snapshot(Offset(1))
    assert state.snapshots.offsets() == []
    disk.refuse = set()
    state.take_snapshot(Offset(1))
    assert state.snapshots.offsets() == [1]


def test_entries_are_a_copy(state):
    append(state, batch(0))
    taken = state.entries
    append(state, batch(1, offset=1), batch(0, producer_id=9))
    assert set(taken) == {7}
    assert taken[7].last_sequence == 0


@settings(max_examples=200, deadline=None)
@given(
    sends=st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 4), st.sampled_from(["next", "again", "gap"])),
        max_size=40,
    ),
    restart_at=st.integers(0, 40),
)
def test_any_sends_store_every_batch_once(tmp_path_factory, sends, restart_at):
    """Beside a plain list of what each producer has stored; a restart in between changes nothing for the last batch."""
    directory = tmp_path_factory.mktemp("producers")
    state = ProducerState(LocalFileSystem(), directory)
    stored: dict[int, list[tuple[int, int, int]]] = {0: [], 1: [], 2: []}  # (first sequence, count, offset)
    log_end = 0
    for step, (producer_id, count, what) in enumerate(sends):
        if step == restart_at:
            state.take_snapshot(Offset(log_end))
            state = ProducerState(LocalFileSystem(), directory)
            assert state.load(Offset(0), Offset(log_end)) == log_end
        mine = stored[producer_id]
        following = add_sequence(mine[-1][0], mine[-1][1]) if mine else SEQUENCE_MAX - 3
        if what == "again" and mine:
            first, count, offset = mine[-1]
            found = state.check(batch(first, count, producer_id=producer_id))
            assert found is not None
            assert (found.first_offset, found.last_offset) == (offset, offset + count - 1)
        elif what == "gap" and mine:
            with pytest.raises(OutOfOrderSequenceError):
                state.check(batch(add_sequence(following, 1), count, producer_id=producer_id))
        else:
            append(state, batch(following, count, offset=log_end, producer_id=producer_id))
            mine.append((following, count, log_end))
            log_end += count
