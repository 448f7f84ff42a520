"""One partition: its batches, its producers, its leader epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from log_model.batches.append_request import AppendResult, marker_batch
from log_model.batches.batch_validation import ValidBatch
from log_model.clock import Clock
from log_model.config import ProducerLimits, TopicConfig
from log_model.epochs import EpochEntry
from log_model.errors import ExpectedOffsetMismatchError, PartitionOfflineError, RecordListTooLargeError
from log_model.names import PartitionName
from log_model.offsets import NO_TIMESTAMP, LeaderEpoch, Offset
from log_model.producers import ProducerBatch
from log_model.transactions import AbortedTransaction, TransactionMarker
from rollway.records import BatchHeader, parse_header
from tests.memory_engine.producers import Producer, check_marker, check_request
from tests.memory_engine.view import MemoryLimits, StoredBatch, View


class LogStartMove(NamedTuple):
    """When and by which call the log start last moved."""

    at_ms: int
    by: str


class MemoryLog:
    """One partition. What is appended is durable and on every replica at once, as far as this engine can tell.

    Thread: the event loop. Other threads only read a ``View``.
    """

    def __init__(
        self, name: PartitionName, topic_id: str, config: TopicConfig, clock: Clock, limits: ProducerLimits
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.config = config
        self.clock = clock
        self.is_deleted = False
        self.offline_reason: str | None = None
        """Memory does not fail, but a test may say that it did."""
        self.log_start_move: LogStartMove | None = None
        self.epochs: tuple[EpochEntry, ...] = (EpochEntry(LeaderEpoch(0), Offset(0)),)
        self.producers: dict[int, Producer] = {}
        self._producer_limits = limits
        self._used_ms: dict[int, int] = {}
        self._batches: list[StoredBatch] = []
        self._aborted: tuple[AbortedTransaction, ...] = ()
        self._log_start = self._durable_end = Offset(0)
        self._log_end = Offset(0)

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.epochs[-1].epoch

    @property
    def recovery_point(self) -> Offset:
        return self._durable_end

    def make_durable(self) -> None:
        """Call all records durable, as an fsync would."""
        self._durable_end = self._log_end

    def take_offline(self, reason: str) -> None:
        """Take no appends from now on."""
        self.offline_reason = reason

    @property
    def snapshot(self) -> MemoryLimits:
        """The limits of now. The last stable offset is where the earliest open transaction begins."""
        opened = [each.open_since for each in self.producers.values() if each.open_since is not None]
        stable = max(self._log_start, min(opened, default=self._log_end))
        return MemoryLimits(self._log_start, stable, self._log_end, self._log_end)

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches from the log start on."""
        return sum(batch.size_bytes for batch in self._batches)

    def view(self) -> View:
        """Return what one reader sees: later appends do not change it."""
        return View(self._batches, self.snapshot, self._aborted)

    # Appending

    def append(self, batches: Sequence[ValidBatch], expected_offset: int | None = None) -> AppendResult:
        """Append all batches or none, and return their offsets.

        Raises:
            PartitionOfflineError, RecordListTooLargeError, ExpectedOffsetMismatchError
            ProducerFencedError, OutOfOrderSequenceError, InvalidTxnStateError
        """
        self._check_online()
        if not batches:
            return AppendResult(Offset(-1), Offset(-1), 0, NO_TIMESTAMP, self._log_start)
        size_bytes = sum(batch.size_bytes for batch in batches)
        if size_bytes > self.config.segment_bytes:
            raise RecordListTooLargeError(
                f"{size_bytes} bytes do not fit into a segment of {self.config.segment_bytes} bytes"
            )
        record_count = sum(batch.header.record_count for batch in batches)
        stamps_time = self.config.message_timestamp_type == "LogAppendTime"
        known = self.find_repeated([batch.header for batch in batches])
        if known is not None:
            time_ms = known[0].timestamp if stamps_time else NO_TIMESTAMP
            first, last = known[0].first_offset, known[-1].last_offset
            return AppendResult(first, last, record_count, time_ms, self._log_start, duplicate=True)
        if expected_offset is not None and expected_offset != self._log_end:
            raise ExpectedOffsetMismatchError(expected_offset, self._log_end)
        base_offset, time_ms = self._log_end, self.clock.now_ms() if stamps_time else NO_TIMESTAMP
        for batch in batches:
            if stamps_time:
                batch.set_log_append_time(time_ms)
            header = self._store(batch)
            if header.producer_id >= 0:
                before = self.producers.get(header.producer_id)
                self._keep((before or Producer(header.producer_id, header.producer_epoch)).after(header))
        return AppendResult(base_offset, Offset(self._log_end - 1), record_count, time_ms, self._log_start)

    def find_repeated(self, headers: Sequence[BatchHeader]) -> list[ProducerBatch] | None:
        """Return where the batches are if the request came before; see ``check_request``."""

        def header_at(offset: Offset) -> BatchHeader | None:
            return next((batch.header for batch in self.view().walk(offset, offset + 1)), None)

        return check_request(self.producers, headers, header_at)

    def append_marker(self, marker: TransactionMarker) -> Offset:
        """Append the control batch that ends a producer's transaction, and return its offset.

        Raises:
            PartitionOfflineError, ProducerFencedError, CoordinatorFencedError
        """
        self._check_online()
        before = self.producers.get(marker.producer_id)
        check_marker(before, marker)
        header = self._store(marker_batch(marker, self.clock.now_ms()))
        offset = Offset(header.base_offset)
        self._keep((before or Producer(marker.producer_id, marker.producer_epoch)).ended(marker))
        if before is not None and before.open_since is not None and not marker.commit:
            stable = self.snapshot.last_stable_offset
            self._aborted += (AbortedTransaction(marker.producer_id, before.open_since, offset, stable),)
        return offset

    def _check_online(self) -> None:
        if self.offline_reason is not None:
            raise PartitionOfflineError(f"{self.name} is offline: {self.offline_reason}")

    def _store(self, batch: ValidBatch) -> BatchHeader:
        batch.stamp(self._log_end, self.leader_epoch)
        header = parse_header(batch.head)
        self._batches.append(StoredBatch(header, bytes(batch.head) + bytes(batch.body)))
        self._log_end = Offset(header.next_offset)
        return header

    # Producers

    def _keep(self, producer: Producer) -> None:
        self.producers.pop(producer.producer_id, None)
        self.producers[producer.producer_id] = producer
        self._used_ms[producer.producer_id] = self.clock.elapsed_ms()
        for each in tuple(self.producers.values())[
            : max(0, len(self.producers) - self._producer_limits.producer_count_max)
        ]:
            self._forget(each)

    def expire_producers(self) -> None:
        """Forget the producers that were idle for too long."""
        due_ms = self.clock.elapsed_ms() - self._producer_limits.expiration_ms
        for each in tuple(self.producers.values()):
            if self._used_ms[each.producer_id] <= due_ms:
                self._forget(each)

    def _forget(self, producer: Producer) -> None:
        if producer.open_since is None:
            del self.producers[producer.producer_id], self._used_ms[producer.producer_id]

    # The log start, and leader epochs

    def raise_log_start(self, offset: Offset, by: str) -> None:
        """Forget the records below ``offset``, which is at most the log end."""
        if offset <= self._log_start:
            return
        self._log_start = offset
        # Another list: a reader may still hold the old one.
        self._batches = [batch for batch in self._batches if batch.header.next_offset > offset]
        self._aborted = tuple(each for each in self._aborted if each.last_offset >= offset)
        self.log_start_move = LogStartMove(self.clock.now_ms(), by)
        current = [entry for entry in self.epochs if entry.start_offset <= offset][-1]
        later = [entry for entry in self.epochs if entry.start_offset > offset]
        self.epochs = (EpochEntry(current.epoch, offset), *later)

    def begin_epoch(self) -> EpochEntry:
        """Begin a leader epoch at the log end."""
        entry = EpochEntry(LeaderEpoch(self.leader_epoch + 1), self._log_end)
        self.epochs = (*(each for each in self.epochs if each.start_offset < self._log_end), entry)
        return entry
