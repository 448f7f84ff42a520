"""The enlistment of partitions in a transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from app.engine.transactions import ProducerIdentity
from app.engine_local.logs import Logs
from app.engine_local.transactions.duplicates import find_duplicates
from app.engine_local.transactions.limits import TransactionLimits
from app.engine_local.transactions.log import state
from app.engine_local.transactions.log.state import TransactionTable
from app.engine_local.transactions.log.state_log import TransactionStateLog
from app.engine_local.transactions.markers import MarkerWriter
from app.engine_local.transactions.sessions import Enlistment, Session
from app.problems import kinds
from app.problems.problem import Problem
from log_model.errors import (
    DiskFullError,
    InvalidPidMappingError,
    PartitionOfflineError,
    RefusedError,
    StorageError,
)
from log_model.names import PartitionName
from rollway.records import BatchHeader
from storage.log.partition_log import AppendResult


class Enlister:
    """One step of the coordinator's ``enlist``, whose docstring has its promises.

    Thread: the event loop.
    """

    def __init__(
        self,
        logs: Logs,
        limits: TransactionLimits,
        table: TransactionTable,
        state_log: TransactionStateLog,
        markers: MarkerWriter,
        check_open: Callable[[str], None],
    ) -> None:
        """Take the coordinator's parts; ``check_open`` is ``LocalAttempts.check_open``."""
        self._logs = logs
        self._limits = limits
        self._table = table
        self._state_log = state_log
        self._markers = markers
        self._check_open = check_open

    async def enlist(
        self,
        session: Session,
        name: str,
        producer: ProducerIdentity,
        appends: Mapping[PartitionName, Sequence[BatchHeader]],
    ) -> Enlistment:
        """Do as the coordinator's ``enlist``. The caller holds the session's lock."""
        transaction = self._table.find(name)
        if transaction is None:
            raise InvalidPidMappingError(f"producer {producer.producer_id} belongs to no transactional id")
        # These checks come first: the producer must be the right one, and the transaction must take records.
        self._check_open(name)
        state.enlist(transaction, producer, (), self._logs.now_ms())
        present = transaction.partitions
        duplicates: dict[PartitionName, list[AppendResult]] = {}
        refused: dict[PartitionName, StorageError] = {}
        fresh = []
        for partition in appends:
            if partition in present:
                continue
            try:
                log = await self._logs.partition(*partition)
                known = await find_duplicates(self._logs, log, appends[partition])
            except RefusedError as error:
                refused[partition] = error
                continue
            if known is not None:
                duplicates[partition] = known
            elif log.offline_reason is not None:
                # The partition would not take the marker either: the transaction would never end.
                refused[partition] = PartitionOfflineError(f"{log.name} takes no appends: {log.offline_reason}")
            elif self._markers.waits_for_space(partition):
                refused[partition] = DiskFullError(f"the disk of {log.name} has no space for the end of a transaction")
            else:
                fresh.append(partition)
        if fresh:
            enlisted = state.enlist(transaction, producer, fresh, self._logs.now_ms())
            if len(enlisted.partitions) > self._limits.partition_count_max:
                raise Problem(
                    kinds.TOO_MANY_PARTITIONS,
                    f"a transaction writes to at most {self._limits.partition_count_max} partitions",
                )
            await self._state_log.write(enlisted)
            self._table.put(enlisted)
        return Enlistment(session, duplicates, refused)
