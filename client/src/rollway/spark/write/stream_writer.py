"""``df.writeStream.format("rollway")``: a load job for each batch, named after it, so that a batch is loaded once."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import SparkFiles, TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rollway.client import RollwayClient, RollwayError
from rollway.spark.actionable import actionable
from rollway.spark.errors import OptionError, append_only
from rollway.spark.options.options import WriteOptions
from rollway.spark.write.load_jobs import JobInUse, abort, begin_version, check_rejects, commit, job_of, plan_stream
from rollway.spark.write.loading import TaskLoad
from rollway.spark.write.messages import TaskMessage
from rollway.spark.write.report import outcome

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"

logger = logging.getLogger("rollway.spark")


@actionable
class RollwayStreamWriter(DataSourceStreamArrowWriter):
    """The writer of a stream. The job of a batch is version ``batch id`` of ``txnAppId``, or else of the query's id.

    The driver does not begin it, because only tasks know their batch: each task joins it before its first row. A batch
    that runs again after its commit is recognised there, and nothing is written.

    Raises:
        OptionError: an option is not for streams.
        TopicNotFoundError: there is no such topic.
    """

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        del schema
        if overwrite:
            raise append_only(streaming=True)
        if options.job_id is not None or options.txn_version is not None:
            raise OptionError("each batch of a stream is a job of its own: leave out jobId and txnVersion")
        with RollwayClient(options.client) as client:
            self._plan = plan_stream(client, options, _driver_id(options))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task of one batch."""
        context = TaskContext.get()
        assert context is not None
        with RollwayClient(self._plan.options.client) as client:
            load = TaskLoad(self._plan, client, context.partitionId(), context.attemptNumber(), self._join)
            return load.run(iterator)

    def _join(self, client: RollwayClient) -> JobInUse | None:
        options = self._plan.options
        if options.delivery_mode == "atleastonce":
            return None
        context = TaskContext.get()
        assert context is not None
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if query is None or batch is None:
            raise RollwayError(
                "Spark does not say which batch of which query this is: deliveryMode=atleastonce goes without"
            )
        return begin_version(client, self._plan, options.txn_app_id or query, int(batch), join=True)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Commit the rows of the batch."""
        done = [message for message in messages if isinstance(message, TaskMessage)]
        job_id = job_of(done)
        if job_id is None:
            check_rejects(self._plan.options, done)
        else:
            with RollwayClient(self._plan.options.client) as client:
                commit(client, self._plan.options, job_id, done)
        level, line = outcome(done, None)
        if self._plan.options.txn_app_id is not None and any(message.is_loaded for message in done):
            line += (
                "; with a new checkpoint its rows are dropped this way, as batches count from 0 again: "
                "give a new checkpoint a new txnAppId"
            )
        logger.log(level, "batch %d: %s", batch_id, line)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Abort the job of the batch. If it is committed already, it stays committed."""
        done = [message for message in messages if isinstance(message, TaskMessage)]
        with RollwayClient(self._plan.options.client) as client:
            for job in abort(client, self._plan, done, batch_id):
                logger.warning("batch %d: load job %s is %s", batch_id, job.job_id, job.state)


def _driver_id(options: WriteOptions) -> str | None:
    """Return an id that no other query has; ``None`` if none can be derived.

    Spark makes one writer for the tasks and another for the decision, and gives neither the id of the query. Both have
    the directory of the driver's files, which is unique to the driver, and options that distinguish its queries.
    """
    if options.delivery_mode == "atleastonce":
        return None
    if options.txn_app_id is None and options.query is None:
        return None
    root = SparkFiles.getRootDirectory()
    known = (root, options.txn_app_id or "", options.query or "", options.topic or "")
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:32]
