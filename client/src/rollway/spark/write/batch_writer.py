"""``df.write.format("rollway")``: one load job, whose tasks write in parallel."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rollway.client import RollwayClient
from rollway.spark.actionable import actionable
from rollway.spark.errors import append_only
from rollway.spark.options.options import WriteOptions
from rollway.spark.write.load_jobs import LoadPlan, abort, check_rejects, decide, plan_load
from rollway.spark.write.loading import TaskLoad
from rollway.spark.write.messages import TaskMessage
from rollway.spark.write.report import outcome

logger = logging.getLogger("rollway.spark")


def run_task(plan: LoadPlan, batches: Iterator[pa.RecordBatch]) -> TaskMessage:
    """Write the rows of the Spark task that this process runs.

    Raises:
        RollwayError: the rows cannot be loaded.
    """
    context = TaskContext.get()
    task, attempt = (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
    with RollwayClient(plan.options.client) as client:
        return TaskLoad(plan, client, task, attempt).run(batches)


@actionable
class RollwayBatchWriter(DataSourceArrowWriter):
    """The writer of a batch. The constructor begins the job.

    The driver calls the constructor, ``commit`` and ``abort``; the tasks call ``write``. Picklable: there is no
    connection between the calls.

    Raises:
        OptionError: the mode is not append.
        TopicNotFoundError: there is no such topic.
        RollwayError: the service cannot be reached, or refuses the job.
    """

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        del schema
        if overwrite:
            raise append_only(streaming=False)
        with RollwayClient(options.client) as client:
            self._plan = plan_load(client, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        return run_task(self._plan, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the rows, and log their number in the driver's log."""
        done = [message for message in messages if isinstance(message, TaskMessage)]
        plan = self._plan
        job = plan.job
        if job is None:
            check_rejects(plan.options, done)
        elif not job.is_loaded:
            with RollwayClient(plan.options.client) as client:
                decide(client, plan, done)
        level, line = outcome(done, job)
        logger.log(level, "%s", line)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort the job. If it is committed already, it stays committed."""
        job = self._plan.job
        if job is None or job.is_loaded:
            return
        done = [message for message in messages if isinstance(message, TaskMessage)]
        with RollwayClient(self._plan.options.client) as client:
            for ended in abort(client, self._plan, done):
                logger.warning("load job %s of %r is %s", ended.job_id, ended.application_id, ended.state)
