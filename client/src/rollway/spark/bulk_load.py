"""A load as one call that returns a report, for notebooks and scripts."""

from __future__ import annotations

import logging
import pickle
import re
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from rollway.client import RollwayClient, RollwayError
from rollway.spark.options.option_names import tell_ignored
from rollway.spark.options.options import WriteOptions
from rollway.spark.schemas import check_write_schema
from rollway.spark.write.batch_writer import run_task
from rollway.spark.write.load_jobs import (
    COMMITTED_STATES,
    LoadPlan,
    abort,
    check_rejects,
    commit,
    decide,
    job_of,
    plan_load,
)
from rollway.spark.write.messages import TaskMessage
from rollway.spark.write.report import LoadReport

logger = logging.getLogger("rollway.spark")

_SCHEMA = "message binary"

# The last line of a task's traceback, if the error is one of this library.
_OWN_ERROR = re.compile(r"^rollway\.[\w.]+Error: (.+)$", re.MULTILINE)


class LoadFailedError(RollwayError):
    """A load failed and was aborted. No reader of committed records sees any of its rows.

    Example: a row names partition 9 of a topic that has six, with ``onReject=fail``. The message says so.
    """


def bulk_load(df: DataFrame, url: str, topic: str | None = None, **options: object) -> LoadReport:
    """Load the rows of ``df``, exactly once unless ``deliveryMode`` weakens this, and return a report.

    ``options`` are the options of ``format("rollway")``. On return, readers of committed records see all rows.

    Example::

        report = bulk_load(df, "http://127.0.0.1:8080", "readings", txnAppId="nightly", txnVersion=20130704)
        print(report)

    A second call with the same ``txnAppId`` and ``txnVersion`` loads nothing; ``report.is_loaded`` is true then.

    Raises:
        OptionError: an option is unknown, or its value is not valid.
        LoadFailedError: a task failed in every try that Spark makes; no row counts.
        JobTakenError: another write has committed the job that ``jobId`` names; no row counts.
        RollwayError: the service cannot be reached, or refuses the load.
    """
    given = {name: _text(value) for name, value in options.items() if value is not None}
    if topic is not None:
        given["topic"] = topic
    parsed = WriteOptions.parse({"url": url, **given})
    check_write_schema(df.schema, topic=parsed.topic)
    tell_ignored(parsed.ignored)
    started = time.perf_counter()
    with RollwayClient(parsed.client) as client:
        plan = plan_load(client, parsed)
        job = plan.job
        messages: list[TaskMessage] = []
        job_id = None if job is None else job.job_id
        if job is None or not job.is_loaded:
            messages, job_id = _run(client, df, plan)
        return LoadReport(
            topic=parsed.topic,
            mode=parsed.delivery_mode,
            job_id=job_id,
            application_id=None if job is None else job.application_id,
            version=None if job is None else job.version,
            is_loaded=job is not None and job.is_loaded,
            seconds=time.perf_counter() - started,
            tasks=tuple(messages),
        )


def _run(client: RollwayClient, df: DataFrame, plan: LoadPlan) -> tuple[list[TaskMessage], str | None]:
    """Let the tasks write, and decide the job. Return the tasks' messages, and the id of the job."""
    messages: list[TaskMessage] = []
    try:
        rows = df.mapInArrow(_task_of(plan), _SCHEMA).collect()
        messages = [pickle.loads(row.message) for row in rows]  # noqa: S301 - of our own tasks
        messages.sort(key=lambda message: message.task)
        if plan.job is None:
            check_rejects(plan.options, messages)
            return messages, None
        return messages, decide(client, plan, messages).job_id
    except BaseException as error:
        is_committed = plan.job is not None and _is_committed_all_the_same(client, plan, messages)
        if plan.job is not None and is_committed and messages:
            return messages, job_of(messages) or plan.job.job_id
        if isinstance(error, PySparkException) and (said := _OWN_ERROR.findall(str(error))):
            raise LoadFailedError(said[-1]) from None
        raise


def _is_committed_all_the_same(client: RollwayClient, plan: LoadPlan, messages: list[TaskMessage]) -> bool:
    """Abort a failed load. Return true if its job is committed: only the response to the commit was lost."""
    try:
        committed = [job for job in abort(client, plan, messages) if job.state in COMMITTED_STATES]
        if committed and plan.options.job_id is not None:
            # Another write that names the job may have committed it. To commit the same winners again is no error.
            commit(client, plan.options, plan.options.job_id, messages)
        return bool(committed)
    except RollwayError as error:
        # The first error says more than this one.
        logger.warning("what failed could not be aborted: %s", error)
        return False


def _task_of(plan: LoadPlan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        message = pickle.dumps(run_task(plan, batches))
        yield pa.record_batch([pa.array([message], pa.binary())], names=["message"])

    return load


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
