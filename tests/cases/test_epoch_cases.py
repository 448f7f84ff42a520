"""Leader epochs: fencing, divergence, a new epoch on demand, and copies that end up equal (spec E1, E2, E18)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from log_model.errors import (
    CorruptBatchError,
    FencedLeaderEpochError,
    OffsetOutOfRangeError,
    UnexpectedAppendOffsetError,
    UnknownLeaderEpochError,
)
from log_model.offsets import LeaderEpoch, Offset
from log_model.reads import Isolation
from rollway.records import split_batches
from storage.log.leader_epochs import LeaderEpochs
from tests.cases.logs import CaseLog, batch_of, kafka_code_of

NewLog = Callable[..., CaseLog]
SIZE = len(batch_of())


def become_leader(log: CaseLog) -> int:
    entry = log.partition.promote()
    log.partition.publish()
    return entry.epoch


def follow(leader: CaseLog, follower: CaseLog) -> None:
    """What a follower does, from its start on: forget epochs without records, cut what diverges, copy the rest."""
    log = follower.partition
    log.truncate_to(log.written_end_offset)
    while True:
        end = log.written_end_offset
        epoch = log.epochs.epoch_for_offset(Offset(end - 1)) if end else None
        if epoch is not None:
            snapshot = leader.snapshot
            parting = leader.partition.epochs.find_divergence(
                epoch, end, log_start_offset=snapshot.log_start_offset, log_end_offset=snapshot.log_end_offset
            )
            if parting is not None:
                own = log.epochs.end_offset_for(parting.epoch, end)
                assert own is not None
                log.truncate_to(min(own.end_offset, parting.end_offset))
                continue
        if end >= leader.end_offset:
            break
        log.append_copied(leader.read(end, Isolation.LOG_END, max_bytes=2 * SIZE))
    log.publish()


def assert_equal(one: CaseLog, other: CaseLog) -> None:
    assert one.log_files() == other.log_files()
    assert one.partition.epochs.entries == other.partition.epochs.entries
    for log in (one, other):
        log.flush()
        log.restart(clean=False)
        assert log.recovery.damage == []
    assert one.offsets() == other.offsets()


def test_e2_scenario_1_a_restarted_follower_loses_nothing(tmp_path: Path) -> None:
    """KIP-101: the follower has a record that its high watermark does not cover, restarts, and the leader goes. By the
    leader's epochs it had nothing to cut; as a leader it still has the record."""
    a, b = CaseLog(tmp_path / "a"), CaseLog(tmp_path / "b")
    become_leader(a)
    a.fill(2)
    follow(a, b)
    assert b.end_offset == 2
    b.restart(clean=False)
    follow(a, b)
    assert b.end_offset == 2
    a.kill()
    become_leader(b)
    b.send(batch_of(value=b"third"))
    a.start()
    follow(b, a)
    assert a.offsets() == [0, 1, 2]
    assert_equal(a, b)


def test_e2_scenario_2_another_leader_wrote_something_else(tmp_path: Path) -> None:
    """KIP-101: both go down, the one with less comes back first and leads; the other cuts the old epoch's excess."""
    a, b = CaseLog(tmp_path / "a"), CaseLog(tmp_path / "b")
    become_leader(a)
    a.fill(2)
    follow(a, b)
    a.send(batch_of(3, value=b"only here"))
    a.kill()
    b.restart(clean=False)
    become_leader(b)
    b.send(batch_of(value=b"other"))
    b.send(batch_of(2, value=b"others"))
    a.start()
    follow(b, a)
    assert [record.value for record in a.records()] == [b"value", b"value", b"other", b"others", b"others"]
    assert_equal(a, b)


@pytest.mark.parametrize("rounds", [3, 6])
def test_e2_leaders_in_turn(tmp_path: Path, rounds: int) -> None:
    """Each leads in turn, writes what the other never sees, and goes; segments roll, and a cut falls into a batch."""
    config = {"segment.bytes": 3 * SIZE}
    leader, follower = CaseLog(tmp_path / "a", config), CaseLog(tmp_path / "b", config)
    for number in range(rounds):
        become_leader(leader)
        leader.fill(4)
        follow(leader, follower)
        for _ in range(number + 1):
            leader.send(batch_of(2, value=b"lost %d" % number))
        leader.kill()
        leader.start()
        leader, follower = follower, leader
    become_leader(leader)
    leader.fill(1)
    follow(leader, follower)
    # Each rolls on its own; what lies in the files is the same.
    assert leader.read() == follower.read()
    assert leader.partition.epochs.entries == follower.partition.epochs.entries


def test_le_3_a_promotion_begins_an_epoch(new_log: NewLog) -> None:
    """Durable before it is answered, at a log end that is durable too; batches behind it carry it."""
    log = new_log({"flush.policy": "group"})
    log.fill(3)
    assert log.snapshot.high_watermark == 0
    assert become_leader(log) == 1
    assert log.snapshot.high_watermark == 3
    log.fill(2)
    assert [header.partition_leader_epoch for header in log.headers()] == [0, 0, 0, 1, 1]
    assert log.partition.epochs.entries == ((0, 0), (1, 3))
    assert become_leader(log) == 2
    assert become_leader(log) == 3
    assert log.partition.epochs.entries == ((0, 0), (1, 3), (3, 5))
    log.restart(clean=True)
    assert log.partition.epochs.entries == ((0, 0), (1, 3), (3, 5))
    assert log.partition.leader_epoch == 3
    log.restart(clean=False)
    assert log.partition.leader_epoch == 4


def test_le_4_fencing(new_log: NewLog) -> None:
    """Lower: 74; higher: 75; absent or equal: fine."""
    log = new_log()
    become_leader(log)
    epochs = log.partition.epochs
    epochs.check_current(None)
    epochs.check_current(1)
    with pytest.raises(FencedLeaderEpochError):
        epochs.check_current(0)
    with pytest.raises(UnknownLeaderEpochError):
        epochs.check_current(2)


@pytest.mark.parametrize(
    ("epoch", "offset", "expected"),
    [
        (0, 10, None),
        (0, 13, None),
        (0, 14, (0, 13)),
        (1, 13, (0, 13)),
        (2, 13, None),
        (3, 15, (2, 17)),
        (4, 20, None),
        (4, 21, (4, 20)),
    ],
)
def test_e2_divergence(new_log: NewLog, epoch: int, offset: int, expected: tuple[int, int] | None) -> None:
    """Epochs 0, 2 and 4 from offsets 10, 13 and 17, log 10 to 20."""
    epochs = _epochs(new_log)
    found = epochs.find_divergence(epoch, Offset(offset), log_start_offset=Offset(10), log_end_offset=Offset(20))
    assert found == expected


@pytest.mark.parametrize(("epoch", "offset"), [(5, 20), (0, 9), (-1, 10)])
def test_e2_what_cannot_be_continued(new_log: NewLog, epoch: int, offset: int) -> None:
    """An epoch that is not known, or an offset below the log start: 1."""
    epochs = _epochs(new_log)
    with pytest.raises(OffsetOutOfRangeError) as raised:
        epochs.find_divergence(epoch, Offset(offset), log_start_offset=Offset(10), log_end_offset=Offset(20))
    assert kafka_code_of(raised.value) == 1


def _epochs(new_log: NewLog) -> LeaderEpochs:
    epochs = new_log().partition.epochs
    epochs.clear()
    for epoch, start in ((0, 10), (2, 13), (4, 17)):
        epochs.assign(LeaderEpoch(epoch), Offset(start))
    return epochs


def test_e18_where_copies_may_be_appended(new_log: NewLog) -> None:
    """Log end 7: 5 is refused, 7 goes on, 9 leaves a gap that outlives a restart; order and CRC are looked at."""
    log = new_log()
    log.fill(7)
    for offset in (5, 6):
        with pytest.raises(UnexpectedAppendOffsetError) as raised:
            log.partition.append_copied(batch_of(base_offset=offset, leader_epoch=0))
        assert (raised.value.first_offset, log.end_offset) == (offset, 7)
    with pytest.raises(CorruptBatchError, match="go back"):
        log.partition.append_copied(batch_of(2, base_offset=7) + batch_of(base_offset=8))
    damaged = bytearray(batch_of(base_offset=7))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        log.partition.append_copied(bytes(damaged))
    assert log.partition.append_copied(b"") == 7
    content = batch_of(base_offset=7, leader_epoch=0) + batch_of(3, base_offset=9, leader_epoch=2)
    assert log.partition.append_copied(content) == 12
    log.flush()
    assert log.read(7) == content
    assert log.partition.epochs.entries == ((0, 0), (2, 9))
    for clean in (False, True):
        log.restart(clean=clean)
        assert log.recovery.damage == []
        assert log.offsets(7) == [7, 9, 10, 11]
    assert [header.base_offset for header in [batch.header for batch in split_batches(log.read(9))]] == [9]


def test_e18_an_empty_log_restarts_at_the_batch_over_its_start(new_log: NewLog) -> None:
    log = new_log()
    log.partition.truncate_fully_and_start_at(5)
    with pytest.raises(UnexpectedAppendOffsetError):
        log.partition.append_copied(batch_of(2, base_offset=2, leader_epoch=0))
    log.partition.append_copied(batch_of(4, base_offset=3, leader_epoch=0))
    log.flush()
    assert (log.base_offsets, log.snapshot.log_start_offset, log.end_offset) == ([3], 3, 7)


@pytest.mark.parametrize("left", ["nothing", "a torn batch"])
def test_e1_an_unclean_stop_that_lost_the_whole_log_begins_an_epoch(new_log: NewLog, left: str) -> None:
    """Who read what was lost finds out by the epoch that other records have those offsets now."""
    log = new_log()
    log.fill(3)
    if left == "nothing":
        log.manager.checkpoint_high_watermarks()
    log.kill()
    whole = log.file().read_bytes()
    log.file().write_bytes(b"" if left == "nothing" else whole[: SIZE - 1])
    log.start()
    assert log.end_offset == 0
    assert log.partition.leader_epoch == 1
    log.send(batch_of())
    assert [header.partition_leader_epoch for header in log.headers()] == [1]
    parting = log.partition.epochs.find_divergence(
        LeaderEpoch(0), Offset(1), log_start_offset=Offset(0), log_end_offset=log.end_offset
    )
    assert parting is not None
    assert parting.end_offset == 0


def test_e1_a_partition_that_never_had_records_stays_in_its_epoch(new_log: NewLog) -> None:
    log = new_log()
    for clean in (False, True, False):
        log.restart(clean=clean)
        assert log.partition.leader_epoch == 0
    log.send(batch_of())
    log.restart(clean=True)
    assert log.partition.leader_epoch == 0


@pytest.mark.parametrize("cut", [2, 3])
def test_e1_an_epoch_does_not_fall_below_that_of_a_deleted_batch_in_the_file(new_log: NewLog, cut: int) -> None:
    """Records below the log start stay in the file, and a start refuses a batch of a lower epoch behind them."""
    log = new_log()
    log.send(batch_of())
    become_leader(log)
    log.send(batch_of())
    log.send(batch_of())
    log.delete_records(3)
    log.partition.truncate_to(cut)
    log.partition.publish()
    log.send(batch_of())
    assert [header.partition_leader_epoch for header in log.headers()][-1] == 1
    log.restart(clean=False)
    assert all(not each.damage for each in log.manager.recovery)
    assert log.end_offset == cut + 1
