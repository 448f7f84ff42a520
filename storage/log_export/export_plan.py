"""The plan of an export: the changes in each topic, and the refusals, each with the command that mends it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from log_model.clock import Clock
from log_model.config import PRODUCER_EXPIRATION_MS
from log_model.errors import CorruptionError, UnknownTopicOrPartitionError
from log_model.names import INTERNAL_TOPICS, PartitionName, refuse_internal
from storage.disk.file_system import FileSystem
from storage.log_export.cluster_topics import (
    DELETING_SETTINGS,
    ClusterTopic,
    alter_command,
    cluster_settings,
    left_settings,
)
from storage.log_export.moved_producers import producer_shift
from storage.log_export.partition_scan import OpenTransaction, PartitionScan, scan_partition
from storage.log_export.source_directory import SourceDirectory, StoredTopic
from storage.log_export.stored_partition import StoredPartition


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something that cannot be exported as it is: where, why, and the command, or what to do, that mends it."""

    subject: str
    why: str
    mend: str


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The plan of one topic. ``scans`` is empty if the directory must be recovered first."""

    topic: StoredTopic
    cluster: ClusterTopic | None
    partitions: tuple[StoredPartition, ...]
    scans: tuple[PartitionScan, ...]
    finished: frozenset[PartitionName]
    """The partitions that an earlier export has written, and that have not changed since."""
    notes: tuple[str, ...]
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """The plan of all topics of an export."""

    source: Path
    directory_id: str
    shift: int
    is_clean: bool
    """False: the directory was not stopped cleanly. The export recovers it first, as a start would."""
    was_recovered: bool
    topics: tuple[TopicPlan, ...]

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        return tuple(refusal for topic in self.topics for refusal in topic.refusals)

    @property
    def size_bytes(self) -> int:
        return sum(partition.size_bytes for topic in self.topics for partition in topic.partitions)


HowToEnd = Callable[[PartitionName, OpenTransaction], str]
"""Returns the commands that end an open transaction."""


def end_as_hanging(name: PartitionName, opened: OpenTransaction) -> str:
    """Return the command that aborts a transaction of which only the partition is known."""
    producer = (
        f'{{"producer_id": {opened.producer_id}, "producer_epoch": {opened.producer_epoch}, '
        f'"first_offset": {opened.first_offset}}}'
    )
    return (
        f"start Rollway; curl -X POST -H 'Content-Type: application/json' -d '{producer}' "
        f"http://127.0.0.1:8080/v1/topics/{name.topic}/partitions/{name.partition}/transactions/abort; stop Rollway"
    )


class ExportPlanner:
    """Makes the plan of an export: reads every partition, and changes nothing.

    ``clusters`` are the topics of the cluster; ``None`` if they are not known yet. ``node_id`` is the broker of the
    target directory, if that is known. ``is_finished`` says whether an earlier export has written a partition with this
    topic id, and it is in place. ``check_place`` returns why a partition has no place in the target, if so.
    ``how_to_end`` is asked for each open transaction.
    """

    def __init__(
        self,
        file_system: FileSystem,
        clock: Clock,
        source: SourceDirectory,
        *,
        clusters: Mapping[str, ClusterTopic] | None = None,
        node_id: int | None = None,
        is_finished: Callable[[StoredPartition, str], bool] = lambda _partition, _topic_id: False,
        check_place: Callable[[PartitionName], str | None] = lambda _: None,
        how_to_end: HowToEnd = end_as_hanging,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._file_system = file_system
        self._source = source
        self._clusters = clusters
        self._node_id = node_id
        self._is_finished = is_finished
        self._check_place = check_place
        self._how_to_end = how_to_end
        self._on_bytes = on_bytes
        self._expired_before_ms = clock.now_ms() - PRODUCER_EXPIRATION_MS
        self._shift = producer_shift(source.directory_id)

    def plan(self, topics: Sequence[StoredTopic]) -> ExportPlan:
        """Return the plan of these topics.

        Raises:
            OSError: the disk refused.
        """
        return ExportPlan(
            self._source.path,
            self._source.directory_id,
            self._shift,
            self._source.is_clean,
            self._source.was_recovered,
            tuple(self._plan_topic(topic) for topic in topics),
        )

    def _plan_topic(self, topic: StoredTopic) -> TopicPlan:
        cluster = None if self._clusters is None else self._clusters.get(topic.name)
        refusals = []
        if self._clusters is not None:
            refusals += check_cluster(topic, cluster, self._node_id)
        if topic.config.retention_policy:
            refusals.append(_policy_refusal(topic))
        partitions, scans, finished = [], [], []
        for name in topic.partition_names():
            try:
                partition = self._source.partition(topic, name)
                partitions.append(partition)
                if not self._source.is_clean:
                    continue
                if cluster is not None and self._is_finished(partition, cluster.topic_id):
                    finished.append(name)
                    continue
                scans.append(self._scan(partition))
            except CorruptionError as error:
                refusals.append(Refusal(str(name), str(error), f"rollway log verify {self._source.path}"))
                continue
            refusals += [self._open_refusal(name, opened) for opened in scans[-1].open_transactions]
            occupied = self._check_place(name)
            if occupied is not None:
                refusals.append(Refusal(str(name), occupied, _delete_topic(topic.name)))
        notes = (*left_settings(topic), *(() if cluster is None else _differing_settings(topic, cluster)))
        return TopicPlan(topic, cluster, tuple(partitions), tuple(scans), frozenset(finished), notes, tuple(refusals))

    def _open_refusal(self, name: PartitionName, opened: OpenTransaction) -> Refusal:
        why = (
            f"the transaction of producer {opened.producer_id} is open since offset {opened.first_offset}; the cluster "
            "does not know it, so readers of committed records would stop there"
        )
        return Refusal(str(name), why, self._how_to_end(name, opened))

    def _scan(self, partition: StoredPartition) -> PartitionScan:
        return scan_partition(
            self._file_system,
            partition,
            shift=self._shift,
            expired_before_ms=self._expired_before_ms,
            on_bytes=self._on_bytes,
        )


def choose_topics(source: SourceDirectory, names: Sequence[str] | None) -> list[StoredTopic]:
    """Return the topics of these names; all topics for ``None``.

    Raises:
        UnknownTopicOrPartitionError: one does not exist.
        InvalidTopicError: one belongs to the service itself, and stays behind.
        CorruptionError: a topic's file is damaged.
    """
    topics = {topic.name: topic for topic in source.topics()}
    if names is None:
        return list(topics.values())
    for name in names:
        if name in INTERNAL_TOPICS:
            refuse_internal(name)
        if name not in topics:
            raise UnknownTopicOrPartitionError(f"there is no topic {name!r}")
    return [topics[name] for name in dict.fromkeys(names)]


def check_cluster(topic: StoredTopic, cluster: ClusterTopic | None, node_id: int | None) -> list[Refusal]:
    """Return why the cluster's topic cannot adopt the partitions of ours."""
    if cluster is None:
        why = "the list of the cluster's topics does not have it"
        return [Refusal(topic.name, why, "create it with the script of --script, and save the list again")]
    refusals = []
    if cluster.partition_count != topic.partition_count:
        why = f"it has {topic.partition_count} partitions, and {cluster.partition_count} in the cluster"
        if cluster.partition_count < topic.partition_count:
            mend = (
                f'kafka-topics.sh --bootstrap-server "$BOOTSTRAP" --alter --topic {topic.name} '
                f"--partitions {topic.partition_count}"
            )
        else:
            mend = _delete_topic(topic.name)
        refusals.append(Refusal(topic.name, why, mend))
    if len(cluster.replicas) < cluster.partition_count:
        why = "the list of the cluster's topics does not show the brokers of all its partitions"
        refusals.append(Refusal(topic.name, why, "save the whole output of kafka-topics.sh --describe"))
    brokers = set(cluster.replicas.values())
    wanted = brokers if node_id is None else {(node_id,)}
    if len(brokers) > 1 or any(len(replicas) != 1 for replicas in brokers) or not brokers <= wanted:
        where = "one broker" if node_id is None else f"broker {node_id}"
        why = f"its partitions must have one copy, on {where}, while they are adopted; other copies come afterwards"
        refusals.append(Refusal(topic.name, why, _delete_topic(topic.name)))
    settings = cluster_settings(topic)
    for name in DELETING_SETTINGS:
        if not _is_same(name, settings[name], cluster.value_of(name)):
            why = f"{name} is {settings[name]}, and {cluster.value_of(name)} in the cluster, which may delete records"
            mend = f"{alter_command(topic.name, name, settings[name])}; then save the list of topics again"
            refusals.append(Refusal(topic.name, why, mend))
    return refusals


def _is_same(name: str, ours: str, theirs: str) -> bool:
    if name == "cleanup.policy":
        return set(ours.split(",")) == set(theirs.split(","))
    return ours == theirs


def _differing_settings(topic: StoredTopic, cluster: ClusterTopic) -> list[str]:
    return [
        f"{name} is {value}, and {cluster.value_of(name)} in the cluster."
        for name, value in cluster_settings(topic).items()
        if name not in DELETING_SETTINGS and cluster.value_of(name) != value
    ]


def _policy_refusal(topic: StoredTopic) -> Refusal:
    why = (
        f"retention.policy={topic.config.retention_policy} decides what is deleted, and Kafka has no such policies: "
        "retention.ms and retention.bytes alone would hold"
    )
    return Refusal(topic.name, why, f"rollway topics alter {topic.name} -c retention.policy=")


def _delete_topic(name: str) -> str:
    delete = f'kafka-topics.sh --bootstrap-server "$BOOTSTRAP" --delete --topic {name}'
    return f"{delete}; then create it with the script of --script, and save the list again"
