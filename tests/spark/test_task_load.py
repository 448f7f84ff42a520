"""One attempt of a task against a real service: where its rows go, in what order, and what it says about them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from rollway.client import ClientSettings, JobConflictError, ProducerFencedError, RollwayClient, RollwayError
from rollway.records import partition_for_key
from rollway.spark.errors import AttemptNotRecognisedError, JobTakenError
from rollway.spark.options.options import WriteOptions
from rollway.spark.write.batch_writer import RollwayBatchWriter
from rollway.spark.write.load_jobs import LoadPlan, abort, commit, job_of, plan_load
from rollway.spark.write.loading import TaskLoad
from rollway.spark.write.messages import TaskMessage
from rollway.spark.write.rejects import RejectedRowsError
from tests.support.servers import ThreadedServer, http_client

_numbers = count()
KEYED = pa.schema([("key", pa.binary()), ("value", pa.binary())])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedServer]:
    # Records of these tests are old, and nothing may delete them while the tests run.
    settings = {"retention_check_interval_ms": 86_400_000, "load_job_check_interval_ms": 50}
    with ThreadedServer(tmp_path_factory.mktemp("service") / "data", **settings) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: ThreadedServer) -> Iterator[RollwayClient]:
    with RollwayClient(ClientSettings(server.url)) as client:
        yield client


@pytest.fixture
def topic(client: RollwayClient) -> str:
    name = f"loaded.{next(_numbers)}"
    client.create_topic(name, 3)
    return name


def options_of(client: RollwayClient, **options: object) -> WriteOptions:
    return WriteOptions.parse({"url": client.settings.url, **{name: str(value) for name, value in options.items()}})


def load(client: RollwayClient, options: WriteOptions, *batches: pa.RecordBatch, task: int = 0) -> TaskMessage:
    """A write of one task, committed."""
    plan = plan_load(client, options)
    message = TaskLoad(plan, client, task, 0).run(iter(batches))
    if plan.job is not None:
        commit(client, options, plan.job.job_id, [message])
    return message


def read(client: RollwayClient, topic: str, partition: int) -> list[dict[str, Any]]:
    """Committed records."""
    with http_client(client.settings.url) as http:
        answer: httpx.Response = http.get(
            f"/v1/topics/{topic}/partitions/{partition}/records",
            params={"offset": 0, "max_bytes": 1 << 26, "isolation": "read_committed"},
        )
    assert answer.status_code == 200, answer.text
    records: list[dict[str, Any]] = answer.json()["records"]
    for record in records:
        record["headers"] = [(header["name"], header["value"]) for header in record["headers"]]
    return records


def keyed_batch(start: int, end: int) -> pa.RecordBatch:
    numbers = range(start, end)
    return pa.record_batch(
        [
            pa.array([b"k%d" % (number * 7 % 100) for number in numbers], pa.binary()),
            pa.array([b"%d" % number for number in numbers], pa.binary()),
        ],
        schema=KEYED,
    )


def test_keys_go_where_kafka_puts_them_and_stay_in_order(client: RollwayClient, topic: str) -> None:
    message = load(client, options_of(client, topic=topic), keyed_batch(0, 700), keyed_batch(700, 900))
    assert (message.rows, message.rejected, message.is_loaded) == (900, 0, False)
    seen = []
    for written in message.written:
        records = read(client, topic, written.partition)
        numbers = [int(record["value"]) for record in records]
        assert numbers == sorted(numbers)
        assert {partition_for_key(record["key"].encode(), 3) for record in records} == {written.partition}
        assert (written.start_offset, written.end_offset, written.rows) == (0, len(records), len(records))
        seen += numbers
    assert sorted(seen) == list(range(900))
    assert message.size_bytes == sum(written.size_bytes for written in message.written) > 900 * 10


def test_rows_without_keys_fill_one_partition_after_the_other(client: RollwayClient, topic: str) -> None:
    """A batch each, beginning with the task's own."""
    values = pa.array([b"%05d" % number + b"x" * 995 for number in range(100)], pa.binary())
    batch = pa.record_batch([values], names=["value"])
    message = load(client, options_of(client, topic=topic, batchBytes="20kb"), batch, task=1)
    rows = {written.partition: written.rows for written in message.written}
    assert sum(rows.values()) == 100
    assert set(rows) == {0, 1, 2}
    firsts = {partition: int(read(client, topic, partition)[0]["value"][:5]) for partition in range(3)}
    assert firsts[1] < firsts[2] < firsts[0]


def test_all_columns(client: RollwayClient, topic: str) -> None:
    headers = pa.array(
        [[("a", b"1"), ("b", None)], None, [], [("c", b"")]],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    us = pa.timestamp("us", "UTC")
    batch = pa.record_batch(
        [
            pa.array(["k", None, "größe", None]),
            pa.array(["v", None, "", "w"]),
            headers,
            pa.array([topic, topic, topic, topic]),
            pa.array([2, 2, 2, None], pa.int32()),
            pa.array([1_500, -1, None, 1_600_000_000_000_999], us),
        ],
        names=["Key", "value", "headers", "topic", "partition", "timestamp"],
    )
    message = load(client, options_of(client), batch)
    assert message.rows == 4
    (last,) = read(client, topic, 0)
    records = read(client, topic, 2)
    assert [(record["key"], record["value"]) for record in records] == [("k", "v"), (None, None), ("größe", "")]
    assert [record["timestamp"] for record in records[:2]] == [1, -1]
    assert records[2]["timestamp"] > 1_700_000_000_000
    assert [record["headers"] for record in records] == [[("a", "1"), ("b", None)], [], []]
    assert (last["timestamp"], last["headers"]) == (1_600_000_000_000, [("c", "")])


def test_an_option_names_the_topic_whatever_the_column_says(client: RollwayClient, topic: str) -> None:
    batch = pa.record_batch([pa.array([b"v"]), pa.array(["elsewhere"])], names=["value", "topic"])
    assert [written.topic for written in load(client, options_of(client, topic=topic), batch).written] == [topic]


def test_rows_for_several_topics(client: RollwayClient, topic: str) -> None:
    other = f"{topic}.other"
    client.create_topic(other, 2)
    names = [topic, other, topic, other, topic]
    batch = pa.record_batch(
        [pa.array([b"%d" % place for place in range(5)]), pa.array(names)], names=["value", "topic"]
    )
    message = load(client, options_of(client), batch)
    assert {written.topic: written.rows for written in message.written} == {topic: 3, other: 2}


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression(client: RollwayClient, topic: str, compression: str) -> None:
    message = load(client, options_of(client, topic=topic, compression=compression), keyed_batch(0, 500))
    assert message.rows == sum(len(read(client, topic, partition)) for partition in range(3)) == 500


def test_nothing_is_enlisted_for_no_rows(client: RollwayClient, topic: str) -> None:
    message = load(client, options_of(client, topic=topic), keyed_batch(0, 0))
    assert (message.producer_id, message.rows, message.job_id) == (-1, 0, None)


def test_a_version_is_loaded_once(client: RollwayClient, topic: str) -> None:
    """And the rows of the second time are not even looked at."""
    options = options_of(client, topic=topic, txnAppId=topic, txnVersion=3)
    load(client, options, keyed_batch(0, 50))
    plan = plan_load(client, options)
    assert plan.job is not None
    assert plan.job.is_loaded
    rows = iter([keyed_batch(0, 50)])
    message = TaskLoad(plan, client, 0, 0).run(rows)
    assert (message.is_loaded, message.rows, len(list(rows))) == (True, 0, 1)
    assert sum(len(read(client, topic, partition)) for partition in range(3)) == 50


def test_a_write_that_wrote_nothing_is_a_warning(
    client: RollwayClient, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = options_of(client, topic=topic, txnAppId=topic, txnVersion=3)
    load(client, options, keyed_batch(0, 50))
    RollwayBatchWriter(options, StructType(), overwrite=False).commit([])
    (record,) = caplog.records
    told = f"version 3 of '{topic}' was loaded before: nothing was written"
    assert (record.levelname, record.getMessage()) == ("WARNING", told)


def wait_timed_out(client: RollwayClient, job_id: str) -> None:
    while (job := client.find_job(job_id)).state != "aborted":
        pass
    assert job.reason == "timed_out"


def jobs_of(client: RollwayClient, application_id: str) -> list[str]:
    """The states of its jobs, the newest first."""
    return [job.state for job in client.list_jobs(application_id=application_id)]


def test_a_job_that_timed_out_before_its_first_row_is_begun_again(client: RollwayClient, topic: str) -> None:
    """Spark may take longer to start its workers than the timeout; all tasks then share the second job."""
    options = options_of(client, topic=topic, txnAppId=topic, txnVersion=1, transactionTimeout=200)
    plan = plan_load(client, options)
    assert plan.job is not None
    wait_timed_out(client, plan.job.job_id)
    lasting = replace(plan, options=replace(options, transaction_timeout_ms=60_000))
    messages = [TaskLoad(lasting, client, task, 0).run(iter([keyed_batch(0, 50)])) for task in range(2)]
    job_id = job_of(messages)
    assert job_id not in (None, plan.job.job_id)
    commit(client, options, job_id, messages)
    assert jobs_of(client, topic) == ["committed", "aborted"]
    assert sum(len(read(client, topic, partition)) for partition in range(3)) == 100


def test_a_job_that_timed_out_between_two_tasks_is_not_committed_in_part(client: RollwayClient, topic: str) -> None:
    options = options_of(client, topic=topic, txnAppId=topic, txnVersion=1, transactionTimeout=1_000)
    plan = plan_load(client, options)
    assert plan.job is not None
    first = TaskLoad(plan, client, 0, 0).run(iter([keyed_batch(0, 50)]))
    wait_timed_out(client, plan.job.job_id)
    lasting = replace(plan, options=replace(options, transaction_timeout_ms=60_000))
    second = TaskLoad(lasting, client, 1, 0).run(iter([keyed_batch(50, 60)]))
    with pytest.raises(RollwayError, match="a longer transactionTimeout helps"):
        job_of([first, second])
    abort(client, plan, [first, second])
    assert jobs_of(client, topic) == ["aborted", "aborted"]
    assert sum(len(read(client, topic, partition)) for partition in range(3)) == 0


def test_one_application_for_two_topics_is_an_error(client: RollwayClient, topic: str) -> None:
    """As ``foreachBatch`` that writes a batch to two topics: the second write would find the first one committed."""
    other = f"{topic}.other"
    client.create_topic(other, 1)
    named = {"txnAppId": f"app.{topic}", "txnVersion": 4}
    load(client, options_of(client, topic=topic, **named), keyed_batch(0, 10))
    with pytest.raises(JobConflictError) as caught:
        RollwayBatchWriter(options_of(client, topic=other, **named), StructType(), overwrite=False)
    sentence = f"version 4 of 'app.{topic}' was loaded into {topic}, not {other}: give each write an application of its"
    assert sentence in str(caught.value)
    again = RollwayBatchWriter(options_of(client, topic=topic, **named), StructType(), overwrite=False)
    assert again.write(iter([keyed_batch(0, 10)])).is_loaded
    load(client, options_of(client, topic=other, **{**named, "txnAppId": f"app.{other}"}), keyed_batch(0, 10))
    assert len(read(client, other, 0)) == 10


def test_of_two_attempts_one_counts(client: RollwayClient, topic: str) -> None:
    options = options_of(client, topic=topic)
    plan = plan_load(client, options)
    assert plan.job is not None
    first, second = (TaskLoad(plan, client, 0, attempt).run(iter([keyed_batch(0, 90)])) for attempt in (0, 1))
    assert first.producer_id != second.producer_id
    assert read(client, topic, 0) == []
    commit(client, options, plan.job.job_id, [second])
    assert sorted(int(record["value"]) for partition in range(3) for record in read(client, topic, partition)) == list(
        range(90)
    )
    with pytest.raises(JobConflictError):
        TaskLoad(plan, client, 1, 0).run(iter([keyed_batch(0, 1)]))


def test_two_writes_that_share_a_job_do_not_both_count(client: RollwayClient, topic: str) -> None:
    """The first to commit counts, and the other is told. The same commit again is a success, as is one of no rows."""
    job = client.begin_job(topic, 1, mode="transactional", timeout_ms=600_000)
    options = options_of(client, topic=topic, jobId=job.job_id)
    plans = [plan_load(client, options) for _ in range(2)]
    rows = (keyed_batch(0, 20), keyed_batch(20, 50))
    first, second = (TaskLoad(plan, client, 0, 0).run(iter([each])) for plan, each in zip(plans, rows, strict=True))
    commit(client, options, job.job_id, [first])
    with pytest.raises(JobTakenError, match=f"{job.job_id} was committed by another write: no row of this one counts"):
        commit(client, options, job.job_id, [second])
    assert commit(client, options, job.job_id, [first]).rows == 20
    assert commit(client, options, job.job_id, [TaskMessage(0, 0)]).rows == 20
    assert sum(len(read(client, topic, partition)) for partition in range(3)) == 20


def test_of_two_drivers_of_a_version_one_is_enough(client: RollwayClient, topic: str) -> None:
    """What the other has written is the whole version, too."""
    options = options_of(client, topic=topic, txnAppId=topic, txnVersion=1)
    plan = plan_load(client, options)
    assert plan.job is not None
    messages = [TaskLoad(plan, client, 0, attempt).run(iter([keyed_batch(0, 20)])) for attempt in range(2)]
    assert [commit(client, options, plan.job.job_id, [each]).rows for each in messages] == [20, 20]
    assert sum(len(read(client, topic, partition)) for partition in range(3)) == 20


def test_a_zombie_is_refused(client: RollwayClient, topic: str) -> None:
    """It was in the midst of its rows when the driver decided."""
    options = options_of(client, topic=topic)
    plan = plan_load(client, options)
    assert plan.job is not None
    job_id = plan.job.job_id

    def rows() -> Iterator[pa.RecordBatch]:
        values = pa.array([bytes(1_000_000)] * 5)
        yield pa.record_batch([values], names=["value"])
        yield pa.record_batch([values], names=["value"])
        commit(client, options, job_id, [])
        yield pa.record_batch([values], names=["value"])
        yield pa.record_batch([values], names=["value"])

    with pytest.raises(ProducerFencedError):
        TaskLoad(plan, client, 0, 0).run(rows())
    assert [read(client, topic, partition) for partition in range(3)] == [[], [], []]


def test_rows_that_were_long_in_coming_begin_the_job_anew(client: RollwayClient, topic: str) -> None:
    """A job nobody wrote in for its timeout is aborted; the tasks, one and all, go on in another of its version."""
    options = options_of(client, topic=topic, txnAppId=topic, txnVersion=1)
    plan = plan_load(client, replace(options, transaction_timeout_ms=1))
    assert plan.job is not None
    while client.find_job(plan.job.job_id).state != "aborted":
        pass
    messages = [
        TaskLoad(replace(plan, options=options), client, task, 0).run(iter([keyed_batch(0, 5)])) for task in (0, 1)
    ]
    (job_id,) = {message.job_id for message in messages}
    assert job_id is not None
    assert job_id != plan.job.job_id
    assert commit(client, options, job_id, messages).rows == 10


@pytest.mark.parametrize("named", [{}, {"txnAppId": "named"}])
def test_an_application_that_was_made_up_leaves_nothing_behind(
    server: ThreadedServer, client: RollwayClient, topic: str, named: dict[str, str]
) -> None:
    """The service is told that its name never comes again, also by a task that begins its job anew."""
    options = options_of(client, topic=topic, **named)
    plan = plan_load(client, replace(options, transaction_timeout_ms=1))
    assert plan.job is not None
    jobs = server.service.parts.load_jobs
    assert jobs.find(plan.job.job_id).once is (not named)
    wait_timed_out(client, plan.job.job_id)
    message = TaskLoad(replace(plan, options=options), client, 0, 0).run(iter([keyed_batch(0, 5)]))
    assert message.job_id not in (None, plan.job.job_id)
    assert jobs.find(str(message.job_id)).once is (not named)
    abort(client, plan, [message])


def test_a_plan_is_picklable(client: RollwayClient, topic: str) -> None:
    plan = plan_load(client, options_of(client, topic=topic))
    copy = pickle.loads(pickle.dumps(plan))
    assert isinstance(copy, LoadPlan)
    assert copy == plan


def test_idempotent_attempts_write_once(client: RollwayClient, topic: str) -> None:
    options = options_of(client, topic=topic, deliveryMode="idempotent")
    plan = plan_load(client, options)
    assert plan.job is not None
    messages = [TaskLoad(plan, client, 0, attempt).run(iter([keyed_batch(0, 90)])) for attempt in (0, 1)]
    commit(client, options, plan.job.job_id, messages[1:])
    assert sum(len(read(client, topic, partition)) for partition in range(3)) == 90


def test_an_idempotent_attempt_that_cannot_be_recognised_says_so(client: RollwayClient, topic: str) -> None:
    """It wrote more batches to a partition than are remembered; nothing is written twice."""
    values = pa.array([b"%05d" % number + b"x" * 995 for number in range(400)], pa.binary())
    rows = pa.record_batch([values, pa.array([b"k"] * 400, pa.binary())], names=["value", "key"])
    plan = plan_load(client, options_of(client, topic=topic, deliveryMode="idempotent", batchBytes="20kb"))
    first = TaskLoad(plan, client, 0, 0).run(iter([rows]))
    (written,) = first.written
    with pytest.raises(AttemptNotRecognisedError) as caught:
        TaskLoad(plan, client, 0, 1).run(iter([rows]))
    assert str(caught.value) == (
        f"a task that is tried again had written more than five batches to {topic}-{written.partition}, or has other "
        "rows now: what is there already is not recognised, and nothing was written twice; where tasks may be tried "
        "again, load with deliveryMode=transactional"
    )
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert len(read(client, topic, written.partition)) == 400


def test_at_least_once_needs_no_job(client: RollwayClient, topic: str) -> None:
    message = load(client, options_of(client, topic=topic, deliveryMode="atleastonce"), keyed_batch(0, 90))
    assert (message.rows, message.job_id, message.producer_id) == (90, None, -1)
    assert sum(len(read(client, topic, partition)) for partition in range(3)) == 90


# Rejects


def bad_rows(topic: str) -> pa.RecordBatch:
    """Two good rows, and four that cannot be loaded."""
    headers = [None, None, None, [(None, b"x")], None, None]
    values = [b"good", b"x" * 2_000_000, b"partition", b"header", b"topic", b"good too"]
    return pa.record_batch(
        [
            pa.array(values, pa.binary()),
            pa.array([topic, topic, topic, topic, "nowhere", topic]),
            pa.array([0, 0, 7, 0, 0, 0], pa.int32()),
            pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ],
        names=["value", "topic", "partition", "headers"],
    )


REASONS = {"too large": 1, "no such partition": 1, "header without key": 1, "unknown topic": 1}


def test_rejects_are_skipped_and_counted(client: RollwayClient, topic: str) -> None:
    message = load(client, options_of(client, onReject="skip"), bad_rows(topic))
    assert (message.rows, message.rejects) == (2, REASONS)
    assert [record["value"] for record in read(client, topic, 0)] == ["good", "good too"]


def test_rejects_go_to_their_topic_with_the_same_commit(client: RollwayClient, topic: str) -> None:
    rejects = f"{topic}.rejects"
    client.create_topic(rejects, 1)
    options = options_of(client, onReject="topic", rejectTopic=rejects)
    plan = plan_load(client, options)
    assert plan.job is not None
    message = TaskLoad(plan, client, 0, 0).run(iter([bad_rows(topic)]))
    assert (message.rows, message.rejects) == (6, REASONS)
    assert read(client, rejects, 0) == []
    commit(client, options, plan.job.job_id, [message])
    found = {dict(record["headers"])["rollway.reject.reason"]: record for record in read(client, rejects, 0)}
    assert found["header without key"]["value"] == "header"
    assert dict(found["unknown topic"]["headers"])["rollway.reject.topic"] == "nowhere"
    assert dict(found["too large"]["headers"])["rollway.reject.value.bytes"] == "2000000"
    assert len(found["too large"]["value"]) == 65_536


def test_rejects_say_for_which_topic_they_were(client: RollwayClient, topic: str) -> None:
    """Also rows with a nameless header, which are found before they are routed."""
    rejects, other = f"{topic}.rejects", f"{topic}.other"
    client.create_topic(rejects, 1)
    client.create_topic(other, 1)
    nameless, fine = [(None, b"x")], [("a", b"x")]
    names = [topic, other, None, topic, "nowhere", other]
    headers = [nameless, nameless, nameless, fine, nameless, nameless]
    columns = {
        "value": pa.array([b"%d" % place for place in range(len(names))]),
        "headers": pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        "topic": pa.array(names),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    options = options_of(client, onReject="topic", rejectTopic=rejects)
    assert load(client, options, batch).rejects == {"header without key": 5}
    found = {record["value"]: dict(record["headers"]) for record in read(client, rejects, 0)}
    told = {value: each["rollway.reject.topic"] for value, each in found.items()}
    assert told == {"0": topic, "1": other, "2": "", "4": "nowhere", "5": other}
    options = options_of(client, topic=other, onReject="topic", rejectTopic=rejects)
    for without_column in (batch, batch.select(["value", "headers"])):
        load(client, options, without_column)
    told_later = [dict(record["headers"])["rollway.reject.topic"] for record in read(client, rejects, 0)[5:]]
    assert told_later == [other] * 10, "the option comes before the column"
    options = options_of(client, onReject="topic", rejectTopic=rejects)
    load(client, options, batch.select(["value", "headers"]))
    assert [dict(record["headers"])["rollway.reject.topic"] for record in read(client, rejects, 0)[15:]] == [""] * 6


IMPOSSIBLE_NAMES = ["", ".", "..", "a b", "x/y", "a%2Fb", "a?b", "größe", "a\n", "\x00", "x" * 250, "y" * 100_000]


def test_rows_for_topics_that_cannot_be_are_rejects(client: RollwayClient, topic: str) -> None:
    """Kafka's rule for names, and nobody is asked: some of them would be another address."""
    rejects = f"{topic}.rejects"
    client.create_topic(rejects, 1)
    longest = f"{topic}-".ljust(249, "x")
    client.create_topic(longest, 1)
    names = [*IMPOSSIBLE_NAMES, topic, longest, "nowhere", None]
    batch = pa.record_batch(
        [pa.array([b"%d" % place for place in range(len(names))]), pa.array(names)], names=["value", "topic"]
    )
    message = load(client, options_of(client, onReject="topic", rejectTopic=rejects), batch)
    reasons = {"invalid topic name": len(IMPOSSIBLE_NAMES), "unknown topic": 1, "no topic": 1}
    assert (message.rows, message.rejects) == (len(names), reasons)
    found = {record["value"]: dict(record["headers"])["rollway.reject.topic"] for record in read(client, rejects, 0)}
    cut = [name[:249] for name in IMPOSSIBLE_NAMES]
    assert found == {
        **{str(place): name for place, name in enumerate(cut)},
        str(names.index("nowhere")): "nowhere",
        str(names.index(None)): "",
    }
    with pytest.raises(RejectedRowsError, match=r"1 rows cannot be loaded: 'a b' cannot be the name of a topic"):
        load(client, options_of(client), batch.slice(3, 1))
    with pytest.raises(RejectedRowsError) as caught:
        load(client, options_of(client), batch.slice(11, 1))
    assert len(str(caught.value)) < 300


def test_a_reject_is_an_error_unless_it_may_be_left_out(client: RollwayClient, topic: str) -> None:
    with pytest.raises(RejectedRowsError, match=r"cannot be loaded: .*; onReject=skip or onReject=topic loads"):
        load(client, options_of(client), bad_rows(topic))
    with pytest.raises(RejectedRowsError, match="maxRejected is 3"):
        load(client, options_of(client, onReject="skip", maxRejected=3), bad_rows(topic))
    assert load(client, options_of(client, onReject="skip", maxRejected=4), bad_rows(topic)).rejected == 4


def test_rejects_of_all_tasks_are_counted_together(client: RollwayClient, topic: str) -> None:
    options = options_of(client, onReject="skip", maxRejected=5)
    plan = plan_load(client, options)
    assert plan.job is not None
    messages = [TaskLoad(plan, client, task, 0).run(iter([bad_rows(topic)])) for task in (0, 1)]
    with pytest.raises(RejectedRowsError, match="8 rows cannot be loaded, and maxRejected is 5"):
        commit(client, options, plan.job.job_id, messages)


def test_records_that_the_service_refuses(client: RollwayClient) -> None:
    """A compacted topic wants keys, which only the service knows: those without one are found one by one."""
    compacted = f"compacted.{next(_numbers)}"
    client.create_topic(compacted, 1, {"cleanup.policy": "compact"})
    keys = [None if number % 5 == 0 else b"%d" % number for number in range(1_000)]
    values = np.arange(1_000)
    batch = pa.record_batch(
        [pa.array(keys, pa.binary()), pa.array([b"%d" % number for number in values])], names=["key", "value"]
    )
    message = load(client, options_of(client, topic=compacted, onReject="skip"), batch, batch)
    assert (message.rows, message.rejected) == (1_600, 400)
    assert [int(record["value"]) for record in read(client, compacted, 0)[:800]] == [
        number for number in range(1_000) if number % 5
    ]
    with pytest.raises(RejectedRowsError):
        load(client, options_of(client, topic=compacted), batch)
