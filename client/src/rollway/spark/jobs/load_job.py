"""``load``: files into a topic, every row once, rows that cannot become records told apart."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody who writes Spark calls it

from rollway.client import RollwayClient, Topic, TopicNotFoundError
from rollway.spark.jobs.errors import JobError, JobUsageError, RejectedRowsError
from rollway.spark.jobs.expressions import REASON, SOURCE, RecordExpressions, RecordLimits, record_rows
from rollway.spark.jobs.file_sources import FileSource, read_files
from rollway.spark.jobs.progress import Progress, SilentProgress, tasks_done
from rollway.spark.jobs.reports import JobReport, counted, format_bytes, rate
from rollway.spark.jobs.topics import TopicAddress, open_client
from rollway.spark.jobs.writing import LoadIdentity, Written, write_records

OnReject = Literal["fail", "skip"]
REJECT_MARK = "row cannot become a record: "
SAMPLE_ROWS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejects:
    """What becomes of rows that cannot become records.

    Without a place for them the first one ends the load. With ``topic`` (of the same service) or ``files`` (a folder
    that gets one folder of JSON lines of each load) they go there, and the load goes on if there are at most
    ``rows_max``. ``skip`` leaves them out and only counts them.
    """

    skip: bool = False
    topic: str | None = None
    files: str | None = None
    rows_max: int | None = None

    def __post_init__(self) -> None:
        if self.topic is not None and self.files is not None:
            raise JobUsageError("--rejects-topic and --rejects-to exclude each other.")
        if self.rows_max is not None and self.rows_max < 0:
            raise JobUsageError(f"--max-rejects {self.rows_max} is below 0.")
        if self.rows_max is not None and not self.are_kept_apart:
            raise JobUsageError("--max-rejects needs --skip-rejects, --rejects-topic or --rejects-to.")

    @property
    def are_kept_apart(self) -> bool:
        """Whether the load goes on beside them."""
        return self.skip or self.topic is not None or self.files is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """Files, and the topic they go to. A topic that does not exist is made if ``partitions`` says how large."""

    source: FileSource
    target: TopicAddress
    expressions: RecordExpressions = field(default_factory=RecordExpressions)
    rejects: Rejects = field(default_factory=Rejects)
    identity: LoadIdentity = field(default_factory=LoadIdentity)
    partitions: int | None = None
    topic_config: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.target.format != "rollway":
            raise JobUsageError("Load writes to a Rollway service; copy writes to Kafka.")
        if self.rejects.topic == self.target.topic:
            raise JobUsageError("Rejected rows cannot go to the topic that is loaded.")


def load(
    spark: SparkSession, request: LoadRequest, *, progress: Progress | None = None, dry_run: bool = False
) -> JobReport:
    """Load files. A dry run reads every row and writes nothing.

    Rows are read once when the first reject ends the load, once more where rejects are kept apart: they are counted,
    and written, before anything is loaded.

    Raises:
        JobError: the files, an expression, or rejected rows; nothing that was loaded is visible.
        PySparkException: Spark failed.
        RollwayError: the service refused or cannot be reached.
    """
    progress = progress or SilentProgress()
    started = time.monotonic()
    with open_client(request.target) as client:
        topic = _find_topic(client, request, dry_run=dry_run)
        source, corrupt = read_files(spark, request.source)
        limits = _limits(topic, request)
        rows = record_rows(source, request.expressions, corrupt=corrupt, limits=limits)
        if dry_run:
            return _try(rows, request, topic, progress, started)
        rejected: dict[str, int] = {}
        if request.rejects.are_kept_apart:
            rejected = _keep_rejects_apart(rows, client, request, progress)
            good = rows.where(F.col(REASON).isNull()).drop(REASON, SOURCE)
        else:
            good = _ending_at_the_first_reject(rows)
        written = write_records(good, request.target, client, request.identity, progress)
    return _report(request, written, rejected, time.monotonic() - started)


def _find_topic(client: RollwayClient, request: LoadRequest, *, dry_run: bool) -> Topic | None:
    try:
        topic = client.describe_topic(request.target.topic)
    except TopicNotFoundError:
        if request.partitions is None:
            raise
        if dry_run:
            return None
        return client.create_topic(request.target.topic, request.partitions, request.topic_config)
    if request.partitions not in (None, topic.partition_count):
        raise JobError(
            f"{request.target} exists with {counted(topic.partition_count, 'partition')}, not {request.partitions}."
        )
    return topic


def _limits(topic: Topic | None, request: LoadRequest) -> RecordLimits:
    if topic is None:
        return RecordLimits(partition_count=request.partitions)
    largest = topic.config.get("max.message.bytes")
    return RecordLimits(
        partition_count=topic.partition_count, record_bytes_max=None if largest is None else int(str(largest))
    )


def _ending_at_the_first_reject(rows: DataFrame) -> DataFrame:
    """``rows`` without the columns about rejects; a row with a reason raises when it is read."""
    sentence = F.concat(F.lit(REJECT_MARK), F.col(REASON), F.lit(": "), F.coalesce(SOURCE, F.lit("")))
    checked = F.when(F.col(REASON).isNotNull(), F.raise_error(sentence).cast("binary")).otherwise(F.col("value"))
    return rows.withColumn("value", checked).drop(REASON, SOURCE)


def _count_rejects(rows: DataFrame, progress: Progress) -> dict[str, int]:
    with progress.during("looking for rows that cannot be loaded", lambda: tasks_done(rows.sparkSession)):
        found = rows.where(F.col(REASON).isNotNull()).groupBy(REASON).count().collect()
    return {str(each[REASON]): int(each["count"]) for each in sorted(found, key=lambda each: str(each[REASON]))}


def _keep_rejects_apart(
    rows: DataFrame, client: RollwayClient, request: LoadRequest, progress: Progress
) -> dict[str, int]:
    rejected = _count_rejects(rows, progress)
    total = sum(rejected.values())
    limit = request.rejects.rows_max
    if limit is not None and total > limit:
        raise RejectedRowsError(
            f"{counted(total, 'row')} cannot become records, and --max-rejects is {limit:,}: "
            f"{_listed(rejected)}. Nothing was loaded."
        )
    if total == 0:
        return rejected
    bad = rows.where(F.col(REASON).isNotNull()).select(F.col(REASON).alias("reason"), F.col(SOURCE).alias("row"))
    if request.rejects.files is not None:
        version = request.identity.version
        folder = f"{request.rejects.files.rstrip('/')}/load={int(time.time() * 1000) if version is None else version}"
        with progress.during(f"writing rejected rows to {folder}", lambda: tasks_done(rows.sparkSession)):
            bad.write.mode("overwrite").json(folder)
    elif request.rejects.topic is not None:
        try:
            client.describe_topic(request.rejects.topic)
        except TopicNotFoundError:
            client.create_topic(request.rejects.topic)
        target = TopicAddress(topic=request.rejects.topic, url=request.target.url, options=request.target.options)
        records = bad.select(F.to_json(F.struct("reason", "row")).cast("binary").alias("value"))
        write_records(records, target, client, request.identity.named("rejects"), progress)
    return rejected


def _listed(rejected: Mapping[str, int]) -> str:
    return "; ".join(f"{count:,} times {reason}" for reason, count in rejected.items())


def _try(rows: DataFrame, request: LoadRequest, topic: Topic | None, progress: Progress, started: float) -> JobReport:
    parts = [name for name in ("key", "value") if name in rows.columns]
    size = sum((F.coalesce(F.octet_length(name).cast("bigint"), F.lit(0)) for name in parts), start=F.lit(0))
    with progress.during(f"reading {request.source}", lambda: tasks_done(rows.sparkSession)):
        by_reason = rows.groupBy(REASON).agg(F.count(F.lit(1)).alias("rows"), F.sum(size).alias("bytes")).collect()
        sample = rows.where(F.col(REASON).isNull()).drop(REASON, SOURCE).limit(SAMPLE_ROWS).collect()
    good = next((each for each in by_reason if each[REASON] is None), None)
    rejected = {str(each[REASON]): int(each["rows"]) for each in by_reason if each[REASON] is not None}
    shown = [_shown(each.asDict()) for each in sample]
    count, size_bytes = (int(good["rows"]), int(good["bytes"])) if good is not None else (0, 0)
    where = f"{request.target}, which would be made" if topic is None else f"{request.target}"
    lines = [f"rejected: {_listed(rejected)}"] if rejected else ["rejected: none"]
    return JobReport(
        job="load",
        outcome="dry_run",
        summary=f"Dry run: {counted(count, 'record')} ({format_bytes(size_bytes)}) would go to {where}.",
        rows=count,
        size_bytes=size_bytes,
        seconds=time.monotonic() - started,
        details={"rejected": rejected, "topic_exists": topic is not None, "sample": shown},
        lines=(*lines, *(f"e.g. {each}" for each in shown)),
    )


def _shown(row: Mapping[str, object]) -> dict[str, object]:
    return {
        name: bytes(value).decode("utf-8", "backslashreplace")[:200]
        if isinstance(value, bytes | bytearray)
        else None
        if value is None
        else str(value)
        for name, value in row.items()
    }


def _report(request: LoadRequest, written: Written, rejected: Mapping[str, int], seconds: float) -> JobReport:
    if written.is_repeated:
        return JobReport(
            job="load",
            outcome="already_done",
            summary=f"Version {request.identity.version} of {request.identity.application_id} is loaded already; "
            "nothing was written.",
            rows=0,
            seconds=seconds,
            details={"job_id": written.job_id, "rejected": dict(rejected)},
        )
    total = sum(rejected.values())
    lines = [f"partition {number}: {counted(rows, 'record')}" for number, rows in sorted(written.partitions.items())]
    if total:
        place = request.rejects.files or request.rejects.topic or "nowhere"
        lines.append(f"{counted(total, 'row')} rejected, kept in {place}: {_listed(rejected)}")
    return JobReport(
        job="load",
        outcome="done",
        summary=f"Loaded {counted(written.rows, 'record')} ({format_bytes(written.size_bytes or 0)}) into "
        f"{request.target} {rate(written.rows, written.seconds)}; {counted(total, 'row')} rejected.",
        rows=written.rows,
        size_bytes=written.size_bytes,
        seconds=seconds,
        details={
            "job_id": written.job_id,
            "rejected": dict(rejected),
            "partitions": {str(number): rows for number, rows in sorted(written.partitions.items())},
        },
        lines=tuple(lines),
    )
