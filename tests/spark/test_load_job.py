"""``load``: nothing is made or written before it is known that all can be, and every pass finds the same rows."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from app.access.access_documents import acl_from
from app.cli.administration.offline_access import open_registry
from rollway.client import ClientSettings, RollwayClient, RollwayError
from rollway.spark.jobs import (
    CompareRequest,
    CopyRequest,
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
    load,
)
from rollway.spark.jobs.command.cli import run_here
from rollway.spark.jobs.errors import JobUsageError
from rollway.spark.jobs.progress import Progress, SilentProgress
from rollway.spark.jobs.reports import JobReport
from rollway.spark.jobs.topic_limits import DEFAULTS, topic_limits
from tests.support.servers import ServerProcess, ThreadedServer

DAY_MS = 86_400_000
OLD_MS = 1_372_896_000_000
KEEP: dict[str, object] = {"retention.ms": -1}


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic of its own for each test."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name.removeprefix("test_"))


class Loading:
    """Loads one file into one topic of the service."""

    def __init__(self, spark: SparkSession, server: ServerProcess | ThreadedServer, topic: str, path: Path) -> None:
        self.spark, self.url, self.topic, self.path = spark, server.url, topic, path
        self.is_json = False

    def write(self, *rows: tuple[object, ...]) -> None:
        """A file of the columns ``a STRING, b INT, t BIGINT``."""
        if self.is_json:
            lines = [json.dumps(dict(zip("abt", row, strict=True))) for row in rows]
        else:
            lines = ["a,b,t", *(",".join("" if each is None else str(each) for each in row) for row in rows)]
        self.path.write_text("\n".join(lines) + "\n")

    def source(self, **others: Any) -> FileSource:
        """The file."""
        kind = "json" if self.is_json else "csv"
        return FileSource(paths=(str(self.path),), format=kind, schema="a STRING, b INT, t BIGINT", **others)

    def run(self, *, dry_run: bool = False, progress: Progress | None = None, **others: Any) -> JobReport:
        given: dict[str, Any] = {
            "source": self.source(),
            "target": TopicAddress(topic=self.topic, url=self.url),
            "expressions": RecordExpressions(value="a", timestamp="t"),
            "partitions": 2,
            **others,
        }
        return load(self.spark, LoadRequest(**given), progress=progress, dry_run=dry_run)

    def values(self, topic: str | None = None) -> list[str]:
        reader = self.spark.read.format("rollway").option("url", self.url)
        rows = reader.option("subscribe", topic or self.topic).load()
        return sorted(row[0] for row in rows.selectExpr("cast(value as string)").collect())


@pytest.fixture
def loading(spark: SparkSession, server: ServerProcess, name: str, tmp_path: Path) -> Loading:
    return Loading(spark, server, name, tmp_path / "in")


def rejects_in(folder: Path) -> list[dict[str, str]]:
    return [json.loads(line) for path in folder.rglob("*.json") for line in path.read_text().splitlines()]


# Bad lines


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_all_passes_find_the_same_rejects(loading: Loading, tmp_path: Path, kind: str) -> None:
    loading.is_json = kind == "json"
    loading.write(("x", 1, OLD_MS), ("y", "one", OLD_MS), ("z", 3, None))
    rejects = Rejects(files=str(tmp_path / "bad"))
    reasons = {"the line does not fit the columns": 1, "there is no timestamp": 1}
    planned = loading.run(dry_run=True, rejects=rejects, topic_config=KEEP)
    done = loading.run(rejects=rejects, topic_config=KEEP)
    assert [(each.rows, each.details["rejected"]) for each in (planned, done)] == [(1, reasons)] * 2
    assert loading.values() == ["x"]
    assert sorted(each["reason"] for each in rejects_in(tmp_path / "bad")) == sorted(reasons)


def test_numbers_that_are_too_large_are_left_out(loading: Loading) -> None:
    """Nanoseconds, microseconds, and a partition whose low 32 bits name one."""
    loading.write(("x", 0, OLD_MS), ("y", 0, OLD_MS * 10**6), ("z", 0, OLD_MS * 1000), ("w", 1, OLD_MS))
    expressions = RecordExpressions(value="a", timestamp="t", partition="b * 4294967296L")
    reasons = {
        "the timestamp is further in the future than the topic's message.timestamp.after.max.ms allows": 1,
        "the timestamp is too large for milliseconds since 1970": 1,
        "there is no such partition, the topic has 2": 1,
    }
    for dry_run in (True, False):
        report = loading.run(dry_run=dry_run, expressions=expressions, rejects=Rejects(skip=True), topic_config=KEEP)
        assert (report.rows, report.details["rejected"]) == (1, reasons)
    assert loading.values() == ["x"]


def test_rows_with_headers_or_keys_that_the_topic_does_not_take_are_left_out(
    loading: Loading, client: RollwayClient
) -> None:
    """A header without a name, headers that make the record too large, no key where the topic is compacted."""
    client.create_topic(loading.topic, 2, {"cleanup.policy": "compact", "max.message.bytes": 1000})
    loading.write(("x", 1, OLD_MS), ("y", 2, OLD_MS), ("z", 3, OLD_MS), ("w", 4, OLD_MS), ("v", 5, OLD_MS))
    named = "if(a = 'y', null, 'k'), cast(repeat(a, if(a = 'z', 900, if(a = 'x', 600, 1))) as binary)"
    expressions = RecordExpressions(
        key="nullif(a, 'w')", value="a", headers=f"if(a = 'v', null, array(struct({named})))", timestamp="t"
    )
    reasons = {
        "a header has no name": 1,
        "the record is larger than the topic's max.message.bytes (1000)": 1,
        "there is no key, and the topic is compacted by key": 1,
    }
    for dry_run in (True, False):
        report = loading.run(dry_run=dry_run, expressions=expressions, rejects=Rejects(skip=True))
        assert (report.rows, report.details["rejected"]) == (2, reasons)
    assert loading.values() == ["v", "x"]
    with pytest.raises(RejectedRowsError, match="A row cannot become a record: there is no key, and the topic is comp"):
        loading.run(expressions=RecordExpressions(value="a"))


def test_lines_that_do_not_fit_are_rejected_whatever_is_chosen(loading: Loading) -> None:
    """Of such a line a condition may tell nothing; where it does tell, it is as of every row."""
    loading.write(("x", 1, OLD_MS), ("y", "one", OLD_MS), ("z", 3, OLD_MS))
    for where, rows, rejected in [("b < 3", 1, 1), ("b < 3 AND a <> 'y'", 1, 0), ("_corrupt_record IS NULL", 2, 0)]:
        report = loading.run(
            source=loading.source(where=where), rejects=Rejects(skip=True), topic_config=KEEP, dry_run=True
        )
        assert (report.rows, sum(report.details["rejected"].values())) == (rows, rejected), where


@pytest.mark.parametrize(
    ("rejects", "sentence"),
    [
        (
            Rejects(),
            r'2 rows cannot become records: 1 x ".*", e.g. .*. Nothing was loaded; --rejects-to or ',
        ),
        (Rejects(skip=True, rows_max=1), r'2 rows cannot become records, and --max-rejects is 1: 1 x ".*", e.g. '),
    ],
    ids=["no place", "too many"],
)
def test_a_dry_run_fails_where_the_load_does(loading: Loading, rejects: Rejects, sentence: str) -> None:
    loading.write(("x", 1, OLD_MS), ("y", "one", OLD_MS), ("z", 3, None))
    with pytest.raises(RejectedRowsError, match=sentence) as raised:
        loading.run(dry_run=True, rejects=rejects, topic_config=KEEP)
    assert any(row in str(raised.value) for row in ("y,one", '"a":"z"'))
    with pytest.raises(RejectedRowsError):
        loading.run(rejects=rejects, topic_config=KEEP)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_night_without_data_loads_nothing(loading: Loading, client: RollwayClient, kind: str) -> None:
    loading.path.write_text("")
    source = FileSource(paths=(str(loading.path),), format=kind)
    expressions = RecordExpressions(key="a", headers="map('b', b)", timestamp="t", partition="b")
    for rejects in (Rejects(), Rejects(topic=f"{loading.topic}-bad")):
        for dry_run in (True, False):
            report = loading.run(source=source, expressions=expressions, rejects=rejects, dry_run=dry_run)
            assert (report.rows, report.exit_status) == (0, 0)
    assert loading.values() == []
    target = TopicAddress(topic=loading.topic, url=loading.url)
    asked = RecordExpressions(key="a", timestamp="t")
    assert compare(loading.spark, CompareRequest(left=target, right=source, expressions=asked)).outcome == "equal"
    loading.is_json = kind == "json"
    loading.write(("x", 1, OLD_MS))
    different = CompareRequest(left=target, right=source, expressions=asked)
    assert compare(loading.spark, different).outcome == "different"


def test_a_wrong_expression_is_one_line_on_stderr(loading: Loading, capfd: pytest.CaptureFixture[str]) -> None:
    """PySpark has a log of its own for errors of queries: 8 KB of JSON with Java's stack."""
    loading.write(("x", 1, OLD_MS))
    line = ["load", str(loading.path), "--format", "csv", "--topic", loading.topic, "--url", loading.url]
    for part in ("--key", "--where"):
        arguments = [*line, "--partitions", "1", part, "nothing"]
        # PySpark's logger keeps the stderr that it was made with.
        PySparkLogger.getLogger("SQLQueryContextLogger").handlers[:] = [logging.StreamHandler(sys.stderr)]
        assert run_here(arguments) == 2
        (sentence,) = capfd.readouterr().err.splitlines()
        assert f"{part} 'nothing' cannot be used" in sentence


# What is made, and when


def test_a_topic_that_exists_must_have_the_settings_asked_for(loading: Loading) -> None:
    loading.write(("x", 1, OLD_MS))
    loading.run(topic_config=KEEP)
    with pytest.raises(JobError, match=r"exists with retention.ms=-1: .*alter .* --config retention.ms=1000` changes"):
        loading.run(topic_config={"retention.ms": 1000, "cleanup.policy": "delete"})
    loading.run(topic_config={"retention.ms": "-1", "cleanup.policy": "delete"})
    assert loading.values() == ["x", "x"]


def test_settings_that_there_are_not_are_refused(loading: Loading) -> None:
    loading.write(("x", 1, OLD_MS))
    loading.run(topic_config=KEEP)
    for name, sentence in [
        ("retenton.ms", r"--config retenton.ms is none of the settings of topics: did you mean retention.ms\?$"),
        ("colour", r"--config colour is none of the settings of topics, which are cleanup.policy, .*\.$"),
    ]:
        with pytest.raises(JobUsageError, match=sentence):
            loading.run(topic_config={**KEEP, name: "-1"}, dry_run=True)


@pytest.mark.parametrize(
    ("error", "others"),
    [
        (JobError, {"source": FileSource(paths=("/nowhere/in.csv",))}),
        (JobUsageError, {"expressions": RecordExpressions(key="nothing")}),
        (JobUsageError, {"topic_config": {"retention.ms": "forever"}}),
        (RejectedRowsError, {"rejects": Rejects(skip=True, rows_max=0)}),
        (RejectedRowsError, {}),
    ],
    ids=["no file", "no column", "no number", "too many rejects", "a reject"],
)
def test_what_cannot_be_loaded_leaves_no_topic(
    loading: Loading, client: RollwayClient, error: type[JobError], others: dict[str, Any]
) -> None:
    loading.write(("x", "one", OLD_MS))
    with pytest.raises(error):
        loading.run(**{"topic_config": KEEP, **others})
    assert loading.topic not in client.list_topics()


def test_a_version_that_is_loaded_is_not_read_again(loading: Loading, tmp_path: Path) -> None:
    """Its rejects stay, whatever the files have now."""
    others: dict[str, Any] = {
        "rejects": Rejects(files=str(tmp_path / "bad")),
        "identity": LoadIdentity(application_id=loading.topic, version=3),
        "topic_config": KEEP,
    }
    loading.write(("x", 1, OLD_MS), ("y", "one", OLD_MS))
    assert loading.run(**others).rows == 1
    before = rejects_in(tmp_path / "bad")
    loading.write(("x", 1, OLD_MS), ("z", "two", OLD_MS))
    assert loading.run(**others).outcome == "already_done"
    loading.path.unlink()
    for dry_run in (True, False):
        assert loading.run(dry_run=dry_run, **others).outcome == "already_done"
    assert rejects_in(tmp_path / "bad") == before
    assert before[0]["row"].startswith("y,one,")
    assert loading.values() == ["x"]


def test_a_version_that_was_loaded_into_another_topic_is_an_error(loading: Loading) -> None:
    loading.write(("x", 1, OLD_MS))
    others: dict[str, Any] = {
        "identity": LoadIdentity(application_id=loading.topic, version=1),
        "topic_config": KEEP,
    }
    loading.run(**others)
    target = TopicAddress(topic=f"{loading.topic}-other", url=loading.url)
    for dry_run in (True, False):
        with pytest.raises(JobError, match=f"was loaded into {loading.topic}, not {loading.topic}-other: give each"):
            loading.run(dry_run=dry_run, target=target, **others)


class FailingProgress(SilentProgress):
    """Ends a job where it begins to write to a topic."""

    def __init__(self, topic: str) -> None:
        self.label = f"writing to {topic}"

    @contextmanager
    def during(self, label: str, how_far: Callable[[], str]) -> Iterator[None]:
        if label == self.label:
            raise JobError("interrupted")
        yield


@pytest.mark.parametrize("kept", ["topic", "files"])
def test_rejects_are_those_of_the_load_that_counts(loading: Loading, tmp_path: Path, kept: str) -> None:
    """Not those of one that failed and was run again with a file that had been corrected."""
    bad = f"{loading.topic}-bad"
    others: dict[str, Any] = {
        "rejects": Rejects(topic=bad) if kept == "topic" else Rejects(files=str(tmp_path / "bad")),
        "identity": LoadIdentity(application_id=loading.topic, version=3),
        "expressions": RecordExpressions(key="a", value="a", headers="map('k', a)", timestamp="t", partition="b"),
        "topic_config": KEEP,
    }
    loading.write(("x", 1, OLD_MS), ("y", 7, OLD_MS))
    with pytest.raises(JobError, match="interrupted"):
        loading.run(progress=FailingProgress(loading.topic), **others)
    loading.write(("x", 1, OLD_MS), ("v", 0, OLD_MS), ("z", 8, OLD_MS), ("w", "two", OLD_MS), ("u", 1, None))
    report = loading.run(**others)
    assert (report.rows, report.details["partitions"]) == (2, {"0": 1, "1": 1})
    assert loading.values() == ["v", "x"]
    rejects = [json.loads(each) for each in loading.values(bad)] if kept == "topic" else rejects_in(tmp_path / "bad")
    assert sorted((each["row"][:1] if each["row"][0] != "{" else json.loads(each["row"])["a"]) for each in rejects) == [
        "u",
        "w",
        "z",
    ]
    assert loading.run(**others).outcome == "already_done"


def test_a_topic_for_rejects_is_made_when_there_are_some(loading: Loading, client: RollwayClient) -> None:
    bad = f"{loading.topic}-bad"
    loading.write(("x", 1, OLD_MS))
    assert loading.run(rejects=Rejects(topic=bad), topic_config=KEEP).rows == 1
    assert bad not in client.list_topics()
    loading.write(("y", "one", OLD_MS))
    others: dict[str, Any] = {
        "rejects": Rejects(topic=bad),
        "identity": LoadIdentity(application_id=loading.topic, version=3),
    }
    for outcome, rows in [("done", 0), ("already_done", 0)]:
        report = loading.run(**others)
        assert (report.outcome, report.rows) == (outcome, rows)
    assert len(loading.values(bad)) == 1


def test_rejects_of_other_applications_are_left_alone(loading: Loading, tmp_path: Path) -> None:
    """Whatever their names are: no two loads share a folder."""
    names = ["etl", "etl {night}*", "etl.1", "Ä" * 249, "Ä" * 248]
    for name in names:
        loading.write((name, "one", OLD_MS))
        loading.run(
            rejects=Rejects(files=f"{tmp_path}/bad/"),
            identity=LoadIdentity(application_id=f"{name}", version=1),
            topic_config=KEEP,
        )
    assert sorted(each["row"].split(",")[0] for each in rejects_in(tmp_path / "bad")) == sorted(names)
    assert (tmp_path / "bad/load=etl.1").is_dir()
    assert (tmp_path / "bad/load=etl%20%7Bnight%7D%2A.1").is_dir()


def test_a_version_that_went_to_another_topic_is_refused(loading: Loading, client: RollwayClient) -> None:
    """Neither loaded nor said to be: a script that loads two files into two topics would lose the second."""
    loading.write(("x", 1, OLD_MS), ("y", "one", OLD_MS))
    identity = LoadIdentity(application_id=loading.topic, version=3)
    rejects = Rejects(topic="rejects-of-all")
    loading.run(identity=identity, rejects=rejects, topic_config=KEEP)
    other = TopicAddress(topic=f"{loading.topic}-2", url=loading.url)
    client.create_topic(other.topic, 2, KEEP)
    sentence = f"[Vv]ersion 3 of .* was loaded into {loading.topic}, not {other.topic}"
    for dry_run in (True, False):
        with pytest.raises(JobError, match=f"{sentence}: give each topic an --app-id of its own"):
            loading.run(target=other, identity=identity, rejects=rejects, dry_run=dry_run)
    copying = CopyRequest(source=TopicAddress(topic=loading.topic, url=loading.url), target=other, identity=identity)
    with pytest.raises(RollwayError, match=f"was loaded into {loading.topic}, rejects-of-all, not {other.topic}: give"):
        copy(loading.spark, copying)
    for given in (rejects, Rejects()):
        assert loading.run(identity=identity, rejects=given).outcome == "already_done"


# Rows that are too old


@pytest.mark.parametrize("rejects", [Rejects(), Rejects(skip=True)], ids=["fail", "skip"])
def test_rows_that_a_new_topic_does_not_keep_are_refused(
    loading: Loading, client: RollwayClient, rejects: Rejects
) -> None:
    loading.write(("x", 1, OLD_MS), ("y", 2, OLD_MS + 1))
    sentence = r"older than .* keeps records \(7 days, retention.ms=604800000\), .*: --config retention.ms=-1 keeps"
    for dry_run in (True, False):
        with pytest.raises(JobError, match=sentence) as raised:
            loading.run(dry_run=dry_run, rejects=rejects)
        assert "2013-07-04" in str(raised.value)
        assert "\n" not in str(raised.value)
    assert loading.topic not in client.list_topics()
    assert loading.run(rejects=rejects, topic_config=KEEP).rows == 2


@pytest.mark.parametrize("rejects", [Rejects(), Rejects(skip=True)], ids=["fail", "skip"])
def test_rows_that_a_topic_does_not_keep_are_refused(loading: Loading, client: RollwayClient, rejects: Rejects) -> None:
    """Also behind a first row that it keeps; nothing of them is visible."""
    client.create_topic(loading.topic, 2, {"retention.ms": DAY_MS})
    now_ms = int(time.time() * 1000)
    loading.write(("x", 1, now_ms), ("y", 2, now_ms - 2 * DAY_MS))
    with pytest.raises(JobError, match=r"\(1 day, retention.ms=86400000\), .*`rollway topics alter \S+ --config"):
        loading.run(rejects=rejects)
    assert loading.values() == []
    assert loading.run(rejects=rejects, allow_expired=True).rows == 2
    loading.write(("z", 1, now_ms))
    assert loading.run(rejects=rejects).rows == 1


@pytest.mark.parametrize(
    "config", [{"message.timestamp.type": "LogAppendTime"}, {"cleanup.policy": "compact"}], ids=lambda each: str(*each)
)
def test_old_rows_are_loaded_where_age_deletes_nothing(loading: Loading, config: dict[str, object]) -> None:
    loading.write(("x", 1, OLD_MS))
    expressions = RecordExpressions(key="a", value="a", timestamp="t")
    assert loading.run(topic_config=config, expressions=expressions).rows == 1


def test_defaults_of_the_service_are_heeded_once_the_topic_is_made(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    with ServerProcess(
        tmp_path / "data", environment={"ROLLWAY_TOPIC_DEFAULTS": '{"retention.ms": 3600000}'}
    ) as server:
        loading = Loading(spark, server, name, tmp_path / "in")
        loading.write(("x", 1, int(time.time() * 1000) - DAY_MS))
        for rejects in (Rejects(), Rejects(skip=True)):
            with pytest.raises(JobError, match=r"retention\.ms=3600000"):
                loading.run(rejects=rejects)
        assert loading.values() == []


def test_age_is_not_left_unchecked_where_settings_may_not_be_seen(spark: SparkSession, tmp_path: Path) -> None:
    with open_registry(tmp_path / "data") as registry:
        registry.acls.super_users = frozenset({"User:admin"})
        (_, super_key), (_, key) = registry.create_key("User:admin"), registry.create_key("User:etl")
        kinds = [("topic", "t"), ("transactional_id", "*")]
        registry.add_acls(
            acl_from({"principal": "User:etl", "operation": "WRITE", "resource_type": kind, "resource_name": name})
            for kind, name in kinds
        )
    with ThreadedServer(tmp_path / "data", authentication=True, super_users=["User:admin"]) as server:
        with RollwayClient(ClientSettings(server.url, token=super_key)) as client:
            client.create_topic("t", 2)
        loading = Loading(spark, server, "t", tmp_path / "in")
        loading.write(("x", 1, int(time.time() * 1000)))
        target = TopicAddress(topic="t", url=server.url, options={"token": key})
        with pytest.raises(JobError, match=r"may not be seen with this key .*--allow-expired loads"):
            loading.run(target=target)
        assert loading.run(target=target, allow_expired=True).rows == 1
        assert loading.run(target=target, expressions=RecordExpressions(value="a")).rows == 1


def test_limits_are_those_of_the_settings() -> None:
    now_ms = 10 * DAY_MS
    limits = topic_limits(3, {**DEFAULTS, "message.timestamp.before.max.ms": str(9 * DAY_MS)}, now_ms)
    assert (limits.records.partition_count, limits.records.record_bytes_max) == (3, 1_048_588)
    assert (limits.records.oldest_ms, limits.records.newest_ms) == (DAY_MS, now_ms + 3_600_000)
    assert (limits.kept_from_ms, limits.retention) == (3 * DAY_MS, "7 days, retention.ms=604800000")
    for config in ({"retention.ms": "-1"}, {"retention.ms": 2**63 - 1}, {"cleanup.policy": "compact"}):
        assert topic_limits(3, {**DEFAULTS, **config}, now_ms).kept_from_ms is None
    assert topic_limits(3, {**DEFAULTS, "cleanup.policy": "compact,delete"}, now_ms).kept_from_ms == 3 * DAY_MS
    stamped = topic_limits(3, {**DEFAULTS, "message.timestamp.type": "LogAppendTime"}, now_ms)
    assert (stamped.kept_from_ms, stamped.records.oldest_ms, stamped.records.newest_ms) == (None, None, None)
    assert topic_limits(3, {}, now_ms).records.record_bytes_max is None
