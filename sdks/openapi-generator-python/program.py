"""All steps of sdks/steps.py with the client of openapi-generator's python."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from rollway_client import (
    Acks,
    ApiClient,
    ApiException,
    AttemptSpecification,
    Configuration,
    DeleteRecords,
    Durability,
    Encoding,
    EndTransaction,
    ExpectedOffsetProblem,
    FetchedRecord,
    FetchResult,
    Isolation,
    JobCommit,
    JobMode,
    JobSpecification,
    JobWinner,
    LoadJobsApi,
    LogEndProblem,
    LogStartProblem,
    OffsetQueries,
    OffsetQuery,
    OffsetsApi,
    Problem,
    ProducedRecord,
    ProduceResult,
    ProducerRequest,
    RecordHeader,
    RecordList,
    RecordsApi,
    RetentionApi,
    TopicsApi,
    TopicSpecification,
    TransactionsApi,
)

URL = os.environ["ROLLWAY_URL"]
PREFIX = os.environ["ROLLWAY_PREFIX"]
CONTENTS: list[dict[str, Any]] = json.loads(Path(os.environ["ROLLWAY_CONTENTS"]).read_text())
CLIENT = ApiClient(Configuration(host=URL, access_token=os.environ["ROLLWAY_API_KEY"]))
JOBS, OFFSETS, RECORDS = LoadJobsApi(CLIENT), OffsetsApi(CLIENT), RecordsApi(CLIENT)
RETENTION, TOPICS, TRANSACTIONS = RetentionApi(CLIENT), TopicsApi(CLIENT), TransactionsApi(CLIENT)
LARGE = {"max.message.bytes": "50000000"}

T = TypeVar("T")


def the(kind: type[T], answer: object) -> T:
    """``answer``, which has to be of that type."""
    if not isinstance(answer, kind):
        raise TypeError(f"{kind.__name__} expected, not {answer!r:.500}")
    return answer


def check(is_right: bool, what: object) -> None:
    if not is_right:
        raise ValueError(f"{what!r:.500}")


def create(name: str, partitions: int = 1) -> str:
    return TOPICS.ensure_topic(PREFIX + name, TopicSpecification(partitions=partitions, config=LARGE)).name


def send(topic: str, *records: ProducedRecord, **options: Any) -> ProduceResult:
    return RECORDS.produce_records(topic, 0, RecordList(records=list(records)), **options)


def fetch(topic: str, **options: Any) -> FetchResult:
    return RECORDS.fetch_records(topic, 0, **{"offset": "earliest", "max_bytes": 100_000_000, **options})


def texts(records: Iterable[FetchedRecord]) -> list[Any]:
    return [record.value for record in records]


def refused(status: int, problem: type[T], do: Callable[[], object]) -> T:
    """The problem of that type with which a request is refused."""
    try:
        answer = do()
    except ApiException as error:
        check(error.status == status, error)
        return the(problem, error.data)
    raise ValueError(f"{status} expected, not {answer!r:.500}")


def topic() -> None:
    name = create("topic", 2)
    found = TOPICS.get_topic(name)
    check(found.config["max.message.bytes"].value == 50_000_000, found)
    check(len(found.partitions) == 2, found)


def produce() -> None:
    name = create("produce")
    headers = [RecordHeader(name="trace", value="a"), RecordHeader(name="trace", value_base64="AP8=")]
    done = send(
        name,
        ProducedRecord(key="k", value="v", headers=headers, timestamp=1_700_000_000_000),
        ProducedRecord(value_base64=None),
        acks=Acks.ALL,
        durability=Durability.FSYNCED,
    )
    check((done.base_offset, done.last_offset, done.record_count) == (0, 1, 2), done)
    first, second = fetch(name).records
    check((first.key, first.value, first.timestamp, first.offset) == ("k", "v", 1_700_000_000_000, 0), first)
    check(
        [(each.name, each.value, each.value_base64) for each in first.headers]
        == [("trace", "a", None), ("trace", None, "AP8=")],
        first,
    )
    check((second.key, second.value, second.value_base64) == (None, None, None), second)


def contents(encoding: Encoding) -> None:
    name = create(f"contents.{encoding.value}")
    for content in CONTENTS:
        record = ProducedRecord(**members(content, encoding, "key"), **members(content, encoding, "value"))
        offset = send(name, record, encoding=encoding).base_offset
        [found] = fetch(name, offset=str(offset), max_records=1, encoding=encoding).records
        for member in ("key", "value"):
            # A member that is absent is None, as one that is null. No content is null in both.
            expected = {member: None, f"{member}_base64": None, **members(content, encoding, member)}
            got = {each: getattr(found, each) for each in expected}
            check(same(got, expected), (content["name"], got, expected))


def members(content: dict[str, Any], encoding: Encoding, member: str) -> dict[str, Any]:
    """The member that says a content, by its name."""
    if content["base64"] is None:
        return {f"{member}_base64" if encoding is Encoding.BASE64 else member: None}
    if encoding is Encoding.UTF8 and content["text"] is not None:
        return {member: content["text"]}
    if encoding is Encoding.JSON and content["json"]:
        return {member: json.loads(content["text"])}
    return {f"{member}_base64": content["base64"]}


def same(one: object, other: object) -> bool:
    """Equal, and of the same types: ``True == 1``."""
    return one == other and repr(one) == repr(other)


def raw_batches() -> None:
    name, copy = create("raw"), create("raw.copy")
    send(name, *(ProducedRecord(key=str(number), value=f"value {number}") for number in range(3)))
    batches = RECORDS.fetch_record_batches(name, 0, offset="earliest")
    check(len(batches) > 61 and batches[16] == 2, batches)
    done = RECORDS.produce_record_batches(copy, 0, batches)
    check(done.record_count == 3, done)
    check(texts(fetch(copy).records) == texts(fetch(name).records) == ["value 0", "value 1", "value 2"], copy)


def lines() -> None:
    name = create("lines")
    sent = [ProducedRecord(key="a", value="1"), ProducedRecord(value=None)]
    body = "".join(f"{each.to_json()}\n" for each in sent)
    answer = RECORDS.produce_record_lines(name, 0, body.encode())
    results = [json.loads(line) for line in answer.splitlines()]
    check(sum(each["record_count"] for each in results) == 2, answer)
    got = RECORDS.fetch_record_lines(name, 0, offset="earliest")
    records = [the(FetchedRecord, FetchedRecord.from_json(line.decode())) for line in got.splitlines()]
    check([(each.key, each.value) for each in records] == [("a", "1"), (None, None)], records)


def long_poll() -> None:
    name = create("poll")
    found: list[FetchResult] = []
    reader = threading.Thread(target=lambda: found.append(fetch(name, offset="0", wait_ms=30_000)))
    reader.start()
    send(name, ProducedRecord(value="news"))
    reader.join()
    check(texts(found[0].records) == ["news"], found)


def offset_by_time() -> None:
    name = create("time", 2)
    send(name, *(ProducedRecord(value=str(each), timestamp=each) for each in (1_000, 2_000, 3_000)))
    answer = OFFSETS.get_offset(name, 0, timestamp="1500")
    check((answer.offset, answer.timestamp) == (1, 2_000), answer)
    asked = [OffsetQuery(topic=name, partition=0, timestamp=each) for each in ("earliest", "latest", "1500")]
    results = OFFSETS.find_offsets(OffsetQueries(queries=asked)).results
    check([each.offset for each in results] == [0, 3, 1] and not any(each.error for each in results), results)


def idempotency_key() -> None:
    name = create("idempotency")
    body = RecordList(records=[ProducedRecord(value="once")])
    answers = [
        RECORDS.produce_records_with_http_info(name, 0, body, idempotency_key=f"{PREFIX}request") for _ in range(2)
    ]
    check([each.data.base_offset for each in answers] == [0, 0], answers)
    # The headers are a plain dict, spelt as they were sent.
    headers = [{header.lower(): value for header, value in (each.headers or {}).items()} for each in answers]
    check([each.get("idempotent-replayed") for each in headers] == [None, "true"], answers)
    check(texts(fetch(name).records) == ["once"], name)


def transaction() -> None:
    name, identity = create("transaction"), f"{PREFIX}writer"
    producer = TRANSACTIONS.initialise_producer(ProducerRequest(transactional_id=identity))
    send(
        name,
        ProducedRecord(value="all or nothing"),
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        transactional_id=identity,
    )
    check(fetch(name, isolation=Isolation.READ_COMMITTED).records == [], name)
    end = EndTransaction(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)
    TRANSACTIONS.commit_transaction(identity, end)
    check(texts(fetch(name, isolation=Isolation.READ_COMMITTED).records) == ["all or nothing"], name)


def job() -> None:
    name = create("job")
    specification = JobSpecification(
        application_id=f"{PREFIX}loader", version=1, mode=JobMode.IDEMPOTENT, topics=[name]
    )
    begun = JOBS.begin_job(specification)
    attempt = JOBS.enlist_attempt(begun.job_id, AttemptSpecification(task=0))
    send(
        name,
        ProducedRecord(value="loaded"),
        producer_id=attempt.producer_id,
        producer_epoch=attempt.producer_epoch,
        base_sequence=0,
    )
    winners = JobCommit(winners=[JobWinner(producer_id=attempt.producer_id, rows=1)])
    done = JOBS.commit_job(begun.job_id, winners)
    check((done.winner_count, done.rows) == (1, 1), done)
    check(texts(fetch(name, isolation=Isolation.READ_COMMITTED).records) == ["loaded"], name)


def paging() -> None:
    names = [create(f"page.{number}") for number in range(5)]
    found: list[str] = []
    start_after: str | None = None
    while True:
        page = TOPICS.list_topics(prefix=f"{PREFIX}page.", limit=2, start_after=start_after)
        found += [each.name for each in page.data]
        if not page.has_more:
            break
        start_after = the(str, page.next_cursor)
    check(found == names, found)


def not_found() -> None:
    problem = refused(404, Problem, lambda: RECORDS.fetch_records(f"{PREFIX}nothing", 0, offset="0"))
    check(problem.code == "unknown_topic_or_partition", problem)


def gone() -> None:
    name = create("gone")
    send(name, *(ProducedRecord(value=str(number)) for number in range(3)))
    RETENTION.delete_records(name, 0, DeleteRecords(offset=2))
    problem = refused(410, LogStartProblem, lambda: RECORDS.fetch_records(name, 0, offset="0"))
    check(problem.log_start_offset == 2, problem)


def beyond_the_end() -> None:
    name = create("end")
    problem = refused(416, LogEndProblem, lambda: RECORDS.fetch_records(name, 0, offset="7"))
    check(problem.log_end_offset == 0, problem)


def precondition() -> None:
    name = create("precondition")
    problem = refused(412, ExpectedOffsetProblem, lambda: send(name, ProducedRecord(value="late"), expected_offset=3))
    check(problem.log_end_offset == 0, problem)


def authentication() -> None:
    stranger = TopicsApi(ApiClient(Configuration(host=URL)))
    problem = refused(401, Problem, stranger.list_topics)
    check(problem.retryable is False, problem)


STEPS: dict[str, Callable[[], None]] = {
    "topic": topic,
    "produce": produce,
    "contents utf8": lambda: contents(Encoding.UTF8),
    "contents base64": lambda: contents(Encoding.BASE64),
    "contents json": lambda: contents(Encoding.JSON),
    "raw batches": raw_batches,
    "lines": lines,
    "long poll": long_poll,
    "offset by time": offset_by_time,
    "idempotency key": idempotency_key,
    "transaction": transaction,
    "job": job,
    "paging": paging,
    "not found": not_found,
    "gone": gone,
    "beyond the end": beyond_the_end,
    "precondition": precondition,
    "authentication": authentication,
}

for step, do in STEPS.items():
    try:
        do()
    except Exception as error:  # noqa: BLE001 - whatever it is, the step failed
        print(f"failed {step}: {type(error).__name__}: {error}".replace("\n", " "))
    else:
        print(f"ok {step}")
