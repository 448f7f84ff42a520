"""The refusals of load jobs: each function returns the answer, or raises it."""

from __future__ import annotations

from collections.abc import Sequence

from app.load_jobs.progress import Attempt
from app.load_jobs.state import LoadJob
from app.problems import kinds
from app.problems.problem import Fault, Problem, invalid

_RETRY_AFTER_MS = 1_000
_NAMED_MAX = 5


def not_found(job_id: str) -> Problem:
    """Return the answer if there is no such job."""
    return Problem(kinds.JOB_NOT_FOUND, f"there is no load job {job_id!r}, or it was forgotten")


def invalid_state(job: LoadJob) -> Problem:
    """Return the answer if the job was decided another way."""
    why = "" if job.reason is None else f" ({job.reason.value})"
    return Problem(
        kinds.INVALID_JOB_STATE,
        f"load job {job.job_id} of {job.application_id!r} is {job.state.value}{why}",
        state=job.state.value,
        reason=None if job.reason is None else job.reason.value,
    )


def version_forgotten(application_id: str, version: int, forgotten: int) -> Problem:
    """Return the answer for a version that may have been committed before the oldest one that is remembered."""
    return Problem(
        kinds.JOB_VERSION_FORGOTTEN,
        f"version {version} of {application_id!r} may have been committed: {forgotten} was, and such are forgotten",
    )


def check_topics(job: LoadJob, topics: Sequence[str]) -> None:
    """Return if the job may stand for a new one that writes to ``topics``: they are its own, or one of both names none.

    Raises:
        Problem: job_topics_differ.
    """
    if not job.topics or not topics or set(job.topics) == set(topics):
        return
    told = "was loaded" if job.commits else "is being loaded"
    raise Problem(
        kinds.JOB_TOPICS_DIFFER,
        f"version {job.version} of {job.application_id!r} {told} into {_names(job.topics)}, not {_names(topics)}: "
        "give each write an application of its own",
        topics=list(job.topics),
    )


def _names(topics: Sequence[str]) -> str:
    few = ", ".join(topics[:_NAMED_MAX])
    return few if len(topics) <= _NAMED_MAX else f"{few} and {len(topics) - _NAMED_MAX} more"


def incomplete(job_id: str, producer_id: int, expected: int, there: int) -> Problem:
    """Return the answer if the log has fewer records of a winner than it says it wrote."""
    return Problem(
        kinds.JOB_INCOMPLETE,
        f"producer {producer_id} of load job {job_id} has {there} records in the log, and {expected} were expected",
        producer_id=producer_id,
        expected_rows=expected,
        rows=there,
    )


def overloaded(detail: str) -> Problem:
    """Return the answer if a limit of the service is reached; ``detail`` names the limit."""
    return Problem(kinds.OVERLOADED, detail, retry_after_ms=_RETRY_AFTER_MS)


def ends_later(job: LoadJob) -> Problem:
    """Return the answer if the service stops between the decision and its markers."""
    detail = f"load job {job.job_id} is {job.state.value}; the next start of the service ends it"
    return Problem(kinds.SHUTTING_DOWN_UNFINISHED, detail)


def too_late(job: LoadJob, wait_ms: int) -> Problem:
    """Return the answer if the job is decided, and its markers are not in every partition yet."""
    return Problem(
        kinds.REQUEST_TIMED_OUT,
        f"load job {job.job_id} is {job.state.value}, and was not over within {wait_ms} ms; that goes on",
    )


def timeout_too_long(timeout_ms: int, limit_ms: int) -> Problem:
    """Return the answer to a timeout above the service's limit."""
    return _invalid("/timeout_ms", f"{timeout_ms} is above load_job_max_timeout_ms, {limit_ms}")


def unknown_winner(place: int, producer_id: int) -> Problem:
    """Return the answer to a winner that no attempt of the job has as its producer."""
    return _invalid(f"/winners/{place}/producer_id", f"no attempt of the job has producer id {producer_id}")


def check_one_of_each_task(winners: Sequence[Attempt]) -> None:
    """Return if no task has two winners.

    Raises:
        Problem: invalid_request.
    """
    seen: set[int] = set()
    for place, attempt in enumerate(winners):
        if attempt.task in seen:
            raise _invalid(f"/winners/{place}", f"task {attempt.task} has two winners")
        seen.add(attempt.task)


def _invalid(pointer: str, detail: str) -> Problem:
    return invalid([Fault(pointer, "invalid_value", detail)])
