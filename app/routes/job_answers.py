"""Documents of load jobs."""

from __future__ import annotations

from typing import Any

from app.load_jobs.registry import LoadJobs
from app.load_jobs.state import LoadJob
from schemas.load_jobs import Job, JobDescription, JobPartition


async def summarise_job(jobs: LoadJobs, job: LoadJob) -> Job:
    """Return the job's document without its partitions."""
    _, rows, size_bytes = await jobs.loaded(job)
    return Job.model_construct(**_members(jobs, job, rows, size_bytes))


async def describe_job(jobs: LoadJobs, job: LoadJob) -> JobDescription:
    """Return the job's document with the rows and bytes that it has written to each partition."""
    loaded, rows, size_bytes = await jobs.loaded(job)
    return JobDescription.model_construct(
        **_members(jobs, job, rows, size_bytes),
        topics=list(job.topics),
        partitions=[
            JobPartition.model_construct(
                topic=each.partition.topic,
                partition=each.partition.partition,
                rows=each.rows,
                size_bytes=each.size_bytes,
            )
            for each in loaded
        ],
    )


def _members(jobs: LoadJobs, job: LoadJob, rows: int, size_bytes: int) -> dict[str, Any]:
    elapsed_ms = jobs.elapsed_ms(job)
    return {
        "job_id": job.job_id,
        "application_id": job.application_id,
        "version": job.version,
        "driver_id": job.driver_id,
        "mode": job.mode.value,
        "state": job.state.value,
        "reason": None if job.reason is None else job.reason.value,
        "timeout_ms": job.timeout_ms,
        "begin_timestamp": job.begun_ms,
        "last_update_timestamp": job.updated_ms,
        "task_count": jobs.task_count(job),
        "attempt_count": jobs.attempt_count(job),
        "winner_count": len(job.winners),
        "rows": rows,
        "size_bytes": size_bytes,
        "elapsed_ms": elapsed_ms,
        "rows_per_second": 1000 * rows // max(1, elapsed_ms),
        "bytes_per_second": 1000 * size_bytes // max(1, elapsed_ms),
    }
