"""Every call of the client against a real service."""

from __future__ import annotations

import pickle
from itertools import count

import numpy as np
import pytest

from rollway.client import (
    JobConflictError,
    JobNotFoundError,
    OffsetAsk,
    OffsetOutOfRangeError,
    PartitionOffsets,
    ProblemError,
    RollwayClient,
    SplitRange,
    TopicExistsError,
    TopicNotFoundError,
)
from rollway.records import Record, columns_from_records, decode_batch, encode_batch, split_batches

_applications = (f"application-{number}" for number in count())


def batch(*values: bytes, timestamp: int = 1_000, **stamp: int) -> bytes:
    records = [Record(number, timestamp + number, None, value) for number, value in enumerate(values)]
    return encode_batch(columns_from_records(records), **stamp)  # type: ignore[arg-type]


def values(batches: bytes) -> list[bytes | None]:
    return [value for each in split_batches(batches) for value in decode_batch(each).values.to_list()]


# Topics


def test_a_topic_is_made_once_and_described(client: RollwayClient, topic: str) -> None:
    made = client.create_topic(topic, 3)
    assert (made.name, made.partition_count) == (topic, 3)
    assert client.describe_topic(topic) == made
    assert made.config["max.message.bytes"] == 1_048_588
    with pytest.raises(TopicExistsError, match=f"topic {topic} exists with 3 partitions, not 4"):
        client.create_topic(topic, 4)


def test_settings_of_a_topic_are_given_by_kafkas_names(client: RollwayClient) -> None:
    assert client.create_topic("settled", config={"retention.ms": 60_000}).config["retention.ms"] == 60_000
    assert client.describe_topic("settled").partition_count == 1


def test_all_topics_are_listed_without_those_of_the_service(client: RollwayClient, topic: str) -> None:
    client.begin_job("makes-the-internal-topic", 1, mode="transactional", timeout_ms=60_000)
    listed = client.list_topics()
    assert topic in listed
    assert listed == sorted(listed)
    assert not [name for name in listed if name.startswith("__")]


def test_a_topic_that_is_not_there_is_named(client: RollwayClient) -> None:
    asks = [
        lambda: client.describe_topic("no-such"),
        lambda: client.split("no-such", {}),
        lambda: client.watermarks("no-such"),
        lambda: client.offsets_for_times([OffsetAsk("no-such", 0, "earliest")]),
        lambda: client.fetch("no-such", 0, offset=0, max_bytes=1, isolation="read_committed"),
        lambda: client.produce_batches("no-such", 0, [batch(b"a")]),
    ]
    for ask in asks:
        with pytest.raises(TopicNotFoundError, match=r"there is no topic '?no-such'?"):
            ask()


def test_names_that_are_no_names_of_topics_reach_the_service_as_they_are(client: RollwayClient) -> None:
    with pytest.raises(ProblemError, match="there is nothing at /v1/topics/a%2F"):
        client.describe_topic("a/../b?c#d e")


# Records


def test_batches_are_sent_in_pieces_and_fetched_as_they_were(client: RollwayClient, topic: str) -> None:
    first, second = batch(b"a", b"b"), batch(b"c")
    pieces = [first[:61], memoryview(np.frombuffer(first[61:], np.uint8)), memoryview(bytearray(second))]
    appended = client.produce_batches(topic, 1, pieces)
    assert (appended.base_offset, appended.last_offset, appended.record_count) == (0, 2, 3)
    assert not appended.duplicate
    fetched = client.fetch(topic, 1, offset=0, max_bytes=1 << 20, isolation="read_uncommitted")
    assert values(fetched.batches) == [b"a", b"b", b"c"]
    assert (fetched.next_offset, fetched.log_start_offset, fetched.high_watermark) == (3, 0, 3)
    assert (fetched.last_stable_offset, fetched.aborted) == (3, [])


def test_batches_of_a_producer_are_there_once_however_often_they_are_sent(client: RollwayClient, topic: str) -> None:
    sent = batch(b"a", producer_id=77_000, producer_epoch=0, base_sequence=0)
    appended = [client.produce_batches(topic, 0, [sent], acks=acks) for acks in ("all", "1")]
    assert [each.base_offset for each in appended] == [0, 0]
    assert [each.duplicate for each in appended] == [False, True]


def test_a_fetch_ends_where_it_should(client: RollwayClient, topic: str) -> None:
    for value in (b"a", b"b", b"c", b"d"):
        client.produce_batches(topic, 0, [batch(value)])
    middle = client.fetch(topic, 0, offset=1, end_offset=3, max_bytes=1 << 20, isolation="read_committed")
    assert (values(middle.batches), middle.next_offset) == ([b"b", b"c"], 3)
    least = client.fetch(topic, 0, offset=1, max_bytes=1, isolation="read_committed")
    assert (values(least.batches), least.next_offset) == ([b"b"], 2)
    nothing = client.fetch(topic, 0, offset=4, max_bytes=1, isolation="read_committed", wait_ms=1)
    assert (nothing.batches, nothing.next_offset) == (b"", 4)


def test_an_offset_outside_the_log_says_where_the_log_is(client: RollwayClient, topic: str) -> None:
    client.produce_batches(topic, 0, [batch(b"a")])
    with pytest.raises(OffsetOutOfRangeError) as caught:
        client.fetch(topic, 0, offset=9, max_bytes=1, isolation="read_committed")
    assert (caught.value.status, caught.value.log_start_offset, caught.value.log_end_offset) == (416, 0, 1)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.problem) == (OffsetOutOfRangeError, str(caught.value), caught.value.problem)


def test_waiting_for_records_ends_when_there_are_some(client: RollwayClient, topic: str) -> None:
    at_the_end = {topic: {0: 0, 1: 0, 2: 0}}
    assert not client.wait_for(at_the_end, isolation="read_committed", wait_ms=1)
    client.produce_batches(topic, 2, [batch(b"a" * 5_000)])
    assert client.wait_for(at_the_end, isolation="read_committed", wait_ms=60_000)
    assert not client.wait_for({topic: {0: 0, 2: 1}}, isolation="read_committed", wait_ms=1)
    # There is something to look at, too: none of them can be read.
    assert client.wait_for({topic: {0: 7}}, isolation="read_committed", wait_ms=60_000)
    assert client.wait_for({"no-such": {0: 0}}, isolation="read_committed", wait_ms=60_000)


def test_waiting_for_more_partitions_than_a_request_takes(client: RollwayClient) -> None:
    """Twenty thousand of them, none of which can be read; and names as long as they may be."""
    for name, partition_count in (("no-such", 20_000), ("x" * 249, 9_000)):
        positions = {name: dict.fromkeys(range(partition_count), 2**63 - 1)}
        for _ in range(5):
            assert client.wait_for(positions, isolation="read_committed", wait_ms=60_000)


def test_partitions_beyond_a_request_are_waited_for_in_turns(
    client: RollwayClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """News of any of them end the wait when its turn has come."""
    monkeypatch.setattr("rollway.client.client.FETCH_PARTITIONS_MAX", 1)
    at_the_end = {topic: {0: 0, 1: 0, 2: 0}}
    for _ in range(4):
        assert not client.wait_for(at_the_end, isolation="read_committed", wait_ms=1)
    client.produce_batches(topic, 2, [batch(b"a")])
    for _ in range(2):
        found = [client.wait_for(at_the_end, isolation="read_committed", wait_ms=1) for _ in range(3)]
        assert sorted(found) == [False, False, True]
    assert not client.wait_for({}, isolation="read_committed", wait_ms=1)


# Offsets


def test_questions_beyond_a_request_are_asked_in_several(client: RollwayClient) -> None:
    """Two megabytes of them, as the name is as long as it may be; the answers are in order."""
    name = client.create_topic("x" * 249, 2).name
    client.produce_batches(name, 1, [batch(b"a")])
    asked = [OffsetAsk(name, number % 2, "latest") for number in range(6_001)]
    answers = client.offsets_for_times(asked)
    assert [(answer.partition, answer.offset) for answer in answers] == [(n % 2, n % 2) for n in range(6_001)]


def test_offsets_are_found_by_time_and_by_place(client: RollwayClient, topic: str) -> None:
    client.produce_batches(topic, 1, [batch(b"a", b"b", b"c", timestamp=1_000)])
    asked = [
        OffsetAsk(topic, 1, "earliest"),
        OffsetAsk(topic, 1, "latest"),
        OffsetAsk(topic, 1, 1_001),
        OffsetAsk(topic, 1, 5_000),
        OffsetAsk(topic, 1, "max_timestamp"),
    ]
    answers = client.offsets_for_times(asked, isolation="read_committed")
    assert [answer.offset for answer in answers] == [0, 3, 1, None, 2]
    assert [answer.timestamp for answer in answers] == [None, None, 1_001, None, 1_002]
    assert {(answer.topic, answer.partition) for answer in answers} == {(topic, 1)}
    topic_id = client.describe_topic(topic).topic_id
    assert client.watermarks(topic)[1] == PartitionOffsets(topic_id, 1, 0, 3, 3)
    assert client.offsets_for_times([]) == []


def test_a_topic_is_split_between_batches(client: RollwayClient, topic: str) -> None:
    for _ in range(4):
        client.produce_batches(topic, 0, [batch(b"a", b"b")])
    splits = client.split(topic, {"split_count": 2})
    size_bytes = len(batch(b"a", b"b"))
    assert splits.splits == [SplitRange(0, 0, 4, 2 * size_bytes), SplitRange(0, 4, 8, 2 * size_bytes)]
    assert splits.size_bytes == 4 * size_bytes
    assert [(each.partition, each.end_offset, each.start_is_late) for each in splits.partitions] == [
        (0, 8, False),
        (1, 0, False),
        (2, 0, False),
    ]


# Load jobs


def test_a_load_job_from_its_beginning_to_its_commit(client: RollwayClient, topic: str) -> None:
    application = next(_applications)
    job = client.begin_job(application, 3, mode="transactional", timeout_ms=60_000, topics=[topic])
    assert (job.application_id, job.version, job.state, job.partitions) == (application, 3, "open", [])
    winner, loser = client.enlist(job.job_id, 0, 0), client.enlist(job.job_id, 0, 1)
    assert winner.transactional
    for attempt in (winner, loser):
        stamp = {"producer_id": attempt.producer_id, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
        client.produce_batches(topic, 0, [batch(b"a", b"b", **stamp)])
    progress = client.find_job(job.job_id)
    assert (progress.rows, [(each.topic, each.partition, each.rows) for each in progress.partitions]) == (
        4,
        [(topic, 0, 4)],
    )
    with pytest.raises(JobConflictError, match="job_incomplete"):
        client.commit_job(job.job_id, [(winner.producer_id, 3)])
    for _ in range(2):
        committed = client.commit_job(job.job_id, [(winner.producer_id, 2)])
        assert (committed.state, committed.rows, committed.winner_count) == ("committed", 2, 1)
    assert client.abort_job(job.job_id).state == "committed"
    assert client.begin_job(application, 3, mode="transactional", timeout_ms=60_000).job_id == job.job_id
    fetched = client.fetch(topic, 0, offset=0, max_bytes=1 << 20, isolation="read_committed")
    assert fetched.aborted == [(loser.producer_id, 2)]
    with pytest.raises(JobConflictError) as caught:
        client.enlist(job.job_id, 1, 0)
    assert caught.value.state == "committed"
    late = batch(b"c", producer_id=winner.producer_id, producer_epoch=0, base_sequence=2, transactional=True)
    with pytest.raises(ProblemError) as refused:
        client.produce_batches(topic, 0, [late])
    assert refused.value.status == 409


def test_jobs_are_listed_page_after_page(client: RollwayClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollway.client.client.PAGE_SIZE", 2)
    application = next(_applications)
    begun = [
        client.begin_job(application, version, mode="idempotent", timeout_ms=60_000).job_id for version in range(5)
    ]
    listed = client.list_jobs(application)
    assert sorted(job.job_id for job in listed) == sorted(begun)
    assert [job.job_id for job in client.list_jobs(application, state="open")] == begun[-1:]
    assert client.begin_job(application, 4, mode="idempotent", timeout_ms=60_000, join=True).job_id == begun[-1]
    assert client.abort_job(begun[-1]).reason == "asked"


def test_a_job_that_is_not_there(client: RollwayClient) -> None:
    for ask in (client.find_job, client.abort_job, lambda job_id: client.commit_job(job_id, [])):
        with pytest.raises(JobNotFoundError, match="there is no load job 'no-such'"):
            ask("no-such")


# Start positions


def test_the_first_to_ask_decides_where_a_group_starts(client: RollwayClient, topic: str) -> None:
    group = f"group-of-{topic}"
    assert client.pin_positions(group, {topic: {0: 0, 2: 0}}) == {topic: {0: 0, 2: 0}}
    client.produce_batches(topic, 0, [batch(b"a", b"b")])
    assert client.pin_positions(group, {topic: {0: 2, 1: 0}}) == {topic: {0: 0, 1: 0}}
    with pytest.raises(TopicNotFoundError):
        client.pin_positions(group, {"no-such": {0: 0}})
    assert client.pinned_positions(group) == {topic: {0: 0, 1: 0, 2: 0}}
    client.forget_positions(group)
    client.forget_positions(group)
    assert client.pinned_positions(group) == {}
