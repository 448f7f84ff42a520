"""One ``export`` at a time: who may write to a folder, who notices that another did, and what a dead run leaves."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrameWriter, SparkSession

from rollway.client import RollwayClient
from rollway.spark.jobs import EARLIEST, LATEST, ExportRequest, JobError, JobUsageError, export, parse_place
from rollway.spark.jobs.exporting.checkpoints import CheckpointFolder, ExportCheckpoint
from rollway.spark.jobs.files.hadoop_files import HadoopFiles
from rollway.spark.jobs.topics import resolve_range
from tests.spark.orders import KEEP, address, load_orders
from tests.support.servers import ServerProcess


def exported_ids(spark: SparkSession, folder: Path) -> list[int]:
    return sorted(int(row[0]) for row in spark.read.parquet(str(folder)).selectExpr("cast(value as string)").collect())


def request_of(server: ServerProcess, name: str, folder: Path, **others: Any) -> ExportRequest:
    return ExportRequest(source=address(server, name), destination=str(folder), **others)


def append(spark: SparkSession, server: ServerProcess, topic: str, *values: int) -> None:
    rows = spark.createDataFrame([(str(value),) for value in values], "value string")
    rows.write.format("rollway").mode("append").save(url=server.url, topic=topic)


@pytest.mark.parametrize("start", ["latest", "2100-01-01"])
def test_the_first_run_fixes_where_an_export_begins(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, name: str, tmp_path: Path, start: str
) -> None:
    """Though there is nothing there yet. Every run looked for the place anew, and none exported anything."""
    topic, out = f"{name}-{start}", tmp_path / "out"
    client.create_topic(topic, 1, KEEP)
    append(spark, server, topic, 1, 2)
    request = request_of(server, topic, out, start=parse_place(start))
    export(spark, request, dry_run=True)
    append(spark, server, topic, 3)
    first = export(spark, request)
    assert (first.outcome, first.rows, first.details["run"]) == ("nothing_to_do", 0, 0)
    assert "no records to export yet" in first.summary
    append(spark, server, topic, 4, 5)
    second = export(spark, request)
    assert (second.outcome, second.rows, second.details["run"]) == ("done", 2, 1)
    assert exported_ids(spark, out) == [4, 5]


@pytest.mark.parametrize(("step", "rows"), [("finish", 3), ("clear", 1)])
def test_a_run_counts_what_it_finishes_of_another_one(
    spark: SparkSession,
    server: ServerProcess,
    client: RollwayClient,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    rows: int,
) -> None:
    """Of one that was killed before its checkpoint, and not of one that was killed just after it."""
    topic = f"{name}-{step}"
    client.create_topic(topic, 1, KEEP)
    append(spark, server, topic, 1, 2)

    def killed(*_: object) -> None:
        raise JobError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFolder, step, killed)
        with pytest.raises(JobError, match="killed"):
            export(spark, request_of(server, topic, tmp_path / "out"))
    files = len(list((tmp_path / "out").glob("date=*/*/*.parquet")))
    append(spark, server, topic, 3)
    report = export(spark, request_of(server, topic, tmp_path / "out"))
    assert (report.outcome, report.rows, report.details["run"]) == ("done", rows, 2)
    assert report.details["finished"] == ({"run": 1, "rows": 2, "files": files} if step == "finish" else None)
    assert exported_ids(spark, tmp_path / "out") == [1, 2, 3]


@pytest.mark.parametrize(("topic", "columns"), [("_ours", ()), (".theirs", ("value", "HEADERS"))])
def test_the_export_of_a_topic_whose_name_hides_files_can_be_read(
    spark: SparkSession,
    server: ServerProcess,
    client: RollwayClient,
    tmp_path: Path,
    topic: str,
    columns: tuple[str, ...],
) -> None:
    client.create_topic(topic, 1, KEEP)
    append(spark, server, topic, 1, 2)
    request = request_of(server, topic, tmp_path / "out", columns=columns)
    assert export(spark, request).rows == 2
    assert exported_ids(spark, tmp_path / "out") == [1, 2]


def test_a_run_of_an_older_version_is_finished_by_its_names(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, name: str, tmp_path: Path
) -> None:
    """Of its two files one was moved, to a name that began with the topic's."""
    client.create_topic(name, 1, KEEP)
    append(spark, server, name, 1, 2)
    end = sum(resolve_range(client, address(server, name), EARLIEST, LATEST).ends.values())
    out, folder = tmp_path / "out", CheckpointFolder(HadoopFiles(spark), str(tmp_path / "out"), name)
    made, hour = tmp_path / "made", "date=2013-07-04/hour=0"
    spark.range(1, 3).selectExpr("cast(cast(id as string) as binary) AS value").repartition(2).write.parquet(str(made))
    first, second = made.glob("*.parquet")
    for path in (Path(folder.staging_of("old")) / hour / first.name, out / hour / f"{name}-run-000001-{second.name}"):
        path.parent.mkdir(parents=True)
        (first if path.name == first.name else second).rename(path)
    files = [f"{hour}/{each.name}" for each in (first, second)]
    old = {"version": 1, "run": 1, "topic_id": client.describe_topic(name).topic_id, "run_id": "old"}
    old |= {"starts": {"0": 0}, "ends": {"0": end}, "staged": True, "rows": 2, "files": files}
    (out / "_rollway" / name / "run.json").write_text(json.dumps(old))
    assert export(spark, request_of(server, name, out)).details["finished"] == {"run": 1, "rows": 2, "files": 2}
    assert exported_ids(spark, out) == [1, 2]


def test_a_column_that_is_there_anyway_is_refused_however_it_is_written(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, name: str, tmp_path: Path
) -> None:
    client.create_topic(name, 1, KEEP)
    request = request_of(server, name, tmp_path / "out", columns=("value AS Date",))
    with pytest.raises(JobUsageError, match="--select names date more than once"):
        export(spark, request)


@pytest.mark.parametrize("take_over", [False, True])
def test_exports_at_the_same_time_lose_nothing(
    spark: SparkSession,
    server: ServerProcess,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    take_over: bool,
) -> None:
    """Another run begins while one has written its files, and moves none: refused, or told that the first is dead."""
    topic = f"{name}-{take_over}"
    load_orders(spark, server, topic, tmp_path / "in", 60)
    out = tmp_path / "out"
    staged = CheckpointFolder.staged
    refused: list[JobError] = []

    def meanwhile(folder: CheckpointFolder, *arguments: object) -> object:
        patch.undo()
        try:
            export(spark, request_of(server, topic, out, take_over=take_over))
        except JobError as error:
            refused.append(error)
        return staged(folder, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFolder, "staged", meanwhile)
        if take_over:
            with pytest.raises(JobError, match=r"Another run has taken over .* publishes nothing"):
                export(spark, request_of(server, topic, out))
        else:
            assert export(spark, request_of(server, topic, out)).rows == 60
            assert "--take-over" in str(refused[0])
    assert exported_ids(spark, out) == list(range(60))
    assert export(spark, request_of(server, topic, out)).outcome == "nothing_to_do"


def test_files_that_are_gone_before_they_are_published_are_noticed(
    spark: SparkSession, server: ServerProcess, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_orders(spark, server, name, tmp_path / "in", 60)
    staged = CheckpointFolder.staged

    def losing(folder: CheckpointFolder, *arguments: object) -> object:
        complete = staged(folder, *arguments)  # type: ignore[arg-type]
        next(Path(folder.staging).rglob("*.parquet")).unlink()
        return complete

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFolder, "staged", losing)
        with pytest.raises(JobError, match="was staged and is gone"):
            export(spark, request_of(server, name, tmp_path / "out"))
    assert CheckpointFolder(HadoopFiles(spark), str(tmp_path / "out"), name).read() is None
    assert export(spark, request_of(server, name, tmp_path / "out")).rows == 60
    assert exported_ids(spark, tmp_path / "out") == list(range(60))


def test_a_run_that_fails_lets_the_next_one_begin(
    spark: SparkSession, server: ServerProcess, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_orders(spark, server, name, tmp_path / "in", 30)

    def failing(*_: object) -> None:
        raise JobError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(DataFrameWriter, "parquet", failing)
        with pytest.raises(JobError, match="no room"):
            export(spark, request_of(server, name, tmp_path / "out"))
    assert export(spark, request_of(server, name, tmp_path / "out")).rows == 30


def test_the_lock_of_a_dead_process_of_this_machine_is_no_lock(spark: SparkSession, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        dead.wait()
    files = HadoopFiles(spark)
    lock = f"{tmp_path}/_rollway/orders/lock.json"
    for host, process, is_free in (
        (socket.gethostname(), dead.pid, True),
        (socket.gethostname(), os.getppid(), False),
        ("elsewhere", dead.pid, False),
    ):
        files.replace_text(lock, f'{{"run_id": "r1", "host": "{host}", "process": {process}, "begun": "then"}}\n')
        folder = CheckpointFolder(files, str(tmp_path), "orders")
        if is_free:
            folder.lock.acquire(take_over=False)
            folder.lock.release()
        else:
            with pytest.raises(JobError, match=rf"on {host} \(process {process}\) since then.*--take-over"):
                folder.lock.acquire(take_over=False)
    folder.lock.acquire(take_over=True)
    assert '"r1"' not in str(files.read_text(lock))


def test_a_lock_that_says_nothing_is_one(spark: SparkSession, tmp_path: Path) -> None:
    """It may have been made a moment ago."""
    HadoopFiles(spark).replace_text(f"{tmp_path}/_rollway/orders/lock.json", "")
    with pytest.raises(JobError, match="--take-over"):
        CheckpointFolder(HadoopFiles(spark), str(tmp_path), "orders").lock.acquire(take_over=False)


@pytest.mark.parametrize(
    ("changes", "is_free"),
    [
        ({}, False),
        ({"started": 1}, True),
        ({"process": 1 << 30}, True),
        ({"boot": "another"}, True),
        ({"pid_namespace": "pid:[1]", "started": 1}, False),
        ({"pid_namespace": "pid:[1]", "process": 1 << 30}, False),
        ({"host": "elsewhere", "boot": "another"}, False),
        ({"started": None, "process": 1 << 30}, False),
    ],
)
def test_a_number_alone_does_not_tell_which_process_has_the_lock(
    spark: SparkSession, tmp_path: Path, changes: dict[str, Any], is_free: bool
) -> None:
    """A container that is made anew has the same host and the same number; others may share the name of their host."""
    lock = tmp_path / "_rollway/orders/lock.json"
    CheckpointFolder(HadoopFiles(spark), str(tmp_path), "orders").lock.acquire(take_over=False)
    lock.write_text(json.dumps({**json.loads(lock.read_text()), "run_id": "r1", **changes}))
    next_one = CheckpointFolder(HadoopFiles(spark), str(tmp_path), "orders").lock
    if is_free:
        next_one.acquire(take_over=False)
    else:
        with pytest.raises(JobError, match="--take-over"):
            next_one.acquire(take_over=False)


@pytest.mark.parametrize("on_data_loss", ["fail", "skip"])
def test_an_offset_above_the_end_is_no_record_that_is_gone(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, name: str, tmp_path: Path, on_data_loss: str
) -> None:
    """It was asked for, or stands in the checkpoint while the service was restored from an older backup."""
    topic = f"{name}-{on_data_loss}"
    topic_id = client.create_topic(topic, 1, KEEP).topic_id
    append(spark, server, topic, 1)
    asked = request_of(server, topic, tmp_path / "new", end=parse_place('{"0": 999}'), on_data_loss=on_data_loss)
    ahead = request_of(server, topic, tmp_path / "old", on_data_loss=on_data_loss)
    done = ExportCheckpoint(topic=topic, topic_id=topic_id, run=7, offsets={0: 999}, rows=999)
    CheckpointFolder(HadoopFiles(spark), ahead.destination, topic).finish(done)
    for request in (asked, ahead):
        with pytest.raises(JobError, match=r"ends before an offset that was asked for .*999") as raised:
            export(spark, request)
        assert "on-data-loss" not in str(raised.value)
        assert "older backup" in str(raised.value)
