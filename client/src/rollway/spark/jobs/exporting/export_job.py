"""``export``: a topic into Parquet files by date and hour, every record once. Each run starts at the end of the
last."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from rollway.spark.jobs.errors import JobError, JobUsageError
from rollway.spark.jobs.exporting.checkpoints import CheckpointFolder, ExportCheckpoint, RunIntent
from rollway.spark.jobs.exporting.export_files import (
    FILE_BYTES_DEFAULT,
    PARTITIONED_BY,
    brought_together,
    records_per_file,
    sized_tasks,
)
from rollway.spark.jobs.expressions import first_sentence
from rollway.spark.jobs.files.hadoop_files import HadoopFiles
from rollway.spark.jobs.places import EARLIEST, LATEST, Place
from rollway.spark.jobs.progress import Progress, SilentProgress, tasks_done
from rollway.spark.jobs.reports import JobReport, counted, format_bytes, rate
from rollway.spark.jobs.topics import (
    OnDataLoss,
    TopicAddress,
    TopicRange,
    open_client,
    read_range,
    resolve_range,
    utc_date_and_hour,
)

DEFAULT_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """A topic, and the folder for its records: ``date=2013-07-04/hour=13/*.parquet`` by timestamp in UTC.

    The first run begins at ``start``, every later one at the end of the last. ``end`` is resolved at the beginning of
    the run. ``columns`` are SQL expressions over key, value, headers, topic, partition, offset, timestamp,
    timestampType. ``codec`` is Parquet's. A run exports committed records.

    The records of an hour become one file, or several of about ``file_bytes``, measured by their size in the log. With
    0, rows stay in the tasks that read them: a file for each partition of the topic and hour, without a shuffle.

    Example::

        ExportRequest(
            source=TopicAddress(topic="readings", url="http://127.0.0.1:8080"),
            destination="/data/readings",
            columns=("CAST(key AS STRING) AS sensor", "CAST(value AS STRING) AS reading", "timestamp"),
        )
    """

    source: TopicAddress
    destination: str
    start: Place = EARLIEST
    end: Place = LATEST
    columns: tuple[str, ...] = ()
    codec: str = "zstd"
    file_bytes: int = FILE_BYTES_DEFAULT
    on_data_loss: OnDataLoss = "fail"
    take_over: bool = False
    """True if the run that holds the folder's lock is known to be dead."""

    def __post_init__(self) -> None:
        if not self.destination:
            raise JobUsageError("Export needs a folder to write to.")
        if self.end.kind == "time":
            raise JobUsageError(
                "An export ends at latest or at offsets: one that goes on later cannot leave records out."
            )
        if self.file_bytes < 0:
            raise JobUsageError("Files cannot have less than no bytes.")
        if self.source.format != "rollway":
            raise JobUsageError("Export reads a topic of a Rollway service.")

    @property
    def selected(self) -> tuple[str, ...]:
        """The exported columns without date and hour."""
        return self.columns or DEFAULT_COLUMNS

    @property
    def wants_headers(self) -> bool:
        """True if an expression uses headers."""
        return any("headers" in each.lower() for each in self.columns)


def export(
    spark: SparkSession, request: ExportRequest, *, progress: Progress | None = None, dry_run: bool = False
) -> JobReport:
    """Export the records since the last run. The first run fixes the start of the export, even if it finds no records.

    A lock in the folder allows one run at a time for a topic and a folder. Readers see no record twice after a run was
    killed: the next run first finishes or repeats it.

    Raises:
        JobError: the folder, its checkpoint or an expression is wrong; another run is under way; the topic was
            replaced; records are lost; or the executors' files are not in the folder.
        PySparkException: Spark failed.
        RollwayError: the service refused or cannot be reached.
    """
    progress = progress or SilentProgress()
    files = HadoopFiles(spark)
    folder = CheckpointFolder(files, request.destination, request.source.topic)
    if dry_run:
        return _export(spark, request, files, folder, progress, dry_run=True)
    try:
        # Within the block: an interrupt may arrive after the lock was made. The lock of another run is left alone.
        folder.lock.acquire(take_over=request.take_over)
        return _export(spark, request, files, folder, progress, dry_run=False)
    finally:
        # An unreachable folder, or a JVM that has ended, has been reported before.
        with suppress(JobError, Py4JError):
            folder.lock.release()


def _export(
    spark: SparkSession,
    request: ExportRequest,
    files: HadoopFiles,
    folder: CheckpointFolder,
    progress: Progress,
    *,
    dry_run: bool,
) -> JobReport:
    started = time.monotonic()
    checkpoint = folder.read()
    finished: RunIntent | None = None
    if not dry_run:
        checkpoint, finished = _finish(files, folder, request, checkpoint, progress)
    with open_client(request.source) as client:
        # The topic is checked before its offsets: offsets of another topic have no meaning in it.
        _check_topic(request, checkpoint, client.describe_topic(request.source.topic).topic_id)
        wanted = resolve_range(
            client, request.source, _start_of(request, checkpoint), request.end, request.on_data_loss
        )
    _check_topic(request, checkpoint, wanted.topic_id)
    # The export begins at an offset: every later record belongs to it, whatever its timestamp.
    wanted = replace(wanted, from_ms=None)
    rows = _selected(read_range(spark, wanted, headers=request.wants_headers), request)
    if dry_run:
        return _plan(request, wanted, checkpoint, started)
    if wanted.offset_count == 0:
        if checkpoint is None:
            checkpoint = _begin(folder, request, wanted)
        return _report_of_none(request, wanted, checkpoint, finished, time.monotonic() - started)
    run = RunIntent(
        run=1 if checkpoint is None else checkpoint.run + 1,
        topic_id=wanted.topic_id,
        starts=wanted.starts,
        ends=wanted.ends,
        run_id=folder.run_id,
    )
    folder.begin(run)
    written_rows = _stage(spark, rows, folder, request, records_per_file(wanted, request.file_bytes), progress)
    staged = [path for path, _ in files.files_below(folder.staging) if path.endswith(".parquet")]
    folder.lock.check()
    run = folder.staged(run, written_rows, staged)
    _publish(files, folder, request, checkpoint, run)
    return _report(request, wanted, run, finished, time.monotonic() - started)


def _check_topic(request: ExportRequest, checkpoint: ExportCheckpoint | None, topic_id: str) -> None:
    if checkpoint is not None and checkpoint.topic_id != topic_id:
        raise JobError(
            f"{request.source} was deleted and made again since it was last exported to {request.destination} (its id "
            f"was {checkpoint.topic_id}, and is {topic_id}): export it to another folder."
        )


def _finish(
    files: HadoopFiles,
    folder: CheckpointFolder,
    request: ExportRequest,
    checkpoint: ExportCheckpoint | None,
    progress: Progress,
) -> tuple[ExportCheckpoint | None, RunIntent | None]:
    """Publish the staged files of a killed run. Return the checkpoint afterwards, and the run if there was one."""
    intent = folder.read_intent()
    if intent is None or not intent.staged:
        return checkpoint, None
    if checkpoint is not None and checkpoint.run >= intent.run:
        folder.clear()
        return checkpoint, None
    progress.say(f"Finishing run {intent.run}, which was interrupted after it had read everything.")
    return _publish(files, folder, request, checkpoint, intent), intent


def _begin(folder: CheckpointFolder, request: ExportRequest, wanted: TopicRange) -> ExportCheckpoint:
    """Record the start of an export without records: ``latest`` would be a later offset in the next run."""
    folder.lock.check()
    checkpoint = ExportCheckpoint(
        topic=request.source.topic, topic_id=wanted.topic_id, run=0, offsets=dict(wanted.ends), rows=0
    )
    folder.finish(checkpoint)
    return checkpoint


def _start_of(request: ExportRequest, checkpoint: ExportCheckpoint | None) -> Place:
    return request.start if checkpoint is None else Place("offsets", offsets=checkpoint.offsets)


def _selected(rows: DataFrame, request: ExportRequest) -> DataFrame:
    dated = brought_together(utc_date_and_hour(rows), request.file_bytes)
    try:
        chosen = dated.selectExpr(*request.selected, *PARTITIONED_BY)
    except PySparkException as error:
        raise JobUsageError(f"--select cannot be used: {first_sentence(error)}") from None
    names = [name.lower() for name in chosen.columns]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise JobUsageError(
            f"--select names {', '.join(sorted(repeated))} more than once; date and hour are there anyway."
        )
    return chosen


def _stage(
    spark: SparkSession,
    rows: DataFrame,
    folder: CheckpointFolder,
    request: ExportRequest,
    file_records_max: int,
    progress: Progress,
) -> int:
    counter = Observation()
    observed = rows.observe(counter, F.count(F.lit(1)).alias("rows"))
    with (
        progress.during(f"exporting {request.source}", lambda: tasks_done(spark)),
        sized_tasks(spark, request.file_bytes),
    ):
        writer = observed.write.mode("overwrite").option("compression", request.codec).partitionBy(*PARTITIONED_BY)
        writer.option("maxRecordsPerFile", file_records_max).parquet(folder.staging)
    written, found = int(counter.get["rows"]), spark.read.schema(rows.schema).parquet(folder.staging).count()
    if found != written:
        raise JobError(
            f"Spark wrote {counted(written, 'record')}, and {counted(found, 'record')} came to {request.destination}: "
            "it must be a folder that the driver and all executors share. The next run exports them again."
        )
    return written


def _publish(
    files: HadoopFiles,
    folder: CheckpointFolder,
    request: ExportRequest,
    checkpoint: ExportCheckpoint | None,
    intent: RunIntent,
) -> ExportCheckpoint:
    """Move the staged files to their folders and replace the checkpoint. It can be repeated after a kill at any point.

    Raises:
        JobError: another run has taken over, or a file is neither staged nor moved.
    """
    staging, destination = folder.staging_of(intent.run_id), request.destination.rstrip("/")
    moves: dict[str, str] = {}
    for path in intent.files:
        parent, _, name = path.rpartition("/")
        moves[f"{staging}/{path}"] = f"{destination}/{parent}/{intent.prefix_of(request.source.topic)}-{name}"
    folder.lock.check()
    gone = [source for source, target in moves.items() if not files.exists(source) and not files.exists(target)]
    if gone:
        for target in moves.values():
            files.delete(target)
        folder.clear()
        raise JobError(f"{gone[0]} was staged and is gone: nothing of run {intent.run} is published; run export again.")
    for source, target in moves.items():
        files.move(source, target)
    folder.lock.check()
    done = ExportCheckpoint(
        topic=request.source.topic,
        topic_id=intent.topic_id,
        run=intent.run,
        offsets=dict(intent.ends),
        rows=(checkpoint.rows if checkpoint else 0) + intent.rows,
    )
    folder.finish(done)
    return done


def _plan(request: ExportRequest, wanted: TopicRange, checkpoint: ExportCheckpoint | None, started: float) -> JobReport:
    since = f"where run {checkpoint.run} ended" if checkpoint is not None and checkpoint.run else "its beginning"
    return JobReport(
        job="export",
        outcome="dry_run",
        summary=f"Dry run: at most {counted(wanted.offset_count, 'record')} ({format_bytes(wanted.size_bytes)} in the "
        f"log) of {request.source} from {since} would go to {request.destination}.",
        rows=wanted.offset_count,
        size_bytes=wanted.size_bytes,
        seconds=time.monotonic() - started,
        details={"range": wanted.as_json(), "lost": wanted.lost_count, "columns": [*request.selected, *PARTITIONED_BY]},
        lines=_range_lines(wanted.starts, wanted.ends),
    )


def _report_of_none(
    request: ExportRequest,
    wanted: TopicRange,
    checkpoint: ExportCheckpoint,
    finished: RunIntent | None,
    seconds: float,
) -> JobReport:
    """Return the report of a run that found nothing to read, but may have finished an earlier run."""
    summary = f"{request.source} has no records that are not in {request.destination}."
    if finished is not None:
        summary = (
            f"Exported {_amount(finished)} of {request.source} to {request.destination} that run {finished.run} had "
            "read before it was interrupted; there are no more."
        )
    elif checkpoint.run == 0:
        summary = f"{request.source} has no records to export yet: those that come next go to {request.destination}."
    return JobReport(
        job="export",
        outcome="nothing_to_do" if finished is None else "done",
        summary=summary,
        rows=0 if finished is None else finished.rows,
        seconds=seconds,
        details={"range": wanted.as_json(), "run": checkpoint.run, "finished": _finished_facts(finished)},
    )


def _amount(run: RunIntent) -> str:
    return f"{counted(run.rows, 'record')} in {counted(len(run.files), 'file')}"


def _finished_facts(finished: RunIntent | None) -> dict[str, int] | None:
    return None if finished is None else {"run": finished.run, "rows": finished.rows, "files": len(finished.files)}


def _report(
    request: ExportRequest,
    wanted: TopicRange,
    run: RunIntent,
    finished: RunIntent | None,
    seconds: float,
) -> JobReport:
    before = () if finished is None else (f"before, what run {finished.run} had left: {_amount(finished)}",)
    lost = (
        (f"{counted(wanted.lost_count, 'offset')} had been deleted before they were exported",)
        if wanted.lost_count
        else ()
    )
    return JobReport(
        job="export",
        outcome="done",
        summary=f"Exported {counted(run.rows, 'record')} of {request.source} to {counted(len(run.files), 'file')} in "
        f"{request.destination} {rate(run.rows, seconds)} (run {run.run}).",
        rows=run.rows + (0 if finished is None else finished.rows),
        size_bytes=wanted.size_bytes,
        seconds=seconds,
        details={
            "range": wanted.as_json(),
            "run": run.run,
            "files": len(run.files),
            "lost": wanted.lost_count,
            "finished": _finished_facts(finished),
        },
        lines=(*before, *lost, *_range_lines(run.starts, run.ends)),
    )


def _range_lines(starts: Mapping[int, int], ends: Mapping[int, int]) -> tuple[str, ...]:
    return tuple(
        f"partition {number}: offsets {starts[number]:,} to {ends[number]:,} (exclusive)"
        for number in sorted(ends)
        if ends[number] > starts[number]
    )
