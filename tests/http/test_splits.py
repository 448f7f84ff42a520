"""Splitting a topic for readers that share the work."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import httpx
import pytest

from rollway.records import split_batches
from tests.support.transactions import ProducerIdentity, transactional_batch
from tests.support.writers import record_batch

RAW = "application/vnd.kafka.record-batch.v2"
TIMESTAMP = 1_700_000_000_000


def split(client: httpx.Client, topic: str, expected: int = 200, **body: Any) -> dict[str, Any]:
    answer = client.post(f"{topic}/splits", json=body)
    assert answer.status_code == expected, answer.text
    document: dict[str, Any] = answer.json()
    return document


def produce(client: httpx.Client, partition: str, batch: bytes) -> int:
    answer = client.post(f"{partition}/records", content=batch, headers={"Content-Type": RAW})
    assert answer.status_code == 200, answer.text
    return int(answer.json()["base_offset"])


def fill(client: httpx.Client, partition: str, batch_count: int, first: int = 0) -> None:
    """Batches of ten records, one second apart."""
    for number in range(first, first + batch_count):
        values = [b"%09d" % (10 * number + place) + b"v" * 91 for place in range(10)]
        produce(client, partition, record_batch(*values, timestamp=TIMESTAMP + 1000 * number))


def read(client: httpx.Client, topic: str, wanted: dict[str, Any], isolation: str) -> tuple[list[int], int]:
    """The offsets of a split, as a reader of raw batches has them, and the bytes it fetched."""
    offsets: list[int] = []
    fetched_bytes = 0
    offset, end = wanted["start_offset"], wanted["end_offset"]
    while offset < end:
        params = {"offset": offset, "end_offset": end, "isolation": isolation, "max_bytes": 64 * 1024}
        path = f"{topic}/partitions/{wanted['partition']}/records"
        answer = client.get(path, params=params, headers={"Accept": RAW})
        assert answer.status_code == 200, answer.text
        fetched_bytes += len(answer.content)
        for batch in split_batches(answer.content):
            header = batch.header
            offsets += [each for each in range(header.base_offset, header.last_offset + 1) if offset <= each < end]
        offset = int(answer.headers["Next-Offset"])
    return offsets, fetched_bytes


def test_sixty_four_splits_fetch_every_byte_once(client: httpx.Client, topic: str) -> None:
    """Issue 5, acceptance 4: bytes fetched over range bytes at most 1.05, every offset exactly once."""
    fill(client, f"{topic}/partitions/0", 300)
    fill(client, f"{topic}/partitions/1", 100)
    answer = split(client, topic, split_count=64)
    assert len(answer["splits"]) == 64
    found: dict[int, list[int]] = {0: [], 1: []}
    fetched_bytes = 0
    for each in answer["splits"]:
        offsets, size_bytes = read(client, topic, each, "read_uncommitted")
        found[each["partition"]] += offsets
        fetched_bytes += size_bytes
        assert size_bytes == each["size_bytes"]
    assert found == {0: list(range(3000)), 1: list(range(1000))}
    assert fetched_bytes == answer["size_bytes"]
    sizes = [each["size_bytes"] for each in answer["splits"]]
    assert max(sizes) <= answer["size_bytes"] / 64 + 2 * 1200


def test_ends_are_frozen(client: httpx.Client, topic: str) -> None:
    fill(client, f"{topic}/partitions/0", 3)
    answer = split(client, topic, split_count=2)
    fill(client, f"{topic}/partitions/0", 3, first=3)
    offsets = [offset for each in answer["splits"] for offset in read(client, topic, each, "read_uncommitted")[0]]
    assert offsets == list(range(30))


def test_committed_splits_end_before_the_open_transaction(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0"
    fill(client, path, 4)
    producer = client.post("/v1/producers", json={"transactional_id": f"split-{topic.rpartition('/')[2]}"}).json()
    identity = ProducerIdentity(producer["producer_id"], producer["producer_epoch"])
    produce(client, path, transactional_batch(identity, 0, b"open"))
    fill(client, path, 1, first=4)
    ends = {
        isolation: split(client, topic, split_count=3, isolation=isolation)["splits"][-1]["end_offset"]
        for isolation in ("read_committed", "read_uncommitted")
    }
    assert ends == {"read_committed": 40, "read_uncommitted": 51}
    ends_at = split(client, topic, 416, isolation="read_committed", partitions=[{"partition": 0, "end_offset": 45}])
    assert ends_at["code"] == "offset_out_of_range"


def test_an_empty_topic_has_no_splits_and_still_its_partitions(client: httpx.Client, topic: str) -> None:
    answer = client.post(f"{topic}/splits").json()
    assert (answer["splits"], answer["size_bytes"]) == ([], 0)
    assert [(each["partition"], each["start_offset"], each["end_offset"]) for each in answer["partitions"]] == [
        (0, 0, 0),
        (1, 0, 0),
    ]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({}, (0, 100)),
        ({"start_offset": 15, "end_offset": 42}, (15, 42)),
        ({"start_offset": "latest"}, (100, 100)),
        ({"end_offset": "earliest"}, (0, 0)),
        ({"end_offset": 0}, (0, 0)),
        ({"start_offset": "15", "end_offset": "42"}, (15, 42)),
        ({"start_offset": 15.0, "end_offset": 4.2e1}, (15, 42)),
        ({"start_timestamp": TIMESTAMP + 3000}, (30, 100)),
        ({"end_timestamp": TIMESTAMP + 5000}, (0, 50)),
        ({"start_timestamp": TIMESTAMP + 3000, "end_timestamp": TIMESTAMP + 5000}, (30, 50)),
        ({"start_timestamp": TIMESTAMP + 5000, "end_timestamp": TIMESTAMP + 3000}, (30, 30)),
        ({"start_timestamp": TIMESTAMP + 3004, "end_offset": 99}, (34, 99)),
        ({"end_timestamp": TIMESTAMP + 10**9}, (0, 100)),
    ],
)
def test_a_range_by_offset_or_time(
    client: httpx.Client, topic: str, bounds: dict[str, Any], expected: tuple[int, int]
) -> None:
    """What Kafka's Spark source calls startingOffsets, endingOffsets, and the same by timestamp."""
    fill(client, f"{topic}/partitions/0", 10)
    for_all = {**bounds, "partitions": [{"partition": 0}]}
    for body in (for_all, {"partitions": [{"partition": 0, **bounds}]}):
        answer = split(client, topic, split_count=4, **body)
        found = answer["partitions"][0]
        assert (found["start_offset"], found["end_offset"]) == expected
        own = [each for each in answer["splits"] if each["partition"] == 0]
        assert all(a["end_offset"] == b["start_offset"] for a, b in pairwise(own))
        assert (own[0]["start_offset"], own[-1]["end_offset"]) == expected if own else expected[0] == expected[1]


def test_a_time_later_than_every_record_is_told(client: httpx.Client, topic: str) -> None:
    fill(client, f"{topic}/partitions/0", 1)
    answer = split(client, topic, start_timestamp=TIMESTAMP + 10**9)
    assert [(each["start_is_late"], each["start_offset"]) for each in answer["partitions"]] == [(True, 10), (True, 0)]
    assert answer["splits"] == []


def test_partitions_say_what_differs_for_them(client: httpx.Client, topic: str) -> None:
    for number in (0, 1):
        fill(client, f"{topic}/partitions/{number}", 5)
    answer = split(client, topic, start_offset=10, end_offset=30, partitions=[{"partition": 1, "end_offset": "latest"}])
    assert [(each["partition"], each["start_offset"], each["end_offset"]) for each in answer["splits"]] == [(1, 10, 50)]


def test_deleted_offsets_are_an_error_or_are_skipped_and_counted(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0"
    fill(client, path, 5)
    assert client.post(f"{path}/delete-records", json={"offset": 25}).status_code == 200
    gone = split(client, topic, 410, partitions=[{"partition": 0, "start_offset": 5}])
    assert (gone["code"], gone["log_start_offset"], gone["log_start_moved_by"]) == (
        "offset_out_of_range",
        25,
        "delete-records",
    )
    answer = split(client, topic, on_truncated="earliest", partitions=[{"partition": 0, "start_offset": 5}])
    assert (answer["partitions"][0]["start_offset"], answer["partitions"][0]["skipped_count"]) == (25, 20)
    all_gone = [{"partition": 0, "start_offset": 5, "end_offset": 12}]
    answer = split(client, topic, on_truncated="earliest", partitions=all_gone)
    assert (answer["splits"], answer["partitions"][0]["skipped_count"]) == ([], 7)


def test_a_limit_of_records_cuts_between_batches(client: httpx.Client, topic: str) -> None:
    fill(client, f"{topic}/partitions/0", 7)
    answer = split(client, topic, max_records_per_split=25)
    assert [(each["start_offset"], each["end_offset"]) for each in answer["splits"]] == [
        (0, 20),
        (20, 40),
        (40, 60),
        (60, 70),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"split_count": 0},
        {"split_count": 10_001},
        {"split_count": "4"},
        {"max_records_per_split": 0},
        {"start_offset": -1},
        {"start_offset": "newest"},
        {"start_offset": ""},
        {"start_offset": "-1"},
        {"start_offset": "015"},
        {"start_offset": "1.0"},
        {"start_offset": " 1"},
        {"start_offset": "1" * 19},
        {"start_offset": 1.5},
        {"start_offset": True},
        {"start_offset": 0, "start_timestamp": 0},
        {"end_offset": 0, "end_timestamp": 0},
        {"start_offset": 2, "end_offset": 1},
        {"partitions": []},
        {"partitions": [{"partition": 0}, {"partition": 0}]},
        {"isolation": "serializable"},
        {"minPartitions": 4},
    ],
)
def test_what_no_split_can_be_is_refused(client: httpx.Client, topic: str, body: dict[str, Any]) -> None:
    assert split(client, topic, 422, **body)["code"] == "invalid_request"


def test_unknown_topics_and_partitions_are_not_found(client: httpx.Client, topic: str) -> None:
    assert split(client, "/v1/topics/nowhere", 404)["kafka_code"] == 3
    assert split(client, topic, 404, partitions=[{"partition": 9}])["kafka_code"] == 3
    assert split(client, topic, 416, partitions=[{"partition": 0, "end_offset": 1}])["code"] == "offset_out_of_range"
