"""Routes for load jobs: begin, enlist attempts, commit, abort, list and describe."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import AfterValidator

from app.access.access import Access
from app.access.needs import AccessOf, asks
from app.access.operations import Operation, ResourceKind, transactional_id_resource
from app.load_jobs.decisions import Winner
from app.load_jobs.registry import LoadJobs
from app.load_jobs.state import JobMode, LoadJob
from app.openapi.documented_problems import PRODUCER, problems
from app.paths import JOB, JOB_ABORT, JOB_ATTEMPTS, JOB_COMMIT, JOBS
from app.routes.answers import request_body
from app.routes.dependencies import LoadJobsOf, json_body
from app.routes.job_answers import describe_job, summarise_job
from app.routes.transactions.producers import END_TIMEOUT_MS_DEFAULT, EndTimeout
from schemas.base import WholeNumber
from schemas.load_jobs import (
    DRIVER_ID_LENGTH_MAX,
    AttemptSpecification,
    Job,
    JobAttempt,
    JobCommit,
    JobDescription,
    JobPage,
    JobSpecification,
    JobStateFilter,
)
from schemas.names import TRANSACTIONAL_ID_LENGTH_MAX

PAGE_SIZE_DEFAULT = 100
PAGE_SIZE_MAX = 1_000
_CURSOR = re.compile(r"^([0-9]{1,18}\.[0-9a-zA-Z_-]{1,64})?$", re.ASCII)


def _cursor(text: str) -> str:
    if _CURSOR.fullmatch(text) is None:
        raise ValueError("must be the next_cursor of a page")
    return text


router = APIRouter(tags=["load jobs"])

_JobId = Annotated[
    str,
    Path(description="Id of the job.", examples=["9f86d081884c7d65"], json_schema_extra={"minLength": 1}),
]


def _job(jobs: LoadJobs, access: Access, operation: Operation, job_id: str) -> LoadJob:
    """Return the job.

    Raises:
        Problem: job_not_found; or 403 if the caller may not do this to the job's application.
    """
    job = jobs.find(job_id)
    access.require(operation, transactional_id_resource(job.application_id), f"load job {job_id!r}")
    return job


@router.post(
    JOBS,
    operation_id="beginJob",
    summary="Begin a load job",
    status_code=201,
    response_description="A new job began.",
    responses={
        200: {
            "model": JobDescription,
            "description": "The job exists. It is committed: this version was loaded before, and there is nothing to "
            "do. Or it is open: the request has join, or the same driver_id began the job.",
        },
        **problems(*PRODUCER, "job_version_forgotten", "job_topics_differ"),
    },
    openapi_extra=request_body(JobSpecification, example={"application_id": "readings-nightly", "version": 20240501}),
)
@asks(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID)
async def begin_job(
    jobs: LoadJobsOf,
    access: AccessOf,
    response: Response,
    body: Annotated[JobSpecification, Depends(json_body(JobSpecification))],
    timeout_ms: EndTimeout = END_TIMEOUT_MS_DEFAULT,
) -> JobDescription:
    """Begin a load job, unless a job of this version is committed: then the response is that job.

    The load of a committed version is a no-op. A version goes to the same topics each time: if the committed job names
    other topics than the request, the request is refused (409), because the rows for its topics are not loaded.

    Otherwise a new job begins, and all other open jobs of the application are aborted. So a load that died does not
    hold up readers once it is tried again. With a `driver_id` the request is safe to send again: if this driver began
    an open job, the response is that job, and the job is not fenced.
    """
    access.require(Operation.WRITE, transactional_id_resource(body.application_id))
    begun = await jobs.begin(
        body.application_id,
        body.version,
        mode=JobMode(body.mode),
        timeout_ms=body.timeout_ms,
        topics=body.topics,
        join=body.join,
        wait_ms=timeout_ms,
        driver_id=body.driver_id,
        once=body.once,
    )
    response.status_code = 201 if begun.is_new else 200
    return await describe_job(jobs, begun.job)


@router.get(
    JOBS, operation_id="listJobs", summary="List load jobs", responses=problems("invalid_request", "partition_offline")
)
@asks(Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID)
async def list_jobs(
    jobs: LoadJobsOf,
    access: AccessOf,
    application_id: Annotated[
        str | None, Query(max_length=TRANSACTIONAL_ID_LENGTH_MAX, description="Only jobs of this application.")
    ] = None,
    driver_id: Annotated[
        str | None, Query(max_length=DRIVER_ID_LENGTH_MAX, description="Only jobs of this driver.")
    ] = None,
    state: Annotated[JobStateFilter, Query(description="Only jobs in this state.")] = "all",
    start_after: Annotated[
        str,
        AfterValidator(_cursor),
        Query(description="next_cursor of the previous page.", json_schema_extra={"pattern": _CURSOR.pattern}),
    ] = "",
    limit: Annotated[int, WholeNumber(1, PAGE_SIZE_MAX), Query(description="Jobs per page.")] = PAGE_SIZE_DEFAULT,
) -> JobPage:
    """List one page of the jobs that the caller may describe, the newest first."""

    def is_shown(job: LoadJob) -> bool:
        is_wanted = application_id in (None, job.application_id) and driver_id in (None, job.driver_id)
        is_wanted = is_wanted and state in ("all", job.state.value)
        return is_wanted and access.allows(Operation.DESCRIBE, transactional_id_resource(job.application_id))

    begun_ms, _, job_id = start_after.partition(".")
    page = await jobs.page(is_shown, (int(begun_ms), job_id) if start_after else None, limit + 1)
    has_more = len(page) > limit
    data: list[Job] = [await summarise_job(jobs, job) for job in page[:limit]]
    cursor = f"{data[-1].begin_timestamp}.{data[-1].job_id}" if has_more else None
    return JobPage(data=data, has_more=has_more, next_cursor=cursor)


@router.get(
    JOB,
    operation_id="getJob",
    summary="Describe a load job",
    responses=problems("job_not_found", "partition_offline"),
)
@asks(Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID)
async def get_job(job_id: _JobId, jobs: LoadJobsOf, access: AccessOf) -> JobDescription:
    """Return the job's state and progress: its rows, bytes and rates, and the rows and bytes per partition."""
    return await describe_job(jobs, _job(jobs, access, Operation.DESCRIBE, job_id))


@router.post(
    JOB_ATTEMPTS,
    operation_id="enlistAttempt",
    summary="Enlist an attempt of a task",
    status_code=201,
    response_description="The producer identity of the attempt.",
    responses=problems(*PRODUCER, "job_not_found", "invalid_job_state"),
    openapi_extra=request_body(AttemptSpecification, example={"task": 3, "attempt": 0}),
)
@asks(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID)
async def enlist_attempt(
    job_id: _JobId,
    jobs: LoadJobsOf,
    access: AccessOf,
    body: Annotated[AttemptSpecification, Depends(json_body(AttemptSpecification))],
) -> JobAttempt:
    """Enlist an attempt of a task, and return its producer id.

    The producer id was never given before. Send transactional batches with it, in epoch 0, with sequences from 0 in
    each partition. In an idempotent job a task always has the same producer id, and its batches are not transactional.

    Enlisting again is safe: attempts that do not win are aborted.
    """
    job = _job(jobs, access, Operation.WRITE, job_id)
    producer_id = await jobs.enlist(job_id, body.task, body.attempt)
    return JobAttempt(
        job_id=job_id,
        task=body.task,
        attempt=body.attempt,
        producer_id=producer_id,
        transactional=job.mode is JobMode.TRANSACTIONAL,
    )


@router.post(
    JOB_COMMIT,
    operation_id="commitJob",
    summary="Commit a load job",
    response_description="The job is committed: readers of committed records see only the winners' records.",
    responses=problems(*PRODUCER, "job_not_found", "invalid_job_state", "job_incomplete", "request_timed_out"),
    openapi_extra=request_body(JobCommit, example={"winners": [{"producer_id": 4000, "rows": 100_000}]}),
)
@asks(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID)
async def commit_job(
    job_id: _JobId,
    jobs: LoadJobsOf,
    access: AccessOf,
    body: Annotated[JobCommit, Depends(json_body(JobCommit))],
    timeout_ms: EndTimeout = END_TIMEOUT_MS_DEFAULT,
) -> JobDescription:
    """Commit the winners among all attempts of all tasks, and abort all other attempts, in one decision.

    Later requests of any attempt are refused (409). Send the request again if the response was lost, or after 504: with
    the same winners it succeeds, and nothing happens twice.
    """
    _job(jobs, access, Operation.WRITE, job_id)
    winners = [Winner(each.producer_id, each.rows) for each in body.winners]
    return await describe_job(jobs, await jobs.commit(job_id, winners, timeout_ms))


@router.post(
    JOB_ABORT,
    operation_id="abortJob",
    summary="Abort a load job",
    response_description="The job has ended; a committed job stays committed.",
    responses=problems("job_not_found", "invalid_request", "request_timed_out", "partition_offline", "overloaded"),
)
@asks(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID)
async def abort_job(
    job_id: _JobId, jobs: LoadJobsOf, access: AccessOf, timeout_ms: EndTimeout = END_TIMEOUT_MS_DEFAULT
) -> JobDescription:
    """Abort the job: readers of committed records never see the records of its attempts.

    A commit is never undone: for a committed job the request changes nothing, and the response is that job.
    """
    _job(jobs, access, Operation.WRITE, job_id)
    return await describe_job(jobs, await jobs.abort(job_id, timeout_ms))
