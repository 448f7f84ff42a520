"""A seeded history of a data directory: every operation of the engine, with a ledger of what was promised."""

from __future__ import annotations

import random
from collections.abc import Callable

from log_model.clock import ManualClock
from log_model.errors import PartitionFailedError, StorageError
from storage.journal.journal_files import JournalLimits
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager
from tests.crash.disk_faults import Fault, Operation
from tests.crash.ledger import (
    DATA_DIR,
    JOURNAL_LIMITS,
    DirectoryCheck,
    Ledger,
    PartitionLedger,
    TopicLedger,
    TopicState,
    append_group,
    flush,
    flush_by_journal,
    open_directory,
    publish,
    require,
)
from tests.crash.simulated_disk import SimulatedDisk
from tests.model.plain_log import ClientBatch, client_batch
from tests.model.plain_transactions import PlainProducers

TOPIC_CONFIG: dict[str, object] = {
    "segment.bytes": 2000,
    "index.interval.bytes": 150,
    "segment.index.bytes": 240,
    "segment.ms": 600_000,
    "retention.bytes": 6000,
    "retention.ms": 3_600_000,
    "file.delete.delay.ms": 2000,
    "message.timestamp.after.max.ms": 2**63 - 1,
}


def new_disk(clock: ManualClock) -> SimulatedDisk:
    """A disk with an empty data directory that is there for good."""
    disk = SimulatedDisk(clock)
    disk.make_directory(DATA_DIR)
    disk.sync_directory(DATA_DIR.parent)
    disk.operations.clear()
    return disk


class Workload:
    """Does one random step after the other on a simulated disk.

    With an odd ``seed`` most steps are about the journal, so that its files are used again and again.

    ``observe`` is called before every operation of the disk. The ledger then says what a crash there may lose.
    With a ``fault`` the errors of the engine come out of ``step``; a start that fails is tried once more. If the fault
    leaves a truncation half done, ``is_half_truncated`` is set: the records may come back at each start.
    """

    def __init__(
        self,
        seed: int,
        observe: Callable[[Workload, Operation], None] | None = None,
        fault: Fault | None = None,
        journal_limits: JournalLimits = JOURNAL_LIMITS,
    ) -> None:
        self._journal_limits = journal_limits
        self.source = random.Random(seed)
        self.clock = ManualClock()
        self.ledger = Ledger()
        self._observe = observe
        self._fault = fault
        self._mark = 0
        self._is_about_journal = seed % 2 == 1
        self._topic_count = 0
        self.step_name = "start"
        self.is_half_truncated = False
        self._use(new_disk(self.clock))
        self.manager: LogManager = self._start()

    def _use(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        disk.fault = self._fault
        if self._observe is not None:
            observe = self._observe
            disk.before_operation = lambda operation: observe(self, operation)

    def step(self) -> None:
        """Do the next thing."""
        topics = [topic for topic in self.ledger.topics.values() if topic.state is TopicState.EXISTS]
        if not topics:
            self.step_name = "create topic"
            return self._create_topic()
        topic = self.source.choice(topics)
        number = self.source.randrange(len(topic.partitions))
        log, expected = self.manager.partition(topic.name, number), topic.partitions[number]
        steps, weights = zip(*self._steps(), strict=True)
        step = self.source.choices(steps, weights)[0]
        self.step_name = step.__name__.strip("_").replace("_", " ")
        return step(log, expected)

    def _steps(self) -> list[tuple[Callable[[PartitionLog, PartitionLedger], None], int]]:
        if self._is_about_journal:
            return [
                (self._flush_many, 80),
                (self._free_journal, 8),
                (self._truncate, 8),
                (self._flush, 1),
                (self._roll, 2),
                (self._delete_records, 1),
                (self._run_retention, 1),
                (self._checkpoint, 2),
                (self._close_and_open, 1),
                (self._kill_and_open, 1),
                (self._cut_power_and_open, 1),
                (self._topics_come_and_go, 4),
            ]
        return [
            (self._append, 25),
            (self._commit, 25),
            (self._append_transactions, 25),
            (self._append_beside_flush, 8),
            (self._flush, 4),
            (self._flush_many, 25),
            (self._free_journal, 3),
            (self._truncate, 3),
            (self._publish, 4),
            (self._roll, 3),
            (self._delete_records, 4),
            (self._run_retention, 6),
            (self._delete_due_files, 3),
            (self._checkpoint, 4),
            (self._close_and_open, 3),
            (self._kill_and_open, 2),
            (self._cut_power_and_open, 2),
            (self._topics_come_and_go, 3),
        ]

    # Topics

    def _create_topic(self) -> None:
        name = self._topic_name()
        policy = self.source.choice(("group", "group", "interval"))
        config = TOPIC_CONFIG | {"flush.policy": policy}
        if self.source.random() < 0.2:
            config["preallocate"] = True
        count = self.source.choice((2, 2, 3) if self._is_about_journal else (1, 1, 1, 2))
        partitions = [PartitionLedger(group_flush=policy == "group") for _ in range(count)]
        topic = TopicLedger(name, partitions)
        self.ledger.topics[topic.name] = topic
        try:
            made, _ = self.manager.create_topic(topic.name, count, config)
        except StorageError:
            require(topic.name not in self.manager.topics, "a topic that could not be made is there")
            raise
        topic.state = TopicState.EXISTS
        topic.topic_id = made.topic_id

    def _topic_name(self) -> str:
        """A new name, or one that is free again, after a deletion or a creation that failed."""
        free = sorted(name for name in self.ledger.topics if name not in self.manager.topics)
        if free and self.source.random() < 0.5:
            return self.source.choice(free)
        self._topic_count += 1
        return f"t{self._topic_count}"

    def _topics_come_and_go(self, log: PartitionLog, _expected: PartitionLedger) -> None:
        topic = self.ledger.topics[log.name.topic]
        if self.source.random() < 0.5:
            topic.state = TopicState.DELETING
            self.manager.delete_topic(topic.name)
            topic.state = TopicState.DELETED
        self._create_topic()

    # Records

    def _batch(self) -> ClientBatch:
        self._mark += 1
        count = self.source.choice((1, 1, 2, 3, 8))
        value_bytes = self.source.choice((0, 20, 60, 60, 300 if count < 4 else 20))
        timestamps = [self.clock.now_ms() - self.source.randint(0, 5000) for _ in range(count)]
        if self.source.random() < 0.1:
            timestamps = [-1] * count
        return client_batch(timestamps, value_bytes, self._mark)

    def _append(self, log: PartitionLog, expected: PartitionLedger) -> None:
        self.clock.advance(self.source.choice((1, 100, 2000)))
        group = [
            [self._batch() for _ in range(self.source.choice((1, 1, 2)))] for _ in range(self.source.choice((1, 1, 3)))
        ]
        append_group(log, expected, group, self.clock)
        if not expected.group_flush:
            publish(log, expected)

    def _commit(self, log: PartitionLog, expected: PartitionLedger) -> None:
        """What the service does for ``acks=all``."""
        self._append(log, expected)
        flush(log, expected)
        publish(log, expected)

    def _append_transactions(self, log: PartitionLog, expected: PartitionLedger) -> None:
        """Batches of transactions and their markers, several of one producer in one group as well."""
        self.clock.advance(self.source.choice((1, 100)))
        producers = PlainProducers(expected.log)
        group: list[list[ClientBatch]] = []
        for _ in range(self.source.choice((1, 2, 4))):
            kind = self.source.random()
            if kind < 0.45:
                group.append([producers.random_marker(self.source, self.clock.now_ms())])
            elif kind < 0.9:
                producer_id = self.source.choice((1, 2, 3))
                count = self.source.choice((1, 1, 2))
                group.append([self._transactional(producers, producer_id) for _ in range(count)])
            else:
                group.append([self._batch()])
        append_group(log, expected, group, self.clock)
        if self.source.random() < 0.5:
            flush(log, expected)
        publish(log, expected)

    def _transactional(self, producers: PlainProducers, producer_id: int) -> ClientBatch:
        self._mark += 1
        timestamps = [self.clock.now_ms() - self.source.randint(0, 5000) for _ in range(self.source.choice((1, 3)))]
        return producers.batch(producer_id, timestamps, self.source.choice((0, 60)), self._mark)

    def _append_beside_flush(self, log: PartitionLog, expected: PartitionLedger) -> None:
        """The flush of what came before runs, and is published, in the midst of an append (invariant 2)."""
        before, at = self.disk.before_operation, self.source.randrange(8)

        def flush_once(operation: Operation) -> None:
            nonlocal at
            at -= 1
            if at == -1:
                flush(log, expected)
                publish(log, expected)
            if before is not None:
                before(operation)

        disk = self.disk
        disk.before_operation = flush_once
        try:
            self._append(log, expected)
        finally:
            disk.before_operation = before

    def _flush(self, log: PartitionLog, expected: PartitionLedger) -> None:
        flush(log, expected)

    def _flush_many(self, log: PartitionLog, expected: PartitionLedger) -> None:
        """Appends to some partitions, which one entry of the journal makes durable."""
        logs = [(log, expected)]
        for topic in self.ledger.topics.values():
            if topic.state is TopicState.EXISTS:
                logs += zip(self.manager.topic(topic.name).partitions, topic.partitions, strict=True)
        some = self.source.sample(logs[1:], k=self.source.randint(1, len(logs) - 1))
        for each in some:
            if self.source.random() < 0.7 and each[0].offline_reason is None:
                self._append_one(*each)
        flush_by_journal(self.manager.journal, some)
        for each in some:
            if each[0].offline_reason is None:
                publish(*each)
        # A service frees as soon as a file is full, but other flushes go on meanwhile.
        if self.source.random() < 0.3 and self.manager.journal.needs_freeing:
            self.manager.journal.free()
        if self._mark % 2:
            self.manager.journal.begin_again()

    def _append_one(self, log: PartitionLog, expected: PartitionLedger) -> None:
        self.clock.advance(self.source.choice((1, 100, 2000)))
        append_group(log, expected, [[self._batch()]], self.clock)

    def _free_journal(self, _log: PartitionLog, _expected: PartitionLedger) -> None:
        self.manager.journal.free()

    def _truncate(self, log: PartitionLog, expected: PartitionLedger) -> None:
        """What a follower does: forget the end of the log, which may be durable by the journal alone."""
        if log.offline_reason is not None:
            return
        if self.source.random() < 0.5:
            for _ in range(2):
                self._append_one(log, expected)
            flush_by_journal(self.manager.journal, [(log, expected)])
        start = log.snapshot.log_start_offset
        ends = [start, *(batch.next_offset for batch in expected.log.batches if batch.next_offset > start)]
        target = self.source.choice(ends[-3:] if self.source.random() < 0.5 else ends)
        # A crash on the way may leave any end from there to the present one.
        for end in ("durable_end", "seen_end", "written_end"):
            setattr(expected, end, min(getattr(expected, end), target))
        try:
            log.truncate_to(target)
        except PartitionFailedError:
            self.is_half_truncated = True
            raise
        expected.log.truncate_to(target)
        publish(log, expected)

    def _publish(self, log: PartitionLog, expected: PartitionLedger) -> None:
        publish(log, expected)

    def _roll(self, log: PartitionLog, expected: PartitionLedger) -> None:
        log.roll()
        publish(log, expected)

    # Deleting

    def _delete_records(self, log: PartitionLog, expected: PartitionLedger) -> None:
        snapshot = log.snapshot
        target = self.source.randint(snapshot.log_start_offset, snapshot.high_watermark)
        expected.start_asked = max(expected.start_asked, target)
        expected.start_answered = max(expected.start_answered, log.delete_records(target))
        publish(log, expected)
        expected.log.start_offset = log.snapshot.log_start_offset

    def _run_retention(self, log: PartitionLog, expected: PartitionLedger) -> None:
        self.clock.advance(self.source.choice((0, 0, 60_000, 700_000, 4_000_000)))
        asked = expected.start_asked
        expected.start_asked = max(asked, log.snapshot.high_watermark)
        log.delete_old_segments(self.clock.now_ms())
        publish(log, expected)
        expected.log.start_offset = log.snapshot.log_start_offset
        expected.start_asked = max(asked, expected.log.start_offset)

    def _delete_due_files(self, _log: PartitionLog, _expected: PartitionLedger) -> None:
        self.clock.advance(self.source.choice((0, 3000)))
        self.manager.delete_due_files()

    def _checkpoint(self, _log: PartitionLog, _expected: PartitionLedger) -> None:
        self.manager.checkpoint()
        self.manager.journal.begin_again()
        if self.source.random() < 0.5:
            self.manager.checkpoint_high_watermarks()

    # Restarts

    def _close_and_open(self, _log: PartitionLog, _expected: PartitionLedger) -> None:
        if self.manager.close():
            for topic in self.ledger.topics.values():
                for partition in topic.partitions:
                    partition.durable_end = partition.written_end
        self._use(self.disk.killed())
        self._open(killed=True)

    def _kill_and_open(self, _log: PartitionLog, _expected: PartitionLedger) -> None:
        self._use(self.disk.killed())
        self._open(killed=True)

    def _cut_power_and_open(self, _log: PartitionLog, _expected: PartitionLedger) -> None:
        *_, image = self.disk.images(self.source.randrange(1 << 30), 4)
        for topic in self.ledger.topics.values():
            for partition in topic.partitions:
                partition.written_end = partition.durable_end
                partition.seen_end = min(partition.seen_end, partition.durable_end)
        self._use(image.disk)
        self._open(killed=False)

    def _start(self) -> LogManager:
        try:
            return open_directory(self.disk, self.clock, self._journal_limits)
        except OSError:
            if self._fault is None or not self._fault.hits:
                raise
            self._use(self.disk.killed())
            return open_directory(self.disk, self.clock, self._journal_limits)

    def _open(self, *, killed: bool) -> None:
        self.manager = self._start()
        DirectoryCheck(self.ledger, self.source, killed=killed).run(self.manager)
        self.ledger.restart(self.manager)
