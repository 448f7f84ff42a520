"""``rollway-spark load`` of Avro files with Spark's own package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rollway.client import RollwayClient
from tests.spark.committed import committed_records
from tests.spark_packages.conftest import Job

pytestmark = pytest.mark.slow

ROWS = """
SELECT * FROM VALUES
  (1, 'a', CAST(12.50 AS DECIMAL(10, 2)), TIMESTAMP '2013-07-04 00:00:00.123Z', DATE '2013-07-04', x'00ff',
   NAMED_STRUCT('x', 1, 'y', CAST(NULL AS STRING)), MAP('k', 2L), ARRAY(1, NULL, 3), 1.5D, true),
  (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
AS t(id, text, price, at, day, bytes, nested, map, list, float, flag)
"""


def write_avro(spark: SparkSession, folder: Path, codec: str = "snappy") -> Path:
    """One file with the two rows."""
    spark.sql(ROWS).coalesce(1).write.format("avro").option("compression", codec).save(str(folder))
    (file,) = folder.glob("*.avro")
    return file


@pytest.mark.parametrize("codec", ["uncompressed", "deflate", "snappy", "zstandard"])
def test_rows_of_avro_are_json(
    spark: SparkSession, job: Job, client: RollwayClient, name: str, tmp_path: Path, codec: str
) -> None:
    write_avro(spark, tmp_path / "in.avro", codec)
    client.create_topic(name, 1, {"retention.ms": -1})
    line = ("load", str(tmp_path / "in.avro"), "--topic", name, "--key", "text")
    assert job(*line, "--dry-run")[::2] == (0, "")
    assert committed_records(client, name) == {}
    assert job(*line)[::2] == (0, "")
    first, second = sorted(committed_records(client, name)[0], key=lambda each: bytes(each.value or b""))
    assert (first.key, second.key) == (b"a", None)
    assert json.loads(first.value or b"") == {
        "id": 1,
        "text": "a",
        "price": 12.5,
        "at": "2013-07-04T00:00:00.123000Z",
        "day": "2013-07-04",
        "bytes": "AP8=",
        "nested": {"x": 1},
        "map": {"k": 2},
        "list": [1, None, 3],
        "float": 1.5,
        "flag": True,
    }
    assert json.loads(second.value or b"") == {"id": 2}


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("a text", "Not an Avro data file."),
        ("empty", "cannot be read"),
        ("cut", "cannot be read"),
        ("another file is good", "Not an Avro data file."),
        ("other types", "cannot be read: "),
    ],
)
def test_a_broken_file_is_one_sentence_and_loads_nothing(
    spark: SparkSession,
    job: Job,
    client: RollwayClient,
    tmp_path: Path,
    damage: str,
    sentence: str,
) -> None:
    topic = f"broken-{damage.replace(' ', '-')}"
    client.create_topic(topic, 1, {"retention.ms": -1})
    file = write_avro(spark, tmp_path / "in")
    good = file.read_bytes()
    for rest in (tmp_path / "in").glob(".*.crc"):
        rest.unlink()
    contents = {"a text": b"no avro" * 50, "empty": b"", "cut": good[:-30]}
    if damage == "another file is good":
        (tmp_path / "in" / "z.avro").write_bytes(contents["a text"])
    file.write_bytes(contents.get(damage, good))
    schema = ("--schema", "id STRING, text INT") if damage == "other types" else ()
    status, _, error = job("load", str(tmp_path / "in"), "--format", "avro", "--topic", topic, *schema)
    assert status == 1
    assert error.startswith("rollway-spark: ")
    assert sentence in error
    assert str(tmp_path / "in") in error
    assert "this Spark has no Avro" not in error
    assert committed_records(client, topic) == {}
