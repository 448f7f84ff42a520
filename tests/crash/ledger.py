"""What a data directory was asked and what it answered, and the check of a recovered directory against that."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from log_model.batches.batch_validation import validate_batches
from log_model.clock import Clock
from log_model.errors import DiskFailedError, DiskFullError, PartitionFailedError, PartitionOfflineError, StorageError
from log_model.offsets import Offset
from log_model.reads import FetchData, Isolation
from log_model.transactions import NOTHING_UNSTABLE
from rollway.records.compiled import load
from storage.disk.file_system import FileSystem
from storage.journal.entries import BLOCK_BYTES
from storage.journal.journal import Journal
from storage.journal.journal_files import JournalLimits
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import AppendRequest, AppendResult, PartitionLog
from storage.manager.log_manager import LogManager
from tests.model.plain_log import ClientBatch, PlainLog, client_batch
from tests.model.plain_transactions import (
    aborted_entries,
    committed_offsets,
    kept_by_a_consumer,
    last_stable_offset,
)

plain_append: Any = load("storage.log.append_c")

BALLAST_BYTES = 512
DATA_DIR = Path("/data")
EVERYTHING = 1 << 30
JOURNAL_LIMITS = JournalLimits(file_count_max=3, file_bytes=3 * BLOCK_BYTES, step_bytes=BLOCK_BYTES)
"""So small that files of the journal are used again after a few entries."""
PROBE = client_batch((1_700_000_000_000,), 40, mark=999_999)


class ViolationError(AssertionError):
    """The engine broke a promise."""


class TopicState(Enum):
    """How far a topic's life was answered: at a crash in between both sides are allowed."""

    CREATING = "creating"
    EXISTS = "exists"
    DELETING = "deleting"
    DELETED = "deleted"


@dataclass
class PartitionLedger:
    """One partition: the log as it should be, and how much of it was promised.

    ``log`` has everything handed to the engine, the group in flight included. Below ``written_end`` the append
    has returned, below ``durable_end`` a flush; consumers may have seen what is below ``seen_end``. The log start
    was answered to be ``start_answered``, and ``start_asked`` is the highest it could be.
    """

    log: PlainLog = field(default_factory=PlainLog)
    written_end: int = 0
    durable_end: int = 0
    seen_end: int = 0
    start_answered: int = 0
    start_asked: int = 0
    group_flush: bool = True

    def copy(self) -> PartitionLedger:
        return PartitionLedger(
            self.log.copy(),
            self.written_end,
            self.durable_end,
            self.seen_end,
            self.start_answered,
            self.start_asked,
            self.group_flush,
        )

    def restart(self, snapshot: LogSnapshot) -> None:
        """Go on from a recovered log: all of it is durable and may have been seen."""
        self.log.truncate_to(snapshot.log_end_offset)
        self.log.end_offset = snapshot.log_end_offset
        self.log.start_offset = snapshot.log_start_offset
        self.written_end = self.durable_end = snapshot.log_end_offset
        self.seen_end = snapshot.high_watermark
        self.start_answered = self.start_asked = snapshot.log_start_offset


@dataclass
class TopicLedger:
    """One topic and its partitions."""

    name: str
    partitions: list[PartitionLedger]
    state: TopicState = TopicState.CREATING
    topic_id: str | None = None

    def copy(self) -> TopicLedger:
        return TopicLedger(self.name, [entry.copy() for entry in self.partitions], self.state, self.topic_id)


class Ledger:
    """All topics a directory was ever asked to hold."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicLedger] = {}

    def copy(self) -> Ledger:
        twin = Ledger()
        twin.topics = {name: topic.copy() for name, topic in self.topics.items()}
        return twin

    def restart(self, manager: LogManager) -> None:
        """Go on from a recovered directory."""
        for topic in self.topics.values():
            if topic.name not in manager.topics:
                topic.state = TopicState.DELETED
                continue
            topic.state = TopicState.EXISTS
            topic.topic_id = manager.topic(topic.name).topic_id
            for number, partition in enumerate(topic.partitions):
                partition.restart(manager.partition(topic.name, number).snapshot)


def open_directory(file_system: FileSystem, clock: Clock, journal_limits: JournalLimits = JOURNAL_LIMITS) -> LogManager:
    return LogManager.open(
        DATA_DIR,
        file_system=file_system,
        clock=clock,
        ballast_bytes=BALLAST_BYTES,
        journal_limits=journal_limits,
    )


def require(condition: bool, what: str) -> None:
    if not condition:
        raise ViolationError(what)


def content_of(fetched: FetchData) -> bytes:
    return b"".join(piece.read() for piece in fetched.slices)


class DirectoryCheck:
    """Holds a recovered directory against its ledger.

    ``killed`` says that only the process died: then everything written must be there.
    """

    def __init__(self, ledger: Ledger, source: random.Random, *, killed: bool) -> None:
        self._ledger = ledger
        self._source = source
        self._killed = killed

    def run(self, manager: LogManager) -> None:
        """Check every topic.

        Raises:
            ViolationError: a promise is broken.
        """
        for topic in self._ledger.topics.values():
            exists = topic.name in manager.topics
            require(exists or topic.state is not TopicState.EXISTS, f"topic {topic.name} is lost")
            require(not exists or topic.state is not TopicState.DELETED, f"topic {topic.name} is back")
            if exists:
                self._check_topic(manager, topic)
        unknown = set(manager.topics) - set(self._ledger.topics)
        require(not unknown, f"topics {unknown} were never made")

    def _check_topic(self, manager: LogManager, topic: TopicLedger) -> None:
        found = manager.topic(topic.name)
        require(len(found.partitions) == len(topic.partitions), f"{topic.name} has {len(found.partitions)} partitions")
        require(topic.topic_id in (None, found.topic_id), f"{topic.name} has another topic id")
        for number, partition in enumerate(topic.partitions):
            check = PartitionCheck(partition, found.partitions[number], self._source, killed=self._killed)
            try:
                check.run()
            except ViolationError as violation:
                raise ViolationError(f"{topic.name}-{number}: {violation}") from violation
            except StorageError as error:
                raise ViolationError(f"{topic.name}-{number}: {type(error).__name__}: {error}") from error


class PartitionCheck:
    """Holds one recovered partition against its ledger."""

    def __init__(self, expected: PartitionLedger, found: PartitionLog, source: random.Random, *, killed: bool) -> None:
        self._expected = expected
        self._found = found
        self._source = source
        self._killed = killed

    def run(self) -> None:
        """Ends, content, lookups.

        Raises:
            ViolationError: a promise is broken.
        """
        require(self._found.offline_reason is None, f"offline: {self._found.offline_reason}")
        snapshot = self._found.snapshot
        self._check_ends(snapshot)
        if self._has_begun_again(snapshot):
            self._expected.log.start_again_at(snapshot.log_start_offset)
        self._check_content(snapshot)
        self._check_lookups(snapshot)
        self._check_transactions(snapshot)

    def _check_transactions(self, snapshot: LogSnapshot) -> None:
        """The committed view: what a consumer keeps, from any offset on, is what was committed."""
        log, start, end = self._expected.log, snapshot.log_start_offset, snapshot.last_stable_offset
        log.truncate_to(snapshot.log_end_offset)
        expected_end = last_stable_offset(log, snapshot.high_watermark)
        require(end == expected_end, f"last stable offset {end}, not {expected_end}")
        for offset, max_bytes in ((start, EVERYTHING), (self._source.randint(start, end), 600)):
            fetched = snapshot.read(Offset(offset), max_bytes, isolation=Isolation.LAST_STABLE)
            require(fetched.next_offset <= max(end, offset), f"a committed read went on to {fetched.next_offset}")
            aborted = fetched.aborted or ()
            kept = kept_by_a_consumer(content_of(fetched), aborted, offset)
            expected = committed_offsets(log, offset, fetched.next_offset)
            require(kept == expected, f"from {offset} on {kept} is committed, not {expected}")
            entries = [entry for entry in aborted_entries(log) if entry[2] >= offset and entry[1] < fetched.next_offset]
            require(not fetched.slices or list(map(tuple, aborted)) == entries, f"{aborted} was aborted, not {entries}")

    def _has_begun_again(self, snapshot: LogSnapshot) -> bool:
        """Whether the disk had a log start, but not the bytes up to it: they are gone with the transactions in them.

        A transaction that was open there is forgotten, as by Kafka's ``LogLoader`` (spec E20). If its bytes were
        durable, or if the log still knows it, it stays open.
        """
        start, end = snapshot.log_start_offset, snapshot.log_end_offset
        were_durable = self._killed or self._expected.durable_end >= start
        return start == end and not were_durable and self._found.writer.written.unstable is NOTHING_UNSTABLE

    def _check_ends(self, snapshot: LogSnapshot) -> None:
        expected = self._expected
        start, end = snapshot.log_start_offset, snapshot.log_end_offset
        require(end <= max(expected.log.end_offset, start), f"log end {end}, but {expected.log.end_offset} was written")
        require(end >= expected.durable_end, f"log end {end}, but {expected.durable_end} was durable")
        if self._killed:
            require(end >= expected.written_end, f"log end {end}, but {expected.written_end} was written")
        if expected.group_flush or self._killed:
            require(end >= expected.seen_end, f"log end {end}, but {expected.seen_end} was seen")
            high_watermark = snapshot.high_watermark
            require(high_watermark >= expected.seen_end, f"high watermark {high_watermark} below {expected.seen_end}")
        require(start >= expected.start_answered, f"log start {start}, but {expected.start_answered} was answered")
        require(start <= expected.start_asked, f"log start {start}, but only {expected.start_asked} was asked")

    def _check_content(self, snapshot: LogSnapshot) -> None:
        start, end = snapshot.log_start_offset, snapshot.log_end_offset
        fetched = snapshot.read(start, EVERYTHING, isolation=Isolation.LOG_END)
        batches = self._expected.log.batches_from(start, end)
        require(not batches or batches[-1].next_offset == end, f"log end {end} lies inside a batch")
        require(content_of(fetched) == b"".join(batch.stored for batch in batches), f"other bytes in {start} to {end}")
        require(fetched.next_offset == end, f"reading all ends at {fetched.next_offset}, not at {end}")

    def _check_lookups(self, snapshot: LogSnapshot) -> None:
        start, end = snapshot.log_start_offset, snapshot.high_watermark
        log = self._expected.log
        log.start_offset = start
        offset = self._source.randint(start, end)
        max_bytes = self._source.choice((1, 300, 2500))
        answer = content_of(snapshot.read(Offset(offset), max_bytes))
        require(answer == log.read(offset, max_bytes, end), f"wrong bytes at offset {offset}")
        visible = log.batches_from(start, end)
        if visible:
            batch = self._source.choice(visible)
            timestamp = self._source.choice(batch.timestamps) + self._source.choice((-1, 0, 0, 1))
            self._check_time(snapshot, timestamp, end)

    def _check_time(self, snapshot: LogSnapshot, timestamp: int, end: int) -> None:
        found = snapshot.offset_for_timestamp(timestamp)
        expected = self._expected.log.offset_for_timestamp(timestamp, end)
        require(
            (found and (found.offset, found.timestamp)) == (expected and tuple(expected)),
            f"timestamp {timestamp} gives {found}, not {expected}",
        )
        found = snapshot.max_timestamp()
        expected = self._expected.log.max_timestamp(end)
        require(
            (found and (found.offset, found.timestamp)) == (expected and tuple(expected)),
            f"the largest timestamp is at {found}, not {expected}",
        )


def append_group(
    log: PartitionLog, expected: PartitionLedger, requests: list[list[ClientBatch]], clock: Clock
) -> list[AppendResult | StorageError]:
    """Append one group, each request with its batches, and note it before and after.

    What the disk had no room for is answered with ``DiskFullError`` and is not in the log. Neither is the first append
    to a partition at rest if the disk refuses to note it, which may also be ``DiskFailedError``.

    Raises:
        ViolationError: the engine refused otherwise, or gave other offsets than the next ones.
        PartitionOfflineError: nothing was written.
        PartitionFailedError: any part may have been written.
    """
    group = []
    was_untouched = log.writer.is_untouched
    before = expected.log.copy()
    bodies = [batches[0].sent for batches in requests if len(batches) == 1 and batches[0].marker is None]
    for batches in requests:
        if batches[0].marker is not None:
            group.append(AppendRequest.marker(batches[0].marker))
        else:
            body = b"".join(batch.sent for batch in batches)
            group.append(AppendRequest(tuple(validate_batches(body, log.config, clock.now_ms()))))
        for batch in batches:
            expected.log.append(batch, log.leader_epoch)
    try:
        results = append_plain(log, expected, bodies, clock) if len(bodies) == len(requests) else None
        results = log.append(group) if results is None else results
    except PartitionOfflineError:
        expected.log = before
        raise
    expected.log = before
    for batches, result in zip(requests, results, strict=True):
        if isinstance(result, DiskFullError) or (isinstance(result, DiskFailedError) and was_untouched):
            continue
        if not isinstance(result, AppendResult):
            raise ViolationError(f"append at {before.end_offset} was refused: {result!r}")
        require(result.base_offset == before.end_offset, f"append at {before.end_offset} got {result.base_offset}")
        for batch in batches:
            before.append(batch, log.leader_epoch)
    expected.written_end = before.end_offset
    return results


def append_plain(
    log: PartitionLog, expected: PartitionLedger, bodies: list[bytes], clock: Clock
) -> list[AppendResult | StorageError] | None:
    """Append batches of one request each in C, where that is compiled and takes all of them; see ``append_group``."""
    now_ms = clock.now_ms()
    if plain_append is None or not plain_append.is_usable:
        return None
    if not all(plain_append.is_plain_batch(body, log.config, now_ms) for body in bodies):
        return None
    try:
        results: list[AppendResult | StorageError] | None = plain_append.append(log, bodies, log.config, now_ms)
    except DiskFullError as error:
        return [error] * len(bodies)
    if results is not None and not expected.group_flush:
        # They are published.
        expected.seen_end = max(expected.seen_end, log.snapshot.high_watermark)
    return results


def flush(log: PartitionLog, expected: PartitionLedger) -> None:
    """Flush, and note what is durable from then on."""
    expected.durable_end = max(expected.durable_end, log.flush())


def flush_by_journal(journal: Journal, logs: Sequence[tuple[PartitionLog, PartitionLedger]]) -> None:
    """Flush several logs at once, and by itself each that the journal does not take; note what is durable then.

    Raises:
        PartitionFailedError: of the first log that failed.
    """
    answers = journal.flush([log for log, _ in logs])
    for (log, expected), answer in zip(logs, answers, strict=True):
        if answer is True:
            expected.durable_end = max(expected.durable_end, log.recovery_point)
    for (log, expected), answer in zip(logs, answers, strict=True):
        if isinstance(answer, PartitionFailedError):
            raise answer
        if answer is False:
            flush(log, expected)


def publish(log: PartitionLog, expected: PartitionLedger) -> None:
    """Publish, and note what consumers see from then on."""
    expected.seen_end = max(expected.seen_end, log.publish().high_watermark)


def check_goes_on(log: PartitionLog, expected: PartitionLedger, clock: Clock) -> None:
    """A recovered partition takes appends again.

    Raises:
        ViolationError: it does not, or not right behind its end.
    """
    append_group(log, expected, [[PROBE]], clock)
    flush(log, expected)
    publish(log, expected)
    snapshot = log.snapshot
    require(snapshot.high_watermark == snapshot.log_end_offset == expected.log.end_offset, "an append is not visible")
    answer = content_of(snapshot.read(Offset(expected.log.end_offset - 1), 1))
    require(answer == expected.log.batches[-1].stored, "an append cannot be read back")
