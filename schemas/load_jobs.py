"""Load jobs: many writers, some of them retried, and one decision about which records count."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import LONG_MAX, Count, Long, Schema
from schemas.names import ApplicationId, Partition, TopicName
from schemas.producers import ProducerId

JOB_TIMEOUT_MS_DEFAULT = 600_000
JOB_TIMEOUT_MS_MAX = 365 * 24 * 60 * 60 * 1_000
"""The greatest value of the setting load_job_max_timeout_ms."""
WINNER_COUNT_MAX = 50_000
DRIVER_ID_LENGTH_MAX = 249

JobState = Literal["open", "committing", "committed", "aborting", "aborted"]
JobStateFilter = Literal["all", "open", "committing", "committed", "aborting", "aborted"]
JobMode = Literal["transactional", "idempotent"]
AbortReason = Literal["asked", "fenced", "timed_out"]

_Number = Annotated[int, Field(ge=0, le=LONG_MAX, json_schema_extra={"format": "int64"})]
_JobId = Annotated[str, Field(description="Id of the job, assigned by the service.", examples=["9f86d081884c7d65"])]
_ApplicationId = Annotated[
    str, Field(description="Id of the application that the job belongs to.", examples=["readings-nightly"])
]
_DriverId = Annotated[
    str | None,
    Field(
        min_length=1,
        max_length=DRIVER_ID_LENGTH_MAX,
        description="Id of the job's driver, a new one for each run. With it the driver finds the job even if no task "
        "could report its job id. A request to begin it again with the same id returns the open job.",
        examples=["3f2b8c0e5d7a4f19"],
    ),
]
_Version = Annotated[
    _Number, Field(description="Version of the application's data that the job loads.", examples=[20240501])
]


class JobSpecification(Schema):
    """A job to begin. The service loads one version of an application's data once, however often it is tried."""

    application_id: ApplicationId
    version: _Version
    mode: Annotated[
        JobMode,
        Field(
            description="transactional: each attempt writes in a transaction of its own, and only winners are visible "
            "to readers of committed records. idempotent: each task has one producer, and all its records stay."
        ),
    ] = "transactional"
    timeout_ms: Annotated[
        int,
        Field(
            ge=1,
            le=JOB_TIMEOUT_MS_MAX,
            description="The service aborts the job if nothing was enlisted or written in it for this many "
            "milliseconds; at most the service's load_job_max_timeout_ms, a day by default.",
            examples=[JOB_TIMEOUT_MS_DEFAULT],
        ),
    ] = JOB_TIMEOUT_MS_DEFAULT
    topics: Annotated[
        list[TopicName],
        Field(
            default_factory=list,
            max_length=1_000,
            description="Topics that the job writes to. Each try of a version must name the same topics, and an "
            "idempotent job counts the records that are written there.",
        ),
    ]
    join: Annotated[
        bool,
        Field(
            description="Return the open job of this application, version and mode if there is one; the tasks of one "
            "streaming batch do so. Otherwise the service first aborts every open job of the application, unless this "
            "driver_id began it."
        ),
    ] = False
    driver_id: _DriverId = None
    once: Annotated[
        bool,
        Field(
            description="Promise that the application's id is used for this one load only: the service keeps nothing "
            "of it once the job is forgotten. Otherwise it refuses the version for some time after that."
        ),
    ] = False


class AttemptSpecification(Schema):
    """One attempt of one task, to enlist in a job."""

    task: Annotated[_Number, Field(description="Number of the task.", examples=[3])]
    attempt: Annotated[_Number, Field(description="Number of the attempt, for people.", examples=[0])] = 0


class JobAttempt(Schema):
    """The identity that an attempt produces with. Sequences begin at 0 in each partition."""

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
    """The decision which producers' records count: at most one attempt of each task."""

    winners: Annotated[
        list[JobWinner], Field(description="The producers whose records count.", max_length=WINNER_COUNT_MAX)
    ]


class JobPartition(Schema):
    """The records that a job has written to one partition."""

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
        Field(description="transactional: readers see only winners' records. idempotent: all written records stay."),
    ]
    state: Annotated[
        JobState,
        Field(
            description="open: it takes records. committing, aborting: it is decided, and its markers are being "
            "written. committed, aborted: readers see the outcome."
        ),
    ]
    reason: Annotated[
        AbortReason | None,
        Field(
            description="Cause of the abort: a request, a newer job of the application, or the timeout.",
            examples=[None],
        ),
    ] = None
    timeout_ms: Annotated[
        Count,
        Field(
            description="It is aborted if nothing was enlisted or written in it for this many milliseconds.",
            examples=[600000],
        ),
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
        Count, Field(description="Milliseconds from its beginning to its decision, or until now.", examples=[4000])
    ]
    rows_per_second: Annotated[Count, Field(description="Records per second on average.", examples=[25000])]
    bytes_per_second: Annotated[Count, Field(description="Bytes per second on average.", examples=[524288])]


class JobDescription(Job):
    """A load job, with the records that it has written to each partition."""

    topics: Annotated[
        list[TopicName],
        Field(description="The topics that its driver named when it began the job; empty if it named none."),
    ]
    partitions: Annotated[list[JobPartition], Field(description="Records that it has written, by partition.")]


class JobPage(Schema):
    """One page of jobs, the newest first."""

    data: Annotated[list[Job], Field(description="The jobs of this page.")]
    has_more: Annotated[bool, Field(description="Whether there are more: next_cursor leads to them.")]
    next_cursor: Annotated[str | None, Field(description="start_after of the next page; null: none.", examples=[None])]
