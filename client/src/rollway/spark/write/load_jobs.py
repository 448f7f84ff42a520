"""The driver's side of a write: one load job, which begins before the tasks and is decided after them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from rollway.client import Job, JobConflictError, JobMode, RollwayClient, RollwayError, TopicNotFoundError
from rollway.spark.errors import JobTakenError, JobTimedOutError
from rollway.spark.options.options import WriteOptions
from rollway.spark.write.messages import TaskMessage, sum_of_rejects
from rollway.spark.write.rejects import too_many
from rollway.spark.write.routing import TargetTopic, is_topic_name

COMMITTED_STATES = ("committing", "committed")
TIMED_OUT = "timed_out"
"""The reason of an abort because of missing signs of life."""

# Kafka's default of max.message.bytes.
_BATCH_BYTES_MAX_DEFAULT = 1_048_588


@dataclass(frozen=True, slots=True)
class JobInUse:
    """The job of a write, as far as its tasks need it."""

    job_id: str
    application_id: str
    version: int
    is_loaded: bool
    """True if it was committed before: there is nothing to do."""
    timeout_ms: int
    """Milliseconds without a sign of life after which the service aborts it."""
    once: bool = False
    """True if its application's id is used for this write only."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The plan of a write, for its tasks. Picklable.

    ``job`` is ``None`` for delivery at least once, and in streams, whose tasks find the job by their batch.
    """

    options: WriteOptions
    job: JobInUse | None = None
    topics: dict[str, TargetTopic] = field(default_factory=dict)
    """Topics that the driver has looked up."""
    driver_id: str | None = None
    """Id by which the driver finds jobs that its tasks began, if no task could report them."""


def find_topic(client: RollwayClient, name: str) -> TargetTopic | None:
    """Look up a topic for a writer; return ``None`` if it does not exist, or if no topic can have that name."""
    if not is_topic_name(name):
        return None
    try:
        return target_topic(client, name)
    except TopicNotFoundError:
        return None


def target_topic(client: RollwayClient, name: str) -> TargetTopic:
    """Look up a topic for a writer.

    Raises:
        TopicNotFoundError: there is no such topic.
    """
    topic = client.describe_topic(name)
    batch_bytes_max = int(str(topic.config.get("max.message.bytes", _BATCH_BYTES_MAX_DEFAULT)))
    return TargetTopic(name, topic.partition_count, batch_bytes_max)


def plan_load(client: RollwayClient, options: WriteOptions) -> LoadPlan:
    """Look up the topics and begin the job, so that errors appear before a task starts.

    Raises:
        TopicNotFoundError: there is no such topic.
        RollwayError: the service cannot be reached, or refuses the job.
    """
    plan = plan_stream(client, options, uuid.uuid4().hex)
    return plan if options.delivery_mode == "atleastonce" else replace(plan, job=begin(client, plan))


def plan_stream(client: RollwayClient, options: WriteOptions, driver_id: str | None) -> LoadPlan:
    """Look up the topics of a stream. Its tasks begin the job of their batch.

    Raises:
        TopicNotFoundError: there is no such topic.
        RollwayError: the service cannot be reached.
    """
    names = [name for name in (options.topic, options.reject_topic) if name is not None]
    return LoadPlan(options, None, {name: target_topic(client, name) for name in names}, driver_id)


def begin(client: RollwayClient, plan: LoadPlan) -> JobInUse:
    """Return the job of the options: a new one, or the one that ``jobId`` names."""
    options = plan.options
    if options.job_id is not None:
        job = client.find_job(options.job_id)
        if job.state not in ("open", *COMMITTED_STATES):
            raise RollwayError(f"load job {job.job_id} of {job.application_id!r} is {job.state}: begin another")
        return in_use(job)
    application_id = options.txn_app_id or f"spark-write-{uuid.uuid4().hex}"
    version = options.txn_version
    if version is None:
        version = time.time_ns() // 1_000_000
    return begin_version(client, plan, application_id, version, once=options.txn_app_id is None)


def begin_version(
    client: RollwayClient,
    plan: LoadPlan,
    application_id: str,
    version: int,
    *,
    join: bool = False,
    once: bool = False,
) -> JobInUse:
    """Begin a job, or return the committed one of this version. With ``join`` also return the open one.

    ``once`` promises that the application's id is used for this write only.
    """
    options = plan.options
    mode: JobMode = "idempotent" if options.delivery_mode == "idempotent" else "transactional"
    topics = () if options.topic is None else (options.topic,)
    job = client.begin_job(
        application_id,
        version,
        mode=mode,
        timeout_ms=options.transaction_timeout_ms,
        topics=topics,
        join=join,
        driver_id=plan.driver_id,
        once=once,
    )
    return replace(in_use(job), once=once)


def in_use(job: Job) -> JobInUse:
    """Return the part of a job that its tasks need."""
    return JobInUse(job.job_id, job.application_id, job.version, job.state in COMMITTED_STATES, job.timeout_ms)


def why_refused(client: RollwayClient, job: JobInUse, error: RollwayError) -> RollwayError:
    """Return the error for a refusal in a job: a ``JobTimedOutError`` if the job has timed out, else ``error``."""
    try:
        now = client.find_job(job.job_id)
    except RollwayError:
        return error
    return JobTimedOutError(now.job_id, now.application_id, now.timeout_ms) if now.reason == TIMED_OUT else error


def job_of(messages: Iterable[TaskMessage]) -> str | None:
    """Return the job that the tasks wrote in; ``None`` if none of them wrote in a job.

    Raises:
        RollwayError: the tasks wrote in different jobs.
    """
    ids = {message.job_id for message in messages if message.job_id is not None and not message.is_loaded}
    if len(ids) > 1:
        raise RollwayError(
            "the load job was aborted while its tasks wrote, since nothing was written for transactionTimeout; "
            "a longer transactionTimeout helps"
        )
    return ids.pop() if ids else None


def commit(client: RollwayClient, options: WriteOptions, job_id: str, messages: Sequence[TaskMessage]) -> Job:
    """Commit the rows of these attempts. A repetition changes nothing.

    Raises:
        RejectedRowsError: all tasks together rejected more than ``maxRejected``.
        JobTakenError: the options name the job, and another write has committed it.
        JobTimedOutError: nothing was written for the job's timeout before the commit.
        JobConflictError: the job was aborted, or rows are missing.
        RollwayError: the service cannot be reached: it is unknown whether the rows count.
    """
    check_rejects(options, messages)
    is_checked = options.delivery_mode == "transactional"
    winners = [(each.producer_id, each.rows if is_checked else None) for each in messages if each.producer_id >= 0]
    try:
        return client.commit_job(job_id, winners)
    except JobConflictError as error:
        job = client.find_job(job_id)
        if job.reason == TIMED_OUT:
            raise JobTimedOutError(job.job_id, job.application_id, job.timeout_ms) from error
        if job.state not in COMMITTED_STATES:
            raise
        # Another driver of the same version may have been first. Its winners are also the whole load. That is not sure
        # of a job that the options name.
        if options.job_id is not None and winners:
            raise JobTakenError(job_id) from error
        return job


def decide(client: RollwayClient, plan: LoadPlan, messages: Sequence[TaskMessage]) -> Job:
    """Commit the job of a batch write, in whichever job its tasks wrote. Return the job that has the version now.

    Tasks without rows never notice that their job has timed out. If no task had rows, there is nothing to lose: another
    job records the version, unless the options name the job.

    Raises:
        RejectedRowsError, JobTakenError, JobTimedOutError, JobConflictError, RollwayError: as ``commit``.
    """
    job = plan.job
    assert job is not None
    try:
        return commit(client, plan.options, job_of(messages) or job.job_id, messages)
    except JobTimedOutError:
        has_winners = any(message.producer_id >= 0 for message in messages)
        if has_winners or plan.options.job_id is not None:
            raise
    other = begin_version(client, plan, job.application_id, job.version, join=True)
    return commit(client, plan.options, other.job_id, messages)


def abort(
    client: RollwayClient, plan: LoadPlan, messages: Iterable[TaskMessage | None], version: int | None = None
) -> list[Job]:
    """Abort all jobs that tasks of this write wrote in, and return them.

    These are the plan's job, the jobs of messages, and the jobs of tasks that died before they could report. A
    committed job stays committed, as its ``state`` shows.

    Args:
        version: the batch of a stream.

    Raises:
        RollwayError: the service cannot be reached.
    """
    found = [None if plan.job is None else plan.job.job_id]
    found += [message.job_id for message in messages if message is not None and not message.is_loaded]
    ids = {job_id for job_id in found if job_id is not None}
    if plan.driver_id is not None:
        left = client.list_jobs(driver_id=plan.driver_id, state="open")
        ids |= {job.job_id for job in left if version in (None, job.version)}
    return [client.abort_job(job_id) for job_id in sorted(ids)]


def check_rejects(options: WriteOptions, messages: Sequence[TaskMessage]) -> None:
    """Return unless the tasks together rejected more rows than ``maxRejected``.

    Raises:
        RejectedRowsError: they did.
    """
    counts = sum_of_rejects(messages)
    total = sum(counts.values())
    if options.max_rejected is not None and total > options.max_rejected:
        raise too_many(total, options.max_rejected, counts)
