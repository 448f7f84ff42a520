"""Dependencies of routes: parts of the service, objects that the path names, checked queries, and parsed bodies."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, Path, Query, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel

from app.access.capabilities import capability_of, refuse_missing
from app.engine.engine import Engine
from app.engine.partitions import Partition
from app.fetch.fetching import Fetching
from app.http.bodies.body import read_body
from app.http.negotiation import content_type
from app.http.percent_encoding import wrong_bytes_of_path, wrong_bytes_of_query
from app.load_jobs.registry import LoadJobs
from app.media_types import JSON
from app.paths import API, QUOTAS
from app.problems import kinds
from app.problems.kind import Kind
from app.problems.problem import ERRORS_MAX, Fault, Problem, invalid, invalid_value
from app.produce.submit import Producing
from app.quotas.control import QuotaControl
from app.quotas.limits import QuotaKind
from app.quotas.throttling import Client
from app.record_json.json_values import refuse_too_many
from app.record_json.strict_json import read_model
from app.record_json.work_rooms import RequestWork
from app.service.parts import Parts
from app.service.service import Service
from app.start_positions.registry import StartPositions
from log_model.names import topic_name_problem
from log_model.nearest_name import nearest_or_all
from schemas.names import (
    GROUP_ID_LENGTH_MAX,
    ID_SCHEMA,
    TOPIC_NAME_LENGTH_MAX,
    TOPIC_NAME_PATTERN,
    LeaderEpochParameter,
    OffsetParameter,
    PartitionParameter,
    group_id_problem,
    transactional_id_problem,
)
from schemas.offsets import Isolation

CONTROL_BODY_BYTES_MAX = 1024 * 1024
CONTROL_VALUES_MAX = 250_000
"""Limit on the values of a JSON document without records; parsing this many takes about 100 ms.

Lists within their own limits have fewer: 10,000 offset queries have 90,000 values, and the winners of a job in the
largest body 175,000.
"""
LIBRARY_OF_BEFORE = "rollway"
"""The User-Agent of rollway libraries from before it contained their version; see ``request_heads_c.pyx``."""
_TOO_OLD = (
    "this User-Agent is that of a rollway library older than this service: records in JSON now have text in key and "
    "value, and bytes in key_base64 and value_base64; install the rollway package that comes with the service"
)
_NAME_SHOWN_MAX = 100

Model = TypeVar("Model", bound=BaseModel)


async def service_of(request: Request) -> Service:
    """Return the service of this application."""
    service: Service = request.app.state.service
    return service


async def parts_of(request: Request) -> Parts:
    """Return the parts that serve requests.

    Raises:
        Problem: 503 before all logs are open, and after the stop has begun.
    """
    service: Service = request.app.state.service
    return service.parts


PartsOf = Annotated[Parts, Depends(parts_of)]


async def _engine_of(parts: PartsOf) -> Engine:
    return parts.engine


async def _producing_of(parts: PartsOf) -> Producing:
    return parts.producing


async def _fetching_of(parts: PartsOf) -> Fetching:
    return parts.fetching


async def _load_jobs_of(parts: PartsOf) -> LoadJobs:
    return parts.load_jobs


async def _start_positions_of(parts: PartsOf) -> StartPositions:
    return parts.start_positions


async def _quota_control_of(parts: PartsOf) -> QuotaControl:
    return parts.quota_control


EngineOf = Annotated[Engine, Depends(_engine_of)]
ProducingOf = Annotated[Producing, Depends(_producing_of)]
FetchingOf = Annotated[Fetching, Depends(_fetching_of)]
LoadJobsOf = Annotated[LoadJobs, Depends(_load_jobs_of)]
StartPositionsOf = Annotated[StartPositions, Depends(_start_positions_of)]
QuotaControlOf = Annotated[QuotaControl, Depends(_quota_control_of)]


async def topic_name(
    topic: Annotated[
        str,
        Path(
            description='Name of the topic: 1 to 249 ASCII letters, digits, ".", "_" and "-"; not "." and not "..".',
            examples=["readings"],
            json_schema_extra={
                "pattern": TOPIC_NAME_PATTERN,
                "minLength": 1,
                "maxLength": TOPIC_NAME_LENGTH_MAX,
            },
        ),
    ],
) -> str:
    """Return the topic's name in the path.

    Raises:
        Problem: 422 if no topic can have the name.
    """
    reason = topic_name_problem(topic)
    if reason is not None:
        raise invalid_value("topic", reason, kinds.INVALID_TOPIC)
    return topic


async def transactional_id(
    transactional_id: Annotated[
        str,
        Path(
            description="Name of a transactional producer: at most 249 printable characters without a slash.",
            examples=["orders-loader-1"],
            json_schema_extra=ID_SCHEMA,
        ),
    ],
) -> str:
    """Return the transactional id in the path.

    Raises:
        Problem: 422 if no producer can have the id.
    """
    reason = transactional_id_problem(transactional_id)
    if reason is not None:
        raise invalid_value("transactional_id", reason)
    return transactional_id


async def group_id(
    group_id: Annotated[
        str,
        Path(
            description="Id of a group of readers: at most 249 printable characters without a slash.",
            examples=["readings-dashboard"],
            json_schema_extra={**ID_SCHEMA, "maxLength": GROUP_ID_LENGTH_MAX},
        ),
    ],
) -> str:
    """Return the group id in the path.

    Raises:
        Problem: 422 if no group can have the id.
    """
    reason = group_id_problem(group_id)
    if reason is not None:
        raise invalid_value("group_id", reason)
    return group_id


async def transactional_id_header(
    transactional_id: Annotated[
        str | None,
        Header(
            alias="Transactional-Id",
            description="Append the records in the transaction of this producer; needs Producer-Id, Producer-Epoch and "
            "Base-Sequence. Optional for transactional record batches; 409 if they contain another producer's id.",
        ),
    ] = None,
) -> str | None:
    """Return the transactional id in a header, decoded from UTF-8.

    Raises:
        Problem: 422 if it is not UTF-8.
    """
    if transactional_id is None:
        return None
    try:
        return transactional_id.encode("latin-1").decode()
    except UnicodeError:
        raise invalid([Fault("Transactional-Id", "invalid_value", "it is not UTF-8")]) from None


TransactionalIdHeader = Annotated[str | None, Depends(transactional_id_header)]
GroupIdInPath = Annotated[str, Depends(group_id)]
TransactionalIdInPath = Annotated[str, Depends(transactional_id)]


async def _work_of(parts: PartsOf) -> AsyncIterator[RequestWork]:
    """Yield the account of the request's memory. Its memory is released once the request is finished."""
    async with parts.rooms.request(parts.pools.read) as work:
        yield work


WorkOf = Annotated[RequestWork, Depends(_work_of)]
ServiceOf = Annotated[Service, Depends(service_of)]
TopicName = Annotated[str, Depends(topic_name)]
PartitionNumber = Annotated[PartitionParameter, Path(description="Number of the partition.", examples=[0])]


async def partition_of(topic: TopicName, partition: PartitionNumber, engine: EngineOf) -> Partition:
    """Return the handle of the partition in the path.

    Raises:
        UnknownTopicOrPartitionError: there is no such topic or partition.
    """
    return await engine.partition(topic, partition)


PartitionOf = Annotated[Partition, Depends(partition_of)]
OffsetInPath = Annotated[OffsetParameter, Path(description="Offset of the record.", examples=[42])]


async def only_utf8(request: Request) -> None:
    """Refuse a path or a query with percent-encoded bytes that are not UTF-8.

    Each such byte is decoded to U+FFFD, so ``%FE`` and ``%FF`` would be the same name. ``topic_name`` refuses topic
    names with U+FFFD, under the code ``invalid_topic``.

    Raises:
        Problem: 400.
    """
    scope = request.scope
    wrong = [
        *(part for part in wrong_bytes_of_path(scope["route"].path, scope.get("raw_path", b"")) if part[0] != "topic"),
        *wrong_bytes_of_query(scope["query_string"]),
    ]
    if wrong:
        faults = [
            Fault(
                name,
                "invalid_value",
                f"the byte %{byte:02X} is not UTF-8; percent-encode the text's UTF-8, %C3%A9 for \u00e9",
            )
            for name, byte in wrong[:ERRORS_MAX]
        ]
        raise _refused(faults, kinds.MALFORMED_REQUEST)


async def only_known_parameters(request: Request) -> None:
    """Refuse a query with a parameter that the route does not have, or with the same parameter twice.

    If unknown parameters were ignored, a misspelt limit would be no limit. Two values of one parameter are ambiguous.

    Raises:
        Problem: 422.
    """
    if not request.scope["query_string"]:
        return
    names = [name for name, _ in request.query_params.multi_items()]
    route: APIRoute = request.scope["route"]
    known = _known_parameters.get(route.endpoint)
    if known is None:
        known = _known_parameters[route.endpoint] = _parameters_of(route)
    faults = []
    for name in list(dict.fromkeys(names))[:ERRORS_MAX]:
        pointer = name[:_NAME_SHOWN_MAX]
        if name not in known:
            detail = f"unknown parameter; {nearest_or_all(name, known)}"
            faults.append(Fault(pointer, "unknown_parameter", detail))
        if names.count(name) > 1:
            faults.append(Fault(pointer, "duplicate_parameter", "this parameter occurs twice"))
    if faults:
        raise _refused(faults)


def _refused(faults: Sequence[Fault], kind: Kind = kinds.INVALID_REQUEST) -> Problem:
    # The name of a parameter may be empty, which is not the body.
    return invalid(faults, f"{faults[0].pointer}: {faults[0].detail}", kind=kind)


async def no_old_library(request: Request) -> None:
    """Refuse old rollway libraries, whose JSON of records has one member for both text and bytes.

    Their User-Agent is only their client id, by default ``rollway``. The fast path never takes a request with that
    User-Agent.

    Raises:
        Problem: 400.
    """
    # Whitespace around a value is not a part of it (RFC 9110, 5.5).
    if any(name.strip(" \t") == LIBRARY_OF_BEFORE for name in request.headers.getlist("user-agent")):
        raise Problem(kinds.CLIENT_TOO_OLD, _TOO_OLD)


async def within_capabilities(request: Request) -> None:
    """Refuse a request whose route needs a capability that the engine lacks. A dependency of every route.

    Raises:
        Problem: 501, and 503 while the engine is not open.
    """
    capability = capability_of(request.scope["route"].endpoint)
    if capability is not None:
        service: Service = request.app.state.service
        refuse_missing(capability, service.parts.engine.capabilities)


async def within_request_quota(request: Request) -> None:
    """Count the request against its client's request quota.

    Health, documents and the quotas themselves are free: an operator who set a quota too low must be able to raise it.

    Raises:
        Problem: 429 if the client sent the request before its throttle time was over.
    """
    service: Service = request.app.state.service
    path = request.scope["path"]
    if not service.is_ready or not path.startswith(API) or path == QUOTAS:
        return
    quotas, client = service.parts.quotas, Client.of_request()
    quotas.admit(QuotaKind.REQUEST, client)
    quotas.charge(QuotaKind.REQUEST, client, 1)


async def within_produce_quota(request: Request) -> None:
    """Refuse to produce while the client must wait for its produce quota.

    Raises:
        Problem: 429.
    """
    _admit(request, QuotaKind.PRODUCE)


async def within_fetch_quota(request: Request) -> None:
    """Refuse to fetch while the client must wait for its fetch quota.

    Raises:
        Problem: 429.
    """
    _admit(request, QuotaKind.FETCH)


def _admit(request: Request, kind: QuotaKind) -> None:
    service: Service = request.app.state.service
    if service.is_ready:
        service.parts.quotas.admit(kind, Client.of_request())


_known_parameters: dict[Callable[..., Any], frozenset[str]] = {}


def _parameters_of(route: APIRoute) -> frozenset[str]:
    """Return the names of the route's query parameters, including those of its query models and dependencies."""
    names: set[str] = set()
    waiting = [route.dependant]
    while waiting:
        dependant = waiting.pop()
        waiting += dependant.dependencies
        for parameter in dependant.query_params:
            annotation = parameter.field_info.annotation
            if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                names.update(annotation.model_fields)
            else:
                names.add(parameter.alias)
    return frozenset(names)


def json_body(model: type[Model], *, optional: bool = False) -> Callable[..., Awaitable[Model]]:
    """Return a dependency that parses the request body as ``model``: strictly and within the size limit.

    A refusal lists all faults of the body. With ``optional`` an absent body counts as an empty object.
    """

    async def read(request: Request, work: WorkOf) -> Model:
        service: Service = request.app.state.service
        parts = service.parts
        body = await read_body(
            request,
            limit_bytes=min(CONTROL_BODY_BYTES_MAX, service.settings.request_body_bytes_max),
            budget=parts.body_budget,
            hold=work.hold(parts.body_budget),
        )
        if optional and not body:
            return model()
        content_type(request, [JSON])
        return await work.parse(body, functools.partial(_read_control, model, body))

    return read


def _read_control(model: type[Model], body: bytearray) -> Model:
    refuse_too_many(body, "send fewer entries at a time", CONTROL_VALUES_MAX)
    return read_model(model, body)


CurrentLeaderEpoch = Annotated[
    LeaderEpochParameter | None,
    Query(
        description="Leader epoch that the client expects; an error if the partition has a different one.",
        examples=[0],
    ),
]

IsolationParameter = Annotated[
    Isolation,
    Query(description="End of the visible records: the last stable offset (read_committed), or the high watermark."),
]
