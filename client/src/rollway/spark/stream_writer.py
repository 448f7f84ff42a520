"""``df.writeStream.format("rollway")``: a load job for each batch, named after it, so that a batch is loaded once."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rollway.client import RollwayClient, RollwayError
from rollway.spark.actionable import actionable
from rollway.spark.errors import OptionError
from rollway.spark.load_jobs import JobInUse, begin_version, check_rejects, commit, job_of, plan_load
from rollway.spark.loading import TaskLoad
from rollway.spark.messages import TaskMessage
from rollway.spark.options import WriteOptions
from rollway.spark.report import summary

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"

logger = logging.getLogger("rollway.spark")


@actionable
class RollwayStreamWriter(DataSourceStreamArrowWriter):
    """The job of a batch is version ``batch id`` of the application ``txnAppId``, or else of the query's id.

    No driver begins it, since only tasks know their batch: each joins it before its first row. A batch that is run
    again after it was committed is recognised there, and nothing is written.

    Raises:
        OptionError: the options ask for what a stream cannot have.
        TopicNotFoundError: there is no such topic.
    """

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        del schema
        if overwrite:
            raise OptionError("a topic is a log, which is only appended to: write with .outputMode('append')")
        if options.job_id is not None or options.txn_version is not None:
            raise OptionError("each batch of a stream is a job of its own: leave out jobId and txnVersion")
        with RollwayClient(options.client) as client:
            self._plan = plan_load(client, options, is_stream=True)

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
        return begin_version(client, options, options.txn_app_id or query, int(batch), join=True)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Let the rows of the batch count."""
        done = [message for message in messages if isinstance(message, TaskMessage)]
        job_id = job_of(done)
        if job_id is None:
            check_rejects(self._plan.options, done)
        else:
            with RollwayClient(self._plan.options.client) as client:
                commit(client, self._plan.options, job_id, done)
        level = logging.WARNING if any(message.rejects for message in done) else logging.INFO
        logger.log(level, "batch %d: %s", batch_id, summary(done, None))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Let no row of the batch count, unless it is committed already: that stays so."""
        done = [message for message in messages if isinstance(message, TaskMessage)]
        ids = {message.job_id for message in done if message.job_id is not None and not message.is_loaded}
        options = self._plan.options
        with RollwayClient(options.client) as client:
            if options.txn_app_id is not None:
                # No task came so far as to say which job it was.
                found = client.list_jobs(application_id=options.txn_app_id, state="open")
                ids |= {job.job_id for job in found if job.version == batch_id}
            for job_id in sorted(ids):
                job = client.abort_job(job_id)
                logger.warning("batch %d: load job %s is %s", batch_id, job_id, job.state)
