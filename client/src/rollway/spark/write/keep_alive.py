"""Signs of life for a load job, so that it does not time out while a task waits for slow input.

The task's own thread waits for the input, so another thread gives the signs. A sign is to enlist an attempt, which uses
up one of the job's attempts. So a task enlists only if no other task has given a sign, at most four times in a timeout.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from types import TracebackType
from typing import Self

from rollway.client import ClientSettings, JobConflictError, JobNotFoundError, RollwayClient, RollwayError
from rollway.spark.write.load_jobs import JobInUse

# After two silent turns the third enlists: a job is never silent for more than three quarters of its timeout.
_TURNS_PER_TIMEOUT = 4
_TURN_SECONDS_MIN = 0.05

# A missed turn is better than a late one, and the end of a task waits for its current turn.
_RETRIES_MAX = 2


class SignsOfLife:
    """The signs of life of one task for one job, as few as suffice.

    ``turn`` must be called every quarter of the timeout.

    Thread: one thread calls ``turn``; any thread may call ``note``.
    """

    def __init__(self, job: JobInUse, task: int, attempt: int) -> None:
        self._job_id = job.job_id
        self._task = task
        self._attempt = attempt
        self._has_given = False
        self._looked: tuple[int, int] | None = None

    def note(self) -> None:
        """Note a sign of life: the task has enlisted, or records of it were appended."""
        self._has_given = True

    def turn(self, client: RollwayClient) -> bool:
        """Enlist if no task has given a sign of life since the previous turn. Return whether the job is still open.

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
                # This attempt never writes anything, and the commit drops it.
                client.enlist(self._job_id, self._task, self._attempt)
            self._looked = looked
        except (JobConflictError, JobNotFoundError):
            return False
        return True


class KeptOpen:
    """A context that keeps the job of a task open until the task leaves it, or the process ends.

    Thread: the task's, except for ``note``. It starts a thread, which has a separate connection.
    """

    def __init__(self, settings: ClientSettings, task: int, attempt: int) -> None:
        self._settings = replace(settings, retries=min(settings.retries, _RETRIES_MAX))
        self._task = task
        self._attempt = attempt
        self._signs: SignsOfLife | None = None
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def watch(self, job: JobInUse) -> None:
        """Keep this job open from now on, instead of an earlier one."""
        self._stop()
        self._signs = SignsOfLife(job, self._task, self._attempt)
        self._ended = threading.Event()
        args = (self._signs, _turn_seconds(job.timeout_ms, self._task), self._ended)
        self._thread = threading.Thread(target=self._run, args=args, name="rollway keep alive", daemon=True)
        self._thread.start()

    def note(self) -> None:
        """Note a sign of life; see ``SignsOfLife``. Thread: any."""
        if self._signs is not None:
            self._signs.note()

    def _run(self, signs: SignsOfLife, seconds: float, ended: threading.Event) -> None:
        # Most tasks end before their first turn and need no connection.
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
        # The service may be back in time, and the task's own error says more.
        return True


def _turn_seconds(timeout_ms: int, task: int) -> float:
    """Return the time between two turns. Tasks that begin together get slightly different times, so that one sees the
    sign of another."""
    spread = 1 - (task % 64) / 1_000
    return max(timeout_ms / 1_000 / _TURNS_PER_TIMEOUT * spread, _TURN_SECONDS_MIN)
