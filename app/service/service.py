"""The life of one service: opening the logs while health routes answer already, serving, stopping cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable

from app.access.authentication import Authenticator
from app.access.control import AccessControl, jwt_verifier
from app.access.registry import AccessRegistry
from app.engine_local.opening import LocalOpening
from app.event_loop.pools import Pools, call_in
from app.metrics.metrics import Metrics
from app.problems import kinds
from app.problems.problem import Problem
from app.quotas.limits import QuotaTable
from app.quotas.store import QuotaStore
from app.service.opening import Opening
from app.service.opening_progress import describe, report, summarize
from app.service.parts import Parts
from app.service.scheduler import Scheduler
from app.settings import Settings
from log_model.clock import Clock, SystemClock
from rollway.records.compiled import is_compiled
from storage.disk.file_system import FileSystem, LocalFileSystem

logger = logging.getLogger(__name__)


class Service:
    """The state behind the application, made before the loop runs; ``open`` and ``close`` run on it.

    ``opening`` brings the engine up; without one it is that of the data directory in the settings.
    ``on_ready`` is called once the logs are open, ``on_failure`` if they cannot be opened.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        opening: Opening | None = None,
        on_ready: Callable[[], None] | None = None,
        on_failure: Callable[[Exception], None] | None = None,
    ) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.pools = Pools(settings)
        self.failure: Exception | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.scheduler: Scheduler | None = None
        self._clock = clock or SystemClock()
        self._engine_opening = opening or LocalOpening(settings, self._clock)
        self._on_ready = on_ready
        self._on_failure = on_failure
        self._jwts = jwt_verifier(settings, self._clock)
        self._access: AccessControl | None = None
        self._parts: Parts | None = None
        self._quota_table = QuotaTable()
        self._opening: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def is_ready(self) -> bool:
        """Whether requests are answered: the logs are open, and the stop is yet to begin."""
        return self._parts is not None and not self._stopping

    @property
    def ready_parts(self) -> Parts | None:
        """The parts; ``None`` where ``parts`` raises."""
        return None if self._stopping else self._parts

    @property
    def parts(self) -> Parts:
        """The parts that answer requests.

        Raises:
            Problem: 503, as the logs are not open yet or the service is stopping.
        """
        if self._parts is None or self._stopping:
            raise self.unready()
        return self._parts

    @property
    def access(self) -> AccessControl:
        """Keys, tokens and ACLs.

        Raises:
            Problem: 503, as the data directory is not open yet.
        """
        if self._access is None:
            raise self.unready(with_progress=False)
        return self._access

    @property
    def authenticator(self) -> Authenticator:
        """The authenticator of requests. Raises as ``access``."""
        return self.access.authenticator

    def unready(self, *, with_progress: bool = True) -> Problem:
        """Return the 503 to answer with. ``with_progress`` is false for callers that are not authenticated."""
        if self._stopping:
            return Problem(kinds.SHUTTING_DOWN, "the service is stopping")
        progress = self._engine_opening.progress() if with_progress else None
        counted = "the first of them" if progress is None else describe(progress)
        return Problem(
            kinds.STARTING,
            f"the logs are being opened and recovered: {counted}" if with_progress else "the service is starting",
            progress=None if progress is None else progress._asdict(),
        )

    def start(self) -> None:
        """Begin to open the logs. Call it on the event loop."""
        if not is_compiled():
            logger.info("records are read and written in Python: installed with a C compiler, that is quicker")
        self.loop = asyncio.get_running_loop()
        self._opening = self.loop.create_task(self._open(), name="opening the logs")

    async def opened(self) -> None:
        """Return when the logs are open.

        Raises:
            Exception: the reason why they cannot be opened.
        """
        assert self._opening is not None
        await asyncio.shield(self._opening)
        if self.failure is not None:
            raise self.failure

    async def _open(self) -> None:
        loop, progress_of = asyncio.get_running_loop(), self._engine_opening.progress
        reporting = loop.create_task(report(progress_of), name="progress of opening")
        try:
            file_system, registry = await call_in(self.pools.control, self._open_files)
        except Exception as error:  # noqa: BLE001 - ``opened`` raises it
            self.failure = error
            if self._on_failure is not None:
                self._on_failure(error)
            return
        finally:
            reporting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reporting
        progress = progress_of()
        if progress is not None:
            logger.info("%s", summarize(progress))
        self._access = AccessControl(
            registry, self.settings, self._clock, self.pools.control, self.metrics.authentication_failures, self._jwts
        )
        quota_store = QuotaStore(file_system, self._engine_opening.own_directory)
        engine = self._engine_opening.engine(self.metrics, self.pools)
        parts = Parts(engine, self.settings, self.metrics, self.pools, quota_store, self._quota_table)
        await engine.start()
        await parts.load_jobs.start()
        engine.leave_out_producer_ids(parts.load_jobs.largest_producer_id)
        await parts.start_positions.start()
        self._parts = parts
        self._watch(parts)
        self.scheduler = parts.scheduler()
        if self._stopping:
            return
        self.scheduler.start()
        if self._on_ready is not None:
            self._on_ready()

    def _open_files(self) -> tuple[FileSystem, AccessRegistry]:
        own_directory = self._engine_opening.own_directory
        # Before the logs: an operator who has damaged this file need not wait for their recovery.
        self._quota_table = QuotaStore(LocalFileSystem(), own_directory).load()
        file_system = self._engine_opening.open()
        try:
            # The directory's lock is held.
            registry = AccessRegistry.open(own_directory, file_system, self._clock.now_ms, self.settings.super_users)
        except BaseException:
            self._engine_opening.close()
            raise
        return file_system, registry

    def _watch(self, parts: Parts) -> None:
        watch, sessions = self.metrics.watch, parts.fetch_sessions
        watch("rollway_fetch_sessions", "Fetch sessions.", lambda: len(sessions))
        watch("rollway_fetch_session_partitions", "Partitions in fetch sessions.", lambda: sessions.partition_count)
        self.metrics.watch_count(
            "rollway_fetch_session_evictions_total",
            "Fetch sessions that lost their place to another since the start.",
            lambda: sessions.eviction_count,
        )
        watch("rollway_open_load_jobs", "Load jobs that are not over.", parts.load_jobs.open_count)
        watch("rollway_start_positions", "Start positions that are pinned.", parts.start_positions.position_count)

    def release(self) -> None:
        """Begin the stop: long polls answer at once, new requests get 503. Call it on the loop, or before it runs."""
        self._stopping = True
        if self._parts is not None:
            self._parts.release()

    async def close(self) -> None:
        """Finish accepted work, close the logs cleanly, end the threads."""
        self.release()
        if self._opening is not None:
            await asyncio.wait([self._opening])
        if self.scheduler is not None:
            await self.scheduler.close()
        if self._parts is not None:
            await self._parts.close()
        await asyncio.get_running_loop().run_in_executor(None, functools.partial(self.pools.close))
