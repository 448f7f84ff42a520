"""Refusals of offsets outside a log."""

from __future__ import annotations

from app.engine.reading import Read
from app.engine_local.partitions.log_start_moves import LogStartMoves
from log_model.errors import OffsetOutOfRangeError
from log_model.offsets import Offset
from log_model.reads import Isolation
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import PartitionLog


class LimitChecks:
    """Refuses offsets outside the limits of a log, with all limits in the error (spec B8)."""

    def __init__(self, moves: LogStartMoves) -> None:
        self._moves = moves

    def start_inside(self, log: PartitionLog, snapshot: LogSnapshot, start: Offset, request: Read) -> Offset:
        """Return the offset at which a read from ``start`` begins: that, or the log start if ``request`` allows it.

        Raises:
            OffsetOutOfRangeError: ``request`` may not begin at ``start``.
        """
        if start < snapshot.log_start_offset and request.restart_at_earliest:
            return snapshot.log_start_offset
        if request.below_bound:
            self.check_readable(log, snapshot, start, request.isolation)
        else:
            self.check_offset(log, snapshot, start, snapshot.log_end_offset)
        return start

    def check_offset(self, log: PartitionLog, snapshot: LogSnapshot, offset: int, end: int) -> None:
        """Return if ``offset`` is inside ``[log start, end]``.

        Raises:
            OffsetOutOfRangeError
        """
        if offset > end:
            name = "log end offset" if end == snapshot.log_end_offset else "high watermark"
            raise self._out_of_range(log, snapshot, offset, f"offset {offset} is beyond the {name} {end}")
        if offset < snapshot.log_start_offset:
            detail = f"offset {offset} is below the log start, {snapshot.log_start_offset}"
            raise self._out_of_range(log, snapshot, offset, detail)

    def check_readable(self, log: PartitionLog, snapshot: LogSnapshot, offset: int, isolation: Isolation) -> None:
        """Return if ``isolation`` shows the record at ``offset``: it is inside ``[log start, bound)``.

        Raises:
            OffsetOutOfRangeError
        """
        end = snapshot.bound(isolation).offset
        if offset >= end:
            name = "last stable offset" if isolation is Isolation.LAST_STABLE else "high watermark"
            raise self._out_of_range(log, snapshot, offset, f"offset {offset} is not below the {name}, {end}")
        self.check_offset(log, snapshot, offset, offset)

    def _out_of_range(
        self, log: PartitionLog, snapshot: LogSnapshot, offset: int, detail: str
    ) -> OffsetOutOfRangeError:
        move = self._moves.last_of(log.name) if offset < snapshot.log_start_offset else None
        return OffsetOutOfRangeError(
            detail,
            offset=offset,
            log_start_offset=snapshot.log_start_offset,
            log_end_offset=snapshot.log_end_offset,
            high_watermark=snapshot.high_watermark,
            last_stable_offset=snapshot.last_stable_offset,
            log_start_moved_ms=None if move is None else move.at_ms,
            log_start_moved_by=None if move is None else move.by,
        )
