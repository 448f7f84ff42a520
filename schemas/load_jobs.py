"""Load jobs: many writers, some of them tried again, and one decision whose records count."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import LONG_MAX, Count, Long, Schema
from schemas.names import ApplicationId, Partition, TopicName
from schemas.producers import ProducerId

JOB_TIMEOUT_MS_DEFAULT = 600_000
JOB_TIMEOUT_MS_MAX = 365 * 24 * 60 * 60 * 1_000
"""The most that the setting load_job_max_timeout_ms can allow."""
WINNER_COUNT_MAX = 50_000
DRIVER_ID_LENGTH_MAX = 249

JobState = Literal["open", "committing", "committed", "aborting", "aborted"]
JobStateFilter = Literal["all", "open", "committing", "committed", "aborting", "aborted"]
JobMode = Literal["transactional", "idempotent"]
AbortReason = Literal["asked", "fenced", "timed_out"]

_Number = Annotated[int, Field(ge=0, le=LONG_MAX, json_schema_extra={"format": "int64"})]
_JobId = Annotated[str, Field(description="Id of the job, given by the service.", examples=["9f86d081884c7d65"])]
_ApplicationId = Annotated[str, Field(description="Whose job it is.", examples=["readings-nightly"])]
_DriverId = Annotated[
    str | None,
    Field(
        min_length=1,
        max_length=DRIVER_ID_LENGTH_MAX,
        description="An id of the job's driver, a new one for each run, by which the driver finds the job when no task "
        "could say which job it wrote in. Begun again with the same id, an open job is the answer.",
        examples=["3f2b8c0e5d7a4f19"],
    ),
]
_Version = Annotated[_Number, Field(description="Which of the application's loads it is.", examples=[20240501])]


class JobSpecification(Schema):
    """A job to begin. One version of an application's data is loaded once, however often it is tried."""

    application_id: ApplicationId
    version: _Version
    mode: Annotated[
        JobMode,
        Field(
            description="transactional: each attempt writes in a transaction of its own, and only winners are visible "
            "to readers of committed records. idempotent: each task has one producer, and what it wrote stays."
        ),
    ] = "transactional"
    timeout_ms: Annotated[
        int,
        Field(
            ge=1,
            le=JOB_TIMEOUT_MS_MAX,
            description="The job is aborted when nothing was enlisted or written in it for this long; at most the "
            "service's load_job_max_timeout_ms, a day by default.",
            examples=[JOB_TIMEOUT_MS_DEFAULT],
        ),
    ] = JOB_TIMEOUT_MS_DEFAULT
    topics: Annotated[
        list[TopicName],
        Field(
            default_factory=list,
            max_length=1_000,
            description="Where it writes: a version goes to the same topics each time, and an idempotent job counts "
            "what is written there.",
        ),
    ]
    join: Annotated[
        bool,
        Field(
            description="Go on with the open job of this application, version and mode if there is one, as tasks of "
            "one streaming batch do. Otherwise every open job of the application is aborted first, unless this "
            "driver_id has begun it."
        ),
    ] = False
    driver_id: _DriverId = None
    once: Annotated[
        bool,
        Field(
            description="The application is made up for this one load and its name is not used again: nothing is kept "
            "of it once the job is forgotten. Otherwise its version is refused for some time after that."
        ),
    ] = False


class AttemptSpecification(Schema):
    """One attempt of one task."""

    task: Annotated[_Number, Field(description="Number of the task.", examples=[3])]
    attempt: Annotated[_Number, Field(description="Number of the attempt, for people.", examples=[0])] = 0


class JobAttempt(Schema):
    """The identity to produce with. Sequences begin at 0 in each partition."""

    job_id: _JobId
    task: Annotated[_Number, Field(description="Number of the task.", examples=[3])]
    attempt: Annotated[_Number, Field(description="Number of the attempt, for people.", examples=[0])]
    producer_id: ProducerId
    producer_epoch: Annotated[int, Field(ge=0, le=0, description="Always 0.")] = 0
    transactional: Annotated[bool, Field(description="Whether its batches must have the transactional bit.")]


class JobWinner(Schema):
    """A producer whose records count."""

    producer_id: ProducerId
    rows: Annotated[
        Count | None, Field(description="Records it wrote; the commit is refused unless the log has exactly this many.")
    ] = None


class JobCommit(Schema):
    """Whose records count: at most one attempt of each task."""

    winners: Annotated[
        list[JobWinner], Field(description="The producers whose records count.", max_length=WINNER_COUNT_MAX)
    ]


class JobPartition(Schema):
    """What a job has written to one partition."""

    topic: TopicName
    partition: Partition
    rows: Annotated[Count, Field(description="Records written to it.", examples=[100000])]
    size_bytes: Annotated[Count, Field(description="Bytes of their batches.", examples=[2097152])]


class Job(Schema):
    """A load job."""

    job_id: _JobId
    application_id: _ApplicationId
    version: _Version
    driver_id: _DriverId = None
    mode: Annotated[
        JobMode,
        Field(description="transactional: only what winners wrote is seen. idempotent: whatever was written stays."),
    ]
    state: Annotated[
        JobState,
        Field(
            description="open: it takes records. committing, aborting: it is decided, and its markers are being "
            "written. committed, aborted: readers see how it ended."
        ),
    ]
    reason: Annotated[
        AbortReason | None,
        Field(
            description="Why it was aborted: by request, by a newer job of the application, or by its timeout.",
            examples=[None],
        ),
    ] = None
    timeout_ms: Annotated[
        Count,
        Field(description="It is aborted when nothing was enlisted or written in it for this long.", examples=[600000]),
    ]
    begin_timestamp: Annotated[Long, Field(description="When it began.", examples=[1714564800000])]
    last_update_timestamp: Annotated[Long, Field(description="When its state last changed.", examples=[1714564800000])]
    task_count: Annotated[Count, Field(description="Tasks that have enlisted.", examples=[64])]
    attempt_count: Annotated[Count, Field(description="Attempts that have enlisted; 0 once it is over.", examples=[64])]
    winner_count: Annotated[
        Count, Field(description="Attempts whose records count; 0 before the commit.", examples=[0])
    ]
    rows: Annotated[
        Count, Field(description="Records written: by all attempts while open, then by the winners.", examples=[100000])
    ]
    size_bytes: Annotated[
        Count, Field(description="Bytes of their batches, since the service last started.", examples=[2097152])
    ]
    elapsed_ms: Annotated[
        Count, Field(description="From its beginning to its decision, or until now.", examples=[4000])
    ]
    rows_per_second: Annotated[Count, Field(description="On average.", examples=[25000])]
    bytes_per_second: Annotated[Count, Field(description="On average.", examples=[524288])]


class JobDescription(Job):
    """A load job, with what it has written to each partition."""

    topics: Annotated[
        list[TopicName],
        Field(description="The topics that its driver named when it began the job; empty if it named none."),
    ]
    partitions: Annotated[list[JobPartition], Field(description="What it has written, by partition.")]


class JobPage(Schema):
    """One page of jobs, the newest first."""

    data: Annotated[list[Job], Field(description="The jobs of this page.")]
    has_more: Annotated[bool, Field(description="Whether there are more: next_cursor leads to them.")]
    next_cursor: Annotated[str | None, Field(description="Give it as start_after to go on.", examples=[None])]
