"""``compare --files`` reads files by other means than ``load``: what ``load`` changes is a difference.

Each planted defect is one that ``load`` once had, and that ``compare`` called equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from rollway.spark.jobs import (
    CompareRequest,
    FileSource,
    JobReport,
    LoadRequest,
    RecordExpressions,
    Rejects,
    compare,
    expressions,
    load,
)
from rollway.spark.jobs.columns import column
from rollway.spark.jobs.files import csv_files
from rollway.spark.jobs.files.csv_look import CsvLook
from tests.spark.conftest import client, server, spark
from tests.spark.orders import address
from tests.support.servers import ServerProcess

__all__ = ["client", "server", "spark"]

INPUTS = Path(__file__).parent / "inputs/spark"
_topics = count()


class Pair:
    """Loads files, and compares the topic with them."""

    def __init__(self, spark: SparkSession, server: ServerProcess) -> None:
        self.spark, self.server = spark, server
        self.topic = f"compared-{next(_topics)}"

    def load(self, source: FileSource, made: dict[str, str] | None = None) -> JobReport:
        request = LoadRequest(
            source=source,
            target=address(self.server, self.topic),
            expressions=RecordExpressions(**(made or {})),
            rejects=Rejects(skip=True),
            partitions=2,
            topic_config={"retention.ms": -1},
        )
        return load(self.spark, request)

    def compare(self, source: FileSource, made: dict[str, str] | None = None) -> JobReport:
        request = CompareRequest(
            left=address(self.server, self.topic),
            right=source,
            expressions=RecordExpressions(**(made or {})),
            skip_rejects=True,
        )
        return compare(self.spark, request)


@pytest.fixture
def pair(spark: SparkSession, server: ServerProcess) -> Pair:
    return Pair(spark, server)


CSV = 'id,note,z\r\n1,"he said ""hi""",\r\n2,"a\nb\r\nc",""\r\n3,x"y,\u00e9\u2028\x01\\u001f\r\n\r\n5,6\r\n7,8,9\r\n'
JSON = '{"a": 1.10, "b":{"c":[1e400]}, "s":"x"}\n\n{"a":2,"s":"\\u0041"}\r\nno json\n{"A":3}\n[4]\n{"a":5} \n'


@pytest.mark.parametrize(
    ("name", "text", "others", "made", "rejected"),
    [
        ("in.csv", CSV, {}, {}, 1),
        ("in.csv", CSV, {}, {"key": "id", "headers": "map('note', note)"}, 1),
        ("in.csv", "id\tn\n1\t2\n", {"options": {"sep": "\\t"}}, {"key": "n"}, 0),
        ("in.tsv", "id\tn\n1\t2\n3\t\n", {"schema": "id INT, n DECIMAL(3,1)"}, {"timestamp": "id"}, 0),
        ("in.csv", "id,n\n1,2\nx,3\n4,\n", {"schema": "id INT, n STRING", "where": "n = '3' OR id = 1"}, {}, 1),
        ("in.csv", "1,2\n3,4\n", {"options": {"header": "false"}}, {"key": "_c1"}, 0),
        ("in.csv", ",a,a\n0,1,2\n", {}, {"value": "to_json(struct(*))"}, 0),
        ("in.json", JSON, {}, {}, 2),
        ("in.json", JSON, {}, {"key": "s", "headers": "map('b', b)"}, 2),
        ("in.json", JSON, {"schema": "s STRING, b STRUCT<c: ARRAY<DOUBLE>>"}, {"key": "s", "value": "b"}, 2),
        ("in.txt", "a\r\n\r\nb\n\u00e9", {"where": "value <> ''"}, {}, 0),
        ("in.txt", b"caf\xe9\n", {}, {}, 0),
    ],
)
def test_a_topic_is_equal_to_what_was_loaded(
    pair: Pair,
    tmp_path: Path,
    name: str,
    text: str | bytes,
    others: dict[str, Any],
    made: dict[str, str],
    rejected: int,
) -> None:
    (tmp_path / "day=01").mkdir()
    path = tmp_path / "day=01" / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    for source in (
        FileSource(paths=(str(path),), **others),
        FileSource(paths=(str(tmp_path),), format=_format(name), **others),
    ):
        if name == "in.tsv" and source.paths == (str(tmp_path),):
            continue
        pair.topic = f"compared-{next(_topics)}"
        loaded = pair.load(source, made)
        report = pair.compare(source, made)
        assert (report.outcome, report.rows) == ("equal", loaded.rows), report.text()
        assert sum(report.details["rejected"].values()) == rejected  # type: ignore[attr-defined]
        assert report.details["is_independent"]


def _format(name: str) -> str:
    return {"csv": "csv", "tsv": "csv", "json": "json", "txt": "text"}[name[3:]]


def test_fields_over_several_lines_are_read_across_the_parts_of_a_file(
    pair: Pair, spark: SparkSession, tmp_path: Path
) -> None:
    """Spark cuts a file where it likes, and its parts come in no order."""
    for name in ("a", "b"):
        rows = "".join(f'{number},"{name}\n{number % 7 * "x,"}"\n' for number in range(400))
        (tmp_path / f"{name}.csv").write_text(f"id,note\n{rows}")
    source = FileSource(paths=(str(tmp_path),), format="csv")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "512")
    try:
        assert pair.load(source).rows == 800
        assert pair.compare(source).outcome == "equal"
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


# Planted defects


def rewritten(source: DataFrame, names: list[str]) -> Column:
    """What ``load`` once made of a line of JSON."""
    return F.to_json(F.struct(*map(column, names)))


def plant_rewriting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(expressions, "_whole", rewritten)
    patch.setattr(RecordExpressions, "need_columns", True)


def plant_doubled_quotes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(csv_files, "_has", lambda options, *names: "escape" in names)


def plant_guessed_types(patch: pytest.MonkeyPatch) -> None:
    read = csv_files.read_csv
    patch.setattr(
        "rollway.spark.jobs.files.file_sources.read_csv",
        lambda spark, paths, options, *others: read(spark, paths, {**options, "inferSchema": "true"}, *others),
    )


def plant_lines_for_records(patch: pytest.MonkeyPatch) -> None:
    look = CsvLook(
        has_open_lines=False, has_foreign_bytes=False, line_end="\n", headers_to_compare=(), has_headers=False
    )
    patch.setattr(csv_files, "look_at", lambda *_, **__: look)


@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (plant_rewriting, "line.json"),
        (plant_doubled_quotes, "doubled-quotes.csv"),
        (plant_guessed_types, "monday.csv"),
        (plant_lines_for_records, "line-breaks.csv"),
    ],
)
def test_what_a_load_changes_is_found(pair: Pair, plant: Callable[[pytest.MonkeyPatch], None], name: str) -> None:
    source = FileSource(paths=(str(INPUTS / name),))
    sound = Pair(pair.spark, pair.server)
    sound.load(source)
    assert sound.compare(source).outcome == "equal"
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        pair.load(source)
    report = pair.compare(source)
    assert (report.outcome, report.exit_status) == ("different", 3)


def test_what_cannot_be_read_by_other_means_is_said(pair: Pair, tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_text('[{"a":1},\n{"a":2}]')
    source = FileSource(paths=(str(path),), options={"multiLine": "true"})
    pair.load(source)
    report = pair.compare(source)
    assert (report.outcome, report.details["is_independent"]) == ("equal", False)
    assert (
        "is read as load reads it, because of --read-option multiLine: what load changes cannot be seen"
        in report.text()
    )
    assert pair.compare(replace(source, options={"mode": "PERMISSIVE"})).details["is_independent"] is False
