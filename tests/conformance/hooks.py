"""What schemathesis is told about the service: how bodies are sent, and which failures are none.

``st run`` imports this module, as schemathesis.toml says. The process that starts it says in the environment which
document is asked about and where to note which deviations were met.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import requests
import schemathesis
from schemathesis.core.failures import AcceptedNegativeData, Failure, ServerError
from schemathesis.openapi.checks import RejectedPositiveData

from app.main import whole_document
from app.openapi.published_document import nodes
from schemas.base import LONG_MAX
from tests.conformance.deviations import read_deviations

DOCUMENT = os.environ["CONFORMANCE_DOCUMENT"]
MET_PATH = Path(os.environ["CONFORMANCE_MET"])
# What a request may ask for, by parameter or member, and what it is sent with instead: the answers are the same.
_LESS = {"wait_ms": 20, "max_wait_ms": 20, "timeout_ms": 2_000, "partitions": 3}
_ASKED_MAX = {"wait_ms": 60_000, "max_wait_ms": 60_000, "timeout_ms": 600_000, "partitions": 10_000}

_CHECKS: dict[type[Failure], str] = {
    ServerError: "not_a_server_error",
    AcceptedNegativeData: "negative_data_rejection",
    RejectedPositiveData: "positive_data_acceptance",
}
_DEVIATIONS = read_deviations()
_REFERENCE = "#/components/schemas/"


@schemathesis.serializer("application/x-ndjson", "application/octet-stream")
def as_it_is(context: schemathesis.SerializationContext, value: Any) -> bytes:
    """Bodies that are text or bytes to the document."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return value if isinstance(value, bytes) else json.dumps(value).encode()


@schemathesis.hook
def before_load_schema(context: schemathesis.HookContext, raw_schema: dict[str, Any]) -> None:
    """Say of requests what the published document leaves out, as generators of clients stumble over it.

    Its objects are open, for answers that grow, and so are enumerations in what both requests and answers have. The
    service refuses members and words of requests that it does not know. Its bodies are all required, and a choice of a
    number and a word is text: the service also takes no body and numbers.
    """
    if DOCUMENT != "published":
        return
    whole = whole_document()
    for path, operations in raw_schema["paths"].items():
        for method, operation in operations.items():
            if "requestBody" in operation:
                body = whole["paths"][path][method]["requestBody"]
                operation["requestBody"]["required"] = body.get("required", False)
    components, exact = raw_schema["components"]["schemas"], whole["components"]["schemas"]
    for name in _sent(raw_schema):
        for owner in nodes(components[name]):
            if "x-extensible-enum" in owner:
                nulls = [None] if "null" in owner["type"] else []
                owner["enum"] = [*owner.pop("x-extensible-enum"), *nulls]
        if exact.get(name, {}).get("additionalProperties") is False:
            components[name]["additionalProperties"] = False
        for member, schema in components[name].get("properties", {}).items():
            choices = exact[name]["properties"][member].get("anyOf", [])
            if any(choice.get("type") == "integer" for each in choices for choice in each.get("anyOf", [each])):
                kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
                if "string" in kinds:
                    schema |= {"type": ["integer", *kinds], "minimum": 0, "maximum": LONG_MAX}
    for name in ("TopicSpecification", "TopicChange"):
        components[name]["properties"]["config"] = exact[name]["properties"]["config"]


def _sent(document: dict[str, Any]) -> set[str]:
    """Names of the components that bodies of requests are made of."""
    found: set[str] = set()
    waiting: list[Any] = [
        operation["requestBody"]
        for operations in document["paths"].values()
        for operation in operations.values()
        if "requestBody" in operation
    ]
    while waiting:
        references = (owner.get("$ref") for owner in nodes(waiting.pop()))
        names = {each.removeprefix(_REFERENCE) for each in references if isinstance(each, str)}
        waiting += [document["components"]["schemas"][name] for name in names - found]
        found |= names
    return found


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict[str, Any]) -> None:
    """Wait for little, and make few partitions: the answers are the same. Headers are text, also those of answers."""
    if case.headers:
        # A number that schemathesis took from the answer of another request.
        case.headers = {name: str(value) if isinstance(value, int) else value for name, value in case.headers.items()}
    for holder in (case.query, case.body):
        if isinstance(holder, dict):
            for name, less in _LESS.items():
                given = holder.get(name)
                if type(given) in (int, float) and less < given <= _ASKED_MAX[name]:
                    holder[name] = less


@schemathesis.hook
def after_call(context: schemathesis.HookContext, case: schemathesis.Case, response: schemathesis.Response) -> None:
    """Take back a quota, or the requests to come would be refused by it."""
    if case.method == "PUT" and case.path == "/v1/quotas" and response.status_code == 200:
        prepared = response.request
        with requests.Session() as session:
            session.trust_env = False
            taken_back = session.delete(
                prepared.url, headers={"Authorization": prepared.headers["Authorization"]}, timeout=30
            )
        assert taken_back.status_code in (200, 204), taken_back.text


@schemathesis.hook
def filter_failure(
    context: schemathesis.HookContext, failure: Failure, case: schemathesis.Case, response: schemathesis.Response
) -> bool:
    """Whether this is a failure: not so if a deviation says why the answer is right."""
    check = _CHECKS.get(type(failure), type(failure).__name__)
    for place, deviation in enumerate(_DEVIATIONS):
        if deviation.matches(check, case.operation.label, response.status_code, response.content, document=DOCUMENT):
            with MET_PATH.open("a") as met:
                met.write(f"{place}\n")
            return False
    return True
