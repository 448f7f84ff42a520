"""Writes of rows to a topic as one load job of the service. All rows become visible at once, or none."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from urllib.parse import quote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from rollway.client import Job, JobConflictError, JobNotFoundError, RollwayClient, RollwayError
from rollway.spark.jobs.errors import JobError, JobUsageError
from rollway.spark.jobs.progress import Progress, tasks_done
from rollway.spark.jobs.reports import counted, format_bytes
from rollway.spark.jobs.targets import write_options
from rollway.spark.jobs.topics import TopicAddress, kafka_error
from rollway.spark.threads import active_session
from rollway.spark.write.load_jobs import COMMITTED_STATES

_OLDER_INTERFACE = "spark.sql.sources.useV1SourceList"
RENEWALS_MAX = 1_000

# The name of a file has at most 255 bytes.
_NAME_CHARACTERS_MAX = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadIdentity:
    """The identity of a load: its application and its version. A second load with the same two loads nothing.

    Without an application the load has no identity.

    Example: ``LoadIdentity(application_id="nightly", version=20130704)``.
    """

    application_id: str | None = None
    version: int | None = None

    def __post_init__(self) -> None:
        if (self.application_id is None) != (self.version is None):
            raise JobUsageError("--app-id and --version belong together: one load of an application is its version.")
        if self.version is not None and self.version < 0:
            raise JobUsageError(f"--version {self.version} is below 0.")

    def file_name(self, otherwise: str) -> str:
        """Return the identity as a file name, which no two loads share; ``otherwise`` without an application."""
        if self.application_id is None:
            return otherwise
        name = quote(self.application_id, safe="")
        if len(name) > _NAME_CHARACTERS_MAX:
            name = f"{name[:_NAME_CHARACTERS_MAX]}-{sha256(name.encode()).hexdigest()[:16]}"
        return f"{name}.{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The result of a write to a topic. ``is_repeated``: this version was loaded before, and nothing was written
    now."""

    rows: int
    seconds: float
    size_bytes: int | None = None
    job_id: str | None = None
    is_repeated: bool = False
    partitions: Mapping[int, int] = field(default_factory=dict)
    """Rows by partition."""


def check_loaded_into(client: RollwayClient, job: Job, topic: str, beside: str | None) -> None:
    """Return if a committed job has loaded into this topic, or if its topics are unknown.

    ``beside`` is the topic of rejected rows. Several loads may share it, and a load without good rows writes only to
    it.

    Raises:
        JobError: the job has loaded into other topics.
    """
    with suppress(JobNotFoundError):
        # Jobs of a list do not have their topics.
        job = client.find_job(job.job_id)
    known = {*job.topics, *(each.topic for each in job.partitions)} - {beside}
    if known and topic not in known:
        raise JobError(
            f"Version {job.version} of {job.application_id} was loaded into {', '.join(sorted(known))}, not "
            f"{topic}: give each topic an --app-id of its own."
        )


def write_records(
    rows: DataFrame,
    target: TopicAddress,
    client: RollwayClient,
    identity: LoadIdentity,
    progress: Progress,
    *,
    beside: str | None = None,
) -> Written:
    """Append ``rows`` to a topic of Rollway, exactly once.

    With ``beside``, another topic of the service, the column ``topic`` names one of the two for each row. The rows of
    both become visible at once. The result counts only the rows of ``target``.

    Thread: any.

    Raises:
        JobError: this version was loaded into another topic.
        PySparkException: Spark failed; no row is visible.
        RollwayError: the service refused or cannot be reached.
    """
    started = time.monotonic()
    topics = (target.topic,) if beside is None else (target.topic, beside)
    application = identity.application_id or f"rollway-spark-{uuid.uuid4().hex}"
    begin = partial(
        client.begin_job,
        application,
        identity.version or 0,
        mode="transactional",
        timeout_ms=write_options(target).transaction_timeout_ms,
        topics=topics,
        driver_id=uuid.uuid4().hex,
        once=identity.application_id is None,
    )
    # Outermost: an interrupted job is aborted before the next call into the JVM.
    with active_session(rows.sparkSession), aborted_unless_done(client, begin) as job:
        if job.state in COMMITTED_STATES:
            check_loaded_into(client, job, target.topic, beside)
            return Written(rows=0, seconds=time.monotonic() - started, job_id=job.job_id, is_repeated=True)

        def how_far() -> str:
            now = client.find_job(job.job_id)
            facts = [f"{counted(now.rows, 'record')}, {format_bytes(now.size_bytes)}, {now.rows_per_second:,} a second"]
            return ", ".join([each for each in (tasks_done(rows.sparkSession), *facts) if each])

        writer = rows.write.format("rollway").options(**target.all_options())
        if beside is None:
            # The option would win over the column.
            writer = writer.option("topic", target.topic)
        writer = writer.option("jobId", job.job_id).mode("append")
        with _kept_open(client, job), progress.during(f"writing to {target}", how_far):
            writer.save()
    done = client.find_job(job.job_id)
    own = [each for each in done.partitions if each.topic == target.topic]
    return Written(
        rows=sum(each.rows for each in own),
        seconds=time.monotonic() - started,
        size_bytes=sum(each.size_bytes for each in own),
        job_id=job.job_id,
        partitions={each.partition: each.rows for each in own},
    )


@contextmanager
def aborted_unless_done(client: RollwayClient, begin: Callable[[], Job]) -> Iterator[Job]:
    """Begin a job, and abort it if the block ends with an error: readers wait for a job that is left open.

    An interrupt may arrive before the response to ``begin``. A second ``begin`` of the same driver then returns the job
    that the service has begun.
    """
    job: Job | None = None
    try:
        job = begin()
        yield job
    except BaseException as error:
        with suppress(RollwayError):
            if job is None and isinstance(error, KeyboardInterrupt):
                job = begin()
            if job is not None and job.state not in COMMITTED_STATES:
                client.abort_job(job.job_id)
        raise


@contextmanager
def _kept_open(client: RollwayClient, job: Job) -> Iterator[None]:
    """Keep the job from timing out in the block, until a task writes: executors may start slowly.

    Until then no reader waits for the job. It also ends with this process.
    """
    ended = threading.Event()
    keeper = threading.Thread(target=_keep_open, args=(client, job, ended), name="keeping a load job open", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        ended.set()
        keeper.join()


def _keep_open(client: RollwayClient, job: Job, ended: threading.Event) -> None:
    for attempt in range(RENEWALS_MAX):
        if ended.wait(job.timeout_ms / 3_000):
            return
        try:
            if client.find_job(job.job_id).rows:
                return
            # This attempt never writes. The service counts its enlistment as a sign of life.
            client.enlist(job.job_id, 0, attempt)
        except (JobConflictError, JobNotFoundError):
            return
        except RollwayError:
            # The service may be back in time, and the tasks' own errors say more.
            continue


def write_kafka(rows: DataFrame, target: TopicAddress, progress: Progress) -> Written:
    """Append ``rows`` to a topic of Kafka with Spark's own sink, at least once: a retried task writes its rows again.

    Raises:
        JobError: this Spark has no sink for Kafka, or it refuses.
    """
    started = time.monotonic()
    counter = Observation()
    observed = rows.observe(counter, F.count(F.lit(1)).alias("rows"))
    writer = observed.write.format("kafka").options(**target.all_options()).option("topic", target.topic)
    try:
        with (
            _observed_sink(rows.sparkSession),
            progress.during(f"writing to {target}", lambda: tasks_done(rows.sparkSession)),
        ):
            writer.mode("append").save()
    except (PySparkException, Py4JJavaError) as error:
        raise kafka_error(target, error) from None
    return Written(rows=int(counter.get["rows"]), seconds=time.monotonic() - started)


@contextmanager
def _observed_sink(spark: SparkSession) -> Iterator[None]:
    """Let Spark write to Kafka by its newer interface: the older one, its default, never reports observed metrics."""
    before = spark.conf.get(_OLDER_INTERFACE)
    names = [name for name in str(before).split(",") if name.strip().lower() != "kafka"]
    spark.conf.set(_OLDER_INTERFACE, ",".join(names))
    try:
        yield
    finally:
        spark.conf.set(_OLDER_INTERFACE, str(before))
