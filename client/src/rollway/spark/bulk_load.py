"""A load as one call, with a report: for notebooks and scripts that want to know what happened."""

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

# The last line of a task's traceback, when it is one of ours.
_OWN_ERROR = re.compile(r"^rollway\.[\w.]+Error: (.+)$", re.MULTILINE)


class LoadFailedError(RollwayError):
    """A load failed and was aborted: no reader of committed records sees any of it."""


def bulk_load(df: DataFrame, url: str, topic: str | None = None, **options: object) -> LoadReport:
    """Load the rows of ``df``, exactly once unless ``deliveryMode`` says otherwise, and tell how it went.

    ``options`` are those of ``format("rollway")``, such as ``txnAppId="nightly", txnVersion=20130704``. Returns when
    readers of committed records see all rows.

    Raises:
        OptionError: an option is not known, or not as it must be.
        LoadFailedError: a task failed as often as Spark tries it; no row counts.
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
    """Let the tasks write, and decide: what they say, and the job that holds it."""
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
    """Abort what failed; whether it was too late for that, as only the answer to the commit had been lost."""
    try:
        committed = [job for job in abort(client, plan, messages) if job.state in COMMITTED_STATES]
        if committed and plan.options.job_id is not None:
            # Perhaps by another write that names the job: the same winners again are no error, others are.
            commit(client, plan.options, plan.options.job_id, messages)
        return bool(committed)
    except RollwayError as error:
        # What failed first says more.
        logger.warning("what failed could not be aborted: %s", error)
        return False


def _task_of(plan: LoadPlan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        message = pickle.dumps(run_task(plan, batches))
        yield pa.record_batch([pa.array([message], pa.binary())], names=["message"])

    return load


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
