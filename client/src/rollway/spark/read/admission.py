"""The size of a micro-batch: ``maxOffsetsPerTrigger``, ``minOffsetsPerTrigger``, ``maxTriggerDelay``.

It is counted in offsets, not in records: markers also have offsets.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rollway.spark.read.positions import Positions


def new_offsets(begin: Positions, ends: Positions) -> dict[tuple[str, int], int]:
    """Return the number of offsets beyond ``begin`` of each partition that has any."""
    counts = {
        (topic, partition): end - begin[topic][partition]
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
        if partition in begin.get(topic, ())
    }
    return {place: count for place, count in counts.items() if count > 0}


def limited(begin: Positions, ends: Positions, offsets_max: int) -> Positions:
    """Return ends that are about ``offsets_max`` beyond ``begin`` in all, in proportion to each partition's offsets.

    As in Kafka's source, each partition with new offsets gets at least one, so that a small partition never starves.
    The sum may therefore be a few above ``offsets_max``.

    Example: with 900 and 100 new offsets and ``offsets_max`` 100, the partitions get 90 and 10.
    """
    counts = new_offsets(begin, ends)
    total = sum(counts.values())
    if total <= offsets_max:
        return ends
    taken = {topic: dict(partitions) for topic, partitions in ends.items()}
    for (topic, partition), count in counts.items():
        share = offsets_max * count / total
        rounded = math.ceil(share) if share < 1 else math.floor(share)
        taken[topic][partition] = begin[topic][partition] + min(count, rounded)
    return taken


class DelayedTrigger:
    """The delay of a micro-batch until it has enough offsets, or the previous one is ``delay_ms_max`` ago.

    The first one never waits. ``now_ms`` is a clock that only goes forward.
    """

    def __init__(self, offsets_min: int, delay_ms_max: int, now_ms: Callable[[], float]) -> None:
        self._offsets_min = offsets_min
        self._delay_ms_max = delay_ms_max
        self._now_ms = now_ms
        self._triggered_at_ms = -math.inf

    def must_wait(self, offset_count: int) -> bool:
        """Return whether a micro-batch of this many offsets must wait. If not, it counts as made now."""
        now_ms = self._now_ms()
        if offset_count < self._offsets_min and now_ms - self._triggered_at_ms <= self._delay_ms_max:
            return True
        self._triggered_at_ms = now_ms
        return False
