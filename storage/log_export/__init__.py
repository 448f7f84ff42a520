"""Exports topics to a Kafka cluster without loss: `rollway log export`.

A broker serves our segments as they are, but it would take batches of our producers for those of its own, could never
copy logs with our leader epochs, and knows no settings, log starts and open transactions of ours
(docs/how-to/move-to-apache-kafka.md). ``LogExport`` in ``directory_export`` is the whole export: plan, script, run.

``source_directory`` locks and recovers the directory; ``stored_partition`` walks over batches. ``batch_rewriter`` and
``moved_producers`` say what becomes of a batch. ``partition_scan`` and ``export_plan`` find out beforehand what would
be done, and refuse what cannot be. ``partition_writer``, ``export_record`` and ``target_directory`` write, so that an
interrupted export goes on. ``cluster_topics`` has the script that creates the topics, and reads what the cluster says
of them.
"""

from storage.log_export.cluster_topics import ClusterTopic, TopicListError, cluster_settings, parse_topics
from storage.log_export.directory_export import ExportProgress, ExportRefusedError, ExportReport, LogExport
from storage.log_export.export_plan import ExportPlan, Refusal, TopicPlan, choose_topics, end_as_hanging
from storage.log_export.export_record import WrittenPartition
from storage.log_export.moved_producers import MovedProducers, moved_id, producer_shift
from storage.log_export.partition_scan import OpenTransaction, PartitionScan
from storage.log_export.source_directory import SourceDirectory, StoredTopic, UncleanStopError
from storage.log_export.stored_partition import DamagedLogError, PartitionWalk, StoredPartition

__all__ = [
    "ClusterTopic",
    "DamagedLogError",
    "ExportPlan",
    "ExportProgress",
    "ExportRefusedError",
    "ExportReport",
    "LogExport",
    "MovedProducers",
    "OpenTransaction",
    "PartitionScan",
    "PartitionWalk",
    "Refusal",
    "SourceDirectory",
    "StoredPartition",
    "StoredTopic",
    "TopicListError",
    "TopicPlan",
    "UncleanStopError",
    "WrittenPartition",
    "choose_topics",
    "cluster_settings",
    "end_as_hanging",
    "moved_id",
    "parse_topics",
    "producer_shift",
]
