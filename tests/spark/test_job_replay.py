"""``replay`` against a real service: at its speed, each record once, however often it is begun again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest
from pyspark.sql import SparkSession

from rollway.client import RollwayClient
from rollway.records import Record
from rollway.spark.jobs import JobError, LoadIdentity, ReplayRequest, parse_place, replay
from rollway.spark.jobs.command import cli
from rollway.spark.jobs.replaying.replay_steps import plan_steps
from rollway.spark.jobs.topics import resolve_range
from tests.spark.orders import BEGIN_MS, DAY_MS, HOUR_MS, KEEP, address, load_orders, rows_of
from tests.spark.topics import FilledTopic
from tests.support.servers import ServerProcess


class PacedClock:
    """Time that passes only when somebody waits for it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def test_replay_happens_at_its_speed_and_goes_on_after_its_last_step(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, name: str, tmp_path: Path
) -> None:
    load_orders(spark, server, name, tmp_path / "in")
    clock = PacedClock()
    request = ReplayRequest(
        source=address(server, name),
        target=address(server, f"{name}-2"),
        end=parse_place(str(BEGIN_MS + 4 * HOUR_MS)),
        speed=3600,
        interval_seconds=1,
        identity=LoadIdentity(application_id=name, version=1),
    )
    planned = replay(spark, request, dry_run=True)
    assert (planned.outcome, planned.details["steps"]) == ("dry_run", 4)
    report = replay(spark, request, clock=clock, wait=clock.wait)
    assert (report.outcome, report.rows) == ("done", 240)
    assert client.describe_topic(f"{name}-2").own_config == KEEP
    assert clock.waits == pytest.approx([1.0, 1.0, 1.0])
    found = rows_of(spark, server, f"{name}-2")
    assert found == [row for row in rows_of(spark, server, name) if row[3] < BEGIN_MS + 4 * HOUR_MS]
    assert replay(spark, request).outcome == "already_done"
    assert len(rows_of(spark, server, f"{name}-2")) == 240


def test_replay_has_every_record_in_one_step(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, name: str
) -> None:
    """Times that are out of order stay where they are; each offset belongs to one step."""
    client.create_topic(name, 2, KEEP)
    times = [0, 5, 3, 9, 1, 20, 2, 30, 31, 29]
    frame = spark.createDataFrame(
        [(str(number), BEGIN_MS + at * 1000, number % 2) for number, at in enumerate(times)],
        "value string, at long, partition int",
    ).coalesce(1)
    columns = frame.selectExpr("value", "timestamp_millis(at) AS timestamp", "partition")
    columns.write.format("rollway").option("url", server.url).option("topic", name).mode("append").save()
    request = ReplayRequest(
        source=address(server, name), target=address(server, f"{name}-2"), speed=2.0, interval_seconds=2.0
    )
    wanted = resolve_range(client, request.source, request.start, request.end)
    steps = plan_steps(spark, wanted, speed=2.0, interval_seconds=2.0)
    assert [step.rows for step in steps] == [4, 1, 1, 1, 3]
    assert [step.due_seconds for step in steps] == [0.0, 2.0, 4.0, 10.0, 14.0]
    for number in (0, 1):
        ranges = [step.ranges[number] for step in steps if number in step.ranges]
        assert all(before[1] == after[0] for before, after in pairwise(ranges))
    now = ReplayRequest(source=request.source, target=request.target, speed=0, timestamps="now", keep_partitions=False)
    assert replay(spark, now).rows == len(times)
    assert all(at > BEGIN_MS + DAY_MS for *_, at in rows_of(spark, server, f"{name}-2"))


def test_progress_goes_to_stderr_and_the_report_to_stdout(
    spark: SparkSession,
    server: ServerProcess,
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    load_orders(spark, server, name, tmp_path / "in", 30)
    line = ["replay", name, f"{name}-2", "--url", server.url, "--speed", "0", "--json"]
    assert cli.run_here(line) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["rows"] == 30
    assert "30 records (step 1, 1 step in this run)" in printed.err


# A replay that is begun again


class StoppedError(Exception):
    """Raised where a run ends in the tests."""


def stopping_after(step_count: int) -> Callable[[float], None]:
    """A ``wait`` that ends the run before the step after so many; the first step waits for nothing."""
    steps = iter(range(1, step_count))

    def wait(_: float) -> None:
        if next(steps, None) is None:
            raise StoppedError

    return wait


@pytest.fixture
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url) as http:
        yield http


@pytest.fixture
def source(http: httpx.Client, client: RollwayClient, name: str) -> FilledTopic:
    """A topic of two partitions that keeps everything."""
    client.create_topic(name, 2, KEEP)
    return FilledTopic(http, name, http.get(f"/v1/topics/{name}").json()["topic_id"])


def send(topic: FilledTopic, partition: int, *seconds: int) -> None:
    """A record, in a batch of its own, at each of these seconds: its value is its partition and its second."""
    for second in seconds:
        value = f"{partition}-{second}".encode()
        topic.send(partition, [Record(0, BEGIN_MS + second * 1000, None, value, ())])


def request_of(server: ServerProcess, name: str, **others: Any) -> ReplayRequest:
    given: dict[str, Any] = {
        "end": parse_place(str(BEGIN_MS + HOUR_MS)),
        "interval_seconds": 1.0,
        "identity": LoadIdentity(application_id=name, version=1),
        **others,
    }
    return ReplayRequest(source=address(server, name), target=address(server, f"{name}-2"), **given)


def values_of(spark: SparkSession, server: ServerProcess, topic: str) -> list[str]:
    return [value for _, _, value, _ in rows_of(spark, server, topic)]


def stopped_clock() -> float:
    return 0.0


def test_a_replay_goes_on_with_another_interval(
    spark: SparkSession, server: ServerProcess, source: FilledTopic, name: str
) -> None:
    """Three of six steps are written; with longer steps the rest comes, and nothing comes twice."""
    send(source, 0, *range(6))
    with pytest.raises(StoppedError):
        replay(spark, request_of(server, name), clock=stopped_clock, wait=stopping_after(3))
    assert values_of(spark, server, f"{name}-2") == ["0-0", "0-1", "0-2"]
    longer = request_of(server, name, interval_seconds=2.0)
    planned = replay(spark, longer, dry_run=True)
    assert (planned.rows, planned.details["first_step"]) == (3, 3)
    report = replay(spark, longer, clock=stopped_clock, wait=lambda _: None)
    assert (report.outcome, report.rows) == ("done", 3)
    assert values_of(spark, server, f"{name}-2") == [f"0-{second}" for second in range(6)]
    assert replay(spark, request_of(server, name, speed=0)).outcome == "already_done"


def test_a_replay_goes_on_when_what_it_has_written_is_gone_from_the_source(
    spark: SparkSession, server: ServerProcess, source: FilledTopic, name: str
) -> None:
    """And with what came to the range since: whatever its time, its offset was never replayed."""
    send(source, 0, 0, 1, 2)
    send(source, 1, 0, 2)
    with pytest.raises(StoppedError):
        replay(spark, request_of(server, name), clock=stopped_clock, wait=stopping_after(2))
    source.delete_before(0, 2)
    source.delete_before(1, 1)
    send(source, 1, 1)
    report = replay(spark, request_of(server, name), clock=stopped_clock, wait=lambda _: None)
    assert report.rows == 3
    assert values_of(spark, server, f"{name}-2") == ["0-0", "0-1", "0-2", "1-0", "1-2", "1-1"]


def test_a_step_that_was_begun_has_the_same_records_when_it_is_done(
    spark: SparkSession, server: ServerProcess, source: FilledTopic, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between saying what a step holds and writing it: the next run, in other steps, writes that step first."""
    send(source, 0, *range(4))
    with monkeypatch.context() as patch:

        def killed(*_: object) -> NoReturn:
            raise StoppedError

        patch.setattr("rollway.spark.jobs.replaying.replay_job.write_records", killed)
        with pytest.raises(StoppedError):
            replay(spark, request_of(server, name, interval_seconds=2.0))
    with pytest.raises(StoppedError):
        replay(spark, request_of(server, name), clock=stopped_clock, wait=stopping_after(1))
    assert values_of(spark, server, f"{name}-2") == ["0-0", "0-1"]
    assert replay(spark, request_of(server, name, speed=0)).rows == 2
    assert values_of(spark, server, f"{name}-2") == [f"0-{second}" for second in range(4)]


def test_a_replay_does_not_go_on_with_another_range(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, source: FilledTopic, name: str
) -> None:
    send(source, 0, *range(3))
    late = parse_place(str(BEGIN_MS + 1000))
    with pytest.raises(StoppedError):
        replay(spark, request_of(server, name, start=late), clock=stopped_clock, wait=stopping_after(1))
    for others in ({}, {"start": late, "timestamps": "now"}, {"start": late, "end": parse_place('{"0": 3}')}):
        with pytest.raises(JobError, match=r"of which 1 step is written, was begun with another --from, --until"):
            replay(spark, request_of(server, name, **others))
    source.delete()
    client.create_topic(name, 2, KEEP)
    with pytest.raises(JobError, match="was begun with another --from"):
        replay(spark, request_of(server, name, start=late))
    assert values_of(spark, server, f"{name}-2") == ["0-1"]


def test_a_step_reads_its_own_partitions(
    spark: SparkSession, server: ServerProcess, source: FilledTopic, name: str
) -> None:
    """What was replayed of another partition may go meanwhile, and is no loss."""
    send(source, 0, 0, 1, 2)
    send(source, 1, 0, 2)
    request = request_of(server, name, identity=LoadIdentity())
    report = replay(spark, request, clock=stopped_clock, wait=lambda _: source.delete_before(1, 1))
    assert report.rows == 5


def test_records_that_go_while_it_replays_are_left_out_if_told_so(
    spark: SparkSession, server: ServerProcess, source: FilledTopic, name: str
) -> None:
    send(source, 0, 0, 1, 2)
    request = request_of(server, name, identity=LoadIdentity(), on_data_loss="skip")
    report = replay(spark, request, clock=stopped_clock, wait=lambda _: source.delete_before(0, 2))
    assert report.rows == 2
    assert values_of(spark, server, f"{name}-2") == ["0-0", "0-2"]
