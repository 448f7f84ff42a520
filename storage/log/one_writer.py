"""The guard that admits one writer per log (invariant 1)."""

from __future__ import annotations

import threading

from log_model.names import PartitionName


class OneWriter:
    """Refuses a second writer instead of waiting for the first: two writers are a bug (invariant 1)."""

    def __init__(self, lock: threading.Lock, name: PartitionName) -> None:
        self._lock = lock
        self._name = name

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(f"{self._name} has a second writer")

    def __exit__(self, *_: object) -> None:
        self._lock.release()
