"""The engine of the services under test: the one that the environment variable ENGINE names."""

from __future__ import annotations

import os
from pathlib import Path

from app.event_loop.pools import Pools
from app.metrics.metrics import Metrics
from app.service.opening import Opening
from app.settings import Settings
from log_model.clock import Clock, SystemClock
from storage.disk.file_system import FileSystem, LocalFileSystem
from tests.memory_engine.engine import MemoryEngine

ENGINES = ("local", "memory")
ENGINE = os.environ.get("ENGINE", ENGINES[0])
if ENGINE not in ENGINES:
    raise ValueError(f"ENGINE is {ENGINE!r}, not one of {', '.join(ENGINES)}")


class MemoryOpening:
    """Makes the engine in memory. The service's own files, such as keys and quotas, are on the disk as ever."""

    def __init__(self, settings: Settings, clock: Clock | None) -> None:
        self.own_directory: Path = settings.data_dir / "rollway"
        self._settings = settings
        self._clock = clock or SystemClock()

    def progress(self) -> None:
        """Return ``None``: there is nothing to recover."""

    def open(self) -> FileSystem:
        """Make the directory of the service's own files."""
        self.own_directory.mkdir(parents=True, exist_ok=True)
        return LocalFileSystem()

    def engine(self, metrics: Metrics, pools: Pools) -> MemoryEngine:
        """Return the engine."""
        return MemoryEngine(self._settings.data_dir, self._settings, self._clock, metrics, pools)

    def close(self) -> None:
        """Do nothing: no engine was made."""


def opening_of(settings: Settings, clock: Clock | None) -> Opening | None:
    """Return the opening of the engine that ENGINE names; ``None`` for the local one, which is the service's own."""
    return None if ENGINES[0] == ENGINE else MemoryOpening(settings, clock)
