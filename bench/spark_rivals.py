"""What stands beside our data source: a sink that does nothing, and the one that Spark's Row API would make of ours."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rollway.client import ClientSettings, RollwayClient
from rollway.records import encode_lists

# Values alone: with what each record has beside, a batch stays below the 1 MiB that a topic takes.
_BATCH_BYTES = 850_000


class NoopArrowSink(DataSource):
    """Takes Arrow batches and drops them: what Spark itself costs."""

    @classmethod
    def name(cls) -> str:
        return "noop_arrow"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        del schema, overwrite
        return _NoopArrowWriter()


class _NoopArrowWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class RowSink(DataSource):
    """Writes values to a topic of one partition, row by row: at least once, with batches of nearly 1 MiB."""

    @classmethod
    def name(cls) -> str:
        return "rollway_rows"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        del schema, overwrite
        return _RowWriter(self.options["url"], self.options["topic"])


class _RowWriter(DataSourceWriter):
    def __init__(self, url: str, topic: str) -> None:
        self._url = url
        self._topic = topic

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        values: list[bytes] = []
        size_bytes = 0
        with RollwayClient(ClientSettings(self._url)) as client:
            for row in iterator:
                values.append(row.value)
                size_bytes += len(row.value)
                if size_bytes >= _BATCH_BYTES:
                    self._send(client, values)
                    values, size_bytes = [], 0
            if values:
                self._send(client, values)
        return WriterCommitMessage()

    def _send(self, client: RollwayClient, values: list[bytes]) -> None:
        now_ms = time.time_ns() // 1_000_000
        batch = encode_lists([now_ms] * len(values), [None] * len(values), values)
        client.produce_batches(self._topic, 0, [batch])
