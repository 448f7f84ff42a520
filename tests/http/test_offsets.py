"""Offsets by time, for one partition and for many."""

from __future__ import annotations

from typing import Any

import httpx
import pytest


@pytest.fixture
def path(client: httpx.Client, topic: str) -> str:
    """A partition with the timestamps of case F-11."""
    path = f"{topic}/partitions/0"
    for timestamp in (0, 1, 2, 3, 4, 6, 5):
        record = {"value": str(timestamp), "timestamp": timestamp}
        assert client.post(f"{path}/records", json={"records": [record]}).status_code == 200
    return path


def offset_of(client: httpx.Client, path: str, timestamp: Any) -> tuple[int | None, int | None]:
    answer = client.get(f"{path}/offsets", params={"timestamp": timestamp})
    assert answer.status_code == 200, answer.text
    document = answer.json()
    assert document["partition"] == 0
    assert (document["offset"] is None) == (document["leader_epoch"] is None)
    return document["offset"], document["timestamp"]


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        ("earliest", (0, None)),
        ("latest", (7, None)),
        ("max_timestamp", (5, 6)),
        (0, (0, 0)),
        (4, (4, 4)),
        (5, (5, 6)),
        (6, (5, 6)),
        (7, (None, None)),
        ("1970-01-01T00:00:00.003Z", (3, 3)),
        (2**63 - 1, (None, None)),
    ],
)
def test_f_11_offsets_by_time(client: httpx.Client, path: str, timestamp: Any, expected: tuple[Any, Any]) -> None:
    """Spec ListOffsets."""
    assert offset_of(client, path, timestamp) == expected


def test_an_empty_partition_has_only_its_ends(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0"
    assert offset_of(client, path, "earliest") == offset_of(client, path, "latest") == (0, None)
    assert offset_of(client, path, "max_timestamp") == offset_of(client, path, 0) == (None, None)


def test_b_7_latest_then_produce_reads_exactly_the_new_one(client: httpx.Client, path: str) -> None:
    """Spec B7."""
    latest, _ = offset_of(client, path, "latest")
    client.post(f"{path}/records", json={"records": [{"value": "new"}]})
    records = client.get(f"{path}/records", params={"offset": latest}).json()["records"]
    assert [record["value"] for record in records] == ["new"]


def test_deleted_records_are_not_found(client: httpx.Client, path: str) -> None:
    client.post(f"{path}/delete-records", json={"offset": 3})
    assert offset_of(client, path, "earliest") == (3, None)
    assert offset_of(client, path, 0) == (3, 3)


def test_many_questions_have_one_answer_each_in_order(client: httpx.Client, topic: str, path: str) -> None:
    name = topic.rpartition("/")[2]
    asked = [("latest", 0), (2, 0), ("earliest", 1), (99, 0)]
    queries = [{"topic": name, "partition": partition, "timestamp": timestamp} for timestamp, partition in asked]
    answer = client.post("/v1/offsets", json={"queries": queries, "isolation": "read_committed"})
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [(result["topic"], result["partition"]) for result in results] == [(name, number) for _, number in asked]
    assert [result["offset"] for result in results] == [7, 2, 0, None]


def test_a_time_in_a_body_is_a_number_or_its_text(client: httpx.Client, topic: str, path: str) -> None:
    """Where words stand beside a number, the document that clients are made of has text."""
    name = topic.rpartition("/")[2]
    times: list[Any] = [2, "2", 2.0, "1970-01-01T00:00:00.002Z", "0", "999999999999999999"]
    queries = [{"topic": name, "partition": 0, "timestamp": timestamp} for timestamp in times]
    results = client.post("/v1/offsets", json={"queries": queries}).json()["results"]
    assert [result["offset"] for result in results] == [2, 2, 2, 2, 0, None]


@pytest.mark.parametrize("timestamp", ["", " 2", "+2", "-1", "02", "2.0", "2" * 19, "soon", 2.5, -1, True, None, [2]])
def test_no_time_in_a_body_is_refused(client: httpx.Client, topic: str, path: str, timestamp: Any) -> None:
    query = {"topic": topic.rpartition("/")[2], "partition": 0, "timestamp": timestamp}
    refused = client.post("/v1/offsets", json={"queries": [query]})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    assert refused.json()["errors"][0]["pointer"] == "/queries/0/timestamp"


def test_some_failed_is_207_and_all_failed_is_the_error(client: httpx.Client, topic: str, path: str) -> None:
    good = {"topic": topic.rpartition("/")[2], "partition": 0, "timestamp": 0}
    bad = {"topic": "nowhere", "partition": 0, "timestamp": 0}
    mixed = client.post("/v1/offsets", json={"queries": [bad, good]})
    assert mixed.status_code == 207
    failure, result = mixed.json()["results"]
    assert (failure["topic"], failure["error"]["status"], failure["error"]["kafka_code"]) == ("nowhere", 404, 3)
    assert result["offset"] == 0
    failed = client.post("/v1/offsets", json={"queries": [bad, bad]})
    assert (failed.status_code, failed.json()["kafka_code"], len(failed.json()["results"])) == (404, 3, 2)


@pytest.mark.parametrize(
    "query", ["", "timestamp=", "timestamp=soon", "timestamp=-1", "timestamp=0&isolation=dirty", "timestamp=0&x=1"]
)
def test_wrong_questions_are_refused(client: httpx.Client, path: str, query: str) -> None:
    refused = client.get(f"{path}/offsets?{query}")
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
