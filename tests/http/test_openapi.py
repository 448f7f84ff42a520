"""The OpenAPI document: fresh, complete, and true of the running service."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.python._constants.orchestrator import make_constants_value_source
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app.main import current_document, whole_document
from app.openapi.document import PATH
from app.openapi.documented_answers import example_of
from tests.support.servers import ThreadedServer

DOCUMENT = whole_document()
PUBLISHED: dict[str, Any] = json.loads(PATH.read_text())
_EXAMPLES = 20 if settings.get_current_profile_name() == "ci" else 40
"""Requests drawn for each route; CI has 20 minutes."""
ROUTES = {
    "GET /v1/acls",
    "POST /v1/acls",
    "DELETE /v1/acls",
    "GET /v1/keys",
    "POST /v1/keys",
    "DELETE /v1/keys/{key_id}",
    "GET /v1/tokens",
    "POST /v1/tokens",
    "DELETE /v1/tokens/{token_id}",
    "GET /v1/quotas",
    "PUT /v1/quotas",
    "DELETE /v1/quotas",
    "PUT /v1/topics/{topic}",
    "GET /v1/topics",
    "GET /v1/topics/{topic}",
    "PATCH /v1/topics/{topic}",
    "DELETE /v1/topics/{topic}",
    "GET /v1/topics/{topic}/partitions",
    "GET /v1/topics/{topic}/partitions/{partition}",
    "GET /v1/topics/{topic}/partitions/{partition}/segments",
    "POST /v1/topics/{topic}/records",
    "POST /v1/topics/{topic}/partitions/{partition}/records",
    "GET /v1/topics/{topic}/partitions/{partition}/records",
    "POST /v1/topics/{topic}/record-lines",
    "POST /v1/topics/{topic}/partitions/{partition}/record-batches",
    "GET /v1/topics/{topic}/partitions/{partition}/record-batches",
    "POST /v1/topics/{topic}/partitions/{partition}/record-lines",
    "GET /v1/topics/{topic}/partitions/{partition}/record-lines",
    "GET /v1/topics/{topic}/partitions/{partition}/records/{offset}",
    "GET /v1/topics/{topic}/partitions/{partition}/records/{offset}/value",
    "POST /v1/fetch",
    "POST /v1/offsets",
    "POST /v1/produce",
    "GET /v1/topics/{topic}/partitions/{partition}/offsets",
    "POST /v1/producers",
    "POST /v1/transactions/{transactional_id}/commit",
    "POST /v1/transactions/{transactional_id}/abort",
    "POST /v1/groups/{group_id}/start-positions",
    "GET /v1/groups/{group_id}/start-positions",
    "DELETE /v1/groups/{group_id}/start-positions",
    "POST /v1/jobs",
    "GET /v1/jobs",
    "GET /v1/jobs/{job_id}",
    "POST /v1/jobs/{job_id}/attempts",
    "POST /v1/jobs/{job_id}/commit",
    "POST /v1/jobs/{job_id}/abort",
    "GET /v1/transactions",
    "GET /v1/transactions/{transactional_id}",
    "GET /v1/topics/{topic}/partitions/{partition}/epochs",
    "POST /v1/topics/{topic}/partitions/{partition}/epochs",
    "GET /v1/topics/{topic}/partitions/{partition}/transactions",
    "POST /v1/topics/{topic}/partitions/{partition}/transactions/abort",
    "GET /v1/topics/{topic}/retention",
    "PUT /v1/topics/{topic}/retention",
    "GET /v1/topics/{topic}/retention/plan",
    "POST /v1/topics/{topic}/retention/run",
    "POST /v1/topics/{topic}/splits",
    "POST /v1/topics/{topic}/partitions/{partition}/delete-records",
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
    "GET /v1/engine",
}


JSON = "application/json"
VALUE = "GET /v1/topics/{topic}/partitions/{partition}/records/{offset}/value"
"""A value that is null is an answer without a body."""


def operations() -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    }


def test_the_file_is_fresh() -> None:
    assert PATH.read_text("utf-8") == current_document(), "run `make openapi`"


def test_it_has_exactly_the_routes_of_this_release() -> None:
    assert set(operations()) == ROUTES


@pytest.mark.parametrize("name", sorted(ROUTES))
def test_every_operation_is_complete(name: str) -> None:
    operation = operations()[name]
    assert re.fullmatch(r"[a-z]+[a-zA-Z]+", operation["operationId"])
    assert operation["summary"]
    assert operation["description"]
    assert len(operation["tags"]) == 1
    for parameter in operation.get("parameters", []):
        assert parameter.get("description"), parameter["name"]
        assert "null" not in json.dumps(parameter["schema"])
    for content in operation.get("requestBody", {}).get("content", {}).values():
        assert "schema" in content
    for status, response in operation["responses"].items():
        assert response["description"]
        if int(status) >= 400:
            assert list(response["content"]) == ["application/problem+json"]
    assert {"500", "503"} <= set(operation["responses"])


@pytest.mark.parametrize("name", sorted(ROUTES))
def test_every_operation_has_one_media_type_each_way(name: str) -> None:
    """Generators take the first of several, or none, and a success without a body beside one with a body is no type."""
    operation = operations()[name]
    assert len(operation.get("requestBody", {"content": {JSON: 0}})["content"]) == 1
    answers = {status: answer.get("content", {}) for status, answer in operation["responses"].items() if status < "300"}
    assert len({media_type for content in answers.values() for media_type in content}) <= 1
    bodiless = {status for status, content in answers.items() if not content}
    assert not bodiless or bodiless == set(answers) or (name, bodiless) == (VALUE, {"204"})


def test_lines_have_a_schema_by_name() -> None:
    found = 0
    for operation in operations().values():
        for holder in (operation.get("requestBody", {}), *operation["responses"].values()):
            for schema in (content["schema"] for content in holder.get("content", {}).values()):
                if "x-line-schema" in schema:
                    shapes = schema["x-line-schema"].get("anyOf", [schema["x-line-schema"]])
                    assert all(shape["$ref"].startswith("#/components/schemas/") for shape in shapes)
                    found += 1
    assert found == 6


@pytest.mark.parametrize("name", sorted(ROUTES))
def test_every_success_says_what_it_is_and_has_an_example_of_its_schema(name: str) -> None:
    for status, answer in operations()[name]["responses"].items():
        assert answer["description"] != "Successful Response"
        for content in answer.get("content", {}).values() if status < "400" else ():
            lines = content["schema"].get("x-line-schema")
            # Bytes cannot be shown in JSON.
            assert "example" in content or content["schema"].get("format") == "binary"
            shown = (
                [json.loads(line) for line in content["example"].splitlines()] if lines else [content.get("example")]
            )
            for example in shown if "example" in content else ():
                # The document's other schemas, by their own places in it.
                document = {**DOCUMENT, **(lines or content["schema"])}
                jsonschema_rs.Draft202012Validator(document, validate_formats=True).validate(example)


def test_every_property_of_every_schema_is_described() -> None:
    for name, schema in DOCUMENT["components"]["schemas"].items():
        for member, part in schema.get("properties", {}).items():
            assert part.get("description"), f"{name}.{member}"


def test_a_schema_without_an_example_is_told() -> None:
    with pytest.raises(ValueError, match=r'no example of \{"type": "integer"\}'):
        example_of({"type": "object", "properties": {"partition": {"type": "integer"}}}, {})


def test_titles_of_one_status_are_said_once() -> None:
    for name, operation in operations().items():
        for status, answer in operation["responses"].items():
            titles = answer["description"].split("; ")
            assert len(set(titles)) == len(titles), (name, status)


def test_operation_ids_are_unique() -> None:
    ids = [operation["operationId"] for operation in operations().values()]
    assert len(set(ids)) == len(ids)


def test_every_reference_has_its_schema() -> None:
    schemas = set(DOCUMENT["components"]["schemas"])
    used = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(DOCUMENT)))
    assert used <= schemas
    assert not {"HTTPValidationError", "ValidationError"} & schemas


def test_examples_of_bodies_are_accepted(client: httpx.Client, topic: str) -> None:
    name = topic.rpartition("/")[2]
    count = 0
    for route, operation in operations().items():
        method, path = route.split()
        for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
            if "example" not in content or re.search("delete|transaction|job_id", path) or method in ("PUT", "PATCH"):
                continue
            example = content["example"]
            body = example if isinstance(example, str) else json.dumps(example).replace("readings", name)
            answer = client.request(
                method,
                path.format(topic=name, partition=0, group_id=name),
                content=body,
                headers={"Content-Type": media_type},
            )
            # Without authentication nobody is there for whom a token could act.
            expected = 401 if path == "/v1/tokens" else 201 if re.search("/(keys|jobs|start-positions)$", path) else 200
            assert answer.status_code == expected, (route, answer.text)
            count += 1
    assert count >= 5


@schemathesis.serializer("application/x-ndjson", "application/octet-stream")
def as_it_is(context: schemathesis.SerializationContext, value: Any) -> bytes:
    """Bodies that are text or bytes to the document."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return value if isinstance(value, bytes) else json.dumps(value).encode()


# What OpenAPI leaves to HTTP itself, and what only says how an answer is sent.
OF_HTTP = {"connection", "content-encoding", "content-length", "content-type", "date", "transfer-encoding", "vary"}
CHECKS = (status_code_conformance, content_type_conformance, response_schema_conformance, response_headers_conformance)


@pytest.fixture(scope="module")
def documented() -> schemathesis.BaseSchema:
    """What the document says, to make requests of."""
    return schemathesis.openapi.from_dict(DOCUMENT)


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    """One connection for all requests."""
    with requests.Session() as opened:
        opened.trust_env = False  # or it looks for proxies and passwords before each request
        yield opened


@pytest.fixture(scope="module")
def explored(server: ThreadedServer) -> str:
    """A service with a topic that generated requests can meet."""
    httpx.put(f"{server.url}/v1/topics/0", json={"partitions": 2})
    records = [{"value": str(number), "key": str(number)} for number in range(20)]
    httpx.post(f"{server.url}/v1/topics/0/records", json={"records": records})
    return server.url


@pytest.mark.parametrize("name", sorted(ROUTES))
def test_generated_requests_are_answered_as_documented(
    name: str, documented: schemathesis.BaseSchema, explored: str, session: requests.Session
) -> None:
    """What ``documented.parametrize()`` does while tests are collected, which every process does for all of them."""
    method, path = name.split()
    feedback = FeedbackSources(constants_value_source=make_constants_value_source(documented))
    run = build_operation_test(
        config=documented.config,
        operation=documented[path][method],
        test_func=_explore,
        given_kwargs={},
        feedback=feedback,
    )
    run(explored=explored, session=session)


@settings(
    max_examples=_EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def _explore(case: schemathesis.Case, explored: str, session: requests.Session) -> None:
    if case.query and "wait_ms" in case.query:
        case.query = {**case.query, "wait_ms": 0}
    if isinstance(case.body, dict) and isinstance(case.body.get("partitions"), int):
        case.body = {**case.body, "partitions": min(case.body["partitions"], 3)}
    check(case, explored, session)
    if "topic" in case.path_parameters and case.method != "DELETE":
        # Few generated names exist: the same again where there is a topic with records.
        places = {"topic": "0", "partition": 0, "offset": 3}
        case.path_parameters = {**case.path_parameters, **{name: places[name] for name in case.path_parameters}}
        check(case, explored, session)


def check(case: schemathesis.Case, url: str, session: requests.Session) -> None:
    response = case.call(base_url=url, timeout=30, session=session)
    if case.path == "/v1/quotas" and case.query:
        # Or the requests to come would be refused by it.
        httpx.delete(f"{url}{case.path}", params=case.query)
    assert response.status_code != 500, response.text
    case.validate_response(response, checks=list(CHECKS))
    documented = case.operation.definition.raw["responses"].get(str(response.status_code))
    # A method that the path does not have is not of this operation.
    if documented is not None:
        sent = {name.lower() for name in response.headers} - OF_HTTP
        assert sent <= {name.lower() for name in documented.get("headers", {})}, case.operation.label
