"""``format("rollway")``: Spark's door to topics, for batches and streams, to read and to write.

Options and schemas are judged here, on the driver, before anything is asked of the service. No filter is pushed down:
Spark caches what a source says to a filter together with the DataFrame, and gives a second query the answer to the
first one's.

Spark plans each query in new Python processes, which import this first: readers and writers are imported when wanted.
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
    """Topics as tables.

    Raises:
        OptionError: from each method, when the options or the schema cannot be.
    """

    @classmethod
    def name(cls) -> str:
        """What ``format`` is given."""
        return NAME

    def schema(self) -> StructType:
        """The columns of a read. Spark asks when the user says ``load``: the options are judged as early as that."""
        from rollway.spark.options.options import ReadOptions

        return read_schema(include_headers=ReadOptions.parse(self.options, streaming=None).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read, of all columns or of those that the user's schema names."""
        from rollway.spark.read.batch_reader import RollwayReader

        return RollwayReader(self._read_options(schema, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream, of all columns or of those that the user's schema names."""
        from rollway.spark.read.stream_reader import RollwayStreamReader

        return RollwayStreamReader(self._read_options(schema, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write."""
        from rollway.spark.write.batch_writer import RollwayBatchWriter

        return RollwayBatchWriter(self._write_options(schema, overwrite, streaming=False), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The sink of a stream."""
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
