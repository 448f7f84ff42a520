"""``df.writeStream.format("rollway")`` with a real Spark: each batch once, also when it is run again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from rollway.client import RollwayClient
from rollway.spark.options.options import WriteOptions
from rollway.spark.write.load_jobs import begin_version, plan_stream
from rollway.spark.write.loading import TaskLoad
from rollway.spark.write.stream_writer import RollwayStreamWriter
from tests.spark.committed import committed_values


class Files:
    """A directory of text files that a stream reads one a batch, and the checkpoint of the stream."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.input = directory / "input"
        self.checkpoint = directory / "checkpoint"
        self.input.mkdir()

    def add(self, name: str, *lines: str) -> None:
        """One more file, whole from the moment it is there."""
        made = self._directory / name
        made.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        made.rename(self.input / name)

    def forget_commit(self, batch_id: int) -> None:
        """As if the driver had died between the sink's commit and its own: the batch is run again."""
        for name in (f"{batch_id}", f".{batch_id}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def lines_of(spark: SparkSession, files: Files) -> DataFrame:
    return spark.readStream.format("text").option("maxFilesPerTrigger", "1").load(str(files.input))


def run(df: DataFrame, files: Files, client: RollwayClient, topic: str, **options: str) -> Any:
    """All that is there, batch after batch; returns the query."""
    writer = df.writeStream.format("rollway").option("url", client.settings.url).option("topic", topic)
    writer = writer.option("checkpointLocation", str(files.checkpoint)).options(**options)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


@pytest.mark.parametrize("mode", ["transactional", "atleastonce"])
def test_batch_after_batch(spark: SparkSession, client: RollwayClient, topic: str, files: Files, mode: str) -> None:
    files.add("1", "a", "b")
    files.add("2", "c", "d")
    query = run(lines_of(spark, files), files, client, topic, deliveryMode=mode)
    assert committed_values(client, topic) == ["a", "b", "c", "d"]
    files.add("3", "e")
    run(lines_of(spark, files), files, client, topic, deliveryMode=mode)
    assert committed_values(client, topic) == ["a", "b", "c", "d", "e"]
    jobs = client.list_jobs(application_id=str(query.id))
    assert [(job.version, job.state, job.rows) for job in jobs] == (
        [(2, "committed", 1), (1, "committed", 2), (0, "committed", 2)] if mode == "transactional" else []
    )


def test_a_batch_that_was_committed_is_not_written_again(
    spark: SparkSession, client: RollwayClient, topic: str, files: Files
) -> None:
    files.add("1", "a", "b")
    run(lines_of(spark, files), files, client, topic)
    files.forget_commit(0)
    files.add("2", "c")
    run(lines_of(spark, files), files, client, topic)
    assert committed_values(client, topic) == ["a", "b", "c"]


def test_an_application_of_the_users_own(spark: SparkSession, client: RollwayClient, topic: str, files: Files) -> None:
    files.add("1", "a")
    run(lines_of(spark, files), files, client, topic, txnAppId=topic)
    (job,) = client.list_jobs(application_id=topic)
    assert (job.version, job.state) == (0, "committed")


def test_a_batch_that_wrote_nothing_is_a_warning(
    spark: SparkSession, client: RollwayClient, topic: str, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    """An application of the user's own with a new checkpoint: its first batches count as loaded."""
    files.add("1", "a")
    run(lines_of(spark, files), files, client, topic, txnAppId=topic)
    options = WriteOptions.parse({"url": client.settings.url, "topic": topic, "txnAppId": topic})
    plan = plan_stream(client, options, None)
    task = TaskLoad(plan, client, 0, 0, lambda client: begin_version(client, plan, topic, 0, join=True))
    message = task.run(iter([pa.record_batch({"value": ["b"]})]))
    RollwayStreamWriter(options, StructType(), overwrite=False).commit([message], 0)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"batch 0: version 0 of '{topic}' was loaded before: nothing was written; " in record.getMessage()
    assert "give a new checkpoint a new txnAppId" in record.getMessage()
    assert committed_values(client, topic) == ["a"]


def failing_until(marker: Path) -> Any:
    """A function for ``mapInArrow`` that fails, after enough rows that some of them were written."""
    filler = pa.record_batch([pa.array(["x" * 500] * 10_000)], names=["value"])

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if not marker.exists():
            for _ in range(4):
                yield filler
            raise ValueError("not yet")

    return fail


@pytest.mark.parametrize("has_application", [True, False])
def test_a_batch_that_failed_is_written_by_the_next_run(
    spark: SparkSession, client: RollwayClient, topic: str, files: Files, tmp_path: Path, has_application: bool
) -> None:
    """Until then it holds up no reader, although no task came so far as to tell the driver of its job."""
    options = {"txnAppId": topic} if has_application else {}
    files.add("1", "a", "b")
    marker = tmp_path / "fixed"
    df = lines_of(spark, files).mapInArrow(failing_until(marker), "value string")
    with pytest.raises(StreamingQueryException, match="not yet"):
        run(df, files, client, topic, **options)
    assert committed_values(client, topic) == []
    assert any(one.high_watermark > 0 for one in client.watermarks(topic))
    assert all(one.last_stable_offset == one.high_watermark for one in client.watermarks(topic))
    marker.touch()
    run(df, files, client, topic, **options)
    assert committed_values(client, topic) == ["a", "b"]


def test_a_batch_that_failed_leaves_other_queries_alone(
    spark: SparkSession, client: RollwayClient, topic: str, files: Files, tmp_path: Path
) -> None:
    """They write to the same topic, and their batches have the same number."""
    other = client.begin_job(f"{topic}-other", 0, mode="transactional", timeout_ms=60_000, driver_id="other", join=True)
    files.add("1", "a")
    df = lines_of(spark, files).mapInArrow(failing_until(tmp_path / "never"), "value string")
    with pytest.raises(StreamingQueryException, match="not yet"):
        run(df, files, client, topic)
    begun_since = [job for job in client.list_jobs() if job.begin_timestamp >= other.begin_timestamp]
    assert [job.job_id for job in begun_since if job.state == "open"] == [other.job_id]
    assert [job.reason for job in begun_since if job.state == "aborted"] == ["asked"]
    client.abort_job(other.job_id)


def test_no_version_for_a_stream(spark: SparkSession, client: RollwayClient, topic: str, files: Files) -> None:
    files.add("1", "a")
    with pytest.raises(StreamingQueryException, match="leave out jobId and txnVersion"):
        run(lines_of(spark, files), files, client, topic, txnAppId="x", txnVersion="1")


@pytest.mark.parametrize("mode", ["complete", "update"])
def test_another_output_mode_is_refused_in_the_words_of_streams(
    spark: SparkSession, client: RollwayClient, topic: str, files: Files, mode: str
) -> None:
    files.add("one", "a", "b")
    counts = lines_of(spark, files).groupBy("value").count().selectExpr("value as key", "cast(count as string) value")
    writer = counts.writeStream.format("rollway").option("url", client.settings.url).option("topic", topic)
    writer = writer.option("checkpointLocation", str(files.checkpoint)).outputMode(mode)
    with pytest.raises((StreamingQueryException, AnalysisException)) as caught:
        writer.trigger(availableNow=True).start().awaitTermination()
    said = str(caught.value)
    told = {
        "complete": "write with .outputMode('append'), or with foreachBatch",
        "update": "rollway does not support Update mode",
    }
    assert told[mode] in said
    assert ".mode(" not in said
    assert committed_values(client, topic) == []
