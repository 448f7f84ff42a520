"""Tasks whose rows are slow in coming, against a real service: their load job stays open as long as they run."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Self, cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from rollway.client import ClientSettings, JobMode, RollwayClient
from rollway.spark.bulk_load import bulk_load
from rollway.spark.errors import JobTimedOutError
from rollway.spark.write.batch_writer import RollwayBatchWriter
from rollway.spark.write.keep_alive import SignsOfLife
from rollway.spark.write.load_jobs import JobInUse, begin_version, commit, decide, plan_load, plan_stream
from rollway.spark.write.loading import TaskLoad
from rollway.spark.write.messages import TaskMessage
from tests.spark.committed import committed_values
from tests.spark.test_task_load import jobs_of, keyed_batch, options_of, wait_timed_out
from tests.support.servers import ServerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    environment = {"ROLLWAY_LOAD_JOB_CHECK_INTERVAL_MS": "50"}
    with ServerProcess(tmp_path_factory.mktemp("service") / "data", environment=environment) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[RollwayClient]:
    with RollwayClient(ClientSettings(server.url)) as client:
        yield client


def outlast(client: RollwayClient, job_id: str, silence_ms: int) -> None:
    """Return when the job is as old as that, or over."""
    while (job := client.find_job(job_id)).state == "open" and job.elapsed_ms < silence_ms:
        pass


@pytest.mark.parametrize("mode", ["transactional", "idempotent"])
def test_slow_input_is_not_timed_out(client: RollwayClient, topic: str, mode: JobMode) -> None:
    """Nothing comes for longer than the timeout: before the first row, and between rows that are too few to send."""
    options = options_of(client, topic=topic, deliveryMode=mode, transactionTimeout=2_000)
    plan = plan_load(client, options)
    assert plan.job is not None
    job_id = plan.job.job_id

    def rows() -> Iterator[pa.RecordBatch]:
        for turn in (0, 1):
            outlast(client, job_id, (turn + 1) * 3_000)
            yield keyed_batch(turn * 50, turn * 50 + 50)

    message = TaskLoad(plan, client, 0, 0).run(rows())
    assert message.job_id == job_id
    assert commit(client, options, job_id, [message]).rows == 100
    assert committed_values(client, topic) == sorted(str(number) for number in range(100))


def test_slow_input_of_a_stream_is_not_timed_out(client: RollwayClient, topic: str) -> None:
    """Its job is known only with the first row."""
    options = options_of(client, topic=topic, transactionTimeout=2_000)
    plan = plan_stream(client, options, None)
    jobs: list[str] = []

    def join(client: RollwayClient) -> JobInUse:
        job = begin_version(client, plan, topic, 0, join=True)
        jobs.append(job.job_id)
        return job

    def rows() -> Iterator[pa.RecordBatch]:
        yield keyed_batch(0, 50)
        outlast(client, jobs[0], 3_000)
        yield keyed_batch(50, 100)

    message = TaskLoad(plan, client, 0, 0, join).run(rows())
    assert commit(client, options, jobs[0], [message]).rows == 100


def test_nothing_keeps_a_job_open_that_no_task_works_for(client: RollwayClient, topic: str) -> None:
    """Nor does a task that failed: an orphan ends after its timeout."""
    options = options_of(client, topic=topic, transactionTimeout=200)
    plan = plan_load(client, options)
    assert plan.job is not None

    def rows() -> Iterator[pa.RecordBatch]:
        yield keyed_batch(0, 50)
        raise ValueError("the input fails")

    with pytest.raises(ValueError, match="the input fails"):
        TaskLoad(plan, client, 0, 0).run(rows())
    wait_timed_out(client, plan.job.job_id)


def test_signs_of_life_cost_few_attempts(client: RollwayClient, topic: str) -> None:
    """However many tasks are silent, one of them enlists in a turn, and only if nobody else gave any sign in it."""
    plan = plan_load(client, options_of(client, topic=topic))
    job = plan.job
    assert job is not None

    def attempts() -> int:
        return client.find_job(job.job_id).attempt_count

    tasks = [SignsOfLife(job, task, 0) for task in range(10)]
    for round_number in range(8):
        assert all(task.turn(client) for task in tasks)
        assert attempts() == round_number
    TaskLoad(plan, client, 0, 0).run(iter([keyed_batch(0, 5)]))
    before = attempts()
    tasks[0].note()
    assert tasks[0].turn(client)
    assert tasks[0].turn(client)
    assert attempts() == before, "what this task has sent itself was a sign of life a turn ago, and is one no more"
    assert tasks[0].turn(client)
    assert attempts() == before + 1
    client.abort_job(job.job_id)
    assert not any(task.turn(client) for task in tasks)


@pytest.mark.parametrize("mode", ["transactional", "idempotent"])
def test_a_task_whose_job_timed_out_all_the_same_says_so(client: RollwayClient, topic: str, mode: JobMode) -> None:
    """As when the service hears nothing of it for too long. With a job of the user's there is no other to go on in."""
    job = client.begin_job(topic, 1, mode=mode, timeout_ms=200)
    plan = plan_load(client, options_of(client, topic=topic, deliveryMode=mode, jobId=job.job_id))
    assert plan.job is not None
    deaf = replace(plan, job=replace(plan.job, timeout_ms=600_000))

    def rows() -> Iterator[pa.RecordBatch]:
        yield keyed_batch(0, 50)
        wait_timed_out(client, job.job_id)

    told = (
        f"load job {job.job_id} of '{topic}' was aborted, since nothing was written for transactionTimeout, 200 ms; "
        "a longer transactionTimeout helps"
    )
    if mode == "transactional":
        with pytest.raises(JobTimedOutError) as caught:
            TaskLoad(deaf, client, 0, 0).run(rows())
        assert str(caught.value) == told
    wait_timed_out(client, job.job_id)
    with pytest.raises(JobTimedOutError) as caught:
        TaskLoad(deaf, client, 1, 0).run(iter([keyed_batch(0, 50)]))
    assert str(pickle.loads(pickle.dumps(caught.value))) == told
    with pytest.raises(JobTimedOutError):
        commit(client, deaf.options, job.job_id, [TaskMessage(0, 0, job.job_id, 7, 50)])


def test_a_load_without_rows_that_took_too_long_is_recorded(client: RollwayClient, topic: str) -> None:
    """No task found its job ended, since none had anything to write: the version is loaded all the same."""
    options = options_of(client, topic=topic, txnAppId=topic, txnVersion=1, transactionTimeout=1_000)
    writer = RollwayBatchWriter(options, StructType(), overwrite=False)
    (job,) = client.list_jobs(application_id=topic)
    wait_timed_out(client, job.job_id)
    writer.commit([TaskMessage(0, 0)])
    assert jobs_of(client, topic) == ["committed", "aborted"]
    plan = plan_load(client, options)
    assert plan.job is not None
    assert plan.job.is_loaded
    writer.commit([TaskMessage(0, 0)])
    assert jobs_of(client, topic) == ["committed", "aborted"], "nor does it begin one for a version that is loaded"


def test_a_given_job_that_timed_out_without_rows_is_an_error(client: RollwayClient, topic: str) -> None:
    """Nor is another one begun when there were rows, which are gone with the job."""
    job = client.begin_job(topic, 1, mode="transactional", timeout_ms=200)
    given = RollwayBatchWriter(options_of(client, topic=topic, jobId=job.job_id), StructType(), overwrite=False)
    wait_timed_out(client, job.job_id)
    with pytest.raises(JobTimedOutError):
        given.commit([TaskMessage(0, 0)])
    plan = plan_load(client, options_of(client, topic=topic, transactionTimeout=1_000))
    assert plan.job is not None
    message = TaskLoad(plan, client, 0, 0).run(iter([keyed_batch(0, 50)]))
    wait_timed_out(client, plan.job.job_id)
    with pytest.raises(JobTimedOutError):
        decide(client, plan, [message])
    assert jobs_of(client, plan.job.application_id) == ["aborted"]


class EmptyDataFrame:
    """What ``bulk_load`` sees of a DataFrame that Spark takes long to find empty: it starts no task then."""

    schema = StructType([StructField("value", StringType())])

    def __init__(self, find_empty: Callable[[], None]) -> None:
        self._find_empty = find_empty

    def mapInArrow(self, *_: object) -> Self:  # noqa: N802 - as Spark calls it
        return self

    def collect(self) -> list[object]:
        self._find_empty()
        return []


def test_a_report_of_no_rows_names_the_job_that_recorded_it(client: RollwayClient, topic: str) -> None:
    df = EmptyDataFrame(lambda: wait_timed_out(client, client.list_jobs(application_id=topic)[0].job_id))
    given = {"txnAppId": topic, "txnVersion": 1, "transactionTimeout": 1_000}
    report = bulk_load(cast("DataFrame", df), client.settings.url, topic, **given)
    assert (report.rows, report.is_loaded) == (0, False)
    committed, aborted = client.list_jobs(application_id=topic)
    assert (committed.job_id, committed.state, aborted.reason) == (report.job_id, "committed", "timed_out")
