"""A list within its documented limit is taken: the limit of values in a body was below that of some lists."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

NO_JOB = "/v1/jobs/0123456789abcdef/commit"


def of(topic: str, number: int) -> dict[str, Any]:
    return {"topic": topic, "partition": number, "timestamp": "latest", "current_leader_epoch": None}


def test_ten_thousand_questions_are_answered(client: httpx.Client, topic: str) -> None:
    name = topic.rsplit("/", 1)[1]
    answer = client.post("/v1/offsets", json={"queries": [of(name, 0)] * 10_000})
    assert answer.status_code == 200, answer.text[:300]
    assert (
        answer.json()["results"]
        == [{"topic": name, "partition": 0, "offset": 0, "timestamp": None, "leader_epoch": 0}] * 10_000
    )


def test_a_job_of_many_tasks_can_be_committed(client: httpx.Client) -> None:
    """20,000 attempts may enlist by default, and each may win."""
    winners = [{"producer_id": 4000 + number, "rows": 1} for number in range(20_000)]
    answer = client.post(NO_JOB, json={"winners": winners})
    assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")


def test_as_many_bounds_as_splits_are_taken(client: httpx.Client, topic: str) -> None:
    bounds = [{"partition": number, "start_offset": 0, "end_offset": 1} for number in range(10_000)]
    answer = client.post(f"{topic}/splits", json={"partitions": bounds})
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_topic_or_partition")


@pytest.mark.parametrize(("count", "detail"), [(2, "/winners/0/producer_id"), (40_000, "the body: 40000 faults")])
def test_very_many_faults_are_counted_and_not_listed(client: httpx.Client, count: int, detail: str) -> None:
    answer = client.post(NO_JOB, json={"winners": [{"rows": 1}] * count})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert answer.json()["detail"].startswith(detail)
