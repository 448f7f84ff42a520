"""The copies of one partition: their number, the in-sync set, and the log end of each (spec A5, D10, E24)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from log_model.errors import NotEnoughReplicasAfterAppendError, NotEnoughReplicasError
from log_model.offsets import LogOffsetMetadata, Offset

NODE_ID = 1
"""This node's number by default."""
REPLICA_LAG_TIME_MAX_MS = 30_000
"""``replica.lag.time.max.ms``"""


@dataclass(frozen=True, slots=True)
class FollowerState:
    """The leader's view of a follower, from its fetches (spec D10).

    A fetch offset is the end of the follower's own log, so the follower has everything below it. ``caught_up_ms`` is
    the last time at which the follower had everything that the leader had then. Times are elapsed times.
    """

    log_end: LogOffsetMetadata
    log_start_offset: Offset
    fetched_ms: int
    leader_end_offset: Offset
    caught_up_ms: int

    @classmethod
    def unknown(cls, now_ms: int) -> FollowerState:
        """Return the state of a follower that has not fetched yet. It has the lag time to make its first fetch."""
        nowhere = Offset(-1)
        return cls(LogOffsetMetadata(nowhere), nowhere, now_ms, nowhere, now_ms)

    def after_fetch(
        self, log_end: LogOffsetMetadata, log_start_offset: Offset, leader_end_offset: Offset, now_ms: int
    ) -> FollowerState:
        """Return the state after a fetch at ``log_end``. A follower that always lags by the records in flight counts as
        caught up at the previous fetch, if it has everything that the leader had then."""
        caught_up_ms = self.caught_up_ms
        if log_end.offset >= leader_end_offset:
            caught_up_ms = now_ms
        elif self.leader_end_offset >= 0 and log_end.offset >= self.leader_end_offset:
            caught_up_ms = max(caught_up_ms, self.fetched_ms)
        return FollowerState(log_end, log_start_offset, now_ms, leader_end_offset, caught_up_ms)

    def is_caught_up(self, leader_end_offset: Offset, now_ms: int, lag_max_ms: int) -> bool:
        """Return whether it has everything, or had everything at most ``lag_max_ms`` ago."""
        if self.log_end.offset == leader_end_offset:
            return True
        return now_ms - self.caught_up_ms <= lag_max_ms


@dataclass(frozen=True, slots=True)
class _Members:
    """The set at one time, replaced in one assignment."""

    followers: dict[int, FollowerState]
    in_sync: frozenset[int]


_ALONE = _Members({}, frozenset({NODE_ID}))


class ReplicaSet:
    """The leader's view of a partition's copies. On one node it has one member, the local one, always in sync.

    The caller says how much of the local copy counts. With ``flush.policy=group`` it ends at the last fsync, so the
    local fsync counts as one more copy that the high watermark waits for.

    Compiled appends read ``members``, which one assignment replaces.

    Thread: only the partition's writer changes it; any thread reads, without a lock.
    """

    __slots__ = ("_lag_max_ms", "local_id", "members", "min_insync_replicas")

    def __init__(
        self,
        local_id: int = NODE_ID,
        follower_ids: Iterable[int] = (),
        *,
        min_insync_replicas: int = 1,
        lag_max_ms: int = REPLICA_LAG_TIME_MAX_MS,
        now_ms: int = 0,
    ) -> None:
        """Put every follower in sync, with nothing known of it yet, as a new leader does."""
        self.local_id = local_id
        self.min_insync_replicas = min_insync_replicas
        self._lag_max_ms = lag_max_ms
        followers = {replica_id: FollowerState.unknown(now_ms) for replica_id in follower_ids}
        if local_id in followers:
            raise ValueError(f"node {local_id} cannot follow itself")
        is_alone = local_id == NODE_ID and not followers
        self.members = _ALONE if is_alone else _Members(followers, frozenset({local_id, *followers}))

    # State

    @property
    def replicas(self) -> tuple[int, ...]:
        """The nodes that hold a copy, this one first."""
        return (self.local_id, *self.members.followers)

    @property
    def is_alone(self) -> bool:
        """Whether this is the only copy; that never changes."""
        return not self.members.followers

    @property
    def in_sync(self) -> tuple[int, ...]:
        """The nodes of ``replicas`` that are in sync."""
        members = self.members
        return tuple(replica for replica in (self.local_id, *members.followers) if replica in members.in_sync)

    def follower(self, replica_id: int) -> FollowerState:
        """Return the state of one follower.

        Raises:
            ValueError: it holds no copy.
        """
        state = self.members.followers.get(replica_id)
        if state is None:
            raise ValueError(f"node {replica_id} holds no copy")
        return state

    @property
    def required_count(self) -> int:
        """The number of copies that must be in sync, at most the number of copies (spec A5)."""
        return min(self.min_insync_replicas, len(self.members.followers) + 1)

    @property
    def has_enough(self) -> bool:
        return len(self.members.in_sync) >= self.required_count

    def check_before_append(self) -> None:
        """Check that enough copies are in sync for an append with ``acks=all``, before the write.

        Raises:
            NotEnoughReplicasError: fewer copies are in sync than required.
        """
        if not self.has_enough:
            raise NotEnoughReplicasError(self._shortage())

    def check_after_append(self) -> None:
        """Check that enough copies are in sync for an append with ``acks=all``, after the high watermark has passed it.

        Raises:
            NotEnoughReplicasAfterAppendError: fewer copies are in sync than required; the records stay.
        """
        if not self.has_enough:
            raise NotEnoughReplicasAfterAppendError(self._shortage())

    def _shortage(self) -> str:
        return f"{len(self.in_sync)} of {len(self.replicas)} copies are in sync, {self.required_count} must be"

    # The high watermark

    def high_watermark(
        self, local_end: LogOffsetMetadata, current: LogOffsetMetadata, elapsed_ms: Callable[[], int]
    ) -> LogOffsetMetadata:
        """Return the lowest log end of the copies that count: those in sync, and those that keep up.

        The result is never below ``current``, and is ``current`` while too few copies are in sync (spec E24).
        """
        members = self.members
        if not members.followers:
            return local_end if local_end.offset >= current.offset else current
        if not self.has_enough:
            return current
        now_ms = elapsed_ms()
        lowest = local_end
        for replica_id, state in members.followers.items():
            counts = replica_id in members.in_sync or state.is_caught_up(local_end.offset, now_ms, self._lag_max_ms)
            if counts and state.log_end.offset < lowest.offset:
                lowest = state.log_end
        return lowest if lowest.offset >= current.offset else current

    # Changes: the writer only

    def note_fetch(
        self,
        replica_id: int,
        log_end: LogOffsetMetadata,
        *,
        log_start_offset: Offset,
        leader_end_offset: Offset,
        now_ms: int,
    ) -> None:
        """Record a follower's fetch at ``log_end``. Publish afterwards: the high watermark may rise.

        Raises:
            ValueError: it holds no copy.
        """
        state = self.follower(replica_id).after_fetch(log_end, log_start_offset, leader_end_offset, now_ms)
        members = self.members
        self.members = replace(members, followers={**members.followers, replica_id: state})

    def expand(self, replica_id: int, *, high_watermark: Offset, epoch_start: Offset) -> bool:
        """Put a follower in sync if it reached the high watermark and the current epoch; return whether it did."""
        log_end = self.follower(replica_id).log_end.offset
        if replica_id in self.members.in_sync or log_end < high_watermark or log_end < epoch_start:
            return False
        self.members = replace(self.members, in_sync=self.members.in_sync | {replica_id})
        return True

    def shrink(self, leader_end_offset: Offset, now_ms: int) -> tuple[int, ...]:
        """Remove followers from the in-sync set that lag for too long, and return them. Publish afterwards."""
        members = self.members
        lagging = tuple(
            replica_id
            for replica_id, state in members.followers.items()
            if replica_id in members.in_sync and not state.is_caught_up(leader_end_offset, now_ms, self._lag_max_ms)
        )
        if lagging:
            self.members = replace(members, in_sync=members.in_sync - set(lagging))
        return lagging

    def begin_epoch(self, now_ms: int) -> None:
        """Reset the states of the followers, as a new leader; the in-sync set stays."""
        members = self.members
        fresh = {replica_id: FollowerState.unknown(now_ms) for replica_id in members.followers}
        self.members = replace(members, followers=fresh)


def restored_high_watermark(checkpoint: Offset | None, log_start_offset: Offset, log_end_offset: Offset) -> Offset:
    """Return the high watermark of a leader of several copies after a restart: the checkpoint, kept inside the log, or
    without a checkpoint the log start (case HW-4)."""
    if checkpoint is None:
        return log_start_offset
    return min(max(checkpoint, log_start_offset), log_end_offset)
