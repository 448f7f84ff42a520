"""The export of a data directory, from the lock to the last checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from log_model.clock import Clock, SystemClock
from log_model.errors import RefusedError
from log_model.names import PartitionName
from storage.disk.file_system import FileSystem, LocalFileSystem
from storage.log_export.cluster_topics import ClusterTopic, creation_script
from storage.log_export.export_plan import (
    ExportPlan,
    ExportPlanner,
    HowToEnd,
    Refusal,
    TopicPlan,
    choose_topics,
    end_as_hanging,
)
from storage.log_export.export_record import ExportRecord, WrittenPartition
from storage.log_export.moved_producers import producer_shift
from storage.log_export.partition_writer import OccupiedPartitionError, PartitionWriter
from storage.log_export.source_directory import SourceDirectory, UncleanStopError
from storage.log_export.stored_partition import StoredPartition
from storage.log_export.target_directory import TargetDirectory

RECORD_PREFIX = "rollway-export-"


class ExportRefusedError(RefusedError):
    """Something cannot be exported as it is, so nothing was. ``refusals`` says what, and what mends it."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        super().__init__("; ".join(f"{refusal.subject}: {refusal.why}" for refusal in refusals))
        self.refusals = tuple(refusals)


@dataclass(slots=True)
class ExportProgress:
    """Functions that are called while an export runs."""

    on_plan: Callable[[ExportPlan], None] = lambda _: None
    """The plan is made, and nothing is written yet."""
    on_read: Callable[[int], None] = lambda _: None
    """This many bytes were read: once for the plan, and again while they are written."""
    on_partition: Callable[[WrittenPartition, bool], None] = lambda _written, _is_new: None
    """The partition is in its place; ``False``: an earlier export had written it."""


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The plan of an export that was carried out, and the partitions that are in place."""

    plan: ExportPlan
    written: tuple[WrittenPartition, ...]


@dataclass(frozen=True, slots=True)
class LogExport:
    """An export of topics of ``source``; ``topics`` are their names, all for ``None``.

    ``topic_defaults`` are the service's: they hold for topics that do not have the setting themselves. ``how_to_end``
    returns the commands that end an open transaction.
    """

    source: Path
    topics: Sequence[str] | None = None
    topic_defaults: Mapping[str, object] = field(default_factory=dict)
    file_system: FileSystem = field(default_factory=LocalFileSystem)
    clock: Clock = field(default_factory=SystemClock)
    how_to_end: HowToEnd = end_as_hanging

    def script(self, broker: int, described_file: str) -> str:
        """Return the script that creates the topics in a cluster; see ``creation_script``. Changes nothing.

        Raises:
            UnknownTopicOrPartitionError, InvalidTopicError: as ``choose_topics``.
            StorageError, OSError: the directory cannot be read.
        """
        with self._open(may_recover=False) as source:
            return creation_script(choose_topics(source, self.topics), broker, described_file)

    def plan(
        self,
        clusters: Mapping[str, ClusterTopic] | None = None,
        target: Path | None = None,
        progress: ExportProgress | None = None,
    ) -> ExportPlan:
        """Return what ``run`` would do. Changes nothing, so a directory that must be recovered first is not read.

        Raises:
            UnknownTopicOrPartitionError, InvalidTopicError: as ``choose_topics``.
            StorageError, OSError: one of the directories cannot be read, or is in use.
        """
        report = progress or ExportProgress()
        with self._open(may_recover=False) as source:
            topics = choose_topics(source, self.topics)
            if target is None or not self.file_system.is_directory(target):
                planner = ExportPlanner(
                    self.file_system,
                    self.clock,
                    source,
                    clusters=clusters,
                    how_to_end=self.how_to_end,
                    on_bytes=report.on_read,
                )
                return planner.plan(topics)
            with TargetDirectory.open(self.file_system, target, self.source) as opened:
                return _Run(self, source, opened, clusters, report).planner.plan(topics)

    def run(
        self, target: Path, clusters: Mapping[str, ClusterTopic], progress: ExportProgress | None = None
    ) -> ExportReport:
        """Export the topics to ``target``, a broker's log directory that no broker uses, or a new directory.

        An export that was interrupted is called again: partitions that are in place are left as they are. Durable: on
        return.

        Raises:
            ExportRefusedError: something cannot be exported as it is; nothing was changed.
            UnknownTopicOrPartitionError, InvalidTopicError: as ``choose_topics``.
            StorageError: one of the directories is in use, or is damaged.
            OSError: the disk refused. Partitions that are in place are whole.
        """
        report = progress or ExportProgress()
        with self._open(may_recover=True) as source:
            topics = choose_topics(source, self.topics)
            with TargetDirectory.open(self.file_system, target, self.source) as opened:
                run = _Run(self, source, opened, clusters, report)
                plan = run.planner.plan(topics)
                if plan.refusals:
                    raise ExportRefusedError(plan.refusals)
                report.on_plan(plan)
                return ExportReport(plan, run.carry_out(plan))

    def stored(self) -> SourceDirectory:
        """Return the directory as it is, locked until the end of a ``with`` block, to compare it with a cluster.

        Raises:
            UncleanStopError: it was not stopped cleanly, so its segments may lack records.
            StorageError, OSError: it cannot be read, or a service uses it.
        """
        source = self._open(may_recover=False)
        if not source.is_clean:
            source.close()
            raise UncleanStopError(f"{self.source} was not stopped cleanly: start Rollway, and stop it")
        return source

    def _open(self, *, may_recover: bool) -> SourceDirectory:
        return SourceDirectory.open(
            self.source,
            self.file_system,
            clock=self.clock,
            topic_defaults=self.topic_defaults,
            may_recover=may_recover,
        )


class _Run:
    """One export between two locked directories."""

    def __init__(
        self,
        export: LogExport,
        source: SourceDirectory,
        target: TargetDirectory,
        clusters: Mapping[str, ClusterTopic] | None,
        progress: ExportProgress,
    ) -> None:
        self._target = target
        self._progress = progress
        shift = producer_shift(source.directory_id)
        record_path = target.path / f"{RECORD_PREFIX}{source.directory_id.replace('/', '-')}"
        self._record = ExportRecord(export.file_system, record_path, source.directory_id, shift)
        self._record.read()
        self._writer = PartitionWriter(export.file_system, target.path, source.directory_id, shift)
        self.planner = ExportPlanner(
            export.file_system,
            export.clock,
            source,
            clusters=clusters,
            node_id=target.node_id,
            is_finished=self._is_finished,
            check_place=self._occupied,
            how_to_end=export.how_to_end,
            on_bytes=progress.on_read,
        )

    def carry_out(self, plan: ExportPlan) -> tuple[WrittenPartition, ...]:
        """Write all partitions of the plan that are not in place. Durable: on return."""
        partitions = [partition for topic in plan.topics for partition in topic.partitions]
        # Before the first partition has its final name: a broker would serve deleted records again.
        self._target.merge_log_starts(
            {each.name: (each.log_start_offset, each.segments[0].base_offset) for each in partitions}
        )
        written = [self._export(partition, topic) for topic in plan.topics for partition in topic.partitions]
        self._target.merge_recovery_points({each.name: each.log_end_offset for each in written})
        return tuple(written)

    def _export(self, partition: StoredPartition, topic: TopicPlan) -> WrittenPartition:
        assert topic.cluster is not None
        name, topic_id = partition.name, topic.cluster.topic_id
        known = self._record.written.get(name)
        is_current = known is not None and _is_made_of(known, partition, topic_id)
        is_new = known is None or not is_current or not self._writer.is_in_place(known)
        if known is None or not is_current or (is_new and not self._writer.is_staged(known)):
            written = self._writer.write(partition, topic_id, self._progress.on_read)
            self._writer.clear(name, known)
            self._record.add(written)
            self._writer.place(name)
        elif is_new:
            # Interrupted between the last two steps.
            written = known
            self._writer.clear(name, known)
            self._writer.place(name)
        else:
            written = known
        self._progress.on_partition(written, is_new)
        return written

    def _is_finished(self, partition: StoredPartition, topic_id: str) -> bool:
        known = self._record.written.get(partition.name)
        return known is not None and _is_made_of(known, partition, topic_id) and self._writer.is_in_place(known)

    def _occupied(self, name: PartitionName) -> str | None:
        try:
            self._writer.check_place(name, self._record.written.get(name))
        except OccupiedPartitionError as error:
            return str(error)
        return None


def _is_made_of(written: WrittenPartition, partition: StoredPartition, topic_id: str) -> bool:
    return (written.topic_id, written.source) == (topic_id, partition.fingerprint)
