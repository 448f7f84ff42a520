"""What errors say: in the words of JSON and of this interface, where the fault is, and what is allowed instead."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import httpx
import pytest

from app.cli import run

JSON = {"Content-Type": "application/json"}
LEAKS = re.compile(r"Value error|Input should|Extra inputs|Expected `|regex|match pattern|dictionary|was truncated")


def refused(client: httpx.Client, method: str, path: str, **request: Any) -> dict[str, Any]:
    answer = client.request(method, path, **request)
    assert answer.status_code >= 400, answer.text
    problem: dict[str, Any] = answer.json()
    assert not LEAKS.search(answer.text), answer.text
    return problem


def places(problem: dict[str, Any]) -> list[str]:
    return [fault["pointer"] for fault in problem["errors"]]


@pytest.mark.parametrize(
    ("method", "path", "pointer", "detail"),
    [
        ("GET", "/v1/topics?limit=0", "limit", "must be a whole number from 1 to 1000"),
        ("GET", f"/v1/topics?limit={'9' * 40}", "limit", "must be a whole number from 1 to 1000"),
        ("GET", "/v1/topics?limitt=1", "limitt", "unknown parameter; did you mean limit?"),
        ("GET", "/v1/topics?zzz=1", "zzz", "unknown parameter; allowed: limit, prefix, start_after"),
        ("GET", "/v1/jobs?start_after=xyz", "start_after", "must be the next_cursor of a page"),
        ("GET", "{topic}/partitions/0/offsets?timestamp=now", "timestamp", "one of earliest, latest, max_timestamp"),
        ("GET", "{topic}/partitions/0/offsets?timestamp=-1", "timestamp", "one of earliest, latest, max_timestamp"),
        ("GET", "/v1/topics/a%20b", "topic", "a topic name"),
        ("DELETE", "/v1/acls", "principal", "give at least one of principal, permission, operation"),
        ("POST", "{topic}/records?acks=2", "acks", "acks must be 0, 1 or all"),
    ],
)
def test_a_parameter(client: httpx.Client, topic: str, method: str, path: str, pointer: str, detail: str) -> None:
    problem = refused(client, method, path.replace("{topic}", topic), **({"headers": JSON} if method == "POST" else {}))
    assert places(problem) == [pointer]
    assert detail in problem["errors"][0]["detail"]


@pytest.mark.parametrize(
    ("method", "path", "body", "pointer", "detail"),
    [
        (
            "POST",
            "{topic}/partitions/0/records",
            {"records": [{"value": 1}]},
            "/records/0/value",
            "must be a string or null, not a whole number (is the value JSON? then add encoding=json to the query, or",
        ),
        ("POST", "/v1/fetch", {"isolation": "x"}, "/isolation", "must be one of read_committed, read_uncommitted"),
        ("POST", "/v1/fetch", {"partition": []}, "/partition", "unknown field; did you mean partitions?"),
        (
            "POST",
            "/v1/fetch",
            {"partitions": [{"topic_id": "x", "partition": 0, "fetch_offset": 0}]},
            "/partitions/0/topic_id",
            "must be 22 characters of base64url",
        ),
        ("POST", "/v1/jobs", {"application_id": "", "version": 1}, "/application_id", "an application id has 1 to 249"),
        (
            "POST",
            "/v1/groups/g/start-positions",
            {"positions": {"t1": {"x": 1}}},
            "/positions/t1/x",
            "must be a partition number, from 0 to 2147483647",
        ),
        ("PUT", "/v1/topics/new", {"partitons": 1}, "/partitons", "unknown field; did you mean partitions?"),
        ("PUT", "/v1/topics/new", {"config": []}, "/config", "must be an object"),
        ("PUT", "/v1/topics/new", {"partitions": "1"}, "/partitions", "must be a whole number"),
        (
            "PUT",
            "/v1/topics/new",
            {"config": {"retentionms": 1}},
            "/config/retentionms",
            "is not a topic setting of Rollway; did you mean retention.ms?",
        ),
        ("PATCH", "{topic}", {"partitions": 1}, "/partitions", "there cannot be fewer"),
        ("PUT", "{topic}", {"partitions": 7}, "/partitions", "partitions, not 7"),
        (
            "PUT",
            "{topic}/retention",
            {"retention_ms": None, "retention_bytes": None, "cleanup_policy": "x"},
            "/cleanup_policy",
            "must be",
        ),
        (
            "POST",
            "{topic}/splits",
            {"partitions": [{"partition": 0}, {"partition": 0}]},
            "/partitions/1",
            "this partition occurs twice",
        ),
        ("POST", "/v1/keys", {"principal": "x"}, "/principal", "User:name"),
        ("POST", "/v1/keys", {"principal": "User:x", "expires_at": 1}, "/expires_at", "expired already"),
        (
            "POST",
            "/v1/acls",
            {
                "acls": [
                    {"principal": "User:a", "operation": "READ", "resource_type": "topic", "resource_name": "t"},
                    {"principal": "x", "operation": "READ", "resource_type": "topic", "resource_name": "t"},
                ]
            },
            "/acls/1/principal",
            "User:name",
        ),
        (
            "POST",
            "/v1/producers",
            {"transactional_id": "t", "transaction_timeout_ms": 2**31 - 1},
            "/transaction_timeout_ms",
            "",
        ),
    ],
)
def test_a_field(
    client: httpx.Client, topic: str, method: str, path: str, body: Any, pointer: str, detail: str
) -> None:
    problem = refused(client, method, path.replace("{topic}", topic), json=body)
    assert places(problem) == [pointer]
    assert detail in problem["errors"][0]["detail"]


def test_a_topic_that_is_another_says_both_values(client: httpx.Client, topic: str) -> None:
    described = client.get(topic).json()
    problem = refused(
        client, "PUT", topic, json={"partitions": len(described["partitions"]), "config": {"retention.ms": 5}}
    )
    assert f"retention.ms {described['config']['retention.ms']['value']}, not 5" in problem["detail"]
    assert places(problem) == ["/config"]


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "the body is empty"),
        (b' {"partitions":', "the JSON body is incomplete"),
        (b'{"config": {"cleanup.policy": "\\ud800"}}', "a text has an unpaired surrogate"),
    ],
)
def test_a_body_that_is_no_json(client: httpx.Client, topic: str, body: bytes, detail: str) -> None:
    assert refused(client, "PATCH", topic, content=body, headers=JSON)["detail"] == detail


def test_a_content_type_that_is_missing(client: httpx.Client, topic: str) -> None:
    problem = refused(client, "PATCH", topic, content=b"{}")
    assert problem["detail"] == "Content-Type is missing: send application/json"


@pytest.mark.parametrize("query", ["on_truncated=x&offset=0", "encoding=x&offset=0", "isolation=x&offset=0"])
def test_one_of_few_words(client: httpx.Client, topic: str, query: str) -> None:
    problem = refused(client, "GET", f"{topic}/partitions/0/records?{query}")
    assert problem["errors"][0]["detail"].startswith("must be '")


def test_a_command_says_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fetch", "readings", "--format", "xml"]) == 2
    told = capsys.readouterr().err
    assert "'xml' is not one of 'json', 'value', 'raw'" in told
    assert not LEAKS.search(told)


@pytest.mark.parametrize("compression", ["producer", "gzip"])
def test_a_record_that_the_topic_does_not_take(client: httpx.Client, topic: str, compression: str) -> None:
    """Whoever sent records knows nothing of batches: the record is named, and what is allowed."""
    config = {"max.message.bytes": 1000, "message.timestamp.before.max.ms": 1000, "compression.type": compression}
    assert client.patch(topic, json={"config": config}).status_code == 200
    noise = os.urandom(1500).hex()
    documents: list[tuple[dict[str, Any], str]] = [
        ({"value": noise}, r"the record takes \d+ bytes in a batch of its own; max.message.bytes is 1000"),
        ({"value": "b", "timestamp": 5}, r"the timestamp is outside \d+ to \d+, the range the topic accepts now"),
    ]
    for wrong, detail in documents:
        problem = refused(client, "POST", f"{topic}/partitions/0/records", json={"records": [{"value": "a"}, wrong]})
        assert places(problem) == ["/records/1"]
        assert re.fullmatch(detail, problem["errors"][0]["detail"])
        assert problem["detail"] == f"/records/1: {problem['errors'][0]['detail']}"
        lines = "".join(f"{json.dumps(each)}\n" for each in ({"value": "a"}, wrong))
        problem = refused(
            client,
            "POST",
            f"{topic}/partitions/0/records",
            content=lines,
            headers={"Content-Type": "application/x-ndjson"},
        )
        assert places(problem) == ["/1"]
        parts = [{"topic": topic.rpartition("/")[2], "partition": 0, "records": [{"value": "a"}, wrong]}]
        problem = refused(client, "POST", "/v1/produce", json={"partitions": parts})
        assert places(problem) == ["/partitions/0/records/1"]
