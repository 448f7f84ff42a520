"""The parts that requests are answered with, built once the logs are open."""

from __future__ import annotations

from app.engine.engine import Engine, Job
from app.event_loop.pools import Pools
from app.fetch.fetch_sessions import FetchSessions
from app.fetch.fetching import Fetching
from app.http.bodies.byte_budget import ByteBudget
from app.load_jobs.registry import LoadJobs
from app.load_jobs.store import JobLimits
from app.metrics.metrics import Metrics
from app.produce.submit import Producing
from app.quotas.control import QuotaControl
from app.quotas.limits import QuotaTable
from app.quotas.store import QuotaStore
from app.quotas.throttling import Quotas
from app.record_json.work_rooms import WorkRooms
from app.service.scheduler import Scheduler
from app.settings import Settings
from app.start_positions.registry import PositionLimits, StartPositions


class Parts:
    """All parts, built in the order of their needs. A route receives the part that it needs, not all of them.

    Attributes:
        engine: partitions, topics, producers and transactions.
        producing: the part that all produce requests share.
        fetching: the part that all fetch requests share.
        fetch_sessions: the partitions that clients asked for before.
        load_jobs, start_positions: state of Spark jobs and of groups of readers.
        quotas, quota_control: the accounts of clients, and changes of their limits.
        is_released: whether the stop has begun.
        body_budget, answer_budget, rooms: limits on the memory of bodies, of long responses, and of decoding.
    """

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        metrics: Metrics,
        pools: Pools,
        quota_store: QuotaStore,
        quota_table: QuotaTable | None = None,
    ) -> None:
        self.is_released = False
        self.settings = settings
        self.metrics = metrics
        self.pools = pools
        self.body_budget = ByteBudget(settings.request_bodies_bytes_max, "bodies of requests")
        self.answer_budget = ByteBudget(settings.decoded_answers_bytes_max, "long answers")
        self.rooms = WorkRooms(settings.decoding_bytes_max, self.answer_budget)
        throttled = metrics.throttled_requests
        self.quotas = Quotas(engine.clock, quota_table, on_throttled=lambda quota: throttled.labels(quota).inc())
        self.quota_control = QuotaControl(self.quotas, quota_store, pools)
        self.engine = engine
        self.load_jobs = LoadJobs(
            self.engine,
            JobLimits(
                timeout_ms_max=settings.load_job_max_timeout_ms,
                expiration_ms=settings.load_job_expiration_ms,
                count_max=settings.load_job_count_max,
                attempt_count_max=settings.load_job_attempt_count_max,
                lists_bytes_max=settings.load_job_lists_bytes_max,
            ),
        )
        self.start_positions = StartPositions(
            self.engine,
            PositionLimits(
                count_max=settings.start_position_count_max, expiration_ms=settings.start_position_expiration_ms
            ),
        )
        self.fetch_sessions = FetchSessions(
            count_max=settings.fetch_session_count_max,
            partition_count_max=settings.fetch_session_partition_count_max,
            idle_ms=settings.fetch_session_idle_ms,
            elapsed_ms=engine.clock.elapsed_ms,
        )
        self.producing = Producing(
            self.engine, settings, metrics, pools, self.quotas, self.body_budget, self.rooms, self.load_jobs
        )
        self.fetching = Fetching(
            self.engine, self.fetch_sessions, settings, metrics, pools, self.quotas, self.body_budget, self.rooms
        )

    def scheduler(self) -> Scheduler:
        """Return the background work on all parts; start it on the event loop."""
        jobs = {
            **self.engine.background_jobs,
            "load_jobs": Job(self.load_jobs.run_jobs, self.settings.load_job_check_interval_ms),
            "start_positions": Job(self.start_positions.run_jobs, self.settings.start_position_check_interval_ms),
        }
        return Scheduler(jobs, self.metrics)

    def release(self) -> None:
        """Answer every fetch that waits, and end every stream of records. From now on no request waits."""
        self.is_released = True
        self.producing.released.set()
        self.engine.release()

    async def close(self) -> None:
        """Finish the appends that were taken, refuse the rest, and close the logs cleanly."""
        self.release()
        self.load_jobs.stop()
        await self.engine.transactions.close()
        await self.load_jobs.close()
        await self.start_positions.close()
        await self.engine.close()
