"""Metrics of single partitions, read when Prometheus scrapes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from log_model.names import PartitionName
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import PartitionLog
from storage.manager.resting_states import RestingState

_Seen = PartitionLog | RestingState
_Limits = LogSnapshot | RestingState
_Value = Callable[[_Seen, _Limits], float]


def _segment_count(_: _Seen, limits: _Limits) -> int:
    return limits.segment_count if isinstance(limits, RestingState) else len(limits.segments)


_GAUGES: dict[str, tuple[str, _Value]] = {
    "rollway_partition_log_start_offset": ("First readable offset.", lambda _, snapshot: snapshot.log_start_offset),
    "rollway_partition_last_stable_offset": (
        "End of what read_committed consumers may read.",
        lambda _, snapshot: snapshot.last_stable_offset,
    ),
    "rollway_partition_high_watermark": (
        "End of what consumers may read.",
        lambda _, snapshot: snapshot.high_watermark,
    ),
    "rollway_partition_log_end_offset": ("Offset of the next record.", lambda _, snapshot: snapshot.log_end_offset),
    "rollway_partition_bytes": ("Bytes of record batches.", lambda _, snapshot: snapshot.size_bytes),
    "rollway_partition_segments": ("Segments.", _segment_count),
    "rollway_partition_unflushed_records": (
        "Records that no fsync covers yet.",
        lambda log, _: log.unflushed_count if isinstance(log, PartitionLog) else 0,
    ),
    "rollway_partition_offline": (
        "1 when the partition takes no appends.",
        lambda log, _: float(isinstance(log, PartitionLog) and log.offline_reason is not None),
    ),
}


class PartitionCollector(Collector):
    """Collector of a gauge of each kind for each of the first ``count_max`` partitions."""

    def __init__(self, partitions: Callable[[], Iterable[tuple[PartitionName, _Seen]]], count_max: int) -> None:
        self._partitions = partitions
        self._count_max = count_max

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the gauges. All values of one partition are from one moment."""
        families = {
            name: GaugeMetricFamily(name, text, labels=("topic", "partition")) for name, (text, _) in _GAUGES.items()
        }
        for (topic, number), seen in islice(self._partitions(), self._count_max):
            limits = seen.snapshot if isinstance(seen, PartitionLog) else seen
            for name, (_, value) in _GAUGES.items():
                families[name].add_metric((topic, str(number)), value(seen, limits))
        return families.values()
