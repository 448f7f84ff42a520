"""The sender of batches: a few connections, and one request at a time for each partition.

The next batch is encoded while earlier ones are sent. A producer's sequences must arrive in order, so every partition
belongs to one connection. A batch gets its sequence just before it is sent, because the service may have refused rows
of earlier batches.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Self

from rollway.client import ProblemError, RollwayClient
from rollway.records import (
    Codec,
    RecordColumns,
    RecordSection,
    columns_from_records,
    encode_section,
    records_from_columns,
)
from rollway.spark.errors import AttemptNotRecognisedError
from rollway.spark.write.messages import PartitionWritten
from rollway.spark.write.rejects import Rejects

_SEQUENCE_COUNT = 2**31
_OUT_OF_ORDER = "out_of_order_sequence"


class Producer(NamedTuple):
    """The producer of a task's batches, with epoch 0; -1: batches without a producer."""

    producer_id: int = -1
    transactional: bool = False


class Batch(NamedTuple):
    """Encoded records for one partition, and their columns, to encode them again without refused records."""

    topic: str
    partition: int
    section: RecordSection
    columns: RecordColumns
    is_rejected: bool = False
    """True for rows for the topic of rejected rows. A refusal of these is an error."""


@dataclass(slots=True)
class _Target:
    """One partition, and the rows written to it."""

    next_sequence: int = 0
    start_offset: int = -1
    end_offset: int = -1
    rows: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class _Lane:
    """One connection, its thread, and the batch that waits for it."""

    waiting: queue.Queue[Batch | None] = field(default_factory=lambda: queue.Queue(maxsize=1))
    thread: threading.Thread | None = None
    targets: dict[tuple[str, int], _Target] = field(default_factory=dict)
    sending_seconds: float = 0.0


class Sender:
    """A sender of batches, in order within each partition, over up to ``lane_count`` connections.

    It is a context manager: the exit without an error returns once every batch is acknowledged. Thread: one calls it.
    It starts further threads, which call ``on_append`` after each acknowledged batch.
    """

    def __init__(
        self,
        client: RollwayClient,
        producer: Producer,
        rejects: Rejects,
        lane_count: int,
        codec: Codec,
        on_append: Callable[[], None],
    ) -> None:
        self._client = client
        self._producer = producer
        self._rejects = rejects
        self._codec = codec
        self._on_append = on_append
        self._lanes = [_Lane() for _ in range(lane_count)]
        self._failure: BaseException | None = None
        self.waiting_seconds = 0.0

    def send(self, batch: Batch) -> None:
        """Queue a batch. Wait while the connection of its partition sends a batch and has a second one waiting.

        Raises:
            RollwayError: an earlier batch was not accepted.
        """
        self._check()
        lane = self._lanes[(hash(batch.topic) + batch.partition) % len(self._lanes)]
        if lane.thread is None:
            lane.thread = threading.Thread(target=self._run, args=(lane,), name="rollway sender", daemon=True)
            lane.thread.start()
        started = time.perf_counter()
        lane.waiting.put(batch)
        self.waiting_seconds += time.perf_counter() - started

    def finish(self) -> None:
        """Return once every batch is acknowledged.

        Raises:
            RollwayError: a batch was not accepted.
        """
        started = time.perf_counter()
        self._stop()
        self.waiting_seconds += time.perf_counter() - started
        self._check()

    def _stop(self) -> None:
        lanes = [lane for lane in self._lanes if lane.thread is not None]
        for lane in lanes:
            lane.waiting.put(None)
        for lane in lanes:
            assert lane.thread is not None
            lane.thread.join()
            lane.thread = None

    def written(self) -> tuple[PartitionWritten, ...]:
        """Return the acknowledged rows, by partition, sorted. Call it after ``finish``."""
        return tuple(
            sorted(
                PartitionWritten(
                    *place, target.start_offset, target.end_offset, rows=target.rows, size_bytes=target.size_bytes
                )
                for lane in self._lanes
                for place, target in lane.targets.items()
                if target.rows
            )
        )

    @property
    def sending_seconds(self) -> float:
        """Time in requests, of all connections together."""
        return sum(lane.sending_seconds for lane in self._lanes)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self, lane: _Lane) -> None:
        while (batch := lane.waiting.get()) is not None:
            # After a failure batches are taken and dropped, so that ``send`` never waits for a thread that has ended.
            if self._failure is not None:
                continue
            started = time.perf_counter()
            try:
                self._deliver(lane, batch)
            except BaseException as error:  # noqa: BLE001 - raised by the thread that hands over
                self._failure = error
            lane.sending_seconds += time.perf_counter() - started

    def _deliver(self, lane: _Lane, batch: Batch) -> None:
        """Send one batch. Leave out the records that the service refuses, if the options let them be left out."""
        target = lane.targets.setdefault((batch.topic, batch.partition), _Target())
        section: RecordSection | None = batch.section
        columns = batch.columns
        while section is not None:
            try:
                self._append(target, batch.topic, batch.partition, section)
                return
            except ProblemError as error:
                places = refused_places(error, len(columns))
                if batch.is_rejected or not places:
                    raise
                columns = self._without(columns, places, error, batch.topic)
                section = encode_section(columns, codec=self._codec) if len(columns) else None

    def _append(self, target: _Target, topic: str, partition: int, section: RecordSection) -> None:
        producer = self._producer
        has_identity = producer.producer_id >= 0
        head = section.head(
            producer_id=producer.producer_id,
            producer_epoch=0 if has_identity else -1,
            base_sequence=target.next_sequence if has_identity else -1,
            transactional=producer.transactional,
        )
        try:
            answer = self._client.produce_batches(topic, partition, [head, memoryview(section.data)])
        except ProblemError as error:
            # Batches of this attempt arrive in order. So an earlier attempt wrote to this partition.
            if error.code == _OUT_OF_ORDER and has_identity and not producer.transactional:
                raise AttemptNotRecognisedError(topic, partition) from error
            raise
        self._on_append()
        target.next_sequence = (target.next_sequence + section.record_count) % _SEQUENCE_COUNT
        if target.start_offset < 0:
            target.start_offset = answer.base_offset
        target.end_offset = answer.last_offset + 1
        target.rows += section.record_count
        target.size_bytes += section.size_bytes

    def _without(
        self, columns: RecordColumns, places: dict[int, str], error: ProblemError, topic: str
    ) -> RecordColumns:
        records = records_from_columns(columns)
        refused = columns_from_records([records[place] for place in places])
        first = next(iter(places.values()))
        self._rejects.add(error.code, f"{error.code}: {first}", refused, topic)
        kept = [record for place, record in enumerate(records) if place not in places]
        return columns_from_records(kept) if kept else columns.slice(0, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
            return
        if self._failure is None:
            self._failure = error
        self._stop()


def refused_places(error: ProblemError, record_count: int) -> dict[int, str]:
    """Return the fault of each record of a batch that the service names, by the record's index."""
    places: dict[int, str] = {}
    if error.status not in (400, 413, 422):
        return places
    for fault in error.problem.get("errors") or ():
        parts = str(fault.get("pointer", "")).split("/")
        if len(parts) == 3 and parts[1] == "records" and parts[2].isdecimal() and int(parts[2]) < record_count:
            places[int(parts[2])] = str(fault.get("detail", ""))
    return places
