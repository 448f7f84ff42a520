"""Short full garbage collections: each looks only at new objects.

A full collection stops every thread and takes 0.5 to 1 microsecond for each object. That is 100 ms for a service
without a single partition, and as much again for every 1,500 partitions.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

PARTITIONS_MIN = 64
"""The least number of new partitions that are left out of later collections together."""
PARTITION_OBJECTS = 100
"""Objects that a partition and its writer add to those that a collection looks at, roughly."""
OTHER_OBJECTS_MAX = 20_000
"""Other objects that may be left out together with new partitions."""
PARTITIONS_MAX = 20_000
"""Partitions that are left out before a collection looks at everything again."""


@contextlib.contextmanager
def short_collections(created_count: Callable[[], int]) -> Iterator[None]:
    """Keep full collections of this process short until the block ends.

    The objects of now are left out of them: modules, the application, the logs that were opened. Partitions that are
    made later are left out after the first full collection that has looked at them. ``created_count`` returns the
    number of partitions made since the start.

    Objects that are left out are freed with their last reference as ever, but cycles of them are not. Other objects
    that are alive at that moment, such as requests in progress, are also left out and may die in cycles. So objects
    are left out only if most of the survivors belong to partitions. After ``PARTITIONS_MAX`` partitions a collection
    looks at all objects once, which takes long.

    Thread: any thread calls ``created_count``, within a collection.
    """
    collections = _Collections(created_count)
    gc.collect()
    gc.freeze()
    gc.callbacks.append(collections.note)
    try:
        yield
    finally:
        gc.callbacks.remove(collections.note)


class _Collections:
    def __init__(self, created_count: Callable[[], int]) -> None:
        self._created_count = created_count
        self._left_out = self._all_seen = created_count()
        self._sees_all = False

    def note(self, phase: str, info: dict[str, Any]) -> None:
        """Note a collection: the collector calls this before and after it."""
        if info["generation"] != _OLDEST:
            return
        if phase == "start":
            self._sees_all = self._left_out - self._all_seen > PARTITIONS_MAX
            if self._sees_all:
                gc.unfreeze()
            return
        created = self._created_count()
        added = created - self._left_out
        if self._sees_all:
            self._all_seen = created
        elif added < PARTITIONS_MIN or len(gc.get_objects(_OLDEST)) > OTHER_OBJECTS_MAX + added * PARTITION_OBJECTS:
            return
        self._left_out = created
        gc.freeze()


_OLDEST = 2
