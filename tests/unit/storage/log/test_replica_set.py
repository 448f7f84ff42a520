"""Copies of a partition: the in-sync set, and the high watermark they allow (spec A5, D10, E24)."""

from __future__ import annotations

import random

import pytest

from log_model.errors import NotEnoughReplicasAfterAppendError, NotEnoughReplicasError
from log_model.offsets import LogOffsetMetadata, Offset
from storage.log.replica_set import REPLICA_LAG_TIME_MAX_MS, ReplicaSet, restored_high_watermark

LAG = REPLICA_LAG_TIME_MAX_MS


def at(offset: int) -> LogOffsetMetadata:
    return LogOffsetMetadata(Offset(offset))


def fetch(replicas: ReplicaSet, replica_id: int, offset: int, leader_end: int, now_ms: int = 0) -> None:
    replicas.note_fetch(
        replica_id, at(offset), log_start_offset=Offset(0), leader_end_offset=Offset(leader_end), now_ms=now_ms
    )


def high_watermark(replicas: ReplicaSet, local_end: int, current: int = 0, now_ms: int = 0) -> int:
    return replicas.high_watermark(at(local_end), at(current), lambda: now_ms).offset


def test_one_member() -> None:
    """The local copy is always in sync, and what it has is all there is."""
    replicas = ReplicaSet(7, min_insync_replicas=3)
    assert replicas.replicas == replicas.in_sync == (7,)
    assert replicas.required_count == 1
    replicas.check_before_append()
    replicas.check_after_append()
    assert high_watermark(replicas, 5) == 5
    assert high_watermark(replicas, 5, current=9) == 9
    assert replicas.shrink(Offset(5), LAG * 10) == ()
    with pytest.raises(ValueError, match="holds no copy"):
        replicas.follower(2)
    with pytest.raises(ValueError, match="itself"):
        ReplicaSet(1, (1, 2))


def test_the_slowest_in_sync_copy_counts() -> None:
    """The local fsync is one more copy: the caller says how far it is."""
    replicas = ReplicaSet(1, (2, 3))
    assert high_watermark(replicas, 10) == 0, "nothing is known of the followers yet"
    fetch(replicas, 2, 10, 10)
    fetch(replicas, 3, 4, 10)
    assert high_watermark(replicas, 10) == 4
    fetch(replicas, 3, 8, 10)
    assert high_watermark(replicas, 10, current=4) == 8
    assert high_watermark(replicas, 6, current=4) == 6
    assert high_watermark(replicas, 3, current=4) == 4, "it only rises"


def test_shrink_and_expand() -> None:
    replicas = ReplicaSet(1, (2, 3))
    fetch(replicas, 2, 5, 5)
    fetch(replicas, 3, 5, 5)
    assert replicas.shrink(Offset(5), LAG * 9) == (), "who has everything stays, however long ago"
    assert replicas.shrink(Offset(9), LAG) == ()
    fetch(replicas, 2, 9, 9, LAG)
    assert high_watermark(replicas, 9, 5, LAG) == 5
    assert replicas.shrink(Offset(9), LAG + 1) == (3,)
    assert replicas.in_sync == (1, 2)
    assert high_watermark(replicas, 9, 5, LAG + 1) == 9
    fetch(replicas, 3, 8, 12, LAG + 2)
    assert not replicas.expand(3, high_watermark=Offset(9), epoch_start=Offset(0))
    fetch(replicas, 3, 9, 12, LAG + 3)
    assert not replicas.expand(3, high_watermark=Offset(9), epoch_start=Offset(10)), "not in the leader's epoch yet"
    assert replicas.expand(3, high_watermark=Offset(9), epoch_start=Offset(9))
    assert not replicas.expand(3, high_watermark=Offset(9), epoch_start=Offset(9))
    assert replicas.in_sync == (1, 2, 3)


def test_d10_always_one_batch_behind() -> None:
    """A follower that fetches what was there at its last fetch is caught up as of that fetch, and stays."""
    replicas = ReplicaSet(1, (2,))
    for step in range(1, 50):
        now_ms = step * LAG // 2
        fetch(replicas, 2, step, step + 1, now_ms)
        assert replicas.shrink(Offset(step + 1), now_ms + LAG // 4) == ()
    assert replicas.shrink(Offset(60), 60 * LAG) == (2,)


def test_a_joining_copy_that_keeps_up_counts() -> None:
    """Spec E24: the high watermark waits for it before it is in the set, or it could never come in."""
    replicas = ReplicaSet(1, (2, 3))
    fetch(replicas, 2, 10, 10)
    replicas.shrink(Offset(10), LAG + 1)
    assert replicas.in_sync == (1, 2)
    fetch(replicas, 3, 9, 9, LAG + 2)
    assert high_watermark(replicas, 10, 8, LAG + 3) == 9
    assert high_watermark(replicas, 10, 8, 3 * LAG) == 10


@pytest.mark.parametrize(("wanted", "required"), [(1, 1), (2, 2), (3, 3), (9, 3)])
def test_a5_min_insync_replicas(wanted: int, required: int) -> None:
    """19 before the append, 20 after it; the high watermark does not rise below the minimum (spec A5, E24)."""
    replicas = ReplicaSet(1, (2, 3), min_insync_replicas=wanted)
    assert replicas.required_count == required
    fetch(replicas, 2, 5, 5)
    fetch(replicas, 3, 5, 5)
    replicas.check_before_append()
    fetch(replicas, 2, 9, 9, LAG)
    assert replicas.shrink(Offset(9), LAG + 1) == (3,)
    if required == 3:
        with pytest.raises(NotEnoughReplicasError, match="2 of 3 copies are in sync, 3 must be"):
            replicas.check_before_append()
        with pytest.raises(NotEnoughReplicasAfterAppendError):
            replicas.check_after_append()
        assert high_watermark(replicas, 9, 5, LAG + 1) == 5
    else:
        replicas.check_after_append()
        assert high_watermark(replicas, 9, 5, LAG + 1) == 9


def test_a_new_epoch_forgets_how_far_they_were() -> None:
    replicas = ReplicaSet(1, (2,))
    fetch(replicas, 2, 5, 5)
    replicas.begin_epoch(100)
    assert replicas.follower(2).log_end.offset == -1
    assert high_watermark(replicas, 9, 5, 200) == 5
    assert replicas.shrink(Offset(9), 100 + LAG) == ()
    assert replicas.shrink(Offset(9), 101 + LAG) == (2,)


def test_hw_4_restored() -> None:
    """Checkpoint 4 in 0..10: 4; inside the log otherwise; no checkpoint: the log start."""
    assert restored_high_watermark(Offset(4), Offset(0), Offset(10)) == 4
    assert restored_high_watermark(Offset(40), Offset(0), Offset(10)) == 10
    assert restored_high_watermark(Offset(4), Offset(6), Offset(10)) == 6
    assert restored_high_watermark(None, Offset(6), Offset(10)) == 6


@pytest.mark.parametrize("seed", range(20))
def test_against_the_rule(seed: int) -> None:
    """Any history: never above a copy in sync when it rises, never falling, never rising below the minimum."""
    source = random.Random(seed)
    replicas = ReplicaSet(1, (2, 3), min_insync_replicas=source.choice((1, 2, 3)))
    ends = {2: 0, 3: 0}
    local = current = now_ms = 0
    for _ in range(300):
        now_ms += source.choice((1, LAG // 3, LAG))
        match source.randrange(5):
            case 0:
                local += source.randint(0, 4)
            case 1 | 2:
                replica_id = source.choice((2, 3))
                ends[replica_id] = source.randint(ends[replica_id], local)
                fetch(replicas, replica_id, ends[replica_id], local, now_ms)
            case 3:
                replicas.shrink(Offset(local), now_ms)
            case 4:
                replicas.expand(source.choice((2, 3)), high_watermark=Offset(current), epoch_start=Offset(0))
        raised = high_watermark(replicas, local, current, now_ms)
        assert current <= raised <= local
        if raised > current:
            assert len(replicas.in_sync) >= replicas.required_count
            assert all(raised <= ends[replica_id] for replica_id in replicas.in_sync if replica_id != 1)
        current = raised
