"""The markers of a transaction: one in each of its partitions, tried until it is durable there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import MutableMapping

from app.engine.transactions import Transaction
from app.engine_local.logs import Logs
from app.event_loop.piecewise import BEGUN_COUNT, all_in_turns
from app.event_loop.turns import Turns
from app.problems.problem import Problem
from log_model.errors import (
    CoordinatorFencedError,
    DiskFullError,
    ProducerFencedError,
    ShuttingDownError,
    StorageError,
    UnknownTopicOrPartitionError,
    let_go_of_frames,
)
from log_model.names import PartitionName
from log_model.transactions import TransactionMarker
from storage.log.partition_log import AppendRequest, PartitionLog

logger = logging.getLogger(__name__)

MARKER_BYTES = 78
RETRY_MS_MIN = 100
RETRY_MS_MAX = 5_000


class MarkerWriter:
    """Writes markers, and waits between attempts where a partition cannot take one. Thread: the event loop."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self._hurry = asyncio.Event()
        self._stopping = False
        self._tries = Turns(BEGUN_COUNT)
        self._waiting_for_space: dict[PartitionName, set[int]] = {}

    def waits_for_space(self, name: PartitionName) -> bool:
        """Return whether a marker for this partition waits until its disk has space."""
        return name in self._waiting_for_space

    async def write(
        self, ending: Transaction, coordinator_epoch: int, waits: MutableMapping[PartitionName, str]
    ) -> bool:
        """Write the markers of a decided transaction to all its partitions, beside each other.

        Durable: on return, in every partition that still exists. Return false if the service stopped before that; the
        next start begins again. Meanwhile ``waits`` has each partition without a marker, and the cause.
        """
        marker = TransactionMarker(ending.producer_id, ending.producer_epoch, coordinator_epoch, ending.commits)
        waits.update(dict.fromkeys(ending.partitions, "the marker is being written"))
        done = await all_in_turns(self._write_until_done(name, marker, waits) for name in sorted(waits))
        return all(done)

    async def make_records_durable(self, transaction: Transaction) -> None:
        """Make sure that a power cut cannot take a record of a transaction that is about to be committed.

        Records in a partition may be unflushed, by its ``flush.policy`` or the producer's ``acks``. If a power cut took
        them after the decision, they would be missing in a committed transaction. The call costs nothing if all records
        are durable.

        Raises:
            Problem: overloaded.
            StorageError: a partition is offline, so that the transaction can only be aborted.
        """
        await all_in_turns(self._make_durable(name) for name in sorted(transaction.partitions))

    async def _make_durable(self, name: PartitionName) -> None:
        try:
            log = await self._logs.partition(*name)
            writer = self._logs.writer_of(log)
            if writer.is_idle and log.unflushed_count == 0 and log.offline_reason is None:
                return
            # An empty append comes behind all submitted appends, and shares its fsync with others.
            await writer.append(AppendRequest(()), size_bytes=0, wants_fsync=True).fsynced
        except UnknownTopicOrPartitionError:
            return

    def hurry(self) -> None:
        """Try now the markers that wait for their next attempt."""
        self._hurry.set()
        self._hurry = asyncio.Event()

    def stop(self) -> None:
        """Finish the attempts under way, and begin no more."""
        self._stopping = True
        self.hurry()

    async def _write_until_done(
        self, name: PartitionName, marker: TransactionMarker, waits: MutableMapping[PartitionName, str]
    ) -> bool:
        delay_ms = RETRY_MS_MIN
        try:
            while not self._stopping:
                try:
                    await self._write_once(name, marker)
                except ShuttingDownError:
                    return False
                except (StorageError, Problem) as error:
                    # The partition is full, offline or overloaded. The decided transaction waits for it alone.
                    self._note_space(name, marker.producer_id, is_wanted=isinstance(error, DiskFullError))
                    reason = str(error)
                    # The topic may be deleted during the pause, and the frames hold its log with its files.
                    let_go_of_frames(error)
                else:
                    waits.pop(name, None)
                    return True
                if waits.get(name) != reason:
                    logger.warning("the marker of producer %d for %s waits: %s", marker.producer_id, name, reason)
                waits[name] = reason
                await self.pause(delay_ms)
                await self._tries.enter()
                delay_ms = min(2 * delay_ms, RETRY_MS_MAX)
            return False
        finally:
            self._note_space(name, marker.producer_id, is_wanted=False)

    def _note_space(self, name: PartitionName, producer_id: int, *, is_wanted: bool) -> None:
        if is_wanted:
            self._waiting_for_space.setdefault(name, set()).add(producer_id)
        elif name in self._waiting_for_space:
            self._waiting_for_space[name].discard(producer_id)
            if not self._waiting_for_space[name]:
                del self._waiting_for_space[name]

    async def pause(self, delay_ms: int) -> None:
        """Wait between two attempts, or until ``hurry`` is called."""
        hurry = self._hurry
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_ms / 1000):
                await hurry.wait()

    async def _write_once(self, name: PartitionName, marker: TransactionMarker) -> None:
        try:
            log = await self._logs.partition(*name)
            if await self._is_untouched(log, marker.producer_id):
                return
            request = AppendRequest.marker(marker)
            await self._logs.writer_of(log).append(request, size_bytes=MARKER_BYTES, wants_fsync=True).fsynced
        except UnknownTopicOrPartitionError:
            # The topic was deleted: its records are gone, committed or not.
            return
        except (ProducerFencedError, CoordinatorFencedError) as error:
            # A later epoch has ended the transaction in this partition already.
            logger.warning("%s needs no marker of producer %d: %s", name, marker.producer_id, error)

    async def _is_untouched(self, log: PartitionLog, producer_id: int) -> bool:
        """Return whether the log knows no record of the producer.

        That is so if its appends were refused, or if the topic was deleted and made again. A marker would only make the
        log expect sequence 0, while the producer goes on with its sequences.
        """
        if log.offline_reason is not None or log.producers.find(producer_id) is not None:
            return False
        # The look is a job of the writer, so that it comes behind all earlier appends.
        found = await self._logs.writer_of(log).run(lambda: log.producers.find(producer_id))
        return found is None and log.offline_reason is None
