"""Orders as files, as records of a topic, and read back: what the tests of the jobs load, export, copy and replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from rollway.spark.jobs import FileSource, LoadRequest, RecordExpressions, TopicAddress, load
from tests.support.servers import ServerProcess

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
BEGIN_MS = 1_372_896_000_000  # 2013-07-04T00:00Z
KEEP = {"retention.ms": -1}


def address(server: ServerProcess, topic: str) -> TopicAddress:
    return TopicAddress(topic=topic, url=server.url)


def write_orders(folder: Path, count: int = 300, *, begin: int = 0, parts: int = 3) -> Path:
    """``count`` orders of 7 customers, one a minute, in several files."""
    folder.mkdir(exist_ok=True)
    for part in range(parts):
        lines = [
            json.dumps({"id": number, "customer": f"c{number % 7}", "at": BEGIN_MS + number * 60_000})
            for number in range(begin, begin + count)
            if number % parts == part
        ]
        (folder / f"part-{begin}-{part}.json").write_text("\n".join(lines) + "\n")
    return folder


ORDERS = RecordExpressions(
    key="customer", value="cast(id as string)", timestamp="at", headers="map('customer', customer)"
)


def load_orders(
    spark: SparkSession, server: ServerProcess, topic: str, folder: Path, count: int = 300, **others: Any
) -> None:
    source = FileSource(paths=(str(write_orders(folder, count)),), format="json")
    request = LoadRequest(
        source=source, target=address(server, topic), expressions=ORDERS, partitions=3, topic_config=KEEP, **others
    )
    assert load(spark, request).rows == count


def rows_of(spark: SparkSession, server: ServerProcess, topic: str) -> list[tuple[int, str, str, int]]:
    """Partition, key, value and time of every committed record."""
    rows = spark.read.format("rollway").option("url", server.url).option("subscribe", topic).load()
    found = rows.selectExpr(
        "partition", "cast(key as string)", "cast(value as string)", "unix_millis(timestamp)", "offset"
    )
    return [tuple(row)[:4] for row in sorted(found.collect(), key=lambda row: (row["partition"], row["offset"]))]
