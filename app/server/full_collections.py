"""Full garbage collections stop every thread for as long as they take, so each looks only at what is new.

A full collection takes 0.5 to 1 microsecond for each object: 100 ms for a service without a single partition, and as
much again for every 1,500 partitions.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

PARTITIONS_MIN = 64
"""New partitions that are worth being left out of later collections."""
PARTITION_OBJECTS = 100
"""What a partition, its writer included, adds to the objects that a collection looks at, about."""
OTHER_OBJECTS_MAX = 20_000
"""Other objects that may be left out together with new partitions."""
PARTITIONS_MAX = 20_000
"""Partitions that are left out before everything is looked at once again."""


@contextlib.contextmanager
def short_collections(created_count: Callable[[], int]) -> Iterator[None]:
    """Keep full collections of this process short until the block ends.

    What there is now is left out of them: modules, the application, the logs that were opened. So are partitions that
    are made later, from the first full collection on that has looked at them. ``created_count`` tells how many were
    made since the start.

    What is left out is freed with its last reference as ever, but cycles of it are not. Others that are alive at that
    moment are left out too, such as requests under way, and may die in cycles: so this is done only where partitions
    are most of what survived, and after ``PARTITIONS_MAX`` partitions all is looked at once, which takes long.

    Thread: ``created_count`` is called by any, within a collection.
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
        """Called by the collector before and after a collection."""
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
        elif added < PARTITIONS_MIN or _survivor_count() > OTHER_OBJECTS_MAX + added * PARTITION_OBJECTS:
            return
        self._left_out = created
        gc.freeze()


_OLDEST = 2


def _survivor_count() -> int:
    return len(gc.get_objects(generation=_OLDEST))
