"""When and why the log start of each partition last moved."""

from __future__ import annotations

from typing import NamedTuple

from log_model.names import PartitionName


class LogStartMove(NamedTuple):
    """When and by what the log start of a partition last moved while this process ran."""

    at_ms: int
    by: str


class LogStartMoves:
    """The last move of each partition's log start, so that a reader that came too late is told of it."""

    def __init__(self) -> None:
        self._moves: dict[PartitionName, LogStartMove] = {}

    def note(self, partition: PartitionName, at_ms: int, by: str) -> None:
        """Remember that the log start moved now."""
        self._moves[partition] = LogStartMove(at_ms, by)

    def forget(self, partition: PartitionName) -> None:
        """The partition does not exist any more."""
        self._moves.pop(partition, None)

    def last_of(self, partition: PartitionName) -> LogStartMove | None:
        """The last move, if there was one while this process ran."""
        return self._moves.get(partition)
