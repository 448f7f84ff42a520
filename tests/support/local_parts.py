"""The parts of a service over a data directory that the test has opened itself."""

from __future__ import annotations

from app.engine_local.engine import LocalEngine
from app.event_loop.pools import Pools
from app.metrics.metrics import Metrics
from app.quotas.store import QuotaStore
from app.service.parts import Parts
from app.settings import Settings
from storage.manager.log_manager import LogManager


def local_parts(manager: LogManager, settings: Settings, metrics: Metrics, pools: Pools) -> Parts:
    """Return the parts over the logs of ``manager``."""
    store = QuotaStore(manager.file_system, manager.own_directory)
    return Parts(LocalEngine(manager, settings, metrics, pools), settings, metrics, pools, store)
