"""The opening of a service: the steps that make its engine."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from app.engine.engine import Engine
from app.event_loop.pools import Pools
from app.metrics.metrics import Metrics
from storage.disk.file_system import FileSystem
from storage.recovery.recovery_progress import RecoveryProgress


class Opening(Protocol):
    """Opens what an engine needs, which may take minutes, and makes the engine.

    Thread: ``open`` and ``close`` in any but the loop's, everything else on the event loop.
    """

    own_directory: Path
    """The directory of the service's own files: keys, access rules, quotas."""

    def progress(self) -> RecoveryProgress | None:
        """Return the progress; ``None`` before the work is known."""

    def open(self) -> FileSystem:
        """Open all files. Return the file system of ``own_directory``, which no other service uses from now on.

        Raises:
            StorageError, OSError: the reason why it cannot be opened.
        """

    def engine(self, metrics: Metrics, pools: Pools) -> Engine:
        """Return the engine, once ``open`` has returned. Its gauges are in ``metrics``."""

    def close(self) -> None:
        """Close everything that ``open`` has opened, if ``engine`` was not called."""
