"""The parts that all fetches share. Thread: the event loop."""

from __future__ import annotations

from app.engine.engine import Engine
from app.event_loop.pools import Pools
from app.fetch.fetch_sessions import FetchSessions
from app.http.bodies.byte_budget import ByteBudget
from app.metrics.metrics import Metrics
from app.quotas.throttling import Quotas
from app.record_json.work_rooms import WorkRooms
from app.settings import Settings


class Fetching:
    """The engine that is read, and the limits on the memory of responses."""

    def __init__(
        self,
        engine: Engine,
        sessions: FetchSessions,
        settings: Settings,
        metrics: Metrics,
        pools: Pools,
        quotas: Quotas,
        body_budget: ByteBudget,
        rooms: WorkRooms,
    ) -> None:
        self.engine = engine
        self.sessions = sessions
        self.settings = settings
        self.pools = pools
        self.quotas = quotas
        self.body_budget = body_budget
        self.rooms = rooms
        self._metrics = metrics

    def count_fetched(self, form: str, size_bytes: int) -> None:
        """Count a response with records."""
        self._metrics.fetched_bytes.inc(form, size_bytes)
