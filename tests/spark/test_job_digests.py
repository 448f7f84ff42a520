"""Digests: equal contents, equal digests; anything else, others."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from rollway.spark.jobs.comparing.digests import digests_by, row_hash, whole_digest

Rows = list[tuple[str | None, str | None]]
BASE: Rows = [("a", "1"), ("b", "2"), (None, ""), ("a", "1")]


def digest(spark: SparkSession, rows: Rows, slices: int = 1) -> tuple[int, str]:
    frame = spark.createDataFrame(rows, "key string, value string").repartition(slices)
    return whole_digest(frame, ["key", "value"])


def test_order_and_partitioning_do_not_count(spark: SparkSession) -> None:
    assert digest(spark, BASE) == digest(spark, BASE[::-1], 3)
    assert digest(spark, BASE)[0] == 4


@pytest.mark.parametrize(
    "other",
    [
        [("a", "1"), ("b", "2"), (None, "")],
        [("a", "1"), ("b", "2"), ("b", "2"), (None, "")],
        [("a", "1"), ("b", "2"), ("", None), ("a", "1")],
        [("a", "1"), ("b", "2"), (None, None), ("a", "1")],
        [("a1", ""), ("b", "2"), (None, ""), ("a", "1")],
        [("a", "1"), ("2", "b"), (None, ""), ("a", "1")],
        [],
    ],
)
def test_everything_else_counts(spark: SparkSession, other: Rows) -> None:
    assert digest(spark, other) != digest(spark, BASE)


def test_each_partition_has_its_own(spark: SparkSession) -> None:
    rows = spark.sql("SELECT cast(id % 2 as int) AS partition, id AS value FROM range(10)")
    found = digests_by("partition", rows, ["value"])
    assert {number: count for number, (count, _) in found.items()} == {0: 5, 1: 5}
    assert found[0][1] != found[1][1]
    assert all(len(digest) == 32 for _, digest in found.values())


Pairs = list[tuple[str | None, bytes | None]] | None
HEADERS: list[Pairs] = [
    None,
    [],
    [("a", b"b")],
    [("a", None), ("b", None)],
    [("a", b"b"), ("c", None)],
    [("a", None), ("b", b"c")],
    [("a", None)],
    [("a", b"")],
    [("a", b""), ("b", None)],
    [(None, b"a")],
    [("", b"a")],
    [("ab", b"")],
    [("a", b"b"), ("a", b"b")],
]


@pytest.mark.parametrize("salt", [1, 2])
def test_no_two_lists_of_headers_have_the_same_hash(spark: SparkSession, salt: int) -> None:
    """Spark's hash of an array leaves nulls out: two headers without values were one with a value."""
    rows = list(enumerate(HEADERS))
    frame = spark.createDataFrame(rows, "number int, headers array<struct<key string, value binary>>")
    found = frame.select("number", row_hash(["headers"], salt).alias("hash")).collect()
    by_hash: dict[int, list[Pairs]] = {}
    for row in found:
        by_hash.setdefault(row["hash"], []).append(HEADERS[row["number"]])
    assert [lists for lists in by_hash.values() if len(lists) > 1] == []


def test_null_and_empty_keys_and_values_differ(spark: SparkSession) -> None:
    kinds: list[tuple[str | None, str | None]] = [(None, "a"), ("", "a"), ("a", None), ("a", "")]
    assert len({digest(spark, [row]) for row in kinds}) == len(kinds)
