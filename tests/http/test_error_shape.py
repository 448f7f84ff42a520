"""A walk over every route: whatever goes wrong has the one shape, and a code that is documented."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.main import whole_document
from app.problems import kinds
from schemas.errors import Problem
from tests.support.writers import record_batch

DOCUMENT = whole_document()
OPERATIONS = [
    (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]
# The service has it, and the document does not.
OPERATIONS += [
    ("HEAD", path, {**operation, "operationId": "headRecords"})
    for method, path, operation in OPERATIONS
    if operation["operationId"] == "fetchRecords"
]
IN_TOPICS = [entry for entry in OPERATIONS if "{topic}" in entry[1]]
IN_TOPICS_THAT_EXIST = [entry for entry in IN_TOPICS if entry[2]["operationId"] != "ensureTopic"]
WITH_BODIES = [entry for entry in OPERATIONS if "requestBody" in entry[2]]
OF_SEGMENTS = ("listSegments", "getRetentionPlan", "runRetention")
METHODS = ("GET", "PUT", "POST", "PATCH", "DELETE")
KINDS = {(kind.status, kind.code) for kind in kinds.ALL}


NEEDS_SEGMENTS = pytest.mark.needs_local("it needs segments or retention on request, which are capabilities")


def over(operations: list[tuple[str, str, dict[str, Any]]], *, without_capability: bool = True) -> pytest.MarkDecorator:
    """Parametrize a test with operations; ``without_capability`` tells that 501 is no wrong answer."""
    parameters = [
        pytest.param(
            *entry,
            id=entry[2]["operationId"],
            marks=[NEEDS_SEGMENTS] if entry[2]["operationId"] in OF_SEGMENTS and not without_capability else [],
        )
        for entry in operations
    ]
    return pytest.mark.parametrize(("method", "path", "operation"), parameters)


def filled(path: str, topic: str = "nowhere", partition: str = "0", offset: str = "0") -> str:
    names = {
        "transactional_id": "nobody",
        "key_id": "nowhere",
        "token_id": "nowhere",
        "job_id": "nothing",
        "group_id": "nobody",
    }
    return path.format(topic=topic, partition=partition, offset=offset, **names)


def check_shape(answer: httpx.Response, operation: dict[str, Any] | None = None) -> Problem:
    """The one shape; and the status is one the document gives for the operation."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    assert answer.headers["cache-control"] == "no-store"
    problem = Problem.model_validate_json(answer.content)
    assert problem.status == answer.status_code
    assert problem.type == f"urn:rollway:problem:{problem.code}"
    assert (problem.status, problem.code) in KINDS
    assert problem.detail
    assert problem.instance == answer.request.url.raw_path.decode().partition("?")[0]
    if operation is not None:
        responses = operation["responses"]
        assert str(problem.status) in responses
        assert problem.code in responses[str(problem.status)]["content"]["application/problem+json"]["examples"]
    return problem


def test_the_walk_sees_every_route() -> None:
    assert len(OPERATIONS) >= 32


@over(OPERATIONS, without_capability=False)
def test_an_unknown_parameter_is_422(client: httpx.Client, method: str, path: str, operation: dict[str, Any]) -> None:
    if method == "HEAD":
        assert client.head(filled(path), params={"surprise": "1"}).status_code == 422
        return
    problem = check_shape(client.request(method, filled(path), params={"surprise": "1"}), operation)
    assert (problem.status, problem.errors[0].pointer) == (422, "surprise")


def test_a_parameter_without_a_name_is_not_told_as_the_body(client: httpx.Client) -> None:
    for query, kind in (("=1", (422, "invalid_request")), ("=%FF", (400, "malformed_request"))):
        problem = check_shape(client.get(f"/v1/topics?{query}"))
        assert (problem.status, problem.code, problem.errors[0].pointer) == (*kind, "")
        assert problem.detail == f": {problem.errors[0].detail}"


@over(IN_TOPICS_THAT_EXIST, without_capability=False)
def test_an_unknown_topic_or_partition_is_404(
    client: httpx.Client, topic: str, method: str, path: str, operation: dict[str, Any]
) -> None:
    name = topic.rpartition("/")[2]
    places = [filled(path)] + ([filled(path, name, "99")] if "{partition}" in path else [])
    for place in places:
        answer = client.request(method, place, params=required(operation), **body_of(operation))
        assert answer.status_code == 404
        if method != "HEAD":
            assert check_shape(answer, operation).kafka_code == 3


@over(IN_TOPICS, without_capability=False)
def test_an_illegal_name_or_number_is_422(
    client: httpx.Client, topic: str, method: str, path: str, operation: dict[str, Any]
) -> None:
    places = [filled(path, "x" * 250)]
    places += [filled(path, partition="-1")] if "{partition}" in path else []
    places += [filled(path, topic.rpartition("/")[2], offset="x")] if "{offset}" in path else []
    for place in places:
        answer = client.request(method, place, params=required(operation), **body_of(operation))
        assert answer.status_code == 422
        if method != "HEAD":
            check_shape(answer, operation)


@pytest.mark.parametrize("path", sorted(DOCUMENT["paths"]))
def test_another_method_is_405_with_allow(client: httpx.Client, path: str) -> None:
    offered = {method.upper() for method in DOCUMENT["paths"][path]}
    for method in METHODS:
        if method not in offered:
            answer = client.request(method, filled(path))
            assert answer.status_code == 405
            assert check_shape(answer).code == "method_not_allowed"
            expected = offered | ({"HEAD"} if "GET" in offered else set())
            assert set(answer.headers["allow"].split(", ")) == expected


def test_head_is_get_without_a_body(client: httpx.Client, topic: str) -> None:
    records = f"{topic}/partitions/0/records"
    client.post(records, json={"records": [{"value": "x" * 3000}]})
    paths = [
        "/healthz",
        "/readyz",
        "/docs",
        "/openapi.json",
        topic,
        f"{records}/0",
        f"{records}/0/value",
        f"{records}/7",
    ]
    for path in paths:
        for encoding in ("identity", "gzip"):
            headers = {"Accept-Encoding": encoding}
            got, head = client.get(path, headers=headers), client.head(path, headers=headers)
            assert (head.status_code, head.content) == (got.status_code, b""), path
            for name in ("content-type", "content-length", "content-encoding", "etag", "cache-control", "vary"):
                assert head.headers.get(name) == got.headers.get(name), (path, name)
    assert client.head("/metrics").status_code == 200
    assert 'method="HEAD",route="/healthz"' in client.get("/metrics").text
    assert client.head("/nowhere").status_code == 404
    assert client.head("/v1/offsets").status_code == 405


@over(WITH_BODIES)
def test_wrong_bodies_are_refused(
    client: httpx.Client, topic: str, method: str, path: str, operation: dict[str, Any]
) -> None:
    place = filled(path, topic.rpartition("/")[2])
    for content, media_type, status in [
        *wrong_json(operation),
        (b"a,b", "text/csv", 415),
    ]:
        answer = client.request(method, place, content=content, headers={"Content-Type": media_type})
        assert answer.status_code == status, answer.text
        check_shape(answer, operation)
    (media_type,) = operation["requestBody"]["content"]
    headers = {"Content-Type": media_type, "Content-Encoding": "br"}
    unknown = client.request(method, place, content=b"{}", headers=headers)
    assert check_shape(unknown, operation).code == "unsupported_content_encoding"
    large = client.request(method, place, content=b"x" * (40 * 1024 * 1024), headers={"Content-Type": media_type})
    assert check_shape(large, operation).code == "request_too_large"


def wrong_json(operation: dict[str, Any]) -> list[tuple[bytes, str, int]]:
    """JSON that is wrong where JSON is taken, and where lines of it are; and right, where it is not."""
    content = operation["requestBody"]["content"]
    wrong = [(b"{", 400), (b"\xff", 400), (b'"text"', 422), (b'{"surprise":1}', 422)]
    if "application/octet-stream" in content:
        return [(b"{", "application/octet-stream", 400), (b'{"records":[]}', "application/json", 415)]
    lines = [(body, "application/x-ndjson", status) for body, status in wrong]
    if "application/x-ndjson" in content:
        return [*lines, (b'{"value":"a"}', "application/json", 415)]
    return [(body, "application/json", status) for body, status in wrong]


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/v1/topics/", "/v1/topics/a/b", "/v2/topics", "/docs/x", "/%ff"])
def test_an_unknown_route_is_404(client: httpx.Client, path: str) -> None:
    assert check_shape(client.get(path)).code == "not_found"


def required(operation: dict[str, Any]) -> dict[str, str]:
    """Parameters without which the route does not get as far as the topic."""
    if operation["operationId"] in ("fetchRecords", "headRecords", "fetchRecordBatches", "fetchRecordLines"):
        return {"offset": "0"}
    return {"timestamp": "earliest"} if operation["operationId"] == "getOffset" else {}


def body_of(operation: dict[str, Any]) -> dict[str, Any]:
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        if media_type == "application/json":
            return {"json": content["example"]}
        # Batches cannot be shown in the document.
        body = content.get("example", "").encode() or record_batch(b"a")
        return {"content": body, "headers": {"Content-Type": media_type}}
    return {}


def examples() -> Iterator[tuple[str, dict[str, Any]]]:
    for _, _, operation in OPERATIONS:
        for status, response in operation["responses"].items():
            content = response.get("content", {}).get("application/problem+json", {})
            for example in content.get("examples", {}).values():
                yield status, example["value"]


def test_documented_examples_have_the_shape() -> None:
    shown = list(examples())
    assert len(shown) > 100
    for status, example in shown:
        assert Problem.model_validate(example).status == int(status)


def test_a_404_says_where_to_look(client: httpx.Client, topic: str) -> None:
    assert "/docs" in client.get("/").json()["detail"]
    for path in ("/v1/topics/a%2Fb", "/v1/transactions/a%2fb"):
        assert "cannot have a slash" in client.get(path).json()["detail"]
    assert client.get("/v1/nothing").json()["detail"] == "there is nothing at /v1/nothing"
    assert "has partitions 0 to 1, not 9" in client.get(f"{topic}/partitions/9").json()["detail"]
    assert client.put("/v1/topics/of-one", json={"partitions": 1}).status_code == 201
    assert "has partition 0 alone, not 9" in client.get("/v1/topics/of-one/partitions/9").json()["detail"]
    refused = client.patch(topic, json={"config": {"": 1}}).json()
    assert refused["detail"] == "a setting needs a name"
