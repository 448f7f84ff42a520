"""``load``: files into a topic, every row once. Rows that cannot become records are kept apart."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from rollway.client import Job, RollwayClient, Topic, TopicNotFoundError
from rollway.spark.jobs.errors import JobError, JobUsageError, RejectedRowsError
from rollway.spark.jobs.expressions import RecordExpressions, record_rows, told_reasons
from rollway.spark.jobs.files.file_sources import FileSource, read_files
from rollway.spark.jobs.loading.load_rows import Census, JudgedRows, told_of_rows
from rollway.spark.jobs.progress import Progress, SilentProgress, tasks_done
from rollway.spark.jobs.reports import JobReport, counted, format_bytes, rate
from rollway.spark.jobs.targets import check_settings, open_target
from rollway.spark.jobs.topic_limits import DEFAULTS, topic_limits
from rollway.spark.jobs.topics import TopicAddress
from rollway.spark.jobs.writing import LoadIdentity, Written, check_loaded_into, write_records
from rollway.spark.write.load_jobs import COMMITTED_STATES

SAMPLE_ROWS = 3
REWRITTEN = (
    "Values are written from the columns: JSON over several lines, or in another encoding, is not kept as it "
    "stands in the file."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejects:
    """The treatment of rows that cannot become records.

    By default the first one ends the load. With ``topic`` (of the same service) or ``files`` (a folder, in which each
    load writes a folder of JSON lines) they go there, and the load continues if there are at most ``rows_max``.
    ``skip`` leaves them out and only counts them.

    Example: ``Rejects(topic="readings-rejects", rows_max=100)``.
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
        """True if the load continues without them."""
        return self.skip or self.topic is not None or self.files is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """Files, and the topic to load them into.

    With ``partitions``, a missing topic is created with this many partitions and ``topic_config``. An existing topic
    must have both already.

    The load is refused if the topic's retention would soon delete some of its rows by their age, unless
    ``allow_expired``.

    Example::

        LoadRequest(
            source=FileSource(paths=("/data/readings.csv",), format="csv"),
            target=TopicAddress(topic="readings", url="http://127.0.0.1:8080"),
            expressions=RecordExpressions(key="sensor"),
            partitions=6,
        )
    """

    source: FileSource
    target: TopicAddress
    expressions: RecordExpressions = field(default_factory=RecordExpressions)
    rejects: Rejects = field(default_factory=Rejects)
    identity: LoadIdentity = field(default_factory=LoadIdentity)
    partitions: int | None = None
    topic_config: Mapping[str, object] = field(default_factory=dict)
    allow_expired: bool = False

    def __post_init__(self) -> None:
        if self.target.format != "rollway":
            raise JobUsageError("Load writes to a Rollway service; copy writes to Kafka.")
        if self.rejects.topic == self.target.topic:
            raise JobUsageError("Rejected rows cannot go to the topic that is loaded.")

    @property
    def checks_age(self) -> bool:
        """True if rows must not be older than the topic keeps them."""
        return self.expressions.timestamp is not None and not self.allow_expired


def load(
    spark: SparkSession, request: LoadRequest, *, progress: Progress | None = None, dry_run: bool = False
) -> JobReport:
    """Load files. A dry run reads every row, writes nothing, and fails as the load would.

    If the first reject ends the load, rows are read once. If rejects are kept apart, rows are read twice: the rejects
    are counted before anything is loaded or a topic is created. Rejects for files are written before the rows. Rejects
    for a topic are written with the rows, and both become visible at once. A version that was loaded is not read.

    Raises:
        JobError: the files or an expression are wrong, rows are rejected or older than the topic keeps, or the version
            was loaded into another topic. No row of the load is visible.
        PySparkException: Spark failed.
        RollwayError: the service refused or cannot be reached.
    """
    progress = progress or SilentProgress()
    started = time.monotonic()
    with open_target(request.target) as client:
        topic = _find_topic(client, request)
        loaded = _find_loaded(client, request)
        if loaded is not None:
            return _already_done(request, loaded.job_id, time.monotonic() - started)
        if request.expressions.value is None and request.source.format == "json" and not request.source.keeps_lines:
            progress.say(REWRITTEN)
        source, corrupt = read_files(spark, request.source, with_columns=request.expressions.need_columns)
        reading = _Reading(request, source, corrupt, int(time.time() * 1000))
        judged = reading.judged(topic)
        if dry_run:
            return _try(judged, request, progress, started)
        rejected = _look(judged, request, progress)
        if topic is None:
            made = reading.judged(client.create_topic(request.target.topic, request.partitions, request.topic_config))
            # The service's own defaults were not known before.
            if made.limits != judged.limits:
                judged, rejected = made, _look(made, request, progress)
        if rejected and request.rejects.files is not None:
            _write_rejects(judged.rejects, request.rejects.files, request.identity, progress)
        if rejected and request.rejects.topic is not None:
            _make_sure_of_topic(client, request.rejects.topic)
        with told_of_rows():
            written = write_records(
                _rows_to_write(judged, request.rejects),
                request.target,
                client,
                request.identity,
                progress,
                beside=request.rejects.topic,
            )
    if written.is_repeated:
        return _already_done(request, written.job_id, time.monotonic() - started)
    return _report(request, written, rejected, time.monotonic() - started)


def _find_topic(client: RollwayClient, request: LoadRequest) -> Topic | None:
    """Find the topic; return ``None`` if it has to be created."""
    try:
        topic = client.describe_topic(request.target.topic)
    except TopicNotFoundError:
        if request.partitions is None:
            raise
        return None
    if request.partitions not in (None, topic.partition_count):
        raise JobError(
            f"{request.target} exists with {counted(topic.partition_count, 'partition')}, not {request.partitions}."
        )
    if not topic.config and request.checks_age:
        raise JobError(
            f"The settings of {request.target} may not be seen with this key (DESCRIBE_CONFIGS), so it is unknown "
            "whether it keeps rows as old as these: --allow-expired loads them all the same."
        )
    check_settings(request.target, topic, request.topic_config)
    return topic


def _find_loaded(client: RollwayClient, request: LoadRequest) -> Job | None:
    """Return the job that has loaded this version, or ``None``. If there is one, nothing must be read or written."""
    identity = request.identity
    if identity.application_id is None:
        return None
    jobs = client.list_jobs(identity.application_id)
    found = next((job for job in jobs if job.version == identity.version and job.state in COMMITTED_STATES), None)
    if found is not None:
        check_loaded_into(client, found, request.target.topic, request.rejects.topic)
    return found


@dataclass(frozen=True, slots=True)
class _Reading:
    """The files as rows, and the time of the load."""

    request: LoadRequest
    source: DataFrame
    corrupt: str | None
    now_ms: int

    def judged(self, topic: Topic | None) -> JudgedRows:
        """Return the rows, checked against the topic, or against the topic that has to be created."""
        request = self.request
        limits = (
            topic_limits(request.partitions, {**DEFAULTS, **request.topic_config}, self.now_ms)
            if topic is None
            else topic_limits(topic.partition_count, topic.config, self.now_ms)
        )
        rows = record_rows(
            self.source,
            request.expressions,
            corrupt=self.corrupt,
            limits=limits.records,
            has_guessed_numbers=request.source.has_guessed_numbers,
        )
        return JudgedRows(
            rows=rows,
            limits=limits,
            topic=request.target.topic,
            topic_exists=topic is not None,
            kept_from_ms=limits.kept_from_ms if request.checks_age else None,
        )


def _look(judged: JudgedRows, request: LoadRequest, progress: Progress) -> dict[str, int]:
    """Return the number of rejects by reason, before a topic is created or a row is written.

    If rejects are not kept apart, only one row is read: a wrong expression usually fails in the first row, and a later
    reject ends the load.

    Raises:
        RejectedRowsError: too many rows cannot become records.
        JobError: rows are older than the topic keeps.
    """
    if not request.rejects.are_kept_apart:
        with told_of_rows():
            judged.ending_at_the_first_reject().select("value").limit(1).collect()
        return {}
    return _take_census(judged, request, progress).rejected


def _take_census(judged: JudgedRows, request: LoadRequest, progress: Progress) -> Census:
    """Read every row once, and return the counts if the load may continue.

    Raises: as ``_look``.
    """
    with progress.during(f"reading {request.source}", lambda: tasks_done(judged.rows.sparkSession)):
        census = judged.census()
    rejects = request.rejects
    total = sum(census.rejected.values())
    limit = rejects.rows_max if rejects.are_kept_apart else 0
    if limit is not None and total > limit:
        beyond = f", and --max-rejects is {limit:,}" if rejects.are_kept_apart else ""
        remedy = "" if rejects.are_kept_apart else "; --rejects-to or --rejects-topic keeps such rows apart"
        raise RejectedRowsError(
            f"{counted(total, 'row')} cannot become {'a record' if total == 1 else 'records'}{beyond}: "
            f"{told_reasons(census.rejected)}{judged.example_of_rejects()}. Nothing was loaded{remedy}."
        )
    judged.check_age(census)
    return census


def _write_rejects(rejects: DataFrame, folder: str, identity: LoadIdentity, progress: Progress) -> None:
    """Write rejects into the folder of this load. It replaces the files of an earlier, failed run."""
    name = identity.file_name(otherwise=str(int(time.time() * 1000)))
    own = f"{folder.rstrip('/')}/load={name}"
    with progress.during(f"writing rejected rows to {own}", lambda: tasks_done(rejects.sparkSession)):
        rejects.write.mode("overwrite").json(own)


def _make_sure_of_topic(client: RollwayClient, name: str) -> None:
    try:
        client.describe_topic(name)
    except TopicNotFoundError:
        client.create_topic(name)


def _rows_to_write(judged: JudgedRows, rejects: Rejects) -> DataFrame:
    if rejects.topic is not None:
        return judged.with_rejects_for(rejects.topic)
    return judged.good if rejects.are_kept_apart else judged.ending_at_the_first_reject()


def _try(judged: JudgedRows, request: LoadRequest, progress: Progress, started: float) -> JobReport:
    census = _take_census(judged, request, progress)
    good = judged.good
    # Python cannot represent all of Spark's timestamps.
    times = {"timestamp": F.col("timestamp").cast("string")} if "timestamp" in good.columns else {}
    shown = [_shown(each.asDict()) for each in good.withColumns(times).limit(SAMPLE_ROWS).collect()]
    where = f"{request.target}" if judged.topic_exists else f"{request.target}, which would be made"
    return JobReport(
        job="load",
        outcome="dry_run",
        summary=f"Dry run: {counted(census.rows, 'record')} ({format_bytes(census.size_bytes)}) would go to {where}.",
        rows=census.rows,
        size_bytes=census.size_bytes,
        seconds=time.monotonic() - started,
        details={"rejected": census.rejected, "topic_exists": judged.topic_exists, "sample": shown},
        lines=(f"rejected: {told_reasons(census.rejected) or 'none'}", *(f"e.g. {each}" for each in shown)),
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


def _already_done(request: LoadRequest, job_id: str | None, seconds: float) -> JobReport:
    identity = request.identity
    return JobReport(
        job="load",
        outcome="already_done",
        summary=f"Version {identity.version} of {identity.application_id} is loaded already; nothing was written.",
        rows=0,
        seconds=seconds,
        details={"job_id": job_id},
    )


def _report(request: LoadRequest, written: Written, rejected: Mapping[str, int], seconds: float) -> JobReport:
    total = sum(rejected.values())
    lines = [f"partition {number}: {counted(rows, 'record')}" for number, rows in sorted(written.partitions.items())]
    if total:
        place = request.rejects.files or request.rejects.topic
        kept = f"kept in {place}" if place else "not kept"
        lines.append(f"{counted(total, 'row')} rejected ({kept}): {told_reasons(rejected)}")
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
