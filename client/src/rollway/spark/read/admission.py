"""How much one micro-batch takes: ``maxOffsetsPerTrigger``, ``minOffsetsPerTrigger``, ``maxTriggerDelay``.

Offsets are counted, not records: markers have offsets, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rollway.spark.read.positions import Positions


def new_offsets(begin: Positions, ends: Positions) -> dict[tuple[str, int], int]:
    """How many offsets each partition has beyond ``begin``, of those that have any."""
    counts = {
        (topic, partition): end - begin[topic][partition]
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
        if partition in begin.get(topic, ())
    }
    return {place: count for place, count in counts.items() if count > 0}


def limited(begin: Positions, ends: Positions, offsets_max: int) -> Positions:
    """Ends that are about ``offsets_max`` beyond ``begin`` in all, each partition in proportion to what it has.

    At least one of each that has any, as in Kafka's source, so that a small partition is never starved; that may make
    it a few more than asked for.
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
    """Waits with a micro-batch until there is enough for it, or the last one is long ago.

    The first one never waits. ``now_ms`` is a clock that only goes forward.
    """

    def __init__(self, offsets_min: int, delay_ms_max: int, now_ms: Callable[[], float]) -> None:
        self._offsets_min = offsets_min
        self._delay_ms_max = delay_ms_max
        self._now_ms = now_ms
        self._triggered_at_ms = -math.inf

    def must_wait(self, offset_count: int) -> bool:
        """Whether a micro-batch of so many offsets has to wait; if not, it counts as made now."""
        now_ms = self._now_ms()
        if offset_count < self._offsets_min and now_ms - self._triggered_at_ms <= self._delay_ms_max:
            return True
        self._triggered_at_ms = now_ms
        return False
