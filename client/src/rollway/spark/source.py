"""``format("rollway")``: the data source through which Spark reads and writes topics, in batches and streams.

The driver checks options and schemas here, before any request to the service. No filter is pushed down: Spark caches a
source's response to a filter together with the DataFrame, and a second query would get the response to the filter of
the first.

Spark plans each query in new Python processes, which import this module first. It imports readers and writers only
when they are needed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from rollway.spark.actionable import actionable
from rollway.spark.errors import append_only
from rollway.spark.schemas import check_read_schema, check_write_schema, read_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from rollway.spark.options.options import ReadOptions, WriteOptions

NAME = "rollway"

_log = logging.getLogger("rollway.spark")


@actionable
class RollwayDataSource(DataSource):
    """The data source of topics as tables.

    Example::

        df = spark.read.format("rollway").options(url="http://127.0.0.1:8080", subscribe="readings").load()
        rows = df.select("key", "value")
        rows.write.format("rollway").options(url="http://127.0.0.1:8080", topic="copy").mode("append").save()

    Raises:
        OptionError: from each method, if the options or the schema are not valid.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format, ``rollway``."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of a read. Spark calls this in ``load``, so that wrong options fail as early as that."""
        from rollway.spark.options.options import ReadOptions

        return read_schema(include_headers=ReadOptions.parse(self.options, streaming=None).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch, of all columns or of the columns of the user's schema."""
        from rollway.spark.read.batch_reader import RollwayReader

        return RollwayReader(self._read_options(schema, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream, of all columns or of the columns of the user's schema."""
        from rollway.spark.read.stream_reader import RollwayStreamReader

        return RollwayStreamReader(self._read_options(schema, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch."""
        from rollway.spark.write.batch_writer import RollwayBatchWriter

        return RollwayBatchWriter(self._write_options(schema, overwrite, streaming=False), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a stream."""
        from rollway.spark.write.stream_writer import RollwayStreamWriter

        return RollwayStreamWriter(self._write_options(schema, overwrite, streaming=True), schema, overwrite)

    def _read_options(self, schema: StructType, *, streaming: bool) -> ReadOptions:
        from rollway.spark.options.option_names import tell_ignored
        from rollway.spark.options.options import ReadOptions

        options = ReadOptions.parse(self.options, streaming=streaming)
        check_read_schema(schema)
        tell_ignored(options.ignored)
        if options.of_streams:
            _log.warning("A batch read has no use for options of streams and ignores %s", ", ".join(options.of_streams))
        return options

    def _write_options(self, schema: StructType, overwrite: bool, *, streaming: bool) -> WriteOptions:
        from rollway.spark.options.option_names import tell_ignored
        from rollway.spark.options.options import WriteOptions

        options = WriteOptions.parse(self.options)
        if overwrite:
            raise append_only(streaming=streaming)
        check_write_schema(schema, topic=options.topic)
        tell_ignored(options.ignored)
        return options
