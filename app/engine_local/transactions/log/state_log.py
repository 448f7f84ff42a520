"""The log that remembers transactions: ``__transaction_state``, one partition where Kafka has fifty.

The last record of a transactional id counts.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from app.engine.state import Change
from app.engine.transactions import Transaction
from app.engine_local.keyed_log import KeyedLog
from app.engine_local.logs import Logs
from app.engine_local.transactions.log.records import decode_key, decode_value, encode_key, encode_value

TOPIC = "__transaction_state"
SHORTEN_ABOVE_COUNT = 10_000
"""Records below which the log is left alone: it is read in a moment."""
SHORTEN_ABOVE_RATIO = 10
"""Records per transactional id above which most of the log is old news."""
_FORGET_COUNT = 500


class TransactionStateLog:
    """Writes transactions down, and reads them back at start. Thread: the event loop."""

    def __init__(self, logs: Logs) -> None:
        self._log = KeyedLog(logs, TOPIC)

    @property
    def coordinator_epoch(self) -> int:
        """Stamped into markers: a coordinator of an earlier epoch cannot write markers behind a later one's."""
        return self._log.leader_epoch

    @property
    def record_count(self) -> int:
        """Records between the log's start and its end."""
        return self._log.record_count

    async def load(self) -> list[Transaction]:
        """What the log knows; nothing when there never was a transaction.

        Raises:
            CorruptionError: the log is damaged.
        """
        known = await self._log.load()
        return [decode_value(decode_key(key), value) for key, value in known.items()]

    async def write(self, transaction: Transaction) -> None:
        """Write a transition down. Durable: on return.

        Raises:
            Problem: overloaded; nothing was written.
            DiskFullError, PartitionOfflineError: nothing was written.
            PartitionFailedError: it is not known whether it was written.
        """
        await self._log.write([_change(transaction)])

    async def note(self, transaction: Transaction) -> None:
        """As ``write``, but durable only with the next that is: for what a restart finds out again."""
        await self._log.write([_change(transaction)], durable=False)

    async def note_forgotten(self, transactional_ids: Sequence[str]) -> None:
        """Write down that ids are not known any more; as ``note``: a start may find them once more.

        Raises:
            as ``write``.
        """
        for place in range(0, len(transactional_ids), _FORGET_COUNT):
            few = transactional_ids[place : place + _FORGET_COUNT]
            await self._log.write([(encode_key(name), None) for name in few], durable=False)

    def is_long(self, live_count: int) -> bool:
        """Whether most of the log is old news."""
        return self.record_count > max(SHORTEN_ABOVE_COUNT, SHORTEN_ABOVE_RATIO * live_count)

    async def shorten(self, live: AsyncGenerator[Sequence[Transaction], None]) -> None:
        """Write all of ``live`` again and forget what is before; see ``KeyedLog.shorten``.

        Raises:
            as ``write``; the log start stays where it was then.
        """
        await self._log.shorten(_changes(live))

    def check_online(self) -> None:
        """Refuse early what could not be written down.

        Raises:
            PartitionOfflineError: the log's disk failed, or the log is damaged.
        """
        self._log.check_online()


async def _changes(live: AsyncGenerator[Sequence[Transaction], None]) -> AsyncGenerator[Sequence[Change], None]:
    async with aclosing(live):
        async for transactions in live:
            yield [_change(transaction) for transaction in transactions]


def _change(transaction: Transaction) -> Change:
    return encode_key(transaction.transactional_id), encode_value(transaction)
