"""Transactions that are open in a partition but unknown to the coordinator, whose log may have been lost.

Readers of committed records would wait for them for ever. An operator finds them here and aborts each one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from app.engine.transactions import PartitionTransaction
from app.engine_local.logs import Logs
from app.engine_local.transactions.log.state import TransactionTable
from app.engine_local.transactions.markers import MARKER_BYTES
from app.problems import kinds
from app.problems.problem import Problem
from log_model.errors import InvalidTxnStateError
from log_model.names import PartitionName, refuse_internal
from log_model.offsets import Offset
from log_model.transactions import TransactionMarker
from storage.log.partition_log import AppendRequest, PartitionLog


class HangingTransactions:
    """The open transactions of a partition, and the end of those without an owner. Thread: the event loop."""

    def __init__(
        self,
        logs: Logs,
        table: TransactionTable,
        start: Callable[[], Awaitable[None]],
        check_known: Callable[[], None],
    ) -> None:
        """``start`` returns once the coordinator has read its log; ``check_known`` raises if that failed."""
        self._logs = logs
        self._table = table
        self._start = start
        self._check_known = check_known

    async def open_in(self, log: PartitionLog) -> list[PartitionTransaction]:
        """Return the transactions that are open in this partition; see ``Transactions.open_in``."""
        await self._start()
        entries = [entry for entry in log.producers.entries.values() if entry.is_in_transaction]
        entries.sort(key=lambda entry: entry.current_txn_first_offset)
        return [
            PartitionTransaction(
                entry.producer_id,
                entry.producer_epoch,
                entry.current_txn_first_offset,
                self._owner_of(entry.producer_id, log.name),
            )
            for entry in entries
        ]

    async def abort(
        self, log: PartitionLog, producer_id: int, first_offset: int, producer_epoch: int | None = None
    ) -> Offset:
        """Write an abort marker and return its offset; see ``Transactions.abort_hanging``."""
        refuse_internal(log.name.topic)
        await self._start()
        # The look is a job of the writer, so that it comes behind all earlier appends.
        entry = await self._logs.writer_of(log).run(lambda: log.producers.find(producer_id))
        if entry is None or not entry.is_in_transaction or entry.current_txn_first_offset != first_offset:
            raise InvalidTxnStateError(
                f"producer {producer_id} has no transaction open in {log.name} since offset {first_offset}"
            )
        if producer_epoch is not None and producer_epoch != entry.producer_epoch:
            raise InvalidTxnStateError(f"the transaction at offset {first_offset} is of epoch {entry.producer_epoch}")
        owner = self._owner_of(producer_id, log.name)
        if owner is not None:
            raise Problem(
                kinds.TRANSACTION_NOT_HANGING,
                f"the transaction belongs to {owner!r}: abort it there, for all its partitions",
                transactional_id=owner,
            )
        # There is no await since the look at the coordinator: a transaction enlisted now is appended behind the marker.
        marker = TransactionMarker(producer_id, entry.producer_epoch, max(entry.coordinator_epoch, 0), commit=False)
        request = AppendRequest.marker(marker)
        writer = self._logs.writer_of(log)
        return (await writer.append(request, size_bytes=MARKER_BYTES, wants_fsync=True).fsynced).base_offset

    def _owner_of(self, producer_id: int, partition: PartitionName) -> str | None:
        """Return the transactional id whose open transaction the producer has in this partition.

        Raises:
            PartitionOfflineError: the log of the coordinator could not be read.
        """
        self._check_known()
        name = self._table.find_name(producer_id)
        transaction = None if name is None else self._table.find(name)
        if transaction is None or not transaction.is_open or partition not in transaction.partitions:
            return None
        return name
