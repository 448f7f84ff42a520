"""``compare`` of two topics that are nearly equal."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from rollway.client import RollwayClient
from rollway.spark.jobs import CompareRequest, compare
from tests.spark.orders import KEEP, address
from tests.support.servers import ServerProcess


@pytest.mark.parametrize("any_order", [False, True])
def test_compare_tells_one_header_with_a_value_from_two_without(
    spark: SparkSession, server: ServerProcess, client: RollwayClient, name: str, any_order: bool
) -> None:
    pairs = {"one": "struct('a', cast('b' as binary))", "two": "struct('a', null), struct('b', null)"}
    topics = [f"{name}-{any_order}-{kind}" for kind in pairs]
    for topic, headers in zip(topics, pairs.values(), strict=True):
        client.create_topic(topic, 1, KEEP)
        rows = spark.sql(
            f"SELECT 'v' AS value, timestamp_millis(1372896000000) AS timestamp, "
            f"cast(array({headers}) AS array<struct<key: string, value: binary>>) AS headers"
        )
        writer = rows.write.format("rollway").option("url", server.url).option("topic", topic)
        writer.option("includeHeaders", "true").mode("append").save()
    left, right = (address(server, topic) for topic in topics)
    report = compare(spark, CompareRequest(left=left, right=right, any_order=any_order))
    assert (report.outcome, report.exit_status) == ("different", 3)
