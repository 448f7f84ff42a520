"""The one door from HTTP to the logs: resolves names, writes through the writers, reads from snapshots, waits.

Thread: the event loop. Whatever may touch the disk goes to one of four pools, so that a slow fsync holds up
neither reads nor other partitions' writes, and nothing holds up the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from app.fetch_range import FetchRange, FetchRequest, range_of, start_of
from app.fetch_waiters import FetchWaiters, Wake, is_served
from app.http.problems import Problem
from app.metrics import Metrics
from app.partition_writer import MailboxLimits, PartitionWriter, PendingAppend
from app.partitioning import StickyPartitioner
from app.pools import INLINE_BYTES_MAX, Pools, call_in
from app.settings import Settings
from storage.batch_validation import ValidBatch, validate_batches
from storage.errors import PolicyViolationError, UnknownTopicOrPartitionError
from storage.file_names import PartitionName
from storage.log_manager import LogManager
from storage.log_snapshot import LogSnapshot
from storage.offsets import Offset
from storage.partition_log import AppendRequest, AppendResult, DeletedSegment, PartitionLog
from storage.retention import RetentionEntry
from storage.topic_registry import Topic

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
Acks = Literal["0", "1", "all"]
Durability = Literal["written", "fsynced"]

NODE_ID = 1


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """What an append is asked to wait for. ``durability`` absent: what ``acks`` means for the topic."""

    acks: Acks = "all"
    durability: Durability | None = None
    timeout_ms: int = 30_000
    expected_offset: int | None = None

    def waits_for_fsync(self, log: PartitionLog) -> bool:
        """Whether the answer comes after the fsync (reliability: what an acknowledgement means)."""
        if self.durability is not None:
            return self.durability == "fsynced"
        return self.acks == "all" and log.config.flush_policy == "group"


class LogStartMove(NamedTuple):
    """When and by what the log start of a partition last moved while this process ran."""

    at_ms: int
    by: str


@dataclass(frozen=True, slots=True)
class FetchAnswer(Generic[Result]):
    """What a fetch read, and the snapshot it is true of."""

    snapshot: LogSnapshot
    wanted: FetchRange
    read: Result


class ClientGoneError(Exception):
    """The client closed its connection while its request waited."""


class Broker:
    """All partitions of one data directory, for HTTP."""

    def __init__(self, manager: LogManager, settings: Settings, metrics: Metrics, pools: Pools) -> None:
        self.manager = manager
        self.settings = settings
        self.metrics = metrics
        self.pools = pools
        self.waiters = FetchWaiters(count_max=settings.waiter_count_max)
        self.sticky = StickyPartitioner()
        self.released = asyncio.Event()
        self._limits = MailboxLimits(
            bytes_max=settings.mailbox_bytes_max,
            count_max=settings.mailbox_count_max,
            group_bytes_max=settings.group_bytes_max,
            group_count_max=settings.group_count_max,
        )
        self._writers: dict[PartitionName, PartitionWriter] = {}
        self._moves: dict[PartitionName, LogStartMove] = {}
        self._control = asyncio.Lock()

    # Names

    def topic(self, name: str) -> Topic:
        """The topic of this name.

        Raises:
            UnknownTopicOrPartitionError: there is none.
        """
        return self.manager.topic(name)

    def topics(self, prefix: str, start_after: str, limit: int) -> list[Topic]:
        """The first ``limit`` topics by name that begin with ``prefix`` and come after ``start_after``."""
        topics = self.manager.topics
        names = sorted(name for name in topics if name.startswith(prefix) and name > start_after)
        return [topics[name] for name in names[:limit]]

    def partition(self, topic: str, number: int) -> PartitionLog:
        """The partition of this name.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic or no such partition of it.
        """
        return self.manager.partition(topic, number)

    def partitions(self) -> Iterator[PartitionLog]:
        """Every partition of every topic."""
        for topic in tuple(self.manager.topics.values()):
            yield from topic.partitions

    @property
    def node_id(self) -> int:
        """The number of this node, the only one that holds copies."""
        return NODE_ID

    def offline_count(self) -> int:
        """Partitions that take no appends."""
        return sum(1 for log in self.partitions() if log.offline_reason is not None)

    def size_bytes(self) -> int:
        """Bytes of record batches in all logs."""
        return sum(log.snapshot.size_bytes for log in self.partitions())

    def mailbox_count(self) -> int:
        """Requests that wait to be written."""
        return sum(writer.mailbox_count for writer in self._writers.values())

    def mailbox_bytes(self) -> int:
        """Bytes that wait to be written."""
        return sum(writer.mailbox_bytes for writer in self._writers.values())

    def now_ms(self) -> int:
        """Wall time, as the logs see it."""
        return self.manager.clock.now_ms()

    # Produce

    async def validate(self, log: PartitionLog, body: bytes | bytearray) -> list[ValidBatch]:
        """Check a body of record batches, in a thread when it is large.

        Raises:
            RefusedError: as ``validate_batches``.
        """
        check = functools.partial(validate_batches, body, log.config, self.now_ms())
        return check() if len(body) <= INLINE_BYTES_MAX else await call_in(self.pools.read, check)

    def submit(self, log: PartitionLog, batches: Sequence[ValidBatch], options: ProduceOptions) -> PendingAppend:
        """Put batches into their partition's mailbox; wait for the outcome with ``outcome_of``.

        Raises:
            Problem: overloaded.
            StorageError: the partition is gone or the service is stopping.
        """
        request = AppendRequest(
            tuple(batches), None if options.expected_offset is None else Offset(options.expected_offset)
        )
        size_bytes = sum(batch.size_bytes for batch in batches)
        pending = self.writer_of(log).append(
            request, size_bytes=size_bytes, wants_fsync=options.acks != "0" and options.waits_for_fsync(log)
        )
        if options.acks == "0":
            pending.written.add_done_callback(self._count_dropped)
        return pending

    async def outcome_of(self, pending: PendingAppend, options: ProduceOptions) -> AppendResult:
        """Wait as long as the options say: for the file, or for the fsync.

        Raises:
            Problem: request_timed_out; the append goes on.
            StorageError: what the log answered.
        """
        future = pending.fsynced if pending.wants_fsync else pending.written
        try:
            async with asyncio.timeout(options.timeout_ms / 1000):
                result = await future
        except TimeoutError:
            raise self._timed_out(pending, options) from None
        self.metrics.produced_records.inc(result.record_count)
        self.metrics.produced_bytes.inc(pending.size_bytes)
        return result

    def _timed_out(self, pending: PendingAppend, options: ProduceOptions) -> Problem:
        place: dict[str, Any] = {} if pending.result is None else {"base_offset": pending.result.base_offset}
        return Problem(
            504,
            "request_timed_out",
            f"not acknowledged within {options.timeout_ms} ms; the append goes on",
            kafka_code=7,
            retryable=True,
            applied="unknown",
            **place,
        )

    def _count_dropped(self, written: asyncio.Future[AppendResult]) -> None:
        if written.cancelled() or written.exception() is not None:
            self.metrics.dropped_appends.inc()

    def writer_of(self, log: PartitionLog) -> PartitionWriter:
        """The partition's writer, made when first needed."""
        writer = self._writers.get(log.name)
        if writer is None or writer.log is not log:
            if self.manager.partition(log.name.topic, log.name.partition) is not log:
                # A request that found the topic before it was deleted; its successor has a writer of its own.
                raise UnknownTopicOrPartitionError(f"topic {log.name.topic!r} was deleted")
            writer = PartitionWriter(
                log,
                write_pool=self.pools.write,
                flush_pool=self.pools.flush,
                observer=self,
                limits=self._limits,
            )
            self._writers[log.name] = writer
        return writer

    # What writers tell

    def published(self, log: PartitionLog, snapshot: LogSnapshot) -> None:
        """Wake whom the new snapshot serves."""
        self.waiters.wake(log.name, snapshot)

    def group_appended(self, request_count: int, seconds: float) -> None:
        """Count a written group."""
        self.metrics.group_requests.observe(request_count)
        self.metrics.append_seconds.observe(seconds)

    def flushed(self, seconds: float) -> None:
        """Count an fsync."""
        self.metrics.flush_seconds.observe(seconds)

    def partition_failed(self, log: PartitionLog, error: BaseException) -> None:
        """Say that a disk failed."""
        self.metrics.partition_failures.inc()
        logger.error("partition %s is offline: %s", log.name, error)

    # Fetch

    async def fetch(
        self,
        log: PartitionLog,
        request: FetchRequest,
        read: Callable[[LogSnapshot, FetchRange], Result],
        gone: Callable[[], Awaitable[None]],
    ) -> FetchAnswer[Result]:
        """Find the range, wait for it if asked to, and ``read`` it from one snapshot in a thread.

        ``gone`` returns when the client has closed its connection; it is only asked while waiting.

        Raises:
            Problem: offset_out_of_range, overloaded.
            UnknownTopicOrPartitionError: the topic was deleted meanwhile.
            ClientGoneError: the client went away.
            StorageError: what ``read`` raises.
        """
        snapshot = log.snapshot
        if request.timestamp is not None:
            start = await call_in(self.pools.read, functools.partial(start_of, snapshot, request))
        else:
            start = start_of(snapshot, request)
        start = self._inside(log, snapshot, start, request)
        if request.wait_ms > 0 and not await self._ends_before(snapshot, request, start):
            await self._wait(log, start, request, gone)
            snapshot = log.snapshot
            start = self._inside(log, snapshot, start, request)
        return await call_in(self.pools.read, functools.partial(_read, snapshot, request, start, read))

    async def _ends_before(self, snapshot: LogSnapshot, request: FetchRequest, start: Offset) -> bool:
        """Whether the range is complete already, so that waiting brings nothing."""
        if request.until is None and request.end_offset is None:
            return False
        call = functools.partial(range_of, snapshot, request, start)
        wanted = call() if request.until is None else await call_in(self.pools.read, call)
        return wanted.end is not None

    async def _wait(
        self, log: PartitionLog, start: Offset, request: FetchRequest, gone: Callable[[], Awaitable[None]]
    ) -> None:
        # Look and register: no await between these two (invariant 7).
        if is_served(log.snapshot, start, request.min_bytes):
            return
        waiter = self.waiters.register(log.name, start, min_bytes=request.min_bytes, wait_ms=request.wait_ms)
        if waiter.done.done():
            return
        watch = asyncio.ensure_future(gone())
        try:
            await asyncio.wait((waiter.done, watch), return_when=asyncio.FIRST_COMPLETED)
        finally:
            watch.cancel()
            self.waiters.forget(waiter)
        if waiter.done.cancelled():
            raise ClientGoneError
        if waiter.done.result() is Wake.GONE:
            raise UnknownTopicOrPartitionError(f"{log.name} was deleted")

    def _inside(self, log: PartitionLog, snapshot: LogSnapshot, start: Offset, request: FetchRequest) -> Offset:
        if start < snapshot.log_start_offset and request.restart_at_earliest:
            return snapshot.log_start_offset
        self.check_offset(log, snapshot, start, snapshot.log_end_offset)
        return start

    def check_offset(self, log: PartitionLog, snapshot: LogSnapshot, offset: int, end: int) -> None:
        """Refuse an offset outside ``[log start, end]`` with all that is known about it (spec B8).

        Raises:
            Problem: 410 below the log start, 416 above ``end``.
        """
        if offset > end:
            raise self._out_of_range(log, snapshot, 416, f"offset {offset} is above {end}, the last that can be given")
        if offset < snapshot.log_start_offset:
            detail = f"offset {offset} is below the log start, {snapshot.log_start_offset}"
            raise self._out_of_range(log, snapshot, 410, detail)

    def check_readable(self, log: PartitionLog, snapshot: LogSnapshot, offset: int) -> None:
        """Refuse an offset whose record no consumer may read.

        Raises:
            Problem: 410 below the log start, 416 at or above the high watermark.
        """
        if offset >= snapshot.high_watermark:
            detail = f"offset {offset} is not below the high watermark, {snapshot.high_watermark}"
            raise self._out_of_range(log, snapshot, 416, detail)
        self.check_offset(log, snapshot, offset, offset)

    def _out_of_range(self, log: PartitionLog, snapshot: LogSnapshot, status: int, detail: str) -> Problem:
        known: dict[str, Any] = {
            "log_start_offset": snapshot.log_start_offset,
            "log_end_offset": snapshot.log_end_offset,
        }
        if status == 410:
            move = self._moves.get(log.name)
            known |= {
                "log_start_moved_ms": move.at_ms if move else None,
                "log_start_moved_by": move.by if move else None,
            }
        return Problem(status, "offset_out_of_range", detail, kafka_code=1, headers=offset_headers(snapshot), **known)

    def count_fetched(self, form: str, size_bytes: int) -> None:
        """Count an answer with records."""
        self.metrics.fetched_bytes.labels(form).inc(size_bytes)

    async def read(self, call: Callable[[], Result]) -> Result:
        """Run a reading ``call`` in a thread."""
        return await call_in(self.pools.read, call)

    # Control: one change at a time

    async def ensure_topic(self, name: str, partition_count: int, config: dict[str, object]) -> tuple[Topic, bool]:
        """Make a topic, unless the same one exists; the second value says whether it was made.

        Raises:
            TopicExistsError, InvalidTopicError, InvalidConfigError, DiskFullError
        """
        async with self._control:
            return await call_in(
                self.pools.control, functools.partial(self.manager.create_topic, name, partition_count, config)
            )

    async def alter_topic(
        self, name: str, *, config: dict[str, object | None], partition_count: int | None = None
    ) -> Topic:
        """Change settings or add partitions; every partition has the settings when this returns.

        Raises:
            UnknownTopicOrPartitionError, InvalidTopicError, InvalidConfigError, DiskFullError
        """
        async with self._control, self._held(self.topic(name)):
            alter = functools.partial(self.manager.alter_topic, name, config=config, partition_count=partition_count)
            altered = await call_in(self.pools.control, alter)
            for log in altered.partitions:
                log.update_config(altered.config)
            return altered

    async def delete_topic(self, name: str) -> None:
        """Delete a topic: appends that wait are refused, fetches that wait answer.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
        """
        async with self._control:
            topic = self.topic(name)
            async with self._held(topic):
                await call_in(self.pools.control, functools.partial(self.manager.delete_topic, name))
                for log in topic.partitions:
                    self._moves.pop(log.name, None)
                    writer = self._writers.pop(log.name, None)
                    if writer is not None:
                        writer.retire(lambda: UnknownTopicOrPartitionError(f"topic {name} was deleted"))
                self.sticky.forget(name)
                self.waiters.wake_gone([log.name for log in topic.partitions])

    @contextlib.asynccontextmanager
    async def _held(self, topic: Topic) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for log in topic.partitions:
                await stack.enter_async_context(self.writer_of(log).held())
            yield

    async def retention_plan(self, name: str) -> list[tuple[PartitionLog, list[RetentionEntry]]]:
        """What retention would do with each partition of a topic now."""
        now_ms = self.manager.retention_clock.now_ms()
        logs = self.topic(name).partitions
        return await self.read(lambda: [(log, log.retention_plan(now_ms)) for log in logs])

    async def run_retention(self, logs: Iterable[PartitionLog]) -> list[tuple[PartitionLog, DeletedSegment]]:
        """Apply retention to these partitions, one after the other; what was deleted.

        Raises:
            Problem: overloaded.
            StorageError: the first partition that cannot; those before it are done.
        """
        deleted = []
        for log in logs:
            call = functools.partial(log.delete_old_segments, self.manager.retention_clock.now_ms())
            for segment in await self.run_in_log(log, call, moved_by="retention"):
                self.metrics.deleted_segments.labels(segment.reason).inc()
                deleted.append((log, segment))
        return deleted

    async def delete_records(
        self, log: PartitionLog, offset: int | None, before_timestamp: int | None, *, dry_run: bool
    ) -> Offset:
        """Raise the log start to ``offset``, -1 for the high watermark, or to the first record at or after a time.

        Raises:
            Problem: 416 above the high watermark; overloaded.
            PolicyViolationError: the topic is only compacted.
        """
        snapshot = log.snapshot
        if before_timestamp is not None:
            found = await self.read(functools.partial(snapshot.offset_for_timestamp, before_timestamp))
            offset = snapshot.high_watermark if found is None else found.offset
        assert offset is not None
        if offset > snapshot.high_watermark:
            self.check_offset(log, snapshot, offset, snapshot.high_watermark)
        if not dry_run:
            return await self.run_in_log(log, functools.partial(log.delete_records, offset), moved_by="delete-records")
        if not log.config.deletes:
            raise PolicyViolationError(f"cleanup.policy of {log.name.topic} is {log.config.cleanup_policy}")
        return max(snapshot.log_start_offset, snapshot.high_watermark if offset == -1 else Offset(offset))

    async def run_in_log(self, log: PartitionLog, call: Callable[[], Result], *, moved_by: str | None = None) -> Result:
        """Run one of the log's writing methods in its turn; remember when it moved the log start.

        Raises:
            Problem: overloaded.
            StorageError: what ``call`` raises.
        """
        before = log.snapshot.log_start_offset
        result = await self.writer_of(log).run(call)
        if moved_by is not None and log.snapshot.log_start_offset > before:
            self._moves[log.name] = LogStartMove(self.now_ms(), moved_by)
        return result

    # The end

    def release(self) -> None:
        """Answer every fetch that waits, end every stream of records; from now on none waits."""
        self.waiters.close()
        self.released.set()

    async def close(self) -> None:
        """Finish what was taken, refuse the rest, close the logs cleanly."""
        self.release()
        async with self._control:
            await asyncio.gather(*(writer.close() for writer in self._writers.values()))
            await call_in(self.pools.control, self.manager.close)


def offset_headers(snapshot: LogSnapshot) -> dict[str, str]:
    """The headers that tell a partition's limits."""
    return {
        "Log-Start-Offset": str(snapshot.log_start_offset),
        "High-Watermark": str(snapshot.high_watermark),
        "Last-Stable-Offset": str(snapshot.last_stable_offset),
    }


def _read(
    snapshot: LogSnapshot,
    request: FetchRequest,
    start: Offset,
    read: Callable[[LogSnapshot, FetchRange], Result],
) -> FetchAnswer[Result]:
    wanted = range_of(snapshot, request, start)
    return FetchAnswer(snapshot, wanted, read(snapshot, wanted))
