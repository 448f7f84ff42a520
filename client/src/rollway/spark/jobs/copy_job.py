"""``copy``: one topic into another, of Rollway or Kafka, in order within each partition."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from rollway.client import Topic
from rollway.spark.jobs.errors import JobError, JobUsageError
from rollway.spark.jobs.loading.load_rows import ending_at_the_first_expired, told_of_rows
from rollway.spark.jobs.places import EARLIEST, LATEST, Place
from rollway.spark.jobs.progress import Progress, SilentProgress
from rollway.spark.jobs.reports import JobReport, counted, format_bytes, rate
from rollway.spark.jobs.targets import check_settings, find_target, make_target, open_target
from rollway.spark.jobs.topic_limits import shorter_limits
from rollway.spark.jobs.topics import (
    SPLITTING,
    OnDataLoss,
    TopicAddress,
    TopicRange,
    kafka_explained,
    open_client,
    read_kafka,
    read_range,
    refuse_itself,
    refuse_options,
    resolve_range,
)
from rollway.spark.jobs.writing import LoadIdentity, Written, write_kafka, write_records


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRequest:
    """A range of a topic, and the topic to copy it to.

    Keys, values, headers and timestamps are kept. With ``keep_partitions``, records keep their partition, for which the
    target needs as many partitions. Otherwise the key decides, as in Kafka's partitioner. A missing target of Rollway
    is created with the source's partitions and settings, over which ``topic_config`` wins, unless the source is
    Kafka's.

    The copy is refused if the target's retention would soon delete some of its records by their age, and the source's
    would not. ``allow_expired`` permits that; a target that is created permits it as well.

    Example::

        CopyRequest(
            source=TopicAddress(topic="readings", url="http://127.0.0.1:8080"),
            target=TopicAddress(topic="readings-copy", url="http://127.0.0.1:8080"),
            start=parse_place("2013-07-04"),
        )
    """

    source: TopicAddress
    target: TopicAddress
    start: Place = EARLIEST
    end: Place = LATEST
    keep_partitions: bool = True
    topic_config: Mapping[str, object] = field(default_factory=dict)
    identity: LoadIdentity = field(default_factory=LoadIdentity)
    on_data_loss: OnDataLoss = "fail"
    allow_expired: bool = False

    def __post_init__(self) -> None:
        refuse_options(self.source, SPLITTING)
        if self.source.place == self.target.place:
            raise JobUsageError("A topic cannot be copied to itself.")
        if self.target.format == "kafka" and self.identity.application_id is not None:
            raise JobUsageError(
                "Spark writes to Kafka at least once: --app-id and --version are for targets of Rollway."
            )


def copy(
    spark: SparkSession, request: CopyRequest, *, progress: Progress | None = None, dry_run: bool = False
) -> JobReport:
    """Copy the records that are committed now.

    In a topic of Rollway either all of them become visible at once, or none. To Kafka they are written at least once.

    Raises:
        JobError: the partitions do not fit; records are lost, or older than the target keeps; or this Spark has no
            package for Kafka.
        PySparkException: Spark failed.
        RollwayError: a service refused or cannot be reached.
    """
    progress = progress or SilentProgress()
    started = time.monotonic()
    wanted: TopicRange | None = None
    topic: Topic | None = None
    if request.source.format == "kafka":
        rows = read_kafka(spark, request.source, request.start, request.end, request.on_data_loss, headers=True)
    else:
        with open_client(request.source) as client:
            topic = client.describe_topic(request.source.topic)
            wanted = resolve_range(client, request.source, request.start, request.end, request.on_data_loss)
        # Kafka's sink accepts only text for the names of headers.
        rows = read_range(spark, wanted, headers=True, has_byte_names=request.target.format != "kafka")
    columns = ["key", "value", "headers", "timestamp", *(["partition"] if request.keep_partitions else [])]
    chosen = rows.select(*columns)
    if request.target.format == "kafka":
        if dry_run:
            return _plan(request, wanted, rows, started)
        written = write_kafka(chosen.drop("timestamp"), request.target, progress)
    else:
        with open_target(request.target) as client:
            kept = topic.partition_count if topic is not None and request.keep_partitions else None
            goal = find_target(client, request.target, request.source, kept)
            if goal is None and topic is None:
                raise JobError(
                    f"{request.target} does not exist; create it with the number of partitions that you want."
                )
            if goal is not None and topic is not None:
                refuse_itself(request.source, topic, request.target, goal)
            if goal is not None:
                check_settings(request.target, goal, request.topic_config)
            if dry_run:
                return _plan(request, wanted, rows, started)
            if goal is None and topic is not None:
                make_target(client, request.target, topic, request.topic_config)
            if goal is not None:
                chosen = _kept(chosen, request, goal, topic)
            with told_of_rows(), kafka_explained(request.source):
                written = write_records(chosen, request.target, client, request.identity, progress)
    return _report(request, wanted, written, time.monotonic() - started)


def _kept(rows: DataFrame, request: CopyRequest, goal: Topic, source: Topic | None) -> DataFrame:
    limits = None if request.allow_expired else shorter_limits(goal, source, int(time.time() * 1000))
    return rows if limits is None else ending_at_the_first_expired(rows, limits, goal.name, "copied")


def _plan(request: CopyRequest, wanted: TopicRange | None, rows: DataFrame, started: float) -> JobReport:
    if wanted is None:
        with kafka_explained(request.source):
            count = rows.count()
        amount = counted(count, "record")
    else:
        count = wanted.offset_count
        amount = f"at most {counted(count, 'record')} ({format_bytes(wanted.size_bytes)})"
    return JobReport(
        job="copy",
        outcome="dry_run",
        summary=f"Dry run: {amount} of {request.source} would go to {request.target}.",
        rows=count,
        size_bytes=None if wanted is None else wanted.size_bytes,
        seconds=time.monotonic() - started,
        details={"range": None if wanted is None else wanted.as_json()},
    )


def _report(request: CopyRequest, wanted: TopicRange | None, written: Written, seconds: float) -> JobReport:
    details = {
        "range": None if wanted is None else wanted.as_json(),
        "job_id": written.job_id,
        "partitions": {str(number): rows for number, rows in sorted(written.partitions.items())},
    }
    if written.is_repeated:
        return JobReport(
            job="copy",
            outcome="already_done",
            summary=f"Version {request.identity.version} of {request.identity.application_id} is copied already; "
            "nothing was written.",
            rows=0,
            seconds=seconds,
            details=details,
        )
    size = "" if written.size_bytes is None else f" ({format_bytes(written.size_bytes)})"
    return JobReport(
        job="copy",
        outcome="done",
        summary=f"Copied {counted(written.rows, 'record')}{size} of {request.source} to {request.target} "
        f"{rate(written.rows, written.seconds)}.",
        rows=written.rows,
        size_bytes=written.size_bytes,
        seconds=seconds,
        details=details,
        lines=tuple(
            f"partition {number}: {counted(rows, 'record')}" for number, rows in sorted(written.partitions.items())
        ),
    )
