"""The jobs against a real service: what they write, what they report, what a second run and a dry run do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrameWriter, SparkSession

from rollway.client import RollwayClient, TopicNotFoundError
from rollway.spark.jobs import (
    CompareRequest,
    CopyRequest,
    ExportRequest,
    FileSource,
    JobError,
    LoadIdentity,
    LoadRequest,
    RecordExpressions,
    RejectedRowsError,
    Rejects,
    TopicAddress,
    compare,
    copy,
    export,
    load,
    parse_place,
)
from rollway.spark.jobs.exporting.checkpoints import CheckpointFolder, RunIntent
from rollway.spark.jobs.files.hadoop_files import HadoopFiles
from rollway.spark.jobs.topics import resolve_range
from tests.spark.orders import BEGIN_MS, KEEP, ORDERS, address, load_orders, rows_of, write_orders
from tests.support.servers import ServerProcess

# load


def test_load_brings_every_row_once(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, name: str, tmp_path: Path
) -> None:
    source = FileSource(paths=(str(write_orders(tmp_path / "in")),), format="json")
    request = LoadRequest(
        source=source,
        target=address(server, name),
        expressions=ORDERS,
        partitions=3,
        topic_config=KEEP,
        identity=LoadIdentity(application_id=name, version=1),
    )
    planned = load(spark, request, dry_run=True)
    assert (planned.outcome, planned.rows, planned.details["topic_exists"]) == ("dry_run", 300, False)
    with pytest.raises(TopicNotFoundError):
        client.describe_topic(name)
    report = load(spark, request)
    assert (report.outcome, report.rows, report.exit_status) == ("done", 300, 0)
    assert sum(report.details["partitions"].values()) == 300  # type: ignore[attr-defined]
    found = rows_of(spark, server, name)
    assert sorted(int(value) for _, _, value, _ in found) == list(range(300))
    assert all(key == f"c{int(value) % 7}" and at == BEGIN_MS + int(value) * 60_000 for _, key, value, at in found)
    assert all(len({row[0] for row in found if row[1] == f"c{number}"}) == 1 for number in range(7))
    again = load(spark, request)
    assert (again.outcome, again.rows) == ("already_done", 0)
    assert len(rows_of(spark, server, name)) == 300


def test_load_ends_at_a_row_that_cannot_be_a_record(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, name: str, tmp_path: Path
) -> None:
    folder = write_orders(tmp_path / "in")
    (folder / "bad.json").write_text("not json\n")
    source = FileSource(paths=(str(folder),), format="json", schema="id BIGINT, customer STRING, at BIGINT")
    client.create_topic(name, 3, KEEP)
    request = LoadRequest(source=source, target=address(server, name), expressions=ORDERS)
    with pytest.raises(Exception, match="row cannot become a record: the line does not fit the columns: not json"):
        load(spark, request)
    assert rows_of(spark, server, name) == []


@pytest.mark.parametrize("kept", ["files", *(pytest.param(kept, marks=pytest.mark.slow) for kept in ("topic", "skip"))])
def test_load_keeps_rejects_apart(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, name: str, tmp_path: Path, kept: str
) -> None:
    topic = f"{name}-{kept}"
    folder = write_orders(tmp_path / "in", 30)
    (folder / "bad.json").write_text('not json\n{"id": 99, "customer": "c1", "at": null}\n')
    source = FileSource(paths=(str(folder),), format="json", schema="id BIGINT, customer STRING, at BIGINT")
    client.create_topic(topic, 3, KEEP)
    places = {
        "files": Rejects(files=str(tmp_path / "bad"), rows_max=2),
        "topic": Rejects(topic=f"{topic}-bad", rows_max=2),
        "skip": Rejects(skip=True),
    }
    request = LoadRequest(
        source=source,
        target=address(server, topic),
        expressions=ORDERS,
        rejects=places[kept],
        identity=LoadIdentity(application_id=topic, version=7),
    )
    planned = load(spark, request, dry_run=True)
    reasons = {"the line does not fit the columns": 1, "there is no timestamp": 1}
    assert (planned.rows, planned.details["rejected"]) == (30, reasons)
    report = load(spark, request)
    assert (report.rows, report.details["rejected"]) == (30, reasons)
    assert len(rows_of(spark, server, topic)) == 30
    if kept == "files":
        lines = [
            line for path in (tmp_path / f"bad/load={topic}.7").glob("*.json") for line in path.read_text().splitlines()
        ]
    elif kept == "topic":
        lines = [value for _, _, value, _ in rows_of(spark, server, f"{topic}-bad")]
    else:
        return
    assert sorted(json.loads(line)["reason"] for line in lines) == sorted(reasons)


def test_load_with_too_many_rejects_loads_nothing(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, name: str, tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text("id,number\n1,0\n2,7\n3,8\n4,one\n")
    client.create_topic(name, 3, KEEP)
    request = LoadRequest(
        source=FileSource(paths=(str(tmp_path / "in.csv"),), schema="id INT, number INT"),
        target=address(server, name),
        expressions=RecordExpressions(partition="number"),
        rejects=Rejects(files=str(tmp_path / "bad"), rows_max=2),
    )
    with pytest.raises(RejectedRowsError, match="3 rows cannot become records, and --max-rejects is 2: 1 x"):
        load(spark, request)
    assert rows_of(spark, server, name) == []
    assert not (tmp_path / "bad").exists()


@pytest.mark.slow
def test_load_makes_no_topic_unless_asked(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, name: str, tmp_path: Path
) -> None:
    source = FileSource(paths=(str(write_orders(tmp_path / "in")),), format="json")
    with pytest.raises(TopicNotFoundError):
        load(spark, LoadRequest(source=source, target=address(server, name)))
    client.create_topic(name, 2, KEEP)
    with pytest.raises(JobError, match="exists with 2 partitions, not 3"):
        load(spark, LoadRequest(source=source, target=address(server, name), partitions=3))


# export


def exported(spark: SparkSession, folder: Path) -> list[tuple[str, int, str, int]]:
    rows = spark.read.parquet(str(folder)).selectExpr("cast(date as string)", "hour", "cast(value as string)", "offset")
    return sorted((row[0], row[1], row[2], row[3]) for row in rows.collect())


def test_export_goes_on_where_it_ended(spark: SparkSession, server: ServerProcess, name: str, tmp_path: Path) -> None:
    load_orders(spark, server, name, tmp_path / "in")
    request = ExportRequest(source=address(server, name), destination=str(tmp_path / "out"))
    planned = export(spark, request, dry_run=True)
    assert planned.outcome == "dry_run"
    assert not (tmp_path / "out").exists()
    first = export(spark, request)
    assert (first.outcome, first.rows, first.details["run"]) == ("done", 300, 1)
    assert export(spark, request).outcome == "nothing_to_do"
    more = FileSource(paths=(str(write_orders(tmp_path / "more", 100, begin=300)),), format="json")
    load(spark, LoadRequest(source=more, target=address(server, name), expressions=ORDERS))
    second = export(spark, request)
    assert (second.rows, second.details["run"]) == (100, 2)
    found = exported(spark, tmp_path / "out")
    assert sorted(int(row[2]) for row in found) == list(range(400))
    assert {(row[0], row[1]) for row in found} == {("2013-07-04", hour) for hour in range(7)}
    assert all(row[1] == int(row[2]) // 60 for row in found)


@pytest.mark.parametrize(
    "moment",
    [
        "while publishing",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("while reading", "after publishing")),
    ],
)
def test_export_that_was_killed_exports_nothing_twice(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, tmp_path: Path, name: str, moment: str
) -> None:
    topic = f"{name}-{moment.replace(' ', '-')}"
    load_orders(spark, server, topic, tmp_path / "in", 60)
    destination = tmp_path / "out"
    request = ExportRequest(source=address(server, topic), destination=str(destination))
    folder = CheckpointFolder(HadoopFiles(spark), str(destination), topic)
    # What a run leaves that ended at that moment: its announcement, and what it had staged and moved by then.
    wanted = resolve_range(client, request.source, request.start, request.end)
    intent = RunIntent(run=1, topic_id=wanted.topic_id, starts=wanted.starts, ends=wanted.ends, run_id=folder.run_id)
    folder.begin(intent)
    whole = ExportRequest(source=request.source, destination=str(tmp_path / "whole"))
    export(spark, whole)
    files = sorted((tmp_path / "whole").rglob("date=*/**/*.parquet"))
    for path in files if moment != "while reading" else files[:1]:
        staged = (
            Path(folder.staging) / path.relative_to(tmp_path / "whole").parent / path.name.partition("run-000001-")[2]
        )
        staged.parent.mkdir(parents=True, exist_ok=True)
        staged.write_bytes(path.read_bytes())
    if moment != "while reading":
        staged = [str(path.relative_to(folder.staging)) for path in Path(folder.staging).rglob("*.parquet")]
        folder.staged(intent, 60, staged)
    if moment == "after publishing":
        for path in Path(folder.staging).rglob("*.parquet"):
            relative = path.relative_to(folder.staging)
            target = destination / relative.parent / f"{intent.prefix_of(topic)}-{path.name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
    report = export(spark, request)
    assert (report.outcome, report.rows) == ("done", 60)
    finished = None if moment == "while reading" else {"run": 1, "rows": 60, "files": len(files)}
    assert (report.details["run"], report.details["finished"]) == (1, finished)
    assert sorted(int(row[2]) for row in exported(spark, destination)) == list(range(60))
    assert folder.read_intent() is None


def test_export_notices_files_that_executors_wrote_elsewhere(
    spark: SparkSession, server: ServerProcess, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of that name on each machine is not one that they share: the driver sees its own, and no rows."""
    load_orders(spark, server, name, tmp_path / "in", 30)
    request = ExportRequest(source=address(server, name), destination=str(tmp_path / "out"))
    parquet = DataFrameWriter.parquet

    def write_elsewhere(writer: DataFrameWriter, path: str) -> None:
        parquet(writer, str(tmp_path / "elsewhere"))
        Path(path).mkdir(parents=True)
        (Path(path) / "_SUCCESS").touch()

    with monkeypatch.context() as patch:
        patch.setattr(DataFrameWriter, "parquet", write_elsewhere)
        with pytest.raises(JobError, match=r"wrote 30 records, and 0 records came to .*executors share"):
            export(spark, request)
    report = export(spark, request)
    assert (report.rows, report.details["run"]) == (30, 1)
    assert len(exported(spark, tmp_path / "out")) == 30


@pytest.mark.slow
def test_export_writes_the_columns_asked_for(
    spark: SparkSession, server: ServerProcess, name: str, tmp_path: Path
) -> None:
    load_orders(spark, server, name, tmp_path / "in", 30)
    columns = ("cast(key as string) AS customer", "cast(cast(value as string) as int) AS id", "headers[0].value AS tag")
    request = ExportRequest(
        source=address(server, name),
        destination=str(tmp_path / "out"),
        columns=columns,
        start=parse_place("2013-07-04T00:10:00Z"),
    )
    assert export(spark, request).rows is not None
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("id").collect()
    assert [(row["customer"], row["id"], bytes(row["tag"])) for row in rows if row["id"] >= 10] == [
        (f"c{number % 7}", number, f"c{number % 7}".encode()) for number in range(10, 30)
    ]
    wrong = ExportRequest(source=address(server, name), destination=str(tmp_path / "x"), columns=("hour", "valu"))
    with pytest.raises(JobError, match="--select cannot be used"):
        export(spark, wrong)


@pytest.mark.slow
def test_export_notices_another_topic_of_the_same_name(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, name: str, tmp_path: Path
) -> None:
    load_orders(spark, server, name, tmp_path / "in", 30)
    request = ExportRequest(source=address(server, name), destination=str(tmp_path / "out"))
    export(spark, request)
    topic = client.describe_topic(name)
    path = tmp_path / "out/_rollway" / name / "checkpoint.json"
    text = path.read_text()
    path.write_text(text.replace(topic.topic_id, "another"))
    with pytest.raises(JobError, match="was deleted and made again"):
        export(spark, request)


# copy and compare


def test_copy_and_compare(spark: SparkSession, server: ServerProcess, name: str, tmp_path: Path) -> None:
    load_orders(spark, server, name, tmp_path / "in")
    left, right = address(server, name), address(server, f"{name}-2")
    request = CopyRequest(source=left, target=right, identity=LoadIdentity(application_id=f"{name}", version=2))
    assert copy(spark, request, dry_run=True).outcome == "dry_run"
    report = copy(spark, request)
    assert (report.outcome, report.rows) == ("done", 300)
    assert copy(spark, request).outcome == "already_done"
    assert rows_of(spark, server, name) == rows_of(spark, server, f"{name}-2")
    equal = compare(spark, CompareRequest(left=left, right=right))
    assert (equal.outcome, equal.rows, equal.exit_status) == ("equal", 300, 0)
    assert equal.details["left"] == equal.details["right"]
    # One record more in one partition, and another one's value changed: the first difference is named.
    tail = f"{name}-3"
    copy(spark, CopyRequest(source=left, target=address(server, tail), end=parse_place('{"0": 1, "1": 1, "2": 1}')))
    different = compare(spark, CompareRequest(left=left, right=address(server, tail)))
    assert (different.outcome, different.exit_status) == ("different", 3)
    first = different.details["first_difference"]
    assert (first["position"], first["right"]) == (1, None)  # type: ignore[index]
    assert compare(spark, CompareRequest(left=left, right=address(server, tail)), dry_run=True).outcome == "dry_run"


def test_a_topic_that_copy_makes_is_kept_like_its_source(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, name: str
) -> None:
    client.create_topic(name, 2, {**KEEP, "segment.bytes": 1_048_576, "message.timestamp.type": "LogAppendTime"})
    others = {"topic_config": {"segment.bytes": "2097152"}}
    copy(spark, CopyRequest(source=address(server, name), target=address(server, f"{name}-2"), **others))
    made = client.describe_topic(f"{name}-2")
    assert (made.partition_count, made.own_config) == (2, {**KEEP, "segment.bytes": 2_097_152})


@pytest.mark.slow
def test_compare_finds_what_differs(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, name: str
) -> None:
    rows = [("a", "1"), ("b", "2"), ("c", "3"), ("c", "3")]
    swapped = [("b", "2"), ("a", "1"), ("c", "3"), ("c", "3")]
    changed = [("a", "1"), ("b", "2"), ("c", "x"), ("c", "3")]
    for suffix, contents in (("", rows), ("-swapped", swapped), ("-changed", changed)):
        client.create_topic(name + suffix, 1, KEEP)
        frame = spark.createDataFrame(contents, "key string, value string").coalesce(1)
        writer = frame.write.format("rollway").option("url", server.url).option("topic", name + suffix)
        writer.mode("append").save()

    def outcome(suffix: str, **others: Any) -> Any:
        request = CompareRequest(
            left=address(server, name), right=address(server, name + suffix), ignored=("timestamp",), **others
        )
        return compare(spark, request)

    report = outcome("-swapped")
    assert (report.outcome, report.details["first_difference"]["position"]) == ("different", 0)
    assert outcome("-swapped", any_order=True).outcome == "equal"
    report = outcome("-changed")
    assert report.details["first_difference"]["left"]["value"] == "3"
    assert report.details["first_difference"]["right"]["value"] == "x"
    assert "value 'x'" in report.text()
    report = outcome("-changed", any_order=True)
    assert (report.details["only_left"], report.details["only_right"]) == (1, 1)
    assert report.details["first_difference"]["record"]["value"] == "3"
    keys = CompareRequest(
        left=address(server, name), right=address(server, f"{name}-changed"), ignored=("timestamp", "value")
    )
    assert compare(spark, keys).outcome == "equal"


@pytest.mark.slow
def test_compare_a_topic_with_the_files_it_was_loaded_from(
    spark: SparkSession, server: ServerProcess, name: str, tmp_path: Path
) -> None:
    load_orders(spark, server, name, tmp_path / "in", 60)
    files = FileSource(paths=(str(tmp_path / "in"),), format="json")
    request = CompareRequest(left=address(server, name), right=files, expressions=ORDERS)
    report = compare(spark, request)
    assert (report.outcome, report.rows) == ("equal", 60)
    assert report.details["compared"] == ["key", "value", "headers", "timestamp"]
    (tmp_path / "in/more.json").write_text('{"id": 99, "customer": "c1", "at": 1372896000000}\n')
    report = compare(spark, request)
    assert (report.outcome, report.details["only_left"], report.details["only_right"]) == ("different", 0, 1)
    assert report.details["first_difference"]["record"]["value"] == "99"  # type: ignore[index]


@pytest.mark.slow
def test_copy_lets_keys_decide_where_partitions_do_not_fit(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, name: str, tmp_path: Path
) -> None:
    load_orders(spark, server, name, tmp_path / "in")
    client.create_topic(f"{name}-2", 2, KEEP)
    target = address(server, f"{name}-2")
    with pytest.raises(JobError, match=r"has 3 partitions and .* has 2: --by-key"):
        copy(spark, CopyRequest(source=address(server, name), target=target))
    copy(spark, CopyRequest(source=address(server, name), target=target, keep_partitions=False))
    request = CompareRequest(left=address(server, name), right=target, any_order=True)
    assert compare(spark, request).outcome == "equal"


def test_copy_from_kafka_names_the_package_that_is_missing(
    spark: SparkSession, server: ServerProcess, name: str
) -> None:
    source = TopicAddress(topic="orders", url="127.0.0.1:9092", format="kafka")
    with pytest.raises(JobError, match=r"this Spark has no source for Kafka\. Submit with --packages org\.apache"):
        copy(spark, CopyRequest(source=source, target=address(server, name)))
