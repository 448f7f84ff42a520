"""``copy`` and ``replay`` of records that the topic they write to would delete soon after."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from rollway.client import RollwayClient
from rollway.spark.jobs import CopyRequest, JobError, ReplayRequest, copy, replay
from rollway.spark.jobs.errors import JobUsageError
from rollway.spark.jobs.reports import JobReport
from rollway.spark.jobs.topic_limits import shorter_limits
from tests.spark.orders import DAY_MS, KEEP, address, rows_of
from tests.support.servers import ServerProcess

Job = Callable[..., JobReport]
JOBS = [(copy, CopyRequest), (replay, ReplayRequest)]


@pytest.fixture(params=JOBS, ids=["copy", "replay"])
def job(
    request: pytest.FixtureRequest, spark: SparkSession, server: ServerProcess, client: RollwayClient, topic: str
) -> tuple[Job, CopyRequest | ReplayRequest]:
    """A job from a topic that keeps all, with a record of now and, behind it, one of two days ago."""
    run, kind = request.param
    source = f"{topic}-source"
    client.create_topic(source, 1, KEEP)
    now_ms = int(time.time() * 1000)
    rows = spark.createDataFrame([("new", now_ms), ("old", now_ms - 2 * DAY_MS)], "value string, at long").coalesce(1)
    columns = rows.selectExpr("value", "timestamp_millis(at) AS timestamp")
    columns.write.format("rollway").option("url", server.url).option("topic", source).mode("append").save()
    others = {"speed": 0.0} if run is replay else {}
    return run, kind(source=address(server, source), target=address(server, f"{source}-2"), **others)


def test_records_that_the_topic_does_not_keep_are_refused(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, job: tuple[Job, CopyRequest | ReplayRequest]
) -> None:
    run, request = job
    target = request.target.topic
    client.create_topic(target, 1, {"retention.ms": DAY_MS})
    with pytest.raises(JobError, match=rf"`rollway topics alter {target} --config retention.ms=-1` keeps") as raised:
        run(spark, request)
    assert f"older than {target} keeps records (1 day, retention.ms={DAY_MS})" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert rows_of(spark, server, target) == []
    assert run(spark, replace(request, allow_expired=True)).rows == 2
    if isinstance(request, ReplayRequest):
        assert run(spark, replace(request, timestamps="now")).rows == 2


def test_a_topic_that_exists_must_have_the_settings_asked_for(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, job: tuple[Job, CopyRequest | ReplayRequest]
) -> None:
    run, request = job
    target = request.target.topic
    client.create_topic(target, 1, KEEP)
    for dry_run in (True, False):
        with pytest.raises(JobError, match=r"exists with retention.ms=-1: .* --config retention.ms=1000` changes that"):
            run(spark, replace(request, topic_config={"retention.ms": 1000}), dry_run=dry_run)
        with pytest.raises(JobUsageError, match=r"--config retenton.ms .* did you mean retention.ms\?"):
            run(spark, replace(request, topic_config={"retenton.ms": -1}), dry_run=dry_run)
    assert rows_of(spark, server, target) == []
    assert run(spark, replace(request, topic_config={"retention.ms": "-1"})).rows == 2


@pytest.mark.parametrize("config", [KEEP, {"retention.ms": 3 * DAY_MS}, None])
def test_records_that_the_topic_keeps_are_taken(
    spark: SparkSession,
    client: RollwayClient,
    job: tuple[Job, CopyRequest | ReplayRequest],
    config: dict[str, object] | None,
) -> None:
    run, request = job
    if config is None:
        # Asked for where it is made.
        request = replace(request, topic_config={"retention.ms": DAY_MS})
    else:
        client.create_topic(request.target.topic, 1, config)
    assert run(spark, request).rows == 2


def test_a_source_that_keeps_no_longer_misses_nothing(client: RollwayClient, name: str) -> None:
    """Whole segments are deleted, so that a topic always has records that are older than it keeps."""
    now_ms = 10 * DAY_MS
    day = client.create_topic(f"{name}-1", 1, {"retention.ms": DAY_MS})
    week = client.create_topic(f"{name}-7", 1)
    ever = client.create_topic(f"{name}-e", 1, KEEP)
    stamped = client.create_topic(f"{name}-s", 1, {"message.timestamp.type": "LogAppendTime"})
    for goal, source, kept_from_ms in [
        (day, day, None),
        (week, day, None),
        (ever, week, None),
        (stamped, ever, None),
        (day, week, 9 * DAY_MS),
        (week, ever, 3 * DAY_MS),
        (week, None, 3 * DAY_MS),
        (week, replace(day, config={}), 3 * DAY_MS),
        (replace(week, config={}), ever, None),
    ]:
        limits = shorter_limits(goal, source, now_ms)
        assert (None if limits is None else limits.kept_from_ms) == kept_from_ms
