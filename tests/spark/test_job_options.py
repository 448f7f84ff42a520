"""Options of reads and writes as jobs are given them, and the load job that a job's write is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from rollway.client import ClientSettings, RollwayClient, Topic
from rollway.records import Codec
from rollway.spark.errors import OptionError
from rollway.spark.jobs import (
    CopyRequest,
    JobError,
    JobUsageError,
    LoadIdentity,
    ReplayRequest,
    SilentProgress,
    TopicAddress,
    copy,
    replay,
)
from rollway.spark.jobs.command.job_options import options_of_both
from rollway.spark.jobs.targets import make_target, open_target
from rollway.spark.jobs.topics import open_client
from rollway.spark.jobs.writing import write_records
from tests.spark.orders import KEEP, load_orders, rows_of
from tests.support.servers import ServerProcess

_ATTRIBUTES = 22  # the second byte of a batch's attributes, which has the codec


def test_options_go_to_the_side_they_are_for() -> None:
    given = ["compression=zstd", "fetchMaxBytes=8m", "retries=2", "nosuch=1"]
    read, write = options_of_both(given, None)
    assert read == {"fetchMaxBytes": "8m", "retries": "2", "nosuch": "1"}
    assert write == {"compression": "zstd", "retries": "2", "nosuch": "1"}
    assert options_of_both(["retries=2"], ["compression=zstd"]) == ({"retries": "2"}, {"compression": "zstd"})


@pytest.mark.parametrize("name", ["startingOffsets", "startingtimestamp", "subscribe", "isolationLevel"])
def test_what_a_read_of_a_job_decides_is_refused(name: str) -> None:
    with pytest.raises(JobUsageError, match=f"{name} cannot be given as an option of t: the job decides it"):
        open_client(TopicAddress(topic="t", url="http://127.0.0.1:9", options={name: "1"}))


@pytest.mark.parametrize("name", ["jobId", "txnAppId", "deliveryMode", "topic", "onReject"])
def test_what_a_write_of_a_job_decides_is_refused(name: str) -> None:
    with pytest.raises(JobUsageError, match=f"{name} cannot be given as an option of t: the job decides it"):
        open_target(TopicAddress(topic="t", url="http://127.0.0.1:9", options={name: "1"}))


def test_an_option_of_the_other_side_is_refused() -> None:
    with pytest.raises(OptionError, match="compression is an option of a write"):
        open_client(TopicAddress(topic="t", url="http://127.0.0.1:9", options={"compression": "zstd"}))
    with pytest.raises(OptionError, match="fetchMaxBytes is an option of a read"):
        open_target(TopicAddress(topic="t", url="http://127.0.0.1:9", options={"fetchMaxBytes": "8m"}))


def test_a_topic_whose_settings_may_not_be_seen_is_not_copied_into_one_with_others(client: RollwayClient) -> None:
    target = TopicAddress(topic="not-made", url="http://127.0.0.1:9")
    hidden = Topic("hidden", "id", 2, config={}, own_config={})
    with pytest.raises(JobError, match="the settings of hidden, which it would take over, may not be seen"):
        make_target(client, target, hidden, {})
    assert make_target(client, target, hidden, KEEP).own_config == KEEP


def test_copy_takes_options_of_reads_and_writes(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, name: str, tmp_path: Path
) -> None:
    load_orders(spark, server, name, tmp_path / "in", 60)
    given = ["compression=zstd", "fetchMaxBytes=8m", "transactionTimeout=1h"]
    read, write = options_of_both(given, None)
    request = CopyRequest(
        source=TopicAddress(topic=name, url=server.url, options=read),
        target=TopicAddress(topic=f"{name}-2", url=server.url, options=write),
        identity=LoadIdentity(application_id=name, version=1),
    )
    report = copy(spark, request)
    assert report.rows == 60
    assert client.find_job(str(report.details["job_id"])).timeout_ms == 3_600_000
    batches = client.fetch(f"{name}-2", 0, offset=0, max_bytes=1 << 20, isolation="read_committed").batches
    assert batches[_ATTRIBUTES] & 7 == Codec.ZSTD
    assert rows_of(spark, server, f"{name}-2") == rows_of(spark, server, name)


def test_a_job_that_waits_for_its_first_row_is_kept_open(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, name: str
) -> None:
    """The only task waits until its job is more than twice as old as its timeout, and it has not been aborted."""
    client.create_topic(name, 1, KEEP)
    url, timeout_ms = server.url, 2_000

    def when_old(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with RollwayClient(ClientSettings(url)) as asking:
            while (job := asking.list_jobs(name)[0]).state == "open" and job.elapsed_ms <= 2 * timeout_ms:
                asking.wait_for({name: {0: 0}}, isolation="read_committed", wait_ms=500)
        yield from batches

    rows = spark.createDataFrame([("a",)], "value string").coalesce(1).mapInArrow(when_old, "value string")
    target = TopicAddress(topic=name, url=url, options={"transactionTimeout": f"{timeout_ms}"})
    identity = LoadIdentity(application_id=name, version=1)
    written = write_records(rows, target, client, identity, SilentProgress())
    assert (written.rows, written.partitions) == (1, {0: 1})
    assert [job.state for job in client.list_jobs(name)] == ["committed"]
    assert [value for _, _, value, _ in rows_of(spark, server, name)] == ["a"]


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_topic_is_not_written_into_itself_by_another_name_of_its_service(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, name: str, dry_run: bool
) -> None:
    topic = f"{name}-{dry_run}"
    client.create_topic(topic, 1, KEEP)
    spark.sql("SELECT 'a' AS value").write.format("rollway").mode("append").save(url=server.url, topic=topic)
    here = TopicAddress(topic=topic, url=server.url)
    there = TopicAddress(topic=topic, url=server.url.replace("127.0.0.1", "localhost"))
    assert here.url != there.url
    with pytest.raises(JobUsageError, match=r"are one topic by its id, .*would double it"):
        copy(spark, CopyRequest(source=here, target=there), dry_run=dry_run)
    with pytest.raises(JobUsageError, match=r"are one topic by its id, .*would double it"):
        replay(spark, ReplayRequest(source=here, target=there, speed=0), dry_run=dry_run)
    assert len(rows_of(spark, server, topic)) == 1
