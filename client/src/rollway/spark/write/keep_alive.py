"""A load job that does not time out while a task of it runs and has nothing to send: its input may be slow in coming.

The task's own thread waits for that input, so another one gives the service a sign of life. Enlisting is one. It costs
one of the job's attempts, so it is done only when nobody else has given any: four times in a timeout at the most.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from types import TracebackType
from typing import Self

from rollway.client import ClientSettings, JobConflictError, JobNotFoundError, RollwayClient, RollwayError
from rollway.spark.write.load_jobs import JobInUse

# Silence of two turns is answered at the third: a job is never silent for more than three quarters of its timeout.
_TURNS_PER_TIMEOUT = 4
_TURN_SECONDS_MIN = 0.05

# A turn that is missed is better than one that is late, and whoever ends a task waits for the turn it is in.
_RETRIES_MAX = 2


class SignsOfLife:
    """Those of one task for one job, as seldom as will do: one turn is to be taken every quarter of the timeout.

    Thread: one takes turns; ``note`` may be called by any.
    """

    def __init__(self, job: JobInUse, task: int, attempt: int) -> None:
        self._job_id = job.job_id
        self._task = task
        self._attempt = attempt
        self._has_given = False
        self._looked: tuple[int, int] | None = None

    def note(self) -> None:
        """The task has enlisted, or records of it were appended: that is a sign of life."""
        self._has_given = True

    def turn(self, client: RollwayClient) -> bool:
        """Enlist if nobody has given a sign of life since the turn before; whether the job is still open.

        Raises:
            RollwayError: the service cannot be reached, or refuses.
        """
        if self._has_given:
            self._has_given = False
            self._looked = None
            return True
        try:
            job = client.find_job(self._job_id)
            if job.state != "open":
                return False
            looked = (job.attempt_count, job.rows)
            if looked == self._looked:
                # Nothing is ever written by this attempt, and the commit drops it.
                client.enlist(self._job_id, self._task, self._attempt)
            self._looked = looked
        except (JobConflictError, JobNotFoundError):
            return False
        return True


class KeptOpen:
    """Keeps the job of a task open as long as the task is in this context, and this process lives.

    Thread: the task's, but for ``note``; it has one of its own, with a connection of its own.
    """

    def __init__(self, settings: ClientSettings, task: int, attempt: int) -> None:
        self._settings = replace(settings, retries=min(settings.retries, _RETRIES_MAX))
        self._task = task
        self._attempt = attempt
        self._signs: SignsOfLife | None = None
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def watch(self, job: JobInUse) -> None:
        """Keep this job open from now on, and no other."""
        self._stop()
        self._signs = SignsOfLife(job, self._task, self._attempt)
        self._ended = threading.Event()
        args = (self._signs, _turn_seconds(job.timeout_ms, self._task), self._ended)
        self._thread = threading.Thread(target=self._run, args=args, name="rollway keep alive", daemon=True)
        self._thread.start()

    def note(self) -> None:
        """See ``SignsOfLife``. Thread: any."""
        if self._signs is not None:
            self._signs.note()

    def _run(self, signs: SignsOfLife, seconds: float, ended: threading.Event) -> None:
        # Most tasks end before their first turn, and need no connection.
        if ended.wait(seconds):
            return
        with RollwayClient(self._settings) as client:
            while _is_open(signs, client) and not ended.wait(seconds):
                pass

    def _stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()


def _is_open(signs: SignsOfLife, client: RollwayClient) -> bool:
    try:
        return signs.turn(client)
    except RollwayError:
        # It may be back in time, and what the task finds says more.
        return True


def _turn_seconds(timeout_ms: int, task: int) -> float:
    """Tasks that begin together take their turns a little apart, so that one sees what another has done."""
    spread = 1 - (task % 64) / 1_000
    return max(timeout_ms / 1_000 / _TURNS_PER_TIMEOUT * spread, _TURN_SECONDS_MIN)
