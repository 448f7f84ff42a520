"""What jobs still changed without a word: NUL and CR in quoted fields, lines that are no JSON, names of headers."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession

from rollway.spark.jobs import CompareRequest, CopyRequest, Rejects, ReplayRequest, compare, copy, replay
from rollway.spark.jobs.files.raw_records import NoRecordError, json_fields
from tests.failures.test_spark_files import KEEP, Files
from tests.spark.conftest import client, server, spark
from tests.spark.orders import address
from tests.support.servers import ServerProcess

__all__ = ["client", "server", "spark"]

NO_JSON = ["{'a':1}", '{"a":{"b":\'x\'}}', "{\"a\":[1,'']}"]


@pytest.fixture
def files(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> Files:
    return Files(spark, server, tmp_path)


@pytest.mark.parametrize("options", [{}, {"ESCAPE": '"'}, {"quote": "'"}], ids=["default", "escape", "quote"])
def test_nul_in_quoted_fields_is_kept(files: Files, options: dict[str, str]) -> None:
    """Spark takes it for an escape where a quote is its own escape."""
    text = 'a,b\n"x\0""y","z\0"\n"\0""\0","q""q"\n'
    rows = files.rows(text.replace('"', "'") if "quote" in options else text, options=options)
    if "quote" in options:
        rows = [{name: value.replace("'", '"') for name, value in row.items()} for row in rows]
    assert rows == [{"a": 'x\0"y', "b": "z\0"}, {"a": '\0"\0', "b": 'q"q'}]


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_cr_in_quoted_fields_is_kept(files: Files, end: str) -> None:
    """One row became two, the second with a quote behind its text."""
    text = f'a{end}plain{end}"x\ry"{end}"say ""hi\r"""{end}'
    assert [row["a"] for row in files.rows(text)] == ["plain", "x\ry", 'say "hi\r"']


def test_cr_outside_of_quotes_still_ends_a_line(files: Files) -> None:
    assert [row["a"] for row in files.rows('a\rx\r"y"\r')] == ["x", "y"]


def test_lines_that_are_no_json_are_rejected(files: Files) -> None:
    """Spark's reader takes single quotes, and such lines went to the topic as JSON."""
    lines = ['{"a":0}', *NO_JSON, '{"a":"it\'s"}', '{"a":NaN}']
    kept = files.values("\n".join(lines), "in.json", rejects=Rejects(skip=True))
    assert kept == [lines[0].encode(), lines[-2].encode(), lines[-1].encode()]
    assert sum(files.rejected.values()) == len(NO_JSON)


def test_what_is_no_json_is_taken_as_the_options_say(files: Files) -> None:
    options = {"ALLOWSINGLEQUOTES": "true", "allowComments": "true", "allowNonNumericNumbers": "false"}
    lines = [*NO_JSON, '{"a":1/* one */}', '{"a":NaN}']
    kept = files.values("\n".join(lines), "in.json", options=options, rejects=Rejects(skip=True))
    assert kept == [line.encode() for line in lines[:-1]]


@pytest.mark.parametrize("line", NO_JSON)
def test_compare_knows_no_such_json_either(line: str) -> None:
    with pytest.raises(NoRecordError):
        json_fields(line)


def test_header_names_that_are_not_utf_8_are_copied_and_compared(spark: SparkSession, server: ServerProcess) -> None:
    """A copy had U+FFFD for them, and topics with other names were equal."""
    ours, other, copied, replayed = (
        address(server, f"names-{name}") for name in ("ours", "other", "copied", "replayed")
    )
    with httpx.Client(base_url=server.url, timeout=30) as http:
        for topic, name in ((ours.topic, b"\xff"), (other.topic, b"\xfe")):
            http.put(f"/v1/topics/{topic}", json={"partitions": 1, "config": KEEP}).raise_for_status()
            header = {"name_base64": base64.b64encode(name).decode(), "value": "v"}
            record = {"value": "r", "timestamp": 1_700_000_000_000, "headers": [header]}
            http.post(f"/v1/topics/{topic}/partitions/0/records", json={"records": [record]}).raise_for_status()
        assert compare(spark, CompareRequest(left=ours, right=other)).outcome == "different"
        copy(spark, CopyRequest(source=ours, target=copied))
        replay(spark, ReplayRequest(source=ours, target=replayed, speed=0))
        for topic in (copied.topic, replayed.topic):
            shown: dict[str, Any] = http.get(f"/v1/topics/{topic}/partitions/0/records?offset=0").json()
            assert shown["records"][0]["headers"] == [{"name_base64": "/w==", "value": "v"}]
    assert compare(spark, CompareRequest(left=ours, right=copied)).outcome == "equal"


def test_names_of_headers_are_read_and_written_as_bytes(spark: SparkSession, server: ServerProcess) -> None:
    rows = spark.sql("SELECT X'72' AS value, array(named_struct('key', X'ff', 'value', X'fe')) AS headers")
    with httpx.Client(base_url=server.url, timeout=30) as http:
        http.put("/v1/topics/byte-names", json={"partitions": 1}).raise_for_status()
    options = {"url": server.url, "topic": "byte-names", "subscribe": "byte-names"}
    written = {name: options[name] for name in ("url", "topic")}
    rows.write.format("rollway").options(**written).mode("append").save()
    schema = "value binary, headers array<struct<key: binary, value: binary>>"
    read = {name: options[name] for name in ("url", "subscribe")}
    found = spark.read.format("rollway").schema(schema).options(**read, includeHeaders="true").load().collect()
    assert json.dumps([[bytes(part).hex() for part in pair] for pair in found[0].headers]) == '[["ff", "fe"]]'
