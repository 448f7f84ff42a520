"""Whatever a record holds goes through Spark and the service, both ways, and comes back as it was, told apart."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rollway.spark.schemas import byte_headers_schema
from tests.support.every_value import CONTENTS, ENCODINGS, Content
from tests.support.servers import ServerProcess, http_client

Row = tuple[bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]
SCHEMA = "key binary, value binary, headers array<struct<key: binary, value: binary>>"


def row_of(content: Content) -> Row:
    """A key, a value and values of headers of it, of which one has a name that is no text."""
    if content.is_large:
        return None, content.data, []
    return content.data, content.data, [(b"h", content.data), (b"\xff", content.data)]


def shown_of(content: Content, encoding: str) -> dict[str, Any]:
    """What JSON has of the row."""
    if content.is_large:
        return {**Content(None).shown("key", encoding), **content.shown("value", encoding), "headers": []}
    value = content.shown("value", "utf8" if encoding == "json" else encoding)
    headers = [{"name": "h", **value}, {"name_base64": base64.b64encode(b"\xff").decode(), **value}]
    return {**content.shown("key", encoding), **content.shown("value", encoding), "headers": headers}


def test_rows_go_in_and_come_out_as_they_were(spark: SparkSession, server: ServerProcess) -> None:
    rows = [row_of(content) for content in CONTENTS.values()]
    name = "every-value"
    with http_client(server.url) as http:
        config = {"max.message.bytes": "40000000", "retention.ms": "-1"}
        http.put(f"/v1/topics/{name}", json={"partitions": 1, "config": config}).raise_for_status()
        frame = spark.createDataFrame(rows, SCHEMA).coalesce(1)
        frame.write.format("rollway").option("url", server.url).option("topic", name).option(
            "includeHeaders", "true"
        ).mode("append").save()
        reader = spark.read.format("rollway").option("url", server.url).option("subscribe", name)
        stored = reader.schema(byte_headers_schema()).load().orderBy("offset").collect()
        found = [(each.key, each.value, [tuple(header) for header in each.headers or []]) for each in stored]
        assert [tuple(map(_bytes, row)) for row in found] == [tuple(map(_bytes, row)) for row in rows]
        offsets = [each.offset for each in stored]
        for encoding in ENCODINGS:
            for offset, content in zip(offsets, CONTENTS.values(), strict=True):
                path = f"/v1/topics/{name}/partitions/0/records/{offset}"
                record = http.get(path, params={"encoding": encoding}).raise_for_status().json()
                expected = shown_of(content, encoding)
                own = {"offset", "timestamp", "timestamp_type", "partition"}
                assert {part: shown for part, shown in record.items() if part not in own} == expected


def _bytes(part: Any) -> Any:
    """Spark gives bytes as an array of them."""
    if isinstance(part, list):
        return [tuple(map(_bytes, header)) for header in part]
    return part.encode() if isinstance(part, str) else None if part is None else bytes(part)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_records_of_json_are_rows_as_they_were(spark: SparkSession, server: ServerProcess, encoding: str) -> None:
    """What other programs have written as JSON, read by Spark."""
    name = f"every-value-of-{encoding}"
    contents = [content for content in CONTENTS.values() if not content.is_large]
    with http_client(server.url) as http:
        http.put(f"/v1/topics/{name}", json={"partitions": 1, "config": {"retention.ms": "-1"}}).raise_for_status()
        lines = [
            b"{%b,%b}" % (content.member("key", encoding), content.member("value", encoding)) for content in contents
        ]
        body = b'{"records":[%b]}' % b",".join(lines)
        http.post(
            f"/v1/topics/{name}/partitions/0/records",
            params={"encoding": encoding},
            content=body,
            headers={"Content-Type": "application/json"},
        ).raise_for_status()
    reader = spark.read.format("rollway").option("url", server.url).option("subscribe", name)
    stored = reader.load().orderBy("offset").collect()
    assert [(_bytes(each.key), _bytes(each.value)) for each in stored] == [(one.data, one.data) for one in contents]
