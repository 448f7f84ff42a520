"""From a data directory to the local engine."""

from __future__ import annotations

import logging
from pathlib import Path

from app.engine_local.engine import NODE_ID, LocalEngine
from app.engine_local.gauges import watch_engine
from app.event_loop.pools import Pools
from app.metrics.metrics import Metrics
from app.settings import Settings
from log_model.clock import Clock
from log_model.config import ProducerLimits
from storage.disk.file_system import FileSystem, LocalFileSystem
from storage.journal.journal_files import JournalLimits
from storage.manager.log_manager import OWN_DIRECTORY, LogManager
from storage.recovery.recovery_progress import RecoveryMeter, RecoveryProgress

logger = logging.getLogger(__name__)


class LocalOpening:
    """Opens the data directory of the settings, under its lock, and recovers its logs.

    Thread: any thread but the loop's for ``open`` and ``close``, the event loop for the rest.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.own_directory: Path = settings.data_dir / OWN_DIRECTORY
        self._settings = settings
        self._clock = clock
        self._meter = RecoveryMeter(clock)
        self._manager: LogManager | None = None

    def progress(self) -> RecoveryProgress | None:
        """Return the progress of recovery; ``None`` before the amount of work is known."""
        return self._meter.progress()

    def open(self) -> FileSystem:
        """Open and recover all logs, and return the file system of the directory, which is locked.

        Raises:
            DirectoryLockedError, StorageError, OSError
        """
        settings = self._settings
        self._manager = LogManager.open(
            settings.data_dir,
            clock=self._clock,
            topic_defaults=settings.topic_defaults,
            meter=self._meter,
            recovery_threads=settings.recovery_threads,
            node_id=NODE_ID,
            journal_limits=JournalLimits.of(settings.journal_bytes_max),
            producer_limits=ProducerLimits(settings.producer_id_expiration_ms, settings.producer_count_max),
        )
        if LocalFileSystem().is_open_to_others(settings.data_dir):
            logger.warning("every user of this machine may look into %s; chmod 700 keeps them out", settings.data_dir)
        return self._manager.file_system

    def engine(self, metrics: Metrics, pools: Pools) -> LocalEngine:
        """Return the engine of the directory that is open, with its gauges in ``metrics``."""
        assert self._manager is not None
        engine = LocalEngine(self._manager, self._settings, metrics, pools)
        watch_engine(engine, metrics, self._settings.partition_metrics_max)
        return engine

    def close(self) -> None:
        """Close the logs again if no engine has taken them."""
        if self._manager is not None:
            self._manager.close()
