"""The shape of every error: RFC 9457 problem details, and members from which a client decides on a retry."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class ProblemError(BaseModel):
    """One fault of a request: its place and its kind."""

    pointer: Annotated[
        str,
        Field(
            description="Empty or with a slash in front: a JSON pointer into the body (RFC 6901). Otherwise the name "
            "of a parameter of the query or the path, or of a header.",
            examples=["/partitions"],
        ),
    ]
    code: Annotated[str, Field(description="Stable name of the fault.", examples=["invalid_type"])]
    detail: Annotated[str, Field(description="One sentence for people.")]


class Problem(BaseModel):
    """An error. A client decides from ``retryable`` and ``applied`` alone; some kinds add further members."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:rollway:problem:unknown_topic_or_partition",
                    "title": "Unknown topic or partition",
                    "status": 404,
                    "detail": "there is no topic readings",
                    "instance": "/v1/topics/readings",
                    "code": "unknown_topic_or_partition",
                    "kafka_code": 3,
                    "retryable": False,
                    "applied": "no",
                    "retry_after_ms": None,
                    "errors": [],
                }
            ]
        },
    )

    type: Annotated[
        str, Field(description="URI of the kind of problem.", json_schema_extra={"format": "uri-reference"})
    ]
    title: Annotated[str, Field(description="The kind of problem, for people.")]
    status: Annotated[int, Field(ge=400, le=599, description="The HTTP status, repeated.")]
    detail: Annotated[str, Field(description="Explanation of this occurrence, for people.")]
    instance: Annotated[str, Field(description="The path of the request.")]
    code: Annotated[str, Field(description="Stable name of the kind of problem.")]
    kafka_code: Annotated[int, Field(description="The number of this error in Kafka's protocol; -1: Kafka has none.")]
    retryable: Annotated[bool, Field(description="Whether the same request can succeed later.")]
    applied: Annotated[
        Literal["no", "unknown"], Field(description="Whether the request changed anything: no, or not known.")
    ]
    retry_after_ms: Annotated[
        int | None, Field(description="Milliseconds to wait before a retry; null: no time is known.")
    ]
    errors: Annotated[list[ProblemError], Field(description="Single faults of the request.")]
