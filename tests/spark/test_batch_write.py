"""``df.write.format("rollway")`` with a real Spark: every row once, whatever happens to tasks and to the driver."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession

from rollway.client import RollwayClient
from rollway.records import partition_for_key
from rollway.spark.bulk_load import LoadFailedError, bulk_load
from rollway.spark.load_udf import UnsafeLoadWarning, load_udf
from tests.spark.committed import committed_records, committed_values

ROW_COUNT = 10_000


def rows(spark: SparkSession, count: int = ROW_COUNT, tasks: int = 4) -> DataFrame:
    numbers = spark.range(0, count, 1, tasks)
    return numbers.selectExpr("cast(id % 100 as string) as key", "cast(id as string) as value")


def save(df: DataFrame, client: RollwayClient, topic: str, **options: str) -> None:
    df.write.format("rollway").option("url", client.settings.url).option("topic", topic).options(**options).mode(
        "append"
    ).save()


def expected(count: int = ROW_COUNT) -> list[str]:
    return sorted(str(number) for number in range(count))


def failing_once(marker: Path, when: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for ``mapInArrow`` whose task 1 fails once: by an error, or by the end of its process."""

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.partitionId() == 1 and not marker.exists():
            marker.touch()
            if when == "exits":
                os._exit(3)
            raise ValueError("this task fails once")

    return fail


def test_every_row_arrives(spark: SparkSession, client: RollwayClient, topic: str) -> None:
    """Some of them, none, and fewer than there are tasks."""
    save(rows(spark), client, topic)
    assert committed_values(client, topic) == expected()
    for partition, records in committed_records(client, topic).items():
        assert {partition_for_key(record.key or b"", 3) for record in records} == {partition}
    save(rows(spark, 0), client, topic)
    save(rows(spark, 3, tasks=8), client, topic)
    assert len(committed_values(client, topic)) == ROW_COUNT + 3


@pytest.mark.parametrize("when", ["raises", "exits"])
def test_a_task_that_is_tried_again_counts_once(
    spark: SparkSession, client: RollwayClient, topic: str, tmp_path: Path, when: str
) -> None:
    """It had written its rows: 40,000 of them, in several batches, when it failed."""
    df = rows(spark, 40_000).mapInArrow(failing_once(tmp_path / "failed", when), "key string, value string")
    save(df, client, topic, batchBytes="20kb")
    assert (tmp_path / "failed").exists()
    assert committed_values(client, topic) == expected(40_000)


def test_a_load_that_fails_leaves_nothing(spark: SparkSession, client: RollwayClient, topic: str) -> None:
    """And holds up no reader."""
    broken = rows(spark).selectExpr("key", "if(value = '9999', raise_error('broken row'), value) as value")
    with pytest.raises(PySparkException, match="broken row"):
        save(broken, client, topic)
    assert committed_values(client, topic) == []
    assert all(one.last_stable_offset == one.high_watermark for one in client.watermarks(topic))
    save(rows(spark, 10), client, topic)
    assert committed_values(client, topic) == expected(10)


def test_a_version_is_loaded_once(spark: SparkSession, client: RollwayClient, topic: str) -> None:
    for _ in range(2):
        save(rows(spark, 100), client, topic, txnAppId=topic, txnVersion="7")
    assert committed_values(client, topic) == expected(100)
    save(rows(spark, 100), client, topic, txnAppId=topic, txnVersion="8")
    assert len(committed_values(client, topic)) == 200


def test_a_job_begun_elsewhere(spark: SparkSession, client: RollwayClient, topic: str) -> None:
    job = client.begin_job(topic, 1, mode="transactional", timeout_ms=600_000)
    for _ in range(2):
        save(rows(spark, 100), client, topic, jobId=job.job_id)
    assert committed_values(client, topic) == expected(100)
    assert client.find_job(job.job_id).state == "committed"


def test_other_modes_than_append(spark: SparkSession, client: RollwayClient, topic: str) -> None:
    writer = rows(spark, 1).write.format("rollway").option("url", client.settings.url).option("topic", topic)
    with pytest.raises(PySparkException, match="append"):
        writer.mode("overwrite").save()


# A load as one call


def test_a_report_tells_what_was_loaded(spark: SparkSession, client: RollwayClient, topic: str) -> None:
    report = bulk_load(rows(spark), client.settings.url, topic, txnAppId=topic, txnVersion=1)
    assert (report.rows, report.rejected, report.retries, report.is_loaded) == (ROW_COUNT, 0, 0, False)
    assert [task.task for task in report.tasks] == [0, 1, 2, 3]
    assert sum(one.rows for one in report.partitions) == ROW_COUNT
    assert report.size_bytes == sum(one.size_bytes for one in report.partitions)
    assert 0 < report.peak_bytes < 250_000_000
    text = str(report)
    assert text.startswith(f"loaded 10,000 rows, 0.1 MiB into {topic} in ")
    assert all(len(line) <= 140 for line in text.splitlines())
    assert f"{topic}/2" in text
    assert committed_values(client, topic) == expected()
    job = client.find_job(report.job_id or "")
    assert (job.state, job.rows, job.task_count, job.winner_count) == ("committed", ROW_COUNT, 4, 4)
    assert [one.rows for one in job.partitions] == [one.rows for one in report.partitions]
    again = bulk_load(rows(spark), client.settings.url, topic, txnAppId=topic, txnVersion=1)
    assert (again.is_loaded, again.rows) == (True, 0)
    assert str(again) == f"version 1 of '{topic}' was loaded before: nothing was written into {topic}"
    assert committed_values(client, topic) == expected()


def test_a_report_counts_rejects(spark: SparkSession, client: RollwayClient, topic: str) -> None:
    partition = "cast(if(cast(value as int) % 2 = 1, 99, 0) as int) as partition"
    df = rows(spark, 100).selectExpr("key", "value", partition)
    report = bulk_load(df, client.settings.url, topic, onReject="skip")
    assert (report.rows, report.rejects) == (50, {"no such partition": 50})
    assert "rejected           50  no such partition" in str(report)
    with pytest.raises(LoadFailedError, match=r"^\d+ rows cannot be loaded: a row names partition 99, and topic"):
        bulk_load(df, client.settings.url, topic)
    assert len(committed_values(client, topic)) == 50


def test_connect(connect_spark: SparkSession, client: RollwayClient, topic: str) -> None:
    """Both ways over Spark Connect."""
    save(rows(connect_spark, 100), client, topic)
    assert bulk_load(rows(connect_spark, 100), client.settings.url, topic).rows == 100
    assert len(committed_values(client, topic)) == 200


def test_a_udf_that_sends_is_as_unsafe_as_it_says(spark: SparkSession, client: RollwayClient, topic: str) -> None:
    """Nobody looks at the column: nothing is sent. Two look: everything is sent twice."""
    with pytest.warns(UnsafeLoadWarning, match="bulk_load"):
        send = load_udf(client.settings.url, topic)
    sent = rows(spark, 100).selectExpr("cast(key as binary) key", "cast(value as binary) value")
    sent = sent.select(send("key", "value").alias("sent"))
    assert sent.count() == 100
    assert committed_values(client, topic) == []
    for _ in range(2):
        assert sent.agg({"sent": "sum"}).collect()[0][0] == 100
    assert len(committed_values(client, topic)) == 200


def test_a_udf_takes_no_numbers_and_says_so_in_a_sentence(
    spark: SparkSession, client: RollwayClient, topic: str
) -> None:
    with pytest.warns(UnsafeLoadWarning):
        send = load_udf(client.settings.url, topic)
    numbers = spark.range(10).select(send("id", "id").alias("sent"))
    with pytest.raises(PythonException, match="column key is bigint, but must be string or binary; cast it") as raised:
        numbers.agg({"sent": "sum"}).collect()
    assert "run_task" not in str(raised.value)
    assert "pyarrow" not in str(raised.value)
    assert committed_values(client, topic) == []
