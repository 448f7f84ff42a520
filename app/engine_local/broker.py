"""The one door from HTTP to the logs: resolves names, writes through the writers, reads from snapshots, waits.

Thread: the event loop. Whatever may touch the disk goes to one of four pools, so that a slow fsync holds up
neither reads nor other partitions' writes, and nothing holds up the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from app.engine_local.partitions.fetch_waiters import FetchWaiters
from app.engine_local.partitions.flush_pace import FlushPace
from app.engine_local.partitions.partition_room import PartitionRoom
from app.engine_local.partitions.partition_writer import MailboxLimits, PartitionWriter
from app.engine_local.partitions.pending_append import PendingAppend
from app.engine_local.partitions.produce_waiters import Outcome, ProduceWaiters, timed_out
from app.engine_local.partitions.produce_waiters import ProduceOptions as ProduceOptions
from app.engine_local.partitions.producer_turns import ProducerTurns
from app.engine_local.partitions.topic_ids import TopicIds
from app.engine_local.partitions.unanswered import count_when_written
from app.engine_local.transactions.coordinator import TransactionCoordinator
from app.engine_local.transactions.limits import TransactionLimits
from app.engine_local.transactions.producer_owners import ProducerOwners
from app.event_loop.piecewise import PIECE_COUNT, all_in_turns, pieces
from app.event_loop.pools import INLINE_BYTES_MAX, Pools, call_in
from app.fetch.fetch_sessions import FetchSessions
from app.fetch.fetching import Fetching, LogStartMoves
from app.http.bodies.byte_budget import ByteBudget
from app.load_jobs.registry import LoadJobs
from app.load_jobs.store import JobLimits
from app.metrics.metrics import Metrics
from app.problems import request_context
from app.produce.partitioning import StickyPartitioner
from app.quotas.control import QuotaControl
from app.quotas.limits import QuotaKind
from app.quotas.store import QuotaStore
from app.quotas.throttling import Client, Quotas
from app.record_json.record_batches import needs_codec
from app.record_json.work_rooms import WorkRooms
from app.settings import Settings
from app.start_positions.registry import PositionLimits, StartPositions
from storage.batches.batch_validation import ValidBatch, validate_batches
from storage.batches.message_conversion import convert_message_set
from storage.disk.file_names import PartitionName
from storage.errors import InvalidTxnStateError, PolicyViolationError, StorageError, UnknownTopicOrPartitionError
from storage.log.partition_log import AppendRequest, AppendResult, DeletedSegment, PartitionLog
from storage.log.retention import RetentionEntry
from storage.manager.log_manager import LogManager
from storage.manager.topic_registry import Topic, refuse_internal
from storage.offsets import Offset

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

NODE_ID = 1


class Broker:
    """All partitions of one data directory, for HTTP."""

    def __init__(self, manager: LogManager, settings: Settings, metrics: Metrics, pools: Pools) -> None:
        self.manager = manager
        self.protected_clock = manager.protected_clock
        self.settings = settings
        self.metrics = metrics
        self.pools = pools
        self.quotas = Quotas(manager.clock, on_throttled=metrics.count_throttled)
        self.quota_control = QuotaControl(self.quotas, QuotaStore(manager.file_system, manager.own_directory), pools)
        self.waiters = FetchWaiters(count_max=settings.waiter_count_max)
        self.produce_waiters = ProduceWaiters(count_max=settings.waiter_count_max, refusal=self._refusal_of)
        self.moves = LogStartMoves()
        self.fetching = Fetching(self.waiters, self.moves, pools, metrics, self.is_there)
        self.topic_ids = TopicIds(manager.topics)
        self.fetch_sessions = FetchSessions(
            count_max=settings.fetch_session_count_max,
            partition_count_max=settings.fetch_session_partition_count_max,
            idle_ms=settings.fetch_session_idle_ms,
            elapsed_ms=manager.clock.elapsed_ms,
        )
        self.sticky = StickyPartitioner()
        self.turns = ProducerTurns()
        self.released = asyncio.Event()
        self.is_released = False
        self.body_budget = ByteBudget(settings.request_bodies_bytes_max, "bodies of requests")
        self.answer_budget = ByteBudget(settings.decoded_answers_bytes_max, "long answers")
        self.rooms = WorkRooms(settings.decoding_bytes_max, self.answer_budget)
        self._limits = MailboxLimits.of(settings)
        self._flush_pace = FlushPace(settings.inline_append_bytes_max)
        self._writers: dict[PartitionName, PartitionWriter] = {}
        self.room = PartitionRoom(manager, settings)
        self.producer_owners = ProducerOwners(manager.file_system, manager.own_directory, manager.producer_ids)
        self._control = asyncio.Lock()
        self.transactions = TransactionCoordinator(
            self,
            TransactionLimits(
                timeout_ms_max=settings.transaction_max_timeout_ms,
                expiration_ms=settings.transactional_id_expiration_ms,
                id_count_max=settings.transactional_id_count_max,
                partition_count_max=settings.transaction_partition_count_max,
            ),
        )
        self.load_jobs = LoadJobs(
            self,
            self.transactions,
            JobLimits(
                timeout_ms_max=settings.load_job_max_timeout_ms,
                expiration_ms=settings.load_job_expiration_ms,
                count_max=settings.load_job_count_max,
                attempt_count_max=settings.load_job_attempt_count_max,
                lists_bytes_max=settings.load_job_lists_bytes_max,
            ),
        )
        self.start_positions = StartPositions(
            self,
            PositionLimits(
                count_max=settings.start_position_count_max, expiration_ms=settings.start_position_expiration_ms
            ),
        )

    # Names

    def topic(self, name: str) -> Topic:
        """The topic of this name.

        Raises:
            UnknownTopicOrPartitionError: there is none.
        """
        return self.manager.topic(name)

    def find_topic_id(self, name: str) -> str | None:
        """The id of the topic of this name, another one after it was deleted and made anew; ``None``: there is none."""
        topic = self.manager.topics.get(name)
        return None if topic is None else topic.topic_id

    def partition(self, topic: str, number: int) -> PartitionLog:
        """The partition of this name.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic or no such partition of it.
        """
        return self.manager.partition(topic, number)

    def is_there(self, log: PartitionLog) -> bool:
        """Whether the log is still that of its partition; not once its topic is deleted, and made anew or not."""
        topic = self.manager.topics.get(log.name.topic)
        return topic is not None and log in topic.partitions[log.name.partition : log.name.partition + 1]

    def partitions(self) -> Iterator[PartitionLog]:
        """Every partition of every topic."""
        for topic in tuple(self.manager.topics.values()):
            yield from topic.partitions

    def offline_count(self) -> int:
        """Partitions that take no appends."""
        return sum(1 for log in self.partitions() if log.offline_reason is not None)

    def size_bytes(self) -> int:
        """Bytes of record batches in all logs."""
        return sum(log.snapshot.size_bytes for log in self.partitions())

    def mailbox_count(self) -> int:
        """Requests that wait to be written."""
        return sum(writer.mailbox_count for writer in self.writers())

    def mailbox_bytes(self) -> int:
        """Bytes that wait to be written."""
        return sum(writer.mailbox_bytes for writer in self.writers())

    def now_ms(self) -> int:
        """Wall time, as the logs see it."""
        return self.manager.clock.now_ms()

    # Produce

    async def validate(self, log: PartitionLog, body: bytes | bytearray | memoryview) -> list[ValidBatch]:
        """Check a body of record batches, in a thread when it is large or something is to be (de)compressed.

        Raises:
            RefusedError: as ``validate_batches``.
        """
        check = functools.partial(validate_batches, body, log.config, self.now_ms())
        is_quick = len(body) <= INLINE_BYTES_MAX and not needs_codec(body, log.config)
        return check() if is_quick else await call_in(self.pools.read, check)

    async def convert(self, log: PartitionLog, body: bytes | bytearray) -> list[ValidBatch]:
        """Check a body of messages of magic 0 or 1 and make batches of them, in a thread.

        Raises:
            RefusedError: as ``convert_message_set``.
        """
        return await call_in(self.pools.read, functools.partial(convert_message_set, body, log.config, self.now_ms()))

    def submit(
        self, log: PartitionLog, batches: Sequence[ValidBatch], options: ProduceOptions, *, enlisted: bool = False
    ) -> PendingAppend:
        """Put batches into their partition's mailbox; wait for the outcome with ``outcome_of``.

        Transactional ones must be ``enlisted`` with the coordinator: see ``app.produce.enlisting``.

        Raises:
            Problem: overloaded.
            NotEnoughReplicasError: ``acks=all``, and too few copies are in sync (spec A5).
            InvalidTxnStateError: a batch is transactional and nobody could end its transaction.
            StorageError: the partition is gone or the service is stopping, or the topic is internal.
        """
        refuse_internal(log.name.topic)
        if not enlisted and any(batch.header.is_transactional for batch in batches):
            raise InvalidTxnStateError("the batch is transactional, but its producer has no transaction open")
        request = AppendRequest(
            tuple(batches), None if options.expected_offset is None else Offset(options.expected_offset)
        )
        if options.acks == "all":
            log.replicas.check_before_append()
        size_bytes = sum(batch.size_bytes for batch in batches)
        pending = self.writer_of(log).append(
            request, size_bytes=size_bytes, wants_fsync=options.acks != "0" and options.waits_for_fsync(log)
        )
        self.load_jobs.note_append(batches, pending)
        # Also what the log refuses later counts: it came over the wire (spec A3).
        request_context.throttle(self.quotas.charge(QuotaKind.PRODUCE, Client.of_request(), size_bytes))
        if options.acks == "0":
            count_when_written(self, pending, is_dropped=True)
        return pending

    async def outcome_of(self, pending: PendingAppend, options: ProduceOptions) -> AppendResult:
        """Wait as long as the options say: for the file, for the fsync, for all copies.

        Raises:
            Problem: request_timed_out; the append goes on.
            StorageError: what the log answered.
        """
        ends_at = asyncio.get_running_loop().time() + options.timeout_ms / 1000
        try:
            async with asyncio.timeout_at(ends_at):
                result = await (pending.fsynced if pending.wants_fsync else pending.written)
        except TimeoutError:
            count_when_written(self, pending)
            raise timed_out(options, pending.result) from None
        self.count_produced(result, pending.size_bytes)
        if options.lacks_copies(pending.log, result):
            outcomes: list[Outcome] = [result]
            await self._wait_for_copies((pending,), outcomes, options, ends_at)
            if isinstance(outcomes[0], Exception):
                raise outcomes[0]
        return result

    async def outcomes_of(self, pendings: Sequence[PendingAppend], options: ProduceOptions) -> list[Outcome]:
        """Wait for all of these as ``outcome_of`` does, together no longer than the timeout; one outcome each.

        Raises:
            Problem: overloaded, too many requests wait for copies; the appends go on.
        """
        ends_at = asyncio.get_running_loop().time() + options.timeout_ms / 1000
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(ends_at):
                for pending in pendings:
                    # One after the other: they go on together whoever is waited for.
                    with contextlib.suppress(StorageError):
                        await (pending.fsynced if pending.wants_fsync else pending.written)
        outcomes = [self._answered(pending, options) for pending in pendings]
        for pending, outcome in zip(pendings, outcomes, strict=True):
            if not isinstance(outcome, Exception):
                self.count_produced(outcome, pending.size_bytes)
        await self._wait_for_copies(pendings, outcomes, options, ends_at)
        return outcomes

    def _answered(self, pending: PendingAppend, options: ProduceOptions) -> Outcome:
        """What the writer has answered by now."""
        future = pending.fsynced if pending.wants_fsync else pending.written
        if not future.done() or future.cancelled():
            count_when_written(self, pending)
            return timed_out(options, pending.result)
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, StorageError):
            return error
        raise error

    async def _wait_for_copies(
        self,
        pendings: Sequence[PendingAppend],
        outcomes: list[Outcome],
        options: ProduceOptions,
        ends_at: float,
    ) -> None:
        """Replace the outcomes of appends that other copies do not have yet (spec A5, A6)."""
        waiting: dict[int, tuple[PartitionLog, AppendResult]] = {}
        for place, (pending, outcome) in enumerate(zip(pendings, outcomes, strict=True)):
            if not isinstance(outcome, Exception) and options.lacks_copies(pending.log, outcome):
                waiting[place] = (pending.log, outcome)
        if waiting:
            wait_ms = 1000 * (ends_at - asyncio.get_running_loop().time())
            waited = await self.produce_waiters.wait(tuple(waiting.values()), options, wait_ms)
            for place, outcome in zip(waiting, waited, strict=True):
                outcomes[place] = outcome

    def _refusal_of(self, log: PartitionLog) -> StorageError | None:
        """Why appends to ``log`` come to nothing more: it was deleted."""
        topic = self.manager.topics.get(log.name.topic)
        if topic is None or log not in topic.partitions:
            return UnknownTopicOrPartitionError(f"topic {log.name.topic!r} was deleted")
        return None

    def count_produced(self, result: AppendResult, size_bytes: int) -> None:
        """Count what was appended; a duplicate was appended before."""
        if not result.duplicate:
            self.metrics.produced_records.inc(result.record_count)
            self.metrics.produced_bytes.inc(size_bytes)

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
                pace=self._flush_pace,
            )
            self._writers[log.name] = writer
        return writer

    def writers(self) -> list[PartitionWriter]:
        """The writers there are: of partitions that something was asked of since the start."""
        return list(self._writers.values())

    # What writers tell

    def published(self, log: PartitionLog) -> None:
        """Wake whom the new snapshot serves, once the writer has answered its own."""
        name = log.name
        if name in self.waiters.watched:
            self.waiters.wake(name)
        if name in self.produce_waiters.watched:
            self.produce_waiters.look(name)

    def group_appended(self, request_count: int, seconds: float) -> None:
        """Count a written group."""
        self.metrics.group_requests.observe(request_count)
        self.metrics.append_seconds.observe(seconds)

    def flushed(self, seconds: float) -> None:
        """Count an fsync."""
        self.metrics.flush_seconds.observe(seconds)

    def partition_failed(self, log: PartitionLog, error: BaseException) -> None:
        """Say that a disk failed; who waits for more answers with what there is (spec D6 c)."""
        self.metrics.partition_failures.inc()
        logger.error("partition %s is offline: %s", log.name, error)
        self.waiters.wake_failed(log.name)
        self.produce_waiters.look(log.name)

    # Reading

    async def read(self, call: Callable[[], Result]) -> Result:
        """Run a reading ``call`` in a thread."""
        return await call_in(self.pools.read, call)

    # Control: one change at a time

    async def ensure_topic(self, name: str, partition_count: int, config: dict[str, object]) -> tuple[Topic, bool]:
        """Make a topic, unless the same one exists; the second value says whether it was made.

        Raises:
            TopicExistsError, InvalidTopicError, InvalidConfigError, DiskFullError
            PolicyViolationError, TooManyOpenFilesError: there is no room for its partitions.
        """
        async with self._control:
            return await call_in(
                self.pools.control, functools.partial(self.room.create_topic, name, partition_count, config)
            )

    async def ensure_internal_topic(
        self, name: str, partition_count: int, config: Mapping[str, object]
    ) -> tuple[PartitionLog, ...]:
        """The partitions of an internal topic, made when there is none.

        Raises:
            TopicExistsError, DiskFullError
        """
        async with self._control:
            ensure = functools.partial(self.manager.ensure_internal_topic, name, partition_count, config)
            return (await call_in(self.pools.control, ensure)).partitions

    async def allocate_producer_id(self, principal: str | None = None) -> int:
        """A producer id that no producer had before, of ``principal`` if given. Durable: it is never given again.

        Raises:
            CorruptionError, DiskFullError
        """
        return await call_in(self.pools.control, functools.partial(self.producer_owners.allocate, principal))

    async def alter_topic(
        self, name: str, *, config: dict[str, object | None], partition_count: int | None = None
    ) -> Topic:
        """Change settings or add partitions; every partition has the settings when this returns.

        Raises:
            UnknownTopicOrPartitionError, InvalidTopicError, InvalidConfigError, DiskFullError
        """
        async with self._control, self._held(self.topic(name)):
            alter = functools.partial(self.room.alter_topic, name, config=config, partition_count=partition_count)
            altered = await call_in(self.pools.control, alter)
            async for logs in pieces(altered.partitions):
                for log in logs:
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
                async for logs in pieces(topic.partitions):
                    for log in logs:
                        self.moves.forget(log.name)
                        writer = self._writers.pop(log.name, None)
                        if writer is not None:
                            writer.retire(lambda: UnknownTopicOrPartitionError(f"topic {name} was deleted"))
                    self.waiters.wake_gone([log.name for log in logs])
                    for log in logs:
                        self.produce_waiters.look(log.name)
                self.sticky.forget(name)
                self.transactions.hurry()

    @contextlib.asynccontextmanager
    async def _held(self, topic: Topic) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for place, log in enumerate(topic.partitions):
                if place % PIECE_COUNT == PIECE_COUNT - 1:
                    stack.push_async_callback(asyncio.sleep, 0)
                await stack.enter_async_context(self.writer_of(log).held())
            yield

    async def retention_plan(self, name: str) -> list[tuple[PartitionLog, list[RetentionEntry]]]:
        """What retention would do with each partition of a topic now."""
        now_ms = self.protected_clock.now_ms()
        logs = self.topic(name).partitions
        return await self.read(lambda: [(log, log.retention_plan(now_ms)) for log in logs])

    def find_old(self, logs: Iterable[PartitionLog]) -> list[PartitionLog]:
        """Those that retention may have something to delete from; one that cannot tell is asked again in its turn.

        Thread: any but the loop's.
        """
        now_ms = self.protected_clock.now_ms()
        found = []
        for log in logs:
            try:
                if log.has_old_segments(now_ms):
                    found.append(log)
            except (OSError, StorageError):
                found.append(log)
        return found

    async def run_retention(self, logs: Iterable[PartitionLog]) -> list[tuple[PartitionLog, DeletedSegment]]:
        """Apply retention to these partitions, one after the other; what was deleted.

        Raises:
            Problem: overloaded.
            StorageError: the first partition that cannot; those before it are done.
        """
        deleted = []
        for log in logs:
            call = functools.partial(log.delete_old_segments, self.protected_clock.now_ms())
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
            InvalidTopicError: the topic is internal.
        """
        refuse_internal(log.name.topic)
        snapshot = log.snapshot
        if before_timestamp is not None:
            found = await self.read(functools.partial(snapshot.offset_for_timestamp, before_timestamp))
            offset = snapshot.high_watermark if found is None else found.offset
        assert offset is not None
        if offset > snapshot.high_watermark:
            self.fetching.check_offset(log, snapshot, offset, snapshot.high_watermark)
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
            self.moves.note(log.name, self.now_ms(), moved_by)
        return result

    # The end

    def release(self) -> None:
        """Answer every fetch that waits, end every stream of records; from now on none waits."""
        self.is_released = True
        self.waiters.close()
        self.produce_waiters.close()
        self.released.set()

    async def close(self) -> None:
        """Finish what was taken, refuse the rest, close the logs cleanly."""
        self.release()
        self.load_jobs.stop()
        await self.transactions.close()
        await self.load_jobs.close()
        await self.start_positions.close()
        async with self._control:
            await all_in_turns(writer.close() for writer in self.writers())
            await call_in(self.pools.control, self.manager.close)
