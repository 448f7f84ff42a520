"""``replay``: a range of time of a topic, produced again in its order, at its original speed or another."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pyspark.sql import SparkSession

from rollway.client import RollwayClient, Topic
from rollway.spark.jobs.errors import JobError, JobUsageError
from rollway.spark.jobs.places import EARLIEST, LATEST, Place, format_time
from rollway.spark.jobs.progress import Progress, SilentProgress, tasks_done
from rollway.spark.jobs.replaying.replay_positions import ReplayPositions
from rollway.spark.jobs.replaying.replay_steps import ReplayStep, plan_steps
from rollway.spark.jobs.reports import JobReport, Outcome, counted, format_bytes
from rollway.spark.jobs.targets import check_settings, find_target, make_target, open_target
from rollway.spark.jobs.topic_limits import shorter_limits
from rollway.spark.jobs.topics import (
    SPLITTING,
    OnDataLoss,
    TopicAddress,
    TopicRange,
    open_client,
    read_range,
    refuse_itself,
    refuse_options,
    resolve_range,
)
from rollway.spark.jobs.writing import LoadIdentity, Written, write_records

Timestamps = Literal["keep", "now"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """A range of a topic, and the topic to replay it into.

    ``speed`` 1 is the original speed, 10 is ten times as fast, 0 is as fast as possible. Records are written in steps
    of ``interval_seconds`` of the replay's time. Each step is one transaction, visible at once. ``timestamps`` are
    kept, or are those of the replay. With an identity, an interrupted replay continues after its last step, in steps of
    any length; its range, ``timestamps`` and ``keep_partitions`` must be the same. A missing target is created with the
    source's settings, over which ``topic_config`` wins.

    With kept timestamps the replay is refused before the first step if the target's retention would soon delete some of
    its records by their age, and the source's would not. ``allow_expired`` permits that; a target that is created
    permits it as well.

    Example::

        ReplayRequest(
            source=TopicAddress(topic="readings", url="http://127.0.0.1:8080"),
            target=TopicAddress(topic="readings-again", url="http://127.0.0.1:8080"),
            start=parse_place("2013-07-04"),
            end=parse_place("2013-07-05"),
            speed=60,
        )
    """

    source: TopicAddress
    target: TopicAddress
    start: Place = EARLIEST
    end: Place = LATEST
    speed: float = 1.0
    interval_seconds: float = 2.0
    timestamps: Timestamps = "keep"
    keep_partitions: bool = True
    topic_config: Mapping[str, object] = field(default_factory=dict)
    identity: LoadIdentity = field(default_factory=LoadIdentity)
    on_data_loss: OnDataLoss = "fail"
    allow_expired: bool = False

    def __post_init__(self) -> None:
        refuse_options(self.source, SPLITTING)
        if self.source.format != "rollway" or self.target.format != "rollway":
            raise JobUsageError("Replay reads and writes topics of Rollway services.")
        if self.source.place == self.target.place:
            raise JobUsageError("A topic cannot be replayed into itself.")
        if not 0 <= self.speed < float("inf"):
            raise JobUsageError(f"--speed {self.speed:g} makes no sense: 1 is as it was, 0 as fast as it goes.")
        if not 0.1 <= self.interval_seconds <= 3600:
            raise JobUsageError(f"--interval {self.interval_seconds:g} is outside 0.1 to 3600 seconds.")
        if self.timestamps not in ("keep", "now"):
            raise JobUsageError(f"--timestamps {self.timestamps!r} is neither keep nor now.")
        if self.identity.application_id is not None and self.end == LATEST:
            raise JobUsageError("A replay with --app-id needs an end that stays (--until a time or offsets).")


def replay(
    spark: SparkSession,
    request: ReplayRequest,
    *,
    progress: Progress | None = None,
    dry_run: bool = False,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> JobReport:
    """Replay a range. A step that cannot be written in time is written late; no step is left out.

    ``clock`` and ``wait`` are in seconds.

    Raises:
        JobError: the partitions do not fit; records are lost, or older than the target keeps; or the replay was begun
            with another range.
        PySparkException: Spark failed; earlier steps are visible.
        RollwayError: a service refused or cannot be reached.
    """
    progress = progress or SilentProgress()
    began = time.monotonic()
    with open_client(request.source) as source, open_target(request.target) as target:
        topic = source.describe_topic(request.source.topic)
        kept = topic.partition_count if request.keep_partitions else None
        goal = find_target(target, request.target, request.source, kept)
        if goal is not None:
            refuse_itself(request.source, topic, request.target, goal)
            check_settings(request.target, goal, request.topic_config)
        positions = _positions(source, target, request, topic, goal)
        first, resumed = positions.resume()
        wanted = _range(source, request, resumed)
        with progress.during(f"looking at the times of {request.source}", lambda: tasks_done(spark)):
            steps = plan_steps(spark, wanted, speed=request.speed, interval_seconds=request.interval_seconds)
        if goal is not None and first == 0:
            _check_age(request, topic, goal, steps)
        if dry_run:
            return _plan(request, wanted, steps, first, began)
        if goal is None:
            goal = make_target(target, request.target, topic, request.topic_config)
            positions = _positions(source, target, request, topic, goal)
        run = _Run(spark, request, target, positions, progress, clock, wait)
        run.write_all(wanted, steps, first)
    return _report(request, run, first, time.monotonic() - began)


def _positions(
    source: RollwayClient, target: RollwayClient, request: ReplayRequest, topic: Topic, goal: Topic | None
) -> ReplayPositions:
    return ReplayPositions(
        source=source,
        target=target,
        topic=topic.name,
        topic_id=topic.topic_id,
        identity=request.identity,
        records=(
            topic.topic_id,
            None if goal is None else goal.topic_id,
            str(request.start),
            str(request.end),
            request.timestamps,
            request.keep_partitions,
        ),
    )


def _range(client: RollwayClient, request: ReplayRequest, resumed: Mapping[int, int]) -> TopicRange:
    """Return the range that is still to be replayed: all of it, or the part after the last run."""
    start = Place("offsets", offsets=resumed) if resumed else request.start
    wanted = resolve_range(client, request.source, start, request.end, request.on_data_loss)
    return replace(wanted, from_ms=request.start.timestamp_ms if request.start.kind == "time" else None)


def _check_age(request: ReplayRequest, source: Topic, goal: Topic, steps: Sequence[ReplayStep]) -> None:
    if request.allow_expired or request.timestamps != "keep" or not steps:
        return
    limits = shorter_limits(goal, source, int(time.time() * 1000))
    oldest_ms = min(step.oldest_ms for step in steps)
    if limits is not None and limits.kept_from_ms is not None and oldest_ms < limits.kept_from_ms:
        raise JobError(f"Records (the oldest of {format_time(oldest_ms)}) are {limits.too_old(goal.name, 'replayed')}")


class _Run:
    """A run: it writes steps when they are due, and counts their records."""

    def __init__(
        self,
        spark: SparkSession,
        request: ReplayRequest,
        target: RollwayClient,
        positions: ReplayPositions,
        progress: Progress,
        clock: Callable[[], float],
        wait: Callable[[float], None],
    ) -> None:
        self._spark = spark
        self._request = request
        self._target = target
        self._positions = positions
        self._progress = progress
        self._clock = clock
        self._wait = wait
        self.rows = self.size_bytes = self.written_count = self.lost_count = 0
        self.latest_seconds = 0.0

    def write_all(self, wanted: TopicRange, steps: Sequence[ReplayStep], number: int) -> None:
        """Write the steps. The first one has this number, and is written without a wait."""
        self.lost_count = wanted.lost_count
        at = dict(wanted.ends)
        for step in reversed(steps):
            at.update({partition: start for partition, (start, _) in step.ranges.items()})
        origin = self._clock() - steps[0].due_seconds if steps else 0.0
        for step in steps:
            # Once, unless an earlier run has pinned the end of the step with this number.
            while any(at[partition] < end for partition, (_, end) in step.ranges.items()):
                self._wait_for(step, origin)
                own = {partition: max(at[partition], end) for partition, (_, end) in step.ranges.items()}
                pinned = self._positions.pin(number, {**at, **own})
                ends = {partition: max(at[partition], end) for partition, end in pinned.items()}
                done = self._write(replace(wanted, starts=at, ends=ends), number)
                self._progress.say(
                    f"{format_time(step.from_ms)}: {counted(done.rows, 'record')} (step {number + 1}, "
                    f"{counted(len(steps), 'step')} in this run)"
                )
                at, number = ends, number + 1

    def _wait_for(self, step: ReplayStep, origin: float) -> None:
        early = origin + step.due_seconds - self._clock()
        if early > 0:
            self._wait(early)
        self.latest_seconds = max(self.latest_seconds, self._clock() - origin - step.due_seconds)

    def _write(self, wanted: TopicRange, number: int) -> Written:
        request = self._request
        columns = ["key", "value", "headers"]
        columns += ["timestamp"] if request.timestamps == "keep" else []
        columns += ["partition"] if request.keep_partitions else []
        records = read_range(self._spark, wanted, headers=True, has_byte_names=True).select(*columns)
        identity = self._positions.step_identity(number)
        done = write_records(records, request.target, self._target, identity, self._progress)
        if done.is_repeated:
            raise JobError(
                f"Step {number + 1} of the replay {request.identity.application_id} {request.identity.version} was "
                "written by another run of it, which is under way: let that one end."
            )
        self._positions.written(number)
        self.rows += done.rows
        self.size_bytes += done.size_bytes or 0
        self.written_count += 1
        return done


def _plan(
    request: ReplayRequest, wanted: TopicRange, steps: Sequence[ReplayStep], first: int, began: float
) -> JobReport:
    rows = sum(step.rows for step in steps)
    takes = steps[-1].due_seconds - steps[0].due_seconds if steps else 0.0
    return JobReport(
        job="replay",
        outcome="dry_run",
        summary=f"Dry run: {counted(rows, 'record')} of {request.source} would be replayed into {request.target} in "
        f"{counted(len(steps), 'step')} within "
        f"about {takes + request.interval_seconds if steps and request.speed else 0:,.0f} s.",
        rows=rows,
        seconds=time.monotonic() - began,
        details={
            "range": wanted.as_json(),
            "steps": first + len(steps),
            "first_step": first,
            "planned_seconds": takes,
            "lost": wanted.lost_count,
        },
        lines=tuple(
            f"{format_time(step.from_ms)}: after {step.due_seconds:,.1f} s, {counted(step.rows, 'record')}"
            for step in steps[:5]
        ),
    )


def _report(request: ReplayRequest, run: _Run, first: int, seconds: float) -> JobReport:
    outcome: Outcome
    if run.written_count:
        outcome = "done"
        summary = (
            f"Replayed {counted(run.rows, 'record')} ({format_bytes(run.size_bytes)}) of {request.source} into "
            f"{request.target} in {counted(run.written_count, 'step')} within {seconds:,.1f} s."
        )
    elif first:
        outcome, summary = "already_done", "This replay was finished before; nothing was written."
    else:
        outcome, summary = "nothing_to_do", f"{request.source} has no records in that range."
    lines = [f"the latest step began {run.latest_seconds:.1f} s after its time"] if run.latest_seconds >= 0.1 else []
    if run.lost_count:
        lines.append(f"{counted(run.lost_count, 'offset')} had been deleted before they were replayed")
    return JobReport(
        job="replay",
        outcome=outcome,
        summary=summary,
        rows=run.rows,
        size_bytes=run.size_bytes,
        seconds=seconds,
        details={
            "steps": first + run.written_count,
            "first_step": first,
            "latest_seconds": round(run.latest_seconds, 3),
            "lost": run.lost_count,
        },
        lines=tuple(lines),
    )
