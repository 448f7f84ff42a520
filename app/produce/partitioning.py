"""The partition of a record: the one that it names, that of its key, or the sticky one for records without a key."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

from app.record_json.translate import ParsedRecords
from rollway.records import BinaryColumn, partitions_for_keys

STICKY_BYTES = 16 * 1024
"""The bytes of keyless records after which another partition is used, as in Kafka's producers by default."""


class StickyPartitioner:
    """The sticky partition of each topic, for records without a key. Thread: any."""

    def __init__(self, source: random.Random | None = None) -> None:
        self._lock = threading.Lock()
        self._random = source or random.Random()  # noqa: S311 - spreads load, keeps no secret
        self._current: dict[str, tuple[int, int]] = {}

    def take(self, topic: str, partitions: Sequence[int], size_bytes: int) -> int:
        """Return the one of ``partitions`` that takes ``size_bytes`` of keyless records; it changes after enough."""
        with self._lock:
            number, used_bytes = self._current.get(topic, (-1, 0))
            if number not in partitions or used_bytes >= STICKY_BYTES:
                others = [other for other in partitions if other != number] or list(partitions)
                number, used_bytes = self._random.choice(others), 0
            self._current[topic] = (number, used_bytes + size_bytes)
            return number

    def forget(self, topic: str) -> None:
        """Drop the partition of a topic that was deleted."""
        self._current.pop(topic, None)


def rows_by_partition(
    parsed: ParsedRecords, topic: str, partition_count: int, online: Sequence[int], sticky: StickyPartitioner
) -> dict[int, list[int]]:
    """Return the rows of ``parsed`` for each partition, in their order. A partition that a record names may not exist.

    All keyless rows of one request go to one of the ``online`` partitions. Thread: any, if ``sticky`` takes any.
    """
    if not len(parsed):
        return {}
    chosen: list[int | None] = list(parsed.partitions or [None] * len(parsed))
    unnamed = [row for row, number in enumerate(chosen) if number is None]
    keys = [parsed.keys[row] for row in unnamed]
    by_key = partitions_for_keys(BinaryColumn.from_list(keys), partition_count).tolist() if unnamed else []
    keyless = [row for row, key in zip(unnamed, keys, strict=True) if key is None]
    stuck_to = 0
    if keyless:
        size_bytes = sum(len(parsed.values[row] or b"") for row in keyless)
        stuck_to = sticky.take(topic, online or range(partition_count), size_bytes)
    for row, number in zip(unnamed, by_key, strict=True):
        chosen[row] = stuck_to if number < 0 else number
    rows: dict[int, list[int]] = {}
    for row, number in enumerate(chosen):
        assert number is not None
        rows.setdefault(number, []).append(row)
    return dict(sorted(rows.items()))
