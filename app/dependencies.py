"""What routes are given: the broker, the things a path names, bodies read within a limit and checked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

from fastapi import Depends, Path, Query, Request
from pydantic import BaseModel

from app.broker import Broker
from app.http.body import read_body
from app.http.negotiation import content_type
from app.http.problems import Problem
from app.service import Service
from app.strict_json import read_model
from schemas.names import TOPIC_NAME_LENGTH_MAX, TOPIC_NAME_PATTERN, OffsetParameter, PartitionParameter
from schemas.offsets import Isolation
from storage.file_names import topic_name_problem
from storage.partition_log import PartitionLog

JSON = "application/json"
CONTROL_BODY_BYTES_MAX = 1024 * 1024

Model = TypeVar("Model", bound=BaseModel)


async def service_of(request: Request) -> Service:
    """The service of this application."""
    service: Service = request.app.state.service
    return service


async def broker_of(request: Request) -> Broker:
    """The broker, once the logs are open.

    Raises:
        Problem: 503 until then, and after the stop has begun.
    """
    service: Service = request.app.state.service
    return service.broker


async def topic_name(
    topic: Annotated[
        str,
        Path(
            description='ASCII letters, digits, ".", "_" and "-"; at most 249; not "." and not "..".',
            examples=["flights"],
            json_schema_extra={
                "pattern": TOPIC_NAME_PATTERN,
                "minLength": 1,
                "maxLength": TOPIC_NAME_LENGTH_MAX,
            },
        ),
    ],
) -> str:
    """The topic's name in the path.

    Raises:
        Problem: 422 for a name no topic can have.
    """
    reason = topic_name_problem(topic)
    if reason is not None:
        raise Problem(422, "invalid_topic", reason, kafka_code=17)
    return topic


BrokerOf = Annotated[Broker, Depends(broker_of)]
ServiceOf = Annotated[Service, Depends(service_of)]
TopicName = Annotated[str, Depends(topic_name)]
PartitionNumber = Annotated[PartitionParameter, Path(description="Number of the partition.", examples=[0])]


async def log_of(topic: TopicName, partition: PartitionNumber, broker: BrokerOf) -> PartitionLog:
    """The partition's log.

    Raises:
        UnknownTopicOrPartitionError: there is no such topic or partition.
    """
    return broker.partition(topic, partition)


LogOf = Annotated[PartitionLog, Depends(log_of)]
OffsetInPath = Annotated[OffsetParameter, Path(description="Offset of the record.", examples=[42])]


async def no_repeated_parameters(request: Request) -> None:
    """Refuse a query that names one parameter twice: nobody could say which of the two is meant.

    Raises:
        Problem: 422.
    """
    if not request.url.query:
        return
    names = [name for name, _ in request.query_params.multi_items()]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        faults = [
            {"pointer": name[:100], "code": "duplicate_parameter", "detail": "this parameter occurs twice"}
            for name in repeated[:10]
        ]
        raise Problem(422, "invalid_request", f"the parameter {repeated[0][:100]} occurs twice", errors=faults)


def json_body(model: type[Model], *, optional: bool = False) -> Callable[[Request], Awaitable[Model]]:
    """A dependency that reads a request's body as ``model``: within the limit, strictly, with all faults listed.

    With ``optional`` an absent body is an empty object.
    """

    async def read(request: Request) -> Model:
        service: Service = request.app.state.service
        body = await read_body(
            request, limit_bytes=min(CONTROL_BODY_BYTES_MAX, service.settings.request_body_bytes_max)
        )
        if optional and not body:
            return model()
        content_type(request, [JSON])
        return read_model(model, body)

    return read


def is_disconnected(request: Request) -> Callable[[], Awaitable[None]]:
    """A call that returns when the client has closed its connection; for requests without a body."""

    async def gone() -> None:
        while True:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                return

    return gone


IsolationParameter = Annotated[
    Isolation, Query(description="Both read up to the high watermark while there are no transactions.")
]
