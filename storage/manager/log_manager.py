"""All topics of one data directory: opening, creating, deleting, checkpoints and the clean stop."""

from __future__ import annotations

import errno
import functools
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from log_model.clock import Clock, ProtectedClock, SystemClock
from log_model.config import ProducerLimits, TopicConfig
from log_model.errors import (
    DirectoryLockedError,
    InvalidTopicError,
    UnavailableError,
    UnknownTopicOrPartitionError,
    refused_by_system,
)
from log_model.names import PartitionName, refuse_internal, topic_name_problem
from storage.disk.ballast import BALLAST_BYTES, Ballast
from storage.disk.dir_lock import DirectoryLock
from storage.disk.directory_checkpoints import DirectoryCheckpoints, LogStarts
from storage.disk.file_names import CLEAN_SHUTDOWN_MARKER, PARTITION_COUNT_MAX, partition_directory_name
from storage.disk.file_system import FileSystem, LocalFileSystem
from storage.disk.topic_metadata import MetaProperties, new_topic_id, read_meta_properties, write_meta_properties
from storage.disk.whole_files import remove_files
from storage.journal.journal_files import JournalLimits
from storage.log.partition_log import PartitionLog
from storage.log.retention import check_policy
from storage.manager.journal_opening import JournalOpening
from storage.manager.log_opening import LogOpening
from storage.manager.partition_factory import PartitionFactory
from storage.manager.partition_logs import PartitionLogs
from storage.manager.refused_changes import RefusedChanges
from storage.manager.resting_partitions import RestingPartitions
from storage.manager.topic_changes import TopicChanges
from storage.manager.topic_directories import TopicDirectories
from storage.manager.topic_registry import Topic, TopicRecord, TopicRegistry, TopicState, known_producer_id_max
from storage.manager.topic_turns import TopicTurns
from storage.producers.producer_ids import ProducerIds, first_id_of
from storage.recovery.recovery_progress import RecoveryMeter

_logger = logging.getLogger(__name__)

LOGS_DIRECTORY = "logs"
OWN_DIRECTORY = "rollway"
BALLAST = "ballast"
LOG_START_OFFSETS = "log-start-offsets"
PRODUCER_IDS = "producer-ids"
JOURNAL = "journal"


class LogManager:
    """The logs of one data directory, which it locks against every other process.

    ``<data>/logs`` is laid out as a Kafka broker's directory; Rollway's own files lie in ``<data>/rollway``.

    Thread: any. Changes of one topic take turns; changes of different topics run side by side.
    """

    def __init__(
        self,
        data_directory: Path,
        file_system: FileSystem,
        clock: Clock,
        topic_defaults: Mapping[str, object],
        ballast_bytes: int,
        producer_limits: ProducerLimits,
        journal_limits: JournalLimits,
    ) -> None:
        """Use ``LogManager.open``."""
        self.data_directory = data_directory
        self.logs_directory = data_directory / LOGS_DIRECTORY
        self.own_directory = data_directory / OWN_DIRECTORY
        self.clock = clock
        self.protected_clock = ProtectedClock(clock)
        self.defaults = TopicConfig.parse(topic_defaults)
        check_policy(self.defaults)
        self.service_defaults = dict(topic_defaults)
        self.was_clean = False
        self.file_system = file_system
        self._topics: dict[str, Topic] = {}
        own = data_directory / OWN_DIRECTORY
        self._registry = TopicRegistry(file_system, own)
        self._turns = TopicTurns()
        self._closing = threading.Lock()
        self._stopped_cleanly: bool | None = None
        self._directories = TopicDirectories(file_system, clock, self.logs_directory)
        self._ballast = Ballast(file_system, own / BALLAST, ballast_bytes)
        self._checkpoints = DirectoryCheckpoints(
            file_system, self.logs_directory, own / LOG_START_OFFSETS, self._ballast
        )
        self._refused = RefusedChanges()
        self._resting = RestingPartitions(file_system, own, self.logs_directory, self._ballast)
        opened = self._resting.opened
        self.factory = PartitionFactory(
            file_system, clock, self.logs_directory, self._checkpoints, producer_limits, opened
        )
        self.recovery = self.factory.reports
        self._changes = TopicChanges(
            self._registry, self._directories, self.factory, self._checkpoints, self._refused, opened
        )
        self._journal_opening = JournalOpening(file_system, self.logs_directory, own / JOURNAL, self._checkpoints)
        self.journal = self._journal_opening.make(journal_limits)
        # Not a method of this object: it would make a cycle, and only the garbage collector could free the manager.
        known_max = functools.partial(known_producer_id_max, self._topics)
        self.producer_ids = ProducerIds(file_system, own / PRODUCER_IDS, known_max)

    # Opening

    @classmethod
    def open(
        cls,
        data_directory: Path,
        *,
        file_system: FileSystem | None = None,
        clock: Clock | None = None,
        topic_defaults: Mapping[str, object] | None = None,
        meter: RecoveryMeter | None = None,
        recovery_threads: int = 1,
        node_id: int = 1,
        ballast_bytes: int = BALLAST_BYTES,
        producer_limits: ProducerLimits | None = None,
        journal_limits: JournalLimits | None = None,
    ) -> LogManager:
        """Lock the directory (made if absent, with its parents), recover every partition and return the manager.

        ``meter`` receives the progress. After an unclean stop ``recovery_threads`` partitions are recovered at a time.

        Raises:
            DirectoryLockedError: another process holds the directory.
            CorruptionError: a file that cannot be rebuilt is damaged; the message names it. Nothing was changed.
            InvalidConfigError: ``topic_defaults``.
            OSError: the disk refused.
        """
        manager = cls(
            data_directory,
            LocalFileSystem() if file_system is None else file_system,
            SystemClock() if clock is None else clock,
            topic_defaults or {},
            ballast_bytes,
            producer_limits or ProducerLimits(),
            journal_limits or JournalLimits(),
        )
        lock = manager._prepare_directories()
        try:
            manager._load(node_id, meter or RecoveryMeter(manager.clock), recovery_threads)
        except BaseException:
            lock.release()
            raise
        manager._lock = lock
        return manager

    _lock: DirectoryLock

    def _prepare_directories(self) -> DirectoryLock:
        # At the first start of a service, the parents of its directory may not exist yet.
        parents = [path for path in self.data_directory.parents if not self.file_system.is_directory(path)]
        for directory in (*reversed(parents), self.data_directory, self.logs_directory, self._registry.directory):
            if not self.file_system.is_directory(directory):
                self.file_system.make_directory(directory)
                self.file_system.sync_directory(directory.parent)
        return DirectoryLock.acquire(self.file_system, self.logs_directory)

    def _load(self, node_id: int, meter: RecoveryMeter, recovery_threads: int) -> None:
        properties = read_meta_properties(self.file_system, self.logs_directory)
        if properties is None:
            self._journal_opening.refuse_unknown_entries()
            properties = MetaProperties(new_topic_id(), node_id, new_topic_id())
            write_meta_properties(self.file_system, self.logs_directory, properties)
        self.producer_ids.begin_at(first_id_of(properties.directory_id or properties.cluster_id))
        records = self._registry.load()
        marker = self.logs_directory / CLEAN_SHUTDOWN_MARKER
        # A marker beside entries of a journal is of another program that did not know them.
        self.was_clean = self.file_system.exists(marker) and properties.journal_id is None
        self._checkpoints.read()
        self._begin_list(records, marker, is_marked=properties.journal_id is not None)
        # Names that a killed process made or moved are visible, but may not be on the disk yet.
        for directory in (self.data_directory, self.logs_directory, self._registry.directory):
            self.file_system.sync_directory(directory)
        names = {name for record in records for name in record.partition_names()}
        self._checkpoints.keep(names)
        present = self._directories.find({partition_directory_name(name) for name in names}, self._registry.directory)
        if properties.journal_id is not None:
            self._journal_opening.replay(properties.journal_id, records)
        known = []
        for record in records:
            if record.state is TopicState.DELETING:
                self._finish_deletion(record)
            else:
                known.append((record, self._config(record)))
        opening = LogOpening(
            self.file_system,
            self.logs_directory,
            self._registry,
            self._checkpoints,
            self.factory,
            meter,
            self._resting,
            began_ms=self.clock.elapsed_ms(),
            clean=self.was_clean,
            thread_count=recovery_threads,
        )
        for (record, config), partitions in zip(known, opening.open(known, present), strict=True):
            if record.state is TopicState.CREATING or record.ready_count is not None:
                self._registry.save(record.with_state(TopicState.READY))
            self._topics[record.name] = self._topic(record, config, partitions)
        self.recovery.sort(key=lambda report: report.name)
        self._ballast.restore()

    def _begin_list(self, records: Sequence[TopicRecord], marker: Path, *, is_marked: bool) -> None:
        """Begin the list of opened partitions, and only then remove the marker of the clean stop."""
        self._resting.find(was_clean=self.was_clean, is_marked=is_marked, is_empty=not records)
        needless = [marker]
        if self._resting.is_known and self.journal.is_usable:
            self._resting.begin(record for record in records if record.state is not TopicState.DELETING)
        else:
            # Without the journal's mark another program may write after a crash. All partitions are opened then.
            needless.append(self._resting.opened_path)
        there = [path for path in needless if self.file_system.exists(path)]
        try:
            remove_files(self.file_system, there)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            # A start after a crash must not take the logs for cleanly closed.
            self.file_system.before_writing(functools.partial(remove_files, self.file_system, there))
            _logger.warning("%s is on a read-only disk: reads are served, appends are refused", self.logs_directory)

    # Looking

    @property
    def topics(self) -> Mapping[str, Topic]:
        """Every topic by its name."""
        return self._topics

    def topic(self, name: str) -> Topic:
        """Return the topic of this name.

        Raises:
            UnknownTopicOrPartitionError: there is none.
        """
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"there is no topic {name!r}")
        return topic

    def partition(self, name: str, number: int) -> PartitionLog:
        """Return one partition's log, which is opened if it rests.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic, or it has fewer partitions.
            CorruptionError, UnavailableError: it rests, and cannot be opened.
        """
        try:
            return self._topic_with(name, number).partitions[number]
        except OSError as error:
            raise refused_by_system(f"{PartitionName(name, number)} could not be opened", error) from error

    def find_open(self, name: str, number: int) -> PartitionLog | None:
        """Return one partition's log, or ``None`` if it rests. Touches no disk.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic, or it has fewer partitions.
        """
        return self._topic_with(name, number).partitions.logs[number]

    def _topic_with(self, name: str, number: int) -> Topic:
        topic = self._topics.get(name)
        if topic is not None and 0 <= number < len(topic.partitions.logs):
            return topic
        last = len(self.topic(name).partitions) - 1
        has = f"partitions 0 to {last}" if last else "partition 0 alone"
        raise UnknownTopicOrPartitionError(f"topic {name!r} has {has}, not {number}")

    # Topics

    def create_topic(
        self, name: str, partition_count: int, config: Mapping[str, object] | None = None
    ) -> tuple[Topic, bool]:
        """Make a topic, durably, and return it and True; or return an equal one that exists, and False.

        Raises:
            InvalidTopicError: the name or the number of partitions is not allowed, or the topic is internal.
            InvalidConfigError: unknown or impossible settings.
            TopicExistsError: it exists with other partitions or settings.
            DiskFullError, TooManyOpenFilesError, DiskFailedError: the system refused; the topic does not exist.
            ChangeOutcomeUnknownError: it does not exist, but the next start may find it.
        """
        problem = topic_name_problem(name)
        if problem is not None:
            raise InvalidTopicError(problem)
        refuse_internal(name)
        return self._ensure(name, partition_count, config or {})

    def ensure_internal_topic(self, name: str, partition_count: int, config: Mapping[str, object]) -> Topic:
        """Return the internal topic of this name; make it, durably, if there is none.

        Raises:
            TopicExistsError: a directory of that name belongs to no topic.
            DiskFullError, TooManyOpenFilesError, DiskFailedError, ChangeOutcomeUnknownError: as ``create_topic``.
        """
        existing = self._topics.get(name)
        return self._ensure(name, partition_count, config)[0] if existing is None else existing

    def _ensure(self, name: str, partition_count: int, config: Mapping[str, object]) -> tuple[Topic, bool]:
        _check_partition_count(partition_count)
        overrides = dict(config)
        wanted = TopicConfig.parse(overrides, self.defaults)
        check_policy(wanted)
        with self._turns.of(name):
            existing = self._topics.get(name)
            if existing is not None:
                existing.refuse_difference(partition_count, wanted)
                return existing, False
            with self._turns.making(name, tuple(self._topics)):
                self._refused.go_on(name)
                record = TopicRecord(name, new_topic_id(), partition_count, overrides, TopicState.READY)
                self._changes.create(record)
                made_ms = self.clock.elapsed_ms()
                partitions = PartitionLogs(name, record.topic_id, wanted, self.factory.open_resting, made_ms)
                partitions.add_new(partition_count, made_ms)
                topic = self._topic(record, wanted, partitions)
                self._topics[name] = topic
            return topic, True

    def alter_topic(
        self,
        name: str,
        *,
        config: Mapping[str, object | None] | None = None,
        partition_count: int | None = None,
    ) -> Topic:
        """Change settings (``None`` removes an override) or add partitions, durably.

        The caller passes the new settings to the logs: each writer runs ``update_config``.

        Raises:
            UnknownTopicOrPartitionError, InvalidConfigError.
            InvalidTopicError: fewer partitions than now, or too many, or the topic is internal.
            DiskFullError, TooManyOpenFilesError, DiskFailedError: the system refused; the topic is as before.
            ChangeOutcomeUnknownError: the topic is as before, but the next start may find it altered.
        """
        refuse_internal(name)
        with self._turns.of(name):
            topic = self.topic(name)
            self._refused.go_on(name)
            overrides = dict(topic.overrides)
            for key, value in (config or {}).items():
                if value is None:
                    overrides.pop(key, None)
                else:
                    overrides[key] = value
            unknown = {key: "" for key in config or {} if key not in TopicConfig.options()}
            wanted = TopicConfig.parse({**overrides, **unknown}, self.defaults)
            check_policy(wanted)
            count = len(topic.partitions) if partition_count is None else partition_count
            _check_partition_count(count)
            if count < len(topic.partitions):
                raise InvalidTopicError(
                    f"topic {name} has {len(topic.partitions)} partitions; there cannot be fewer", field="partitions"
                )
            before = TopicRecord(name, topic.topic_id, len(topic.partitions), dict(topic.overrides), TopicState.READY)
            record = TopicRecord(name, topic.topic_id, count, overrides, TopicState.READY)
            self._changes.alter(before, record)
            topic.partitions.update_config(wanted)
            topic.partitions.add_new(count - before.partition_count, self.clock.elapsed_ms())
            altered = self._topic(record, wanted, topic.partitions)
            self._topics[name] = altered
            return altered

    def delete_topic(self, name: str) -> Topic:
        """Delete a topic, durably: its directories are renamed now and unlinked after ``file.delete.delay.ms``.

        If the disk refuses a rename, ``delete_due_files`` or the next start repeats it.

        Raises:
            UnknownTopicOrPartitionError: there is none.
            UnavailableError, ChangeOutcomeUnknownError: the system refused; see ``TopicChanges.decide_deletion``.
            InvalidTopicError: the topic is internal.
        """
        refuse_internal(name)
        with self._turns.of(name):
            topic = self.topic(name)
            self._refused.go_on(name)
            record = TopicRecord(name, topic.topic_id, len(topic.partitions), dict(topic.overrides), TopicState.READY)
            self._changes.decide_deletion(record, topic)
            del self._topics[name]
            self._finish_deletion(record, topic)
            return topic

    def _finish_deletion(self, record: TopicRecord, topic: Topic | None = None) -> None:
        try:
            self._changes.carry_out_deletion(record, self._config(record).file_delete_delay_ms, topic)
        except UnavailableError as error:
            _logger.warning("%s; the deletion is tried again", error)

    def _topic(self, record: TopicRecord, config: TopicConfig, partitions: PartitionLogs) -> Topic:
        return Topic(record.name, record.topic_id, partitions, config, record.overrides, self.service_defaults)

    def _config(self, record: TopicRecord) -> TopicConfig:
        return TopicConfig.parse(record.overrides, self.defaults)

    # Checkpoints

    def checkpoint(self) -> None:
        """Write the log start offsets of all partitions, and how far their segments are fsynced (spec E25)."""
        self._checkpoints.write_recovery_points(lambda: {log.name: log.writer.fsynced_end for log in self._logs()})
        self._checkpoints.raise_log_starts(lambda: _log_starts(self._logs()))

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks of all partitions, if one has moved (spec E24)."""
        self._checkpoints.write_high_watermarks(lambda: {log.name: log.snapshot.high_watermark for log in self._logs()})

    def _logs(self) -> list[PartitionLog]:
        """Return the logs that are open. What rests does not change."""
        return [log for topic in list(self._topics.values()) for log in topic.partitions.opened()]

    # Files

    def check_lock(self) -> None:
        """Keep the directory if another process removed the lock file; take all logs offline if a third has locked it.

        Raises:
            OSError: the disk refused; the next call tries again.
        """
        try:
            self._lock.renew()
        except DirectoryLockedError as error:
            _logger.error("all partitions are offline: %s", error)
            for topic in list(self._topics.values()):
                topic.partitions.take_offline(str(error))

    def delete_due_files(self) -> int:
        """Unlink deleted segments and topics whose delay has passed; return the number of files and directories.

        Raises:
            OSError, UnavailableError: the system refused some; these wait for the next call.
        """
        count = 0
        failure: OSError | UnavailableError | None = None
        # A refusal does not stop the rest, which frees space that the refused one may need.
        for work in (*(log.deleted_files.unlink_due for log in self._logs()), self._directories.remove_due):
            try:
                count += work()
            except OSError as error:
                failure = error
        self._ballast.restore()
        try:
            self._refused.go_on_with_all(self._turns)
        except UnavailableError as error:
            failure = error
        if failure is not None:
            raise failure
        return count

    # The end

    def close(self) -> bool:
        """Stop cleanly: flush and close every log, write the checkpoints, then the marker that saves the next start
        from scanning; return whether all succeeded. Another call only returns the result of the first.

        Thread: after all writers have stopped.
        """
        with self._closing:
            self._turns.end()
            if self._stopped_cleanly is not None:
                return self._stopped_cleanly
            self._stopped_cleanly = False
            try:
                clean = all([log.close() for log in self._logs()])  # noqa: C419 - all are closed, whatever one says
                self.checkpoint()
                self.checkpoint_high_watermarks()
                if clean:
                    self.journal.end()
                    self._resting.mark_clean([(topic.topic_id, topic.partitions) for topic in self._topics.values()])
                self._stopped_cleanly = clean
            except OSError as error:
                _logger.error("no clean stop: %s", error)
            finally:
                self._lock.release()
            return self._stopped_cleanly


def _check_partition_count(count: int) -> None:
    if not 1 <= count <= PARTITION_COUNT_MAX:
        raise InvalidTopicError(f"a topic has 1 to {PARTITION_COUNT_MAX} partitions, not {count}", field="partitions")


def _log_starts(logs: Iterable[PartitionLog]) -> LogStarts:
    # A damaged log may have lost its first segments. They may be restored, so its first offset is no log start.
    snapshots = {log.name: log.snapshot for log in logs if not log.damage}
    first_bases = {name: snapshot.base_offsets[0] for name, snapshot in snapshots.items()}
    return LogStarts({name: snapshot.log_start_offset for name, snapshot in snapshots.items()}, first_bases)
