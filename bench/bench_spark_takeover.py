"""After a Spark driver is killed: how soon its next run is visible, and how long its orphan holds up everybody else."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.processes import ROOT, BenchError
from bench.rows import Goal, Row, Sample, row_of
from bench.spark_session import SparkPlan

BENCH = "spark-takeover"
ROW_COUNT = 10_000
ORPHAN_TIMEOUT_MS = 2_000
_START_SECONDS_MAX = 300.0
_LOOK_SECONDS = 0.01
_BOUND_SECONDS = 5.0


def measure_takeovers(plan: SparkPlan) -> Iterator[Row]:
    """In each round one driver with two open loads is killed: its JVM, its Python, its workers.

    One load has a short timeout and no next run; the other one has the longest timeout and is run again at once.
    """
    held_up: list[Sample] = []
    taken_over: list[Sample] = []
    undisturbed: list[Sample] = []
    for turn in range(1, plan.rounds + 1):
        plan.say(f"a driver is killed, round {turn} of {plan.rounds}")
        with plan.topic() as orphaned, plan.topic() as mine:
            application = f"takeover-{turn}-{time.time_ns()}"
            loads = [f"{application}-orphan", orphaned, str(ORPHAN_TIMEOUT_MS), application, mine, "600000"]
            with _driver(plan, loads) as driver:
                for topic in (mine, orphaned):
                    _wait(plan, topic, is_held_up=True, driver=driver)
                killed_at = _kill(driver)
            _wait(plan, orphaned, is_held_up=False)
            held_up.append(Sample(time.perf_counter() - killed_at))
            with plan.topic() as topic:
                # Not counted: Spark has ended its Python processes while it waited, and starts them anew.
                _load(plan, f"{application}-first", topic)
            if not _is_held_up(plan, mine):
                raise BenchError(f"The load into {mine} was over before it was taken over.")
            taken_over.append(Sample(_load(plan, application, mine)))
        with plan.topic() as topic:
            undisturbed.append(Sample(_load(plan, f"{application}-undisturbed", topic)))
    goal = Goal("value", "<=", _BOUND_SECONDS)
    yield row_of(
        BENCH,
        f"killed driver: its next run begins, and its {ROW_COUNT:,} rows are visible",
        "s",
        taken_over,
        limit="with nothing left behind",
        limits=undisturbed,
        goal=goal,
        note=_worst(taken_over),
    )
    name = f"killed driver: its orphan holds up readers, with a transactionTimeout of {ORPHAN_TIMEOUT_MS} ms"
    goal = Goal("value", "<=", ORPHAN_TIMEOUT_MS / 1000 + _BOUND_SECONDS)
    yield row_of(BENCH, name, "s", held_up, goal=goal, note=_worst(held_up))


def _worst(samples: list[Sample]) -> str:
    return f"worst of {len(samples)}: {max(sample.value for sample in samples):.2f} s"


def _load(plan: SparkPlan, application: str, topic: str) -> float:
    """Seconds from the begin of a load until readers are past all that was ever written to the topic."""
    started = time.perf_counter()
    writer = plan.rows(ROW_COUNT).write.format("rollway").option("url", plan.url).option("topic", topic)
    writer.option("txnAppId", application).option("txnVersion", "1").mode("append").save()
    _wait(plan, topic, is_held_up=False)
    seconds = time.perf_counter() - started
    seen = plan.spark.read.format("rollway").option("url", plan.url).option("subscribe", topic).load().count()
    if seen != ROW_COUNT:
        raise BenchError(f"{seen} rows are visible in {topic}, and {ROW_COUNT} were loaded.")
    return seconds


def _is_held_up(plan: SparkPlan, topic: str) -> bool:
    return any(each.last_stable_offset < each.high_watermark for each in plan.client.watermarks(topic))


def _wait(plan: SparkPlan, topic: str, *, is_held_up: bool, driver: subprocess.Popen[bytes] | None = None) -> None:
    """Return when readers of committed records are held up in the topic, or no longer are."""
    deadline = time.monotonic() + _START_SECONDS_MAX
    while _is_held_up(plan, topic) != is_held_up:
        if time.monotonic() > deadline or (driver is not None and driver.poll() is not None):
            raise BenchError(f"{topic} is {'not ' if is_held_up else ''}held up after {_START_SECONDS_MAX:.0f} s.")
        time.sleep(_LOOK_SECONDS)


@contextmanager
def _driver(plan: SparkPlan, loads: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A Spark of its own, in a session of processes of its own."""
    scratch = plan.directory / "orphan"
    scratch.mkdir(exist_ok=True)
    with (scratch / "driver.log").open("ab") as log:
        command = [sys.executable, "-m", "bench.spark_orphan", plan.url, str(scratch), *loads]
        driver = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield driver
    finally:
        _kill(driver)


def _kill(driver: subprocess.Popen[bytes]) -> float:
    """kill -9 of the driver, its JVM and its workers; when that was."""
    for pid in _session_of(driver.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    killed_at = time.perf_counter()
    driver.wait()
    return killed_at


def _session_of(leader: int) -> list[int]:
    """The processes of the leader's session. Workers have groups of their own, but the same session."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # Behind the command's name, which may hold anything: state, parent, group, session, ...
            if int((process / "stat").read_text().rpartition(")")[2].split()[3]) == leader:
                found.append(int(process.name))
    return found
