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
"""Records below which the log is not shortened: reading it takes only a moment."""
SHORTEN_ABOVE_RATIO = 10
"""Records per transactional id above which most of the log is replaced."""
_FORGET_COUNT = 500


class TransactionStateLog:
    """Writes transactions down, and reads them back at start. Thread: the event loop."""

    def __init__(self, logs: Logs) -> None:
        self._log = KeyedLog(logs, TOPIC)

    @property
    def coordinator_epoch(self) -> int:
        """The epoch in markers. A coordinator of an earlier epoch cannot write markers behind those of a later one."""
        return self._log.leader_epoch

    @property
    def record_count(self) -> int:
        """Number of offsets between the log's start and its end."""
        return self._log.record_count

    async def load(self) -> list[Transaction]:
        """Return the transactions in the log. The list is empty if there never was one.

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
            PartitionFailedError: it is not known whether the transition was written.
        """
        await self._log.write([_change(transaction)])

    async def note(self, transaction: Transaction) -> None:
        """Write as ``write``, but durable only with the next durable write, for a transition that a restart repeats."""
        await self._log.write([_change(transaction)], durable=False)

    async def note_forgotten(self, transactional_ids: Sequence[str]) -> None:
        """Write down that ids are forgotten, as durable as with ``note``: the next start may still find them.

        Raises:
            The errors of ``write``.
        """
        for place in range(0, len(transactional_ids), _FORGET_COUNT):
            few = transactional_ids[place : place + _FORGET_COUNT]
            await self._log.write([(encode_key(name), None) for name in few], durable=False)

    def is_long(self, live_count: int) -> bool:
        """Return whether most records of the log are replaced by later ones."""
        return self.record_count > max(SHORTEN_ABOVE_COUNT, SHORTEN_ABOVE_RATIO * live_count)

    async def shorten(self, live: AsyncGenerator[Sequence[Transaction], None]) -> None:
        """Write all of ``live`` again and delete the records before it; see ``KeyedLog.shorten``.

        Raises:
            The errors of ``write``. The log start then stays where it was.
        """
        await self._log.shorten(_changes(live))

    def check_online(self) -> None:
        """Return unless a write is bound to fail.

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
