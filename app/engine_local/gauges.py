"""Gauges of the local engine, read when Prometheus scrapes them."""

from __future__ import annotations

from app.engine_local.engine import LocalEngine
from app.engine_local.partition_metrics import PartitionCollector
from app.metrics.metrics import Metrics


def watch_engine(engine: LocalEngine, metrics: Metrics, partition_count_max: int) -> None:
    """Add the gauges of ``engine``, and those of single partitions for at most ``partition_count_max`` of them."""
    watch, partitions = metrics.watch, engine.partitions
    watch("rollway_waiting_fetches", "Fetches that wait for records.", lambda: len(partitions.waiters))
    watch("rollway_waiting_produces", "Produce requests that wait for copies.", lambda: len(partitions.produce_waiters))
    watch("rollway_topics", "Topics.", lambda: len(engine.manager.topics))
    watch("rollway_partitions", "Partitions.", partitions.count)
    watch("rollway_offline_partitions", "Partitions that take no appends.", partitions.offline_count)
    watch("rollway_log_bytes", "Bytes of record batches.", partitions.size_bytes)
    watch("rollway_mailbox_requests", "Appends that wait to be written.", partitions.mailbox_count)
    watch("rollway_mailbox_bytes", "Bytes that wait to be written.", partitions.mailbox_bytes)
    watch("rollway_transactional_ids", "Transactional ids that are known.", engine.transactions.id_count)
    watch("rollway_open_transactions", "Transactions without an end.", engine.transactions.open_count)
    metrics.registry.register(PartitionCollector(partitions.seen, partition_count_max))
    recovery = engine.manager.recovery
    metrics.recovered_bytes.set(sum(report.scanned_bytes for report in recovery))
    metrics.truncated_bytes.set(sum(report.truncated_bytes for report in recovery))
