"""``python -m bench.spark_orphan URL DIRECTORY APPLICATION TOPIC TIMEOUT_MS ...``: loads that never end, to be killed.

For each application, topic and timeout one load whose only task writes, slowly and for ever. At most two at a time.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from bench.spark_session import spark_session

_PAUSE_SECONDS = 0.3


def _never_ending(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        # As many rows as Spark hands on at once, and more bytes than the task holds back before it writes.
        values = pa.array([b"x" * 500] * 10_000, pa.binary())
        while True:
            yield pa.record_batch([values], names=["value"])
            time.sleep(_PAUSE_SECONDS)


def _load(spark: SparkSession, url: str, application: str, topic: str, timeout_ms: str) -> None:
    # Spark finds formats of Python by the session that is active in a thread, and this makes it so here.
    spark.createDataFrame([], "value binary")
    rows = spark.range(0, 1, 1, 1).mapInArrow(_never_ending, "value binary")
    writer = rows.write.format("rollway").option("url", url).option("topic", topic).option("txnAppId", application)
    writer.option("txnVersion", "1").option("transactionTimeout", timeout_ms).mode("append").save()


def main() -> None:
    """Begin all loads, and wait to be killed."""
    url, directory, *loads = sys.argv[1:]
    with spark_session(Path(directory)) as spark:
        for start in range(0, len(loads), 3):
            threading.Thread(target=_load, args=(spark, url, *loads[start : start + 3]), daemon=True).start()
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    main()
