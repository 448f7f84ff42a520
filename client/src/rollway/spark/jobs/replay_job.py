"""``replay``: a range of time of a topic, produced again as it came, at its own speed or another."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pyspark.sql import Row, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody who writes Spark calls it

from rollway.client import RollwayClient, TopicNotFoundError
from rollway.spark.jobs.errors import JobError, JobUsageError
from rollway.spark.jobs.places import EARLIEST, LATEST, Place, format_time
from rollway.spark.jobs.progress import Progress, SilentProgress, tasks_done
from rollway.spark.jobs.reports import JobReport, Outcome, counted, format_bytes
from rollway.spark.jobs.topics import OnDataLoss, TopicAddress, TopicRange, open_client, read_range, resolve_range
from rollway.spark.jobs.writing import COMMITTED_STATES, LoadIdentity, write_records

STEPS_MAX = 100_000

Timestamps = Literal["keep", "now"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """A range of a topic, and the topic in which it happens again.

    ``speed`` 1 is as it was, 10 ten times as fast, 0 as fast as it goes. Records come in steps of
    ``interval_seconds`` of the replay's own time: each step is one transaction, visible at once. ``timestamps`` are
    kept, or are those of the replay. With an identity a replay that was interrupted goes on after its last step.
    """

    source: TopicAddress
    target: TopicAddress
    start: Place = EARLIEST
    end: Place = LATEST
    speed: float = 1.0
    interval_seconds: float = 2.0
    timestamps: Timestamps = "keep"
    keep_partitions: bool = True
    identity: LoadIdentity = field(default_factory=LoadIdentity)
    on_data_loss: OnDataLoss = "fail"

    def __post_init__(self) -> None:
        if self.source.format != "rollway" or self.target.format != "rollway":
            raise JobUsageError("Replay reads and writes topics of Rollway services.")
        if (self.source.url, self.source.topic) == (self.target.url, self.target.topic):
            raise JobUsageError("A topic cannot be replayed into itself.")
        if not 0 <= self.speed < float("inf"):
            raise JobUsageError(f"--speed {self.speed:g} makes no sense: 1 is as it was, 0 as fast as it goes.")
        if not 0.1 <= self.interval_seconds <= 3600:
            raise JobUsageError(f"--interval {self.interval_seconds:g} is outside 0.1 to 3600 seconds.")
        if self.timestamps not in ("keep", "now"):
            raise JobUsageError(f"--timestamps {self.timestamps!r} is neither keep nor now.")
        if self.identity.application_id is not None and self.end == LATEST:
            raise JobUsageError("A replay with --app-id needs an end that stays (--until a time or offsets).")


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """Offsets that are written together, ``due_seconds`` after the beginning."""

    due_seconds: float
    from_ms: int
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    rows: int


def replay(
    spark: SparkSession,
    request: ReplayRequest,
    *,
    progress: Progress | None = None,
    dry_run: bool = False,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> JobReport:
    """Replay. ``clock`` and ``wait`` are in seconds. A step that cannot be written in time comes late, and none is
    left out.

    Raises:
        JobError: the partitions do not fit, or records are lost.
        PySparkException: Spark failed; the steps before are visible.
        RollwayError: a service refused or cannot be reached.
    """
    progress = progress or SilentProgress()
    began = time.monotonic()
    with open_client(request.source) as source, open_client(request.target) as target:
        wanted = resolve_range(source, request.source, request.start, request.end, request.on_data_loss)
        with progress.during(f"looking at the times of {request.source}", lambda: tasks_done(spark)):
            steps = plan_steps(spark, wanted, request)
        _fit_target(target, request, wanted, dry_run=dry_run)
        first = _first_step(target, request)
        if dry_run:
            return _plan(request, wanted, steps, first, began)
        rows = size_bytes = 0
        latest = 0.0
        origin = clock() - (steps[first].due_seconds if first < len(steps) else 0.0)
        for number, step in enumerate(steps[first:], first):
            early = origin + step.due_seconds - clock()
            if early > 0:
                wait(early)
            latest = max(latest, clock() - origin - step.due_seconds)
            wanted_now = replace(wanted, starts=step.starts, ends=step.ends)
            records = read_range(spark, wanted_now, headers=True)
            columns = ["key", "value", "headers"]
            columns += ["timestamp"] if request.timestamps == "keep" else []
            columns += ["partition"] if request.keep_partitions else []
            done = write_records(
                records.select(*columns), request.target, target, _step_identity(request, number), progress
            )
            rows += done.rows
            size_bytes += done.size_bytes or 0
            progress.say(
                f"{format_time(step.from_ms)}: {counted(done.rows, 'record')} (step {number + 1} of {len(steps)})"
            )
    return _report(request, len(steps), first, rows, size_bytes, latest, time.monotonic() - began)


def plan_steps(spark: SparkSession, wanted: TopicRange, request: ReplayRequest) -> list[ReplayStep]:
    """The range cut into steps of time, without those that have no records. Reads the timestamps of all of it.

    Records keep their order in the partition: one that is earlier than those before it comes with them.

    Raises:
        JobUsageError: there would be too many steps.
    """
    if wanted.offset_count == 0:
        return []
    # Only these columns are decoded.
    times = read_range(spark, wanted).select("partition", "offset", F.unix_millis("timestamp").alias("at"))
    found = times.agg(F.min("at").alias("begin"), F.max("at").alias("end")).collect()[0]
    if found["begin"] is None:
        return []
    begin, end = int(found["begin"]), int(found["end"])
    if request.start.kind == "time":
        begin = request.start.timestamp_ms
    step_ms = max(1, int(request.interval_seconds * request.speed * 1000)) if request.speed else end - begin + 1
    count = (end - begin) // step_ms + 1
    if count > STEPS_MAX:
        raise JobUsageError(
            f"From {format_time(begin)} to {format_time(end)} there would be {count:,} steps of "
            f"{request.interval_seconds:g} s, and {STEPS_MAX:,} are the most: a higher --speed or --interval, or a "
            "shorter range helps."
        )
    until_now = Window.partitionBy("partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
    step = F.floor((F.max("at").over(until_now) - F.lit(begin)) / F.lit(step_ms)).cast("bigint")
    cuts = (
        times.withColumn("step", step)
        .groupBy("step", "partition")
        .agg(F.min("offset").alias("start"), F.max("offset").alias("last"), F.count(F.lit(1)).alias("rows"))
        .collect()
    )
    by_step: dict[int, list[Row]] = {}
    for cut in cuts:
        by_step.setdefault(int(cut["step"]), []).append(cut)
    return [_step(number, rows, begin, step_ms, request, wanted) for number, rows in sorted(by_step.items())]


def _step(
    number: int, cuts: Sequence[Row], begin: int, step_ms: int, request: ReplayRequest, wanted: TopicRange
) -> ReplayStep:
    """Partitions without records in this step begin and end where they begin."""
    starts = {**wanted.starts, **{int(each["partition"]): int(each["start"]) for each in cuts}}
    ends = {**wanted.starts, **{int(each["partition"]): int(each["last"]) + 1 for each in cuts}}
    due = number * step_ms / request.speed / 1000 if request.speed else 0.0
    return ReplayStep(due, begin + number * step_ms, starts, ends, sum(int(each["rows"]) for each in cuts))


def _fit_target(client: RollwayClient, request: ReplayRequest, wanted: TopicRange, *, dry_run: bool) -> None:
    try:
        target = client.describe_topic(request.target.topic)
    except TopicNotFoundError:
        if not dry_run:
            client.create_topic(request.target.topic, wanted.partition_count)
        return
    if request.keep_partitions and target.partition_count < wanted.partition_count:
        raise JobError(
            f"{request.source} has {counted(wanted.partition_count, 'partition')} and {request.target} has "
            f"{target.partition_count:,}: --by-key lets the keys decide."
        )


def _step_identity(request: ReplayRequest, number: int) -> LoadIdentity:
    """Each step is a version of an application of its own replay."""
    identity = request.identity
    if identity.application_id is None:
        return identity
    return LoadIdentity(application_id=f"{identity.application_id}.{identity.version}", version=number)


def _first_step(client: RollwayClient, request: ReplayRequest) -> int:
    """0, or the step after the last one that an earlier run of the same replay has committed."""
    application = _step_identity(request, 0).application_id
    if application is None:
        return 0
    done = [job.version for job in client.list_jobs(application_id=application) if job.state in COMMITTED_STATES]
    return max(done) + 1 if done else 0


def _plan(
    request: ReplayRequest, wanted: TopicRange, steps: Sequence[ReplayStep], first: int, began: float
) -> JobReport:
    rows = sum(step.rows for step in steps[first:])
    takes = steps[-1].due_seconds - steps[min(first, len(steps) - 1)].due_seconds if steps else 0.0
    return JobReport(
        job="replay",
        outcome="dry_run",
        summary=f"Dry run: {counted(rows, 'record')} of {request.source} would be replayed into {request.target} in "
        f"{counted(len(steps) - first, 'step')} within "
        f"about {takes + request.interval_seconds if steps and request.speed else 0:,.0f} s.",
        rows=rows,
        seconds=time.monotonic() - began,
        details={"range": wanted.as_json(), "steps": len(steps), "first_step": first, "planned_seconds": takes},
        lines=tuple(
            f"{format_time(step.from_ms)}: after {step.due_seconds:,.1f} s, {counted(step.rows, 'record')}"
            for step in steps[first : first + 5]
        ),
    )


def _report(
    request: ReplayRequest, step_count: int, first: int, rows: int, size_bytes: int, latest: float, seconds: float
) -> JobReport:
    outcome: Outcome
    if step_count == 0:
        outcome, summary = "nothing_to_do", f"{request.source} has no records in that range."
    elif first >= step_count:
        outcome, summary = "already_done", "This replay was finished before; nothing was written."
    else:
        outcome = "done"
        summary = (
            f"Replayed {counted(rows, 'record')} ({format_bytes(size_bytes)}) of {request.source} into "
            f"{request.target} in {counted(step_count - first, 'step')} within {seconds:,.1f} s."
        )
    lines = (f"the latest step began {latest:.1f} s after its time",) if outcome == "done" and latest >= 0.1 else ()
    return JobReport(
        job="replay",
        outcome=outcome,
        summary=summary,
        rows=rows,
        size_bytes=size_bytes,
        seconds=seconds,
        details={"steps": step_count, "first_step": first, "latest_seconds": round(latest, 3)},
        lines=lines,
    )
