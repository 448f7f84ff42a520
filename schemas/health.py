"""Responses of the health routes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from schemas.base import Count, Schema


class Health(Schema):
    """A process that runs and responds."""

    status: Annotated[Literal["ok"], Field(description="Always ok.")] = "ok"


class Readiness(Schema):
    """A service whose recovery is done: every route responds."""

    status: Annotated[Literal["ready"], Field(description="Always ready.")] = "ready"
    partitions: Annotated[
        Count | None, Field(description="Partitions that are open; null if the caller may not see it.", examples=[6])
    ] = None
    offline_partitions: Annotated[
        Count | None,
        Field(description="Partitions that take no appends; null if the caller may not see it.", examples=[0]),
    ] = None


class OpeningProgress(Schema):
    """The progress of a start: the member ``progress`` of the 503 until the service is ready."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "partitions_done": 12,
                    "partition_count": 100,
                    "scanned_bytes": 536870912,
                    "byte_count": 2147483648,
                    "bytes_per_second": 681574400,
                    "elapsed_ms": 788,
                    "remaining_ms": 2364,
                }
            ]
        }
    )

    partitions_done: Annotated[Count, Field(description="Number of partitions that are open.")]
    partition_count: Annotated[Count, Field(description="Number of all partitions.")]
    scanned_bytes: Annotated[Count, Field(description="Bytes of log that were checked.")]
    byte_count: Annotated[
        Count, Field(description="Bytes of log to check after an unclean stop; 0 after a clean stop.")
    ]
    bytes_per_second: Annotated[Count, Field(description="Bytes checked per second so far.")]
    elapsed_ms: Annotated[Count, Field(description="Milliseconds since opening began.")]
    remaining_ms: Annotated[
        Count | None, Field(description="Estimated milliseconds until the service is ready; null: not known.")
    ]
