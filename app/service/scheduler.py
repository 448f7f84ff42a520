"""Background work: jobs that run periodically.

A job may run at any time, any number of times: each run does the work that is due. At most one run of a job is in
progress. The next run makes up for a missed one.

Jobs run by the event loop's elapsed time. A step of the wall clock, in either direction and of any length, neither
holds up a job nor makes it run more often.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping

from app.engine.engine import Job
from app.metrics.metrics import Metrics
from log_model.errors import StorageError

logger = logging.getLogger(__name__)


class Scheduler:
    """Runs jobs at their intervals until closed. Thread: the event loop."""

    def __init__(self, jobs: Mapping[str, Job], metrics: Metrics) -> None:
        self._jobs = dict(jobs)
        self._metrics = metrics
        self._closed = False
        self._running: set[asyncio.Task[None]] = set()
        self._repeating: list[asyncio.Task[None]] = []

    @property
    def intervals_ms(self) -> Mapping[str, int]:
        """Return the interval of each job."""
        return {name: job.interval_ms for name, job in self._jobs.items()}

    def start(self) -> None:
        """Start the jobs: each runs for the first time once its interval has passed. Call it on the event loop."""
        loop = asyncio.get_running_loop()
        for name, job in self._jobs.items():
            repeating = loop.create_task(self._repeat(name, job.interval_ms / 1000), name=f"schedule of job {name}")
            self._repeating.append(repeating)

    async def _repeat(self, name: str, interval_seconds: float) -> None:
        """Run a job at each multiple of its interval. A multiple that passes while the job runs is left out."""
        loop = asyncio.get_running_loop()
        due = loop.time() + interval_seconds
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            # A task of its own: the stop cancels the schedule, but waits for the job.
            await asyncio.shield(loop.create_task(self.run(name), name=f"job {name}"))
            due += interval_seconds * (1 + math.floor(max(0.0, loop.time() - due) / interval_seconds))

    async def run(self, name: str) -> None:
        """Run a job now, whatever its interval. A failure is logged and counted, and the next run tries again."""
        task = asyncio.current_task()
        if self._closed or task is None:
            return
        self._running.add(task)
        metrics = self._metrics
        began = time.perf_counter()
        try:
            await self._jobs[name].run()
        except (OSError, StorageError) as error:
            # The disk failed, not the code: it may last, and a traceback for every run would hide all other log lines.
            metrics.job_failures.labels(name).inc()
            logger.warning("background job %s failed: %s", name, error)
        except Exception:  # a failed run must not end the schedule
            metrics.job_failures.labels(name).inc()
            logger.exception("background job %s failed", name)
        finally:
            self._running.discard(task)
            metrics.job_runs.labels(name).inc()
            metrics.job_seconds.labels(name).set(time.perf_counter() - began)
            metrics.job_last_run.labels(name).set_to_current_time()

    async def close(self) -> None:
        """Start no more runs, and wait for those in progress."""
        self._closed = True
        for repeating in self._repeating:
            repeating.cancel()
        current = asyncio.current_task()
        running = [task for task in self._running if task is not current]
        ending = [*running, *self._repeating]
        if ending:
            await asyncio.wait(ending)
        self._repeating.clear()
