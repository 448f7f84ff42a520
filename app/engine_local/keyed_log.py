"""The log of state behind ``app.engine.state``: one partition of an internal topic.

There is one writer and one disk, so all changes of one partition share one fsync. The log is never compacted. When most
of its records are replaced, the current values are written again at its end, and the log start is raised to the first
one.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing

from app.engine.state import Change, StateLog
from app.engine_local.logs import Logs
from app.engine_local.partitions.pending_append import PendingAppend
from log_model.batches.batch_validation import validate_batches
from log_model.errors import CorruptionError, PartitionOfflineError, UnknownTopicOrPartitionError
from log_model.reads import Isolation
from rollway.records import Record, RecordFormatError, columns_from_records, decode_batch, encode_batch, split_batches
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import AppendRequest, PartitionLog

CONFIG: dict[str, object] = {
    "cleanup.policy": "delete",
    "retention.ms": -1,
    "retention.bytes": -1,
    "retention.policy": "",
    "segment.bytes": 16 * 1024 * 1024,
    "max.message.bytes": 1_048_588,
    "flush.policy": "group",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": 2**63 - 1,
    "message.timestamp.after.max.ms": 2**63 - 1,
    "preallocate": False,
}

_READ_BYTES = 1024 * 1024
_BATCH_COUNT = 100
_BATCH_BYTES = 256 * 1024
_PENDING_COUNT_MAX = 500
"""Limit on the appends of ``shorten`` that wait at a time: there may be more keys than a mailbox takes."""


class KeyedLog:
    """Writes changes down, and reads the last values back at start. Thread: the event loop."""

    def __init__(self, logs: Logs, topic: str) -> None:
        self.topic = topic
        self._logs = logs
        self._log: PartitionLog | None = None
        self._opening = asyncio.Lock()

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the log, which every unclean start raises."""
        return 0 if self._log is None else self._log.leader_epoch

    @property
    def record_count(self) -> int:
        """Number of offsets between the log's start and its end."""
        return 0 if self._log is None else self._log.written_end_offset - self._log.snapshot.log_start_offset

    async def load(self) -> dict[bytes, bytes]:
        """Return the last value of each key that is not forgotten. The map is empty if no change was ever written.

        Raises:
            CorruptionError: the log is damaged.
        """
        try:
            self._log = await self._logs.partition(self.topic, 0)
        except UnknownTopicOrPartitionError:
            return {}
        return await self._logs.read(functools.partial(_replay, self.topic, self._log.snapshot))

    async def _opened(self) -> PartitionLog:
        async with self._opening:
            if self._log is None:
                (self._log,) = await self._logs.ensure_internal_topic(self.topic, 1, CONFIG)
            return self._log

    async def write(self, changes: Sequence[Change], *, durable: bool = True) -> None:
        """Write changes as one batch; see ``app.engine.state``.

        Raises:
            Problem: overloaded; nothing was written.
            DiskFullError, PartitionOfflineError: nothing was written.
            PartitionFailedError: it is not known whether the changes were written.
        """
        pending = self._append(await self._opened(), changes)
        await (pending.fsynced if durable else pending.written)

    def _append(self, log: PartitionLog, changes: Sequence[Change]) -> PendingAppend:
        now_ms = self._logs.now_ms()
        records = [Record(place, now_ms, key, value) for place, (key, value) in enumerate(changes)]
        batches = validate_batches(bytearray(encode_batch(columns_from_records(records))), log.config, now_ms)
        request = AppendRequest(tuple(batches))
        return self._logs.writer_of(log).append(request, size_bytes=request.size_bytes, wants_fsync=True)

    async def shorten(self, live: AsyncGenerator[Sequence[Change], None]) -> None:
        """Write all of ``live`` again and delete the records before it; see ``app.engine.state``. Durable: on return.

        Raises:
            The errors of ``write``. The log start then stays where it was.
        """
        log = await self._opened()
        start = log.written_end_offset
        pending: list[PendingAppend] = []
        # The generator is closed in any case: it holds the lock of a key while that key's value is written.
        async with aclosing(live):
            async for changes in live:
                for few in _pieces(changes):
                    pending.append(self._append(log, few))
                    if len(pending) >= _PENDING_COUNT_MAX:
                        await _durable(pending)
        await _durable(pending)
        await self._logs.writer_of(log).run(lambda: log.delete_records(min(start, log.snapshot.high_watermark)))

    def check_online(self) -> None:
        """Return unless a write is bound to fail.

        Raises:
            PartitionOfflineError: the log's disk failed, or the log is damaged.
        """
        if self._log is not None and self._log.offline_reason is not None:
            raise PartitionOfflineError(f"{self.topic} is offline: {self._log.offline_reason}")


_: type[StateLog] = KeyedLog


async def _durable(pending: list[PendingAppend]) -> None:
    """Wait until all of these appends are durable, and empty the list."""
    for appended in pending:
        await appended.fsynced
    pending.clear()


def _pieces(changes: Sequence[Change]) -> Iterable[Sequence[Change]]:
    """Yield the changes in pieces that each fit into one batch."""
    piece: list[Change] = []
    size_bytes = 0
    for key, value in changes:
        if piece and (len(piece) >= _BATCH_COUNT or size_bytes >= _BATCH_BYTES):
            yield piece
            piece, size_bytes = [], 0
        piece.append((key, value))
        size_bytes += len(key) + len(value or b"")
    if piece:
        yield piece


def _replay(topic: str, snapshot: LogSnapshot) -> dict[bytes, bytes]:
    """Return the last value of each key that is not forgotten."""
    known: dict[bytes, bytes] = {}
    offset = snapshot.log_start_offset
    while offset < snapshot.log_end_offset:
        found = snapshot.read(offset, _READ_BYTES, isolation=Isolation.LOG_END)
        content = b"".join(piece.read() for piece in found.slices)
        for place, key, value in _rows(topic, content):
            if place < offset:
                continue
            if key is None:
                raise CorruptionError(f"a record of {topic} has a damaged key: there is none")
            known.pop(key, None)
            if value is not None:
                known[key] = value
        offset = found.next_offset
    return known


def _rows(topic: str, content: bytes) -> Iterable[tuple[int, bytes | None, bytes | None]]:
    """Yield offset, key and value of each record, without control records, which have no keys of the log."""
    try:
        for batch in split_batches(content):
            batch.check_crc()
            if not batch.header.is_control:
                columns = decode_batch(batch)
                yield from zip(columns.offsets.tolist(), columns.keys.to_list(), columns.values.to_list(), strict=True)
    except RecordFormatError as error:
        raise CorruptionError(f"a batch of {topic} is damaged: {error}") from error
