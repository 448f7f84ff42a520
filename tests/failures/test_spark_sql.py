"""SQL: what works does, and what cannot is told with what does.

Spark keeps the options of CREATE TABLE, and hands none of them to a source that is written in Python.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession

from rollway.spark.errors import OptionError
from rollway.spark.options.options import ReadOptions, WriteOptions
from tests.docs.console import read_blocks
from tests.docs.pages import PAGES
from tests.spark.conftest import spark
from tests.spark.topics import new_topic
from tests.support.servers import ThreadedServer

__all__ = ["spark"]

_numbers = count()

# As Spark 4.3 asks for the columns of a table.
OF_A_TABLE = {
    "provider": "rollway",
    "url": "u",
    "option.url": "u",
    "subscribe": "t",
    "option.subscribe": "t",
    "owner": "me",
}


@pytest.mark.parametrize("given", [{}, OF_A_TABLE], ids=["read or written", "made"])
def test_a_table_is_told_what_works_instead(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"CREATE TEMPORARY VIEW .* subscribe .* FROM name WITH \(url"):
        ReadOptions.parse(given, streaming=None)
    with pytest.raises(OptionError, match=r"CREATE TEMPORARY VIEW .* topic .* INSERT INTO name WITH \(url"):
        WriteOptions.parse(given)


def test_what_the_documentation_says_works(spark: SparkSession, server: ThreadedServer, client: httpx.Client) -> None:
    topic = new_topic(client, 1, f"sql-{next(_numbers)}")
    topic.send_values(0, "a", "b")
    table, view, sink = (f"{kind}_{next(_numbers)}" for kind in ("table", "view", "sink"))
    read, write = f"(url '{server.url}', subscribe '{topic.name}')", f"(url '{server.url}', topic '{topic.name}')"

    def found(name: str) -> Any:
        return spark.sql(f"SELECT count(*) AS rows FROM {name}").collect()[0].rows

    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE {table} USING rollway OPTIONS {read}")
    spark.sql(f"CREATE TABLE {table} (key BINARY, value BINARY) USING rollway OPTIONS {read}")
    try:
        with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
            found(table)
        with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
            spark.sql(f"INSERT INTO {table} VALUES (X'6b', X'76')")
        assert found(f"{table} WITH {read}") == 2
        spark.sql(f"INSERT INTO {table} WITH {write} VALUES (X'6b', X'76')")
        assert found(f"{table} WITH {read}") == 3
    finally:
        spark.sql(f"DROP TABLE {table}")

    spark.sql(f"CREATE TEMPORARY VIEW {view} USING rollway OPTIONS {read}")
    spark.sql(f"CREATE TEMPORARY VIEW {sink} (key STRING, value STRING) USING rollway OPTIONS {write}")
    assert found(view) == 3
    spark.sql(f"INSERT INTO {sink} VALUES ('k', 'v')")
    spark.sql(f"REFRESH TABLE {view}")
    assert found(view) == 3, "a view keeps its offsets"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} USING rollway OPTIONS {read}")
    assert found(view) == 4


def test_every_statement_of_the_pages_runs(spark: SparkSession, server: ThreadedServer, client: httpx.Client) -> None:
    """Each block of SQL, as it stands but for the address."""
    blocks = [block for page in PAGES for block in read_blocks(page) if block.language == "sql"]
    assert blocks
    orders, copy = new_topic(client, 1, "orders"), new_topic(client, 1, "copy")
    orders.send_values(0, "a", "b")
    counts = []
    try:
        for block in blocks:
            for statement in "\n".join(block.lines).replace("http://host:8080", server.url).split(";"):
                if statement.strip():
                    rows = spark.sql(statement).collect()
                    counts += [row[0] for row in rows if "SELECT count" in statement]
        read = spark.sql(f"SELECT value FROM topics WITH (url '{server.url}', subscribe '{copy.name}')")
        copied = [bytes(row.value) for row in read.collect()]
    finally:
        spark.sql("DROP TABLE IF EXISTS topics")
        spark.catalog.dropTempView("orders")
        spark.catalog.dropTempView("copy")
    assert counts == [2, 2]
    assert copied == [b"a", b"b", b"v"]
