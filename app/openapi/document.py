"""The whole OpenAPI document of an application, with every error of every route, and examples.

``rollway openapi`` prints the published document, which ``published_document`` derives from the whole one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.access.access import REFUSALS
from app.access.capabilities import capability_of
from app.access.needs import Declaration, declaration_of
from app.openapi.documented_answers import HEADERS, complete_answers
from app.openapi.documented_problems import AUTHENTICATED, problems
from app.problems import kinds
from app.problems.problem import MEDIA_TYPE
from schemas.access import KeySpecification, NewAcls, TokenSpecification
from schemas.errors import Problem
from schemas.hanging_transactions import AbortHanging
from schemas.load_jobs import AttemptSpecification, JobCommit, JobSpecification
from schemas.multi_fetch import MultiFetch
from schemas.offsets import DeleteRecords, OffsetQueries
from schemas.produce import PartsToProduce
from schemas.producers import ProducerRequest
from schemas.quotas import QuotaLimits
from schemas.records import (
    FetchedRecord,
    PartitionProduceOutcome,
    ProducedRecord,
    ProduceFailure,
    ProduceResult,
    RecordList,
    RoutedRecord,
    RoutedRecordList,
)
from schemas.retention import RetentionPolicy
from schemas.splits import SplitRequest
from schemas.start_positions import StartPositions
from schemas.topics import TopicChange, TopicSpecification
from schemas.transactions import EndTransaction

PATH = Path(__file__).parents[2] / "openapi" / "openapi.json"
REFERENCE = "#/components/schemas/{model}"
UNDOCUMENTED = "x-undocumented"
"""Key in the schema of a parameter that the document leaves out."""

TAGS = [
    {"name": "topics", "description": "Topics, their partitions and segments."},
    {"name": "records", "description": "Producing and fetching records."},
    {"name": "offsets", "description": "Offsets by time."},
    {"name": "transactions", "description": "Idempotent and transactional producers, and their transactions."},
    {
        "name": "load jobs",
        "description": "Loads with many writers, committed or aborted by one decision.",
    },
    {"name": "start positions", "description": "Start offsets of groups of readers."},
    {"name": "retention", "description": "Retention policies, and deletion of old records."},
    {"name": "quotas", "description": "Rate limits of principals and clients."},
    {"name": "access", "description": "API keys, scoped tokens and access control lists."},
    {"name": "operations", "description": "Health and metrics."},
]
# Models of the bodies that routes read themselves, and models that only examples and lines refer to.
_READ_BY_ROUTES: tuple[type[BaseModel], ...] = (
    KeySpecification,
    NewAcls,
    TokenSpecification,
    DeleteRecords,
    AbortHanging,
    EndTransaction,
    AttemptSpecification,
    JobCommit,
    JobSpecification,
    MultiFetch,
    OffsetQueries,
    ProducerRequest,
    QuotaLimits,
    RetentionPolicy,
    SplitRequest,
    StartPositions,
    TopicChange,
    TopicSpecification,
    RecordList,
    RoutedRecordList,
    ProducedRecord,
    RoutedRecord,
    PartsToProduce,
)
_ANSWERED_BY_ROUTES: tuple[type[BaseModel], ...] = (
    FetchedRecord,
    Problem,
    ProduceFailure,
    PartitionProduceOutcome,
    ProduceResult,
)
_SECURITY_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key, a scoped token, or a JWT. Required if the setting authentication is on.",
    },
    "mutualTLS": {"type": "mutualTLS", "description": "A client certificate, with the setting tls_client_ca."},
}
_NULL = {"type": "null"}
_FRAMEWORK_SCHEMAS = ("HTTPValidationError", "ValidationError")


def make_document(app: FastAPI, routers: Iterable[APIRouter]) -> dict[str, Any]:
    """Make the whole document of ``app`` from FastAPI's document and the declarations of the routes in ``routers``.

    ``published_document`` derives from it the document that is served and committed.
    """
    document = get_openapi(
        title=app.title,
        version=app.version,
        openapi_version="3.1.0",
        summary=app.summary,
        description=app.description,
        routes=app.routes,
        tags=app.openapi_tags,
        license_info=app.license_info,
        servers=[{"url": "http://127.0.0.1:8080", "description": "A service on this machine."}],
    )
    components = document["components"]["schemas"]
    for model, mode in [
        *((model, "validation") for model in _READ_BY_ROUTES),
        *((model, "serialization") for model in _ANSWERED_BY_ROUTES),
    ]:
        _, definitions = models_json_schema([(model, mode)], ref_template=REFERENCE)  # type: ignore[list-item]
        for name, schema in definitions["$defs"].items():
            components[name] = schema
    for name in _FRAMEWORK_SCHEMAS:
        components.pop(name, None)
    document["components"]["schemas"] = dict(sorted(components.items()))
    for path in document["paths"].values():
        for operation in path.values():
            _complete(operation)
    for route in (route for router in routers for route in router.routes):
        if isinstance(route, APIRoute) and route.include_in_schema:
            _restore_examples(route, document["paths"][route.path])
            for method in route.methods or ():
                operation = document["paths"][route.path][method.lower()]
                _add_capability(operation, capability_of(route.endpoint))
                _add_access(operation, declaration_of(route.endpoint))
    for path, operations in document["paths"].items():
        for operation in operations.values():
            complete_answers(path, operation, components)
    document["components"]["headers"] = HEADERS
    document["components"]["securitySchemes"] = _SECURITY_SCHEMES
    return document


def _add_capability(operation: dict[str, Any], capability: str | None) -> None:
    """Add the 501 of a route that only some engines can serve."""
    if capability is not None:
        status = kinds.UNSUPPORTED_BY_ENGINE.status
        operation["responses"][str(status)] = problems(kinds.UNSUPPORTED_BY_ENGINE.code)[status]


def _add_access(operation: dict[str, Any], declared: Declaration | None) -> None:
    """Add the rights that the route needs: ``security``, Kafka's names of the operations, and the refusals."""
    if declared is None or declared.is_open:
        operation["security"] = []
        return
    operation["security"] = [{name: []} for name in _SECURITY_SCHEMES]
    wanted = [*declared.checked, *declared.asked]
    codes = {REFUSALS[kind].code for _, kind in wanted}
    if wanted:
        needed = ", ".join(dict.fromkeys(f"{name} on {kind}" for name, kind in wanted))
        operation["description"] = f"{operation.get('description', '')}\n\nAccess: {needed}.".strip()
    for status, refused in problems(*AUTHENTICATED, *codes).items():
        if status in (401, 403, 429):
            shown = operation["responses"].setdefault(str(status), refused)
            if shown is not refused:
                content, more = (each["content"][MEDIA_TYPE]["examples"] for each in (shown, refused))
                titles = "; ".join([shown["description"], refused["description"]]).split("; ")
                shown["description"] = "; ".join(dict.fromkeys(titles))
                content.update(more)
                shown.setdefault("headers", {}).update(refused.get("headers", {}))
    operation["responses"] = dict(sorted(operation["responses"].items()))


def _restore_examples(route: APIRoute, operations: dict[str, Any]) -> None:
    """Restore the examples as the routes declare them, because FastAPI drops every null from them."""
    for method in route.methods or ():
        operation = operations[method.lower()]
        written = {str(status): response for status, response in route.responses.items()}
        written["body"] = (route.openapi_extra or {}).get("requestBody", {})
        shown = {**operation["responses"], "body": operation.get("requestBody", {})}
        for name, part in written.items():
            for media_type, content in part.get("content", {}).items():
                examples = {key: content[key] for key in ("example", "examples") if key in content}
                shown[name]["content"][media_type].update(examples)


def _complete(operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    if "422" in responses and "application/json" in responses["422"].get("content", {}):
        responses["422"] = problems("invalid_request")[422]
    operation["responses"] = dict(sorted(responses.items()))
    shown = [each for each in operation.get("parameters", []) if UNDOCUMENTED not in each["schema"]]
    operation["parameters"] = shown
    for parameter in shown:
        parameter["schema"] = _without_null(parameter["schema"])


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter without null: an absent parameter is not in the query, and never null."""
    choices = [choice for choice in schema.get("anyOf", []) if choice != _NULL]
    if not choices or len(choices) == len(schema["anyOf"]):
        return schema
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    return {**choices[0], **rest} if len(choices) == 1 else {"anyOf": choices, **rest}


def render(document: dict[str, Any]) -> str:
    """Return the text of the document's file."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
