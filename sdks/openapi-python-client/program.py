"""All steps of sdks/steps.py with the client of openapi-python-client."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from rollway_client import AuthenticatedClient, Client
from rollway_client.api.load_jobs import begin_job, commit_job, enlist_attempt
from rollway_client.api.offsets import find_offsets, get_offset
from rollway_client.api.records import (
    fetch_record_batches,
    fetch_record_lines,
    fetch_records,
    produce_record_batches,
    produce_record_lines,
    produce_records,
)
from rollway_client.api.retention import delete_records
from rollway_client.api.topics import ensure_topic, get_topic, list_topics
from rollway_client.api.transactions import commit_transaction, initialise_producer
from rollway_client.models import (
    Acks,
    AttemptSpecification,
    DeleteRecords,
    Durability,
    Encoding,
    EndTransaction,
    ExpectedOffsetProblem,
    FetchedRecord,
    FetchResult,
    Isolation,
    JobAttempt,
    JobCommit,
    JobDescription,
    JobMode,
    JobSpecification,
    JobWinner,
    LogEndProblem,
    LogStartProblem,
    OffsetAnswer,
    OffsetQueries,
    OffsetQuery,
    OffsetResults,
    Problem,
    ProducedRecord,
    Producer,
    ProduceResult,
    ProducerRequest,
    RecordHeader,
    RecordList,
    TopicDescription,
    TopicPage,
    TopicSpecification,
    TopicSpecificationConfig,
    TransactionDescription,
)
from rollway_client.types import UNSET, File, Unset

URL = os.environ["ROLLWAY_URL"]
PREFIX = os.environ["ROLLWAY_PREFIX"]
CONTENTS: list[dict[str, Any]] = json.loads(Path(os.environ["ROLLWAY_CONTENTS"]).read_text())
CLIENT = AuthenticatedClient(base_url=URL, token=os.environ["ROLLWAY_API_KEY"], timeout=None)
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
    config = TopicSpecificationConfig.from_dict(LARGE)
    topic = the(
        TopicDescription,
        ensure_topic.sync(PREFIX + name, client=CLIENT, body=TopicSpecification(partitions=partitions, config=config)),
    )
    return topic.name


def send(topic: str, *records: ProducedRecord, **options: Any) -> ProduceResult:
    answer = produce_records.sync(topic, 0, client=CLIENT, body=RecordList(records=list(records)), **options)
    return the(ProduceResult, answer)


def fetch(topic: str, **options: Any) -> FetchResult:
    answer = fetch_records.sync(topic, 0, client=CLIENT, **{"offset": "earliest", "max_bytes": 100_000_000, **options})
    return the(FetchResult, answer)


def texts(records: Iterable[FetchedRecord]) -> list[Any]:
    return [record.value for record in records]


def topic() -> None:
    name = create("topic", 2)
    found = the(TopicDescription, get_topic.sync(name, client=CLIENT))
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
        == [("trace", "a", UNSET), ("trace", UNSET, "AP8=")],
        first,
    )
    check((second.key, second.value, second.value_base64) == (None, None, UNSET), second)


def contents(encoding: Encoding) -> None:
    name = create(f"contents.{encoding.value}")
    for content in CONTENTS:
        record = ProducedRecord(**members(content, encoding, "key"), **members(content, encoding, "value"))
        offset = send(name, record, encoding=encoding).base_offset
        check(isinstance(offset, int), offset)
        [found] = fetch(name, offset=str(offset), max_records=1, encoding=encoding).records
        for member in ("key", "value"):
            expected = {member: UNSET, f"{member}_base64": UNSET, **members(content, encoding, member)}
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
    batches = the(File, fetch_record_batches.sync(name, 0, client=CLIENT, offset="earliest")).payload.read()
    check(len(batches) > 61 and batches[16] == 2, batches)
    body = File(payload=io.BytesIO(batches))
    done = the(ProduceResult, produce_record_batches.sync(copy, 0, client=CLIENT, body=body))
    check(done.record_count == 3, done)
    check(texts(fetch(copy).records) == texts(fetch(name).records) == ["value 0", "value 1", "value 2"], copy)


def lines() -> None:
    name = create("lines")
    sent = "".join(json.dumps(each) + "\n" for each in ({"key": "a", "value": "1"}, {"value": None}))
    answer = produce_record_lines.sync_detailed(name, 0, client=CLIENT, body=File(payload=io.BytesIO(sent.encode())))
    results = [json.loads(line) for line in answer.content.splitlines()]
    check(answer.status_code == 200 and sum(each["record_count"] for each in results) == 2, answer)
    got = fetch_record_lines.sync_detailed(name, 0, client=CLIENT, offset="earliest")
    records = [json.loads(line) for line in got.content.splitlines()]
    check([(each["key"], each["value"]) for each in records] == [("a", "1"), (None, None)], records)


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
    answer = the(OffsetAnswer, get_offset.sync(name, 0, client=CLIENT, timestamp="1500"))
    check((answer.offset, answer.timestamp) == (1, 2_000), answer)
    asked = [OffsetQuery(topic=name, partition=0, timestamp=each) for each in ("earliest", "latest", "1500")]
    results = the(OffsetResults, find_offsets.sync(client=CLIENT, body=OffsetQueries(queries=asked))).results
    check([each.offset for each in results] == [0, 3, 1] and not any(each.error for each in results), results)


def idempotency_key() -> None:
    name = create("idempotency")
    body = RecordList(records=[ProducedRecord(value="once")])
    answers = [
        produce_records.sync_detailed(name, 0, client=CLIENT, body=body, idempotency_key=f"{PREFIX}request")
        for _ in range(2)
    ]
    check([the(ProduceResult, each.parsed).base_offset for each in answers] == [0, 0], answers)
    check([each.headers.get("Idempotent-Replayed") for each in answers] == [None, "true"], answers)
    check(texts(fetch(name).records) == ["once"], name)


def transaction() -> None:
    name, identity = create("transaction"), f"{PREFIX}writer"
    producer = the(Producer, initialise_producer.sync(client=CLIENT, body=ProducerRequest(transactional_id=identity)))
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
    the(TransactionDescription, commit_transaction.sync(identity, client=CLIENT, body=end))
    check(texts(fetch(name, isolation=Isolation.READ_COMMITTED).records) == ["all or nothing"], name)


def job() -> None:
    name = create("job")
    specification = JobSpecification(
        application_id=f"{PREFIX}loader", version=1, mode=JobMode.IDEMPOTENT, topics=[name]
    )
    begun = the(JobDescription, begin_job.sync(client=CLIENT, body=specification))
    attempt = the(JobAttempt, enlist_attempt.sync(begun.job_id, client=CLIENT, body=AttemptSpecification(task=0)))
    send(
        name,
        ProducedRecord(value="loaded"),
        producer_id=attempt.producer_id,
        producer_epoch=attempt.producer_epoch,
        base_sequence=0,
    )
    winners = JobCommit(winners=[JobWinner(producer_id=attempt.producer_id, rows=1)])
    done = the(JobDescription, commit_job.sync(begun.job_id, client=CLIENT, body=winners))
    check((done.winner_count, done.rows) == (1, 1), done)
    check(texts(fetch(name, isolation=Isolation.READ_COMMITTED).records) == ["loaded"], name)


def paging() -> None:
    names = [create(f"page.{number}") for number in range(5)]
    found: list[str] = []
    start_after: str | Unset = UNSET
    while True:
        page = the(
            TopicPage, list_topics.sync(client=CLIENT, prefix=f"{PREFIX}page.", limit=2, start_after=start_after)
        )
        found += [each.name for each in page.data]
        if not page.has_more:
            break
        start_after = the(str, page.next_cursor)
    check(found == names, found)


def not_found() -> None:
    answer = fetch_records.sync_detailed(f"{PREFIX}nothing", 0, client=CLIENT, offset="0")
    check(answer.status_code == 404, answer)
    check(the(Problem, answer.parsed).code == "unknown_topic_or_partition", answer)


def gone() -> None:
    name = create("gone")
    send(name, *(ProducedRecord(value=str(number)) for number in range(3)))
    delete_records.sync(name, 0, client=CLIENT, body=DeleteRecords(offset=2))
    answer = fetch_records.sync_detailed(name, 0, client=CLIENT, offset="0")
    check(answer.status_code == 410, answer)
    check(the(LogStartProblem, answer.parsed).log_start_offset == 2, answer)


def beyond_the_end() -> None:
    answer = fetch_records.sync_detailed(create("end"), 0, client=CLIENT, offset="7")
    check(answer.status_code == 416, answer)
    check(the(LogEndProblem, answer.parsed).log_end_offset == 0, answer)


def precondition() -> None:
    body = RecordList(records=[ProducedRecord(value="late")])
    answer = produce_records.sync_detailed(create("precondition"), 0, client=CLIENT, body=body, expected_offset=3)
    check(answer.status_code == 412, answer)
    check(the(ExpectedOffsetProblem, answer.parsed).log_end_offset == 0, answer)


def authentication() -> None:
    answer = list_topics.sync_detailed(client=Client(base_url=URL))
    check(answer.status_code == 401, answer)
    check(the(Problem, answer.parsed).retryable is False, answer)


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
        print(f"failed {step}: {error!r}".replace("\n", " "))
    else:
        print(f"ok {step}")
