"""The log that remembers transactions: ``__transaction_state``, one partition of an internal topic.

One partition, where Kafka has fifty: there is one writer and one disk here, and records of all transactions then share
one fsync. The last record of a transactional id counts. The log is never compacted in place; when most of it is old
news, everything that counts is written again at its end, and the log start is raised to there (``shorten``).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing

from app.partition_writer import PendingAppend
from app.transactions.logs import Logs
from app.transactions.records import decode_key, decode_value, encode_key, encode_value
from app.transactions.state import Transaction
from rollway.records import Record, RecordFormatError, columns_from_records, decode_batch, encode_batch, split_batches
from storage.batch_validation import validate_batches
from storage.errors import CorruptionError, PartitionOfflineError, UnknownTopicOrPartitionError
from storage.log_snapshot import Isolation, LogSnapshot
from storage.partition_log import AppendRequest, PartitionLog

TOPIC = "__transaction_state"
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
SHORTEN_ABOVE_COUNT = 10_000
"""Records below which the log is left alone: it is read in a moment."""
SHORTEN_ABOVE_RATIO = 10
"""Records per transactional id above which most of the log is old news."""

_READ_BYTES = 1024 * 1024
_BATCH_COUNT = 100
_PENDING_COUNT_MAX = 500
"""Appends of ``shorten`` that are on their way at a time: ids are more than a mailbox takes."""


class StateLog:
    """Writes transactions down, and reads them back at start. Thread: the event loop."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self._log: PartitionLog | None = None
        self._opening = asyncio.Lock()

    @property
    def coordinator_epoch(self) -> int:
        """Stamped into markers: a coordinator of an earlier epoch cannot write markers behind a later one's."""
        return 0 if self._log is None else self._log.leader_epoch

    @property
    def record_count(self) -> int:
        """Records between the log's start and its end."""
        return 0 if self._log is None else self._log.written_end_offset - self._log.snapshot.log_start_offset

    async def load(self) -> list[Transaction]:
        """What the log knows; nothing when there never was a transaction.

        Raises:
            CorruptionError: the log is damaged.
        """
        try:
            self._log = self._logs.partition(TOPIC, 0)
        except UnknownTopicOrPartitionError:
            return []
        return await self._logs.read(functools.partial(_replay, self._log.snapshot))

    async def _opened(self) -> PartitionLog:
        async with self._opening:
            if self._log is None:
                (self._log,) = await self._logs.ensure_internal_topic(TOPIC, 1, CONFIG)
            return self._log

    async def write(self, transaction: Transaction) -> None:
        """Write a transition down. Durable: on return.

        Raises:
            Problem: overloaded; nothing was written.
            DiskFullError, PartitionOfflineError: nothing was written.
            PartitionFailedError: nobody knows whether it was.
        """
        pending = self._append(await self._opened(), [(transaction.transactional_id, transaction)])
        await pending.fsynced

    async def note(self, transaction: Transaction) -> None:
        """As ``write``, but durable only with the next that is: for what a restart finds out again."""
        pending = self._append(await self._opened(), [(transaction.transactional_id, transaction)])
        await pending.written

    async def forget(self, transactional_id: str) -> None:
        """Write down that an id is not known any more. Durable: on return.

        Raises:
            as ``write``.
        """
        await self._append(await self._opened(), [(transactional_id, None)]).fsynced

    def _append(self, log: PartitionLog, changes: Sequence[tuple[str, Transaction | None]]) -> PendingAppend:
        now_ms = self._logs.now_ms()
        records = [
            Record(place, now_ms, encode_key(name), None if transaction is None else encode_value(transaction))
            for place, (name, transaction) in enumerate(changes)
        ]
        batches = validate_batches(bytearray(encode_batch(columns_from_records(records))), log.config, now_ms)
        request = AppendRequest(tuple(batches))
        return self._logs.writer_of(log).append(request, size_bytes=request.size_bytes, wants_fsync=True)

    # Shortening

    def is_long(self, live_count: int) -> bool:
        """Whether most of the log is old news."""
        return self.record_count > max(SHORTEN_ABOVE_COUNT, SHORTEN_ABOVE_RATIO * live_count)

    async def shorten(self, live: AsyncGenerator[Sequence[Transaction], None]) -> None:
        """Write all of ``live`` again and forget what is before. Durable: on return.

        ``live`` gives every transaction that counts, each while nobody can change it; a change that comes later
        is written behind it. A crash in between leaves both, which says the same.

        Raises:
            as ``write``; the log start stays where it was then.
        """
        log = await self._opened()
        start = log.written_end_offset
        pending: list[PendingAppend] = []
        # Closed whatever happens: it holds the lock of an id while that id's transaction is written.
        async with aclosing(live):
            async for transactions in live:
                for few in _pieces(transactions):
                    pending.append(self._append(log, [(each.transactional_id, each) for each in few]))
                    if len(pending) >= _PENDING_COUNT_MAX:
                        await _durable(pending)
        await _durable(pending)
        await self._logs.writer_of(log).run(lambda: log.delete_records(min(start, log.snapshot.high_watermark)))

    def check_online(self) -> None:
        """Refuse early what could not be written down.

        Raises:
            PartitionOfflineError: the log's disk failed, or the log is damaged.
        """
        if self._log is not None and self._log.offline_reason is not None:
            raise PartitionOfflineError(f"{TOPIC} is offline: {self._log.offline_reason}")


async def _durable(pending: list[PendingAppend]) -> None:
    """Wait for all of them, and leave none."""
    for appended in pending:
        await appended.fsynced
    pending.clear()


def _pieces(transactions: Sequence[Transaction]) -> Iterable[Sequence[Transaction]]:
    """Few enough at a time for one batch."""
    piece: list[Transaction] = []
    partition_count = 0
    for transaction in transactions:
        if piece and (len(piece) >= _BATCH_COUNT or partition_count + len(transaction.partitions) > 1_000):
            yield piece
            piece, partition_count = [], 0
        piece.append(transaction)
        partition_count += len(transaction.partitions)
    if piece:
        yield piece


def _replay(snapshot: LogSnapshot) -> list[Transaction]:
    """The last word on every id that is not forgotten."""
    known: dict[str, Transaction] = {}
    offset = snapshot.log_start_offset
    while offset < snapshot.log_end_offset:
        found = snapshot.read(offset, _READ_BYTES, isolation=Isolation.LOG_END)
        content = b"".join(piece.read() for piece in found.slices)
        for place, key, value in _rows(content):
            if place < offset:
                continue
            name = decode_key(key)
            known.pop(name, None)
            if value is not None:
                known[name] = decode_value(name, value)
        offset = found.next_offset
    return list(known.values())


def _rows(content: bytes) -> Iterable[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of each record; control records say nothing about transactional ids."""
    try:
        for batch in split_batches(content):
            batch.check_crc()
            if not batch.header.is_control:
                columns = decode_batch(batch)
                yield from zip(columns.offsets.tolist(), columns.keys.to_list(), columns.values.to_list(), strict=True)
    except RecordFormatError as error:
        raise CorruptionError(f"a batch of {TOPIC} is damaged: {error}") from error
