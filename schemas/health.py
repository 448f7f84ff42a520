"""Answers of the health routes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from schemas.base import Count, Schema


class Health(Schema):
    """The process runs and answers."""

    status: Annotated[Literal["ok"], Field(description="Always ok.")] = "ok"


class Readiness(Schema):
    """Recovery is done and every route answers."""

    status: Annotated[Literal["ready"], Field(description="Always ready.")] = "ready"
    partitions: Annotated[
        Count | None, Field(description="Partitions that are open; null if the caller may not see it.", examples=[6])
    ] = None
    offline_partitions: Annotated[
        Count | None,
        Field(description="Partitions that take no appends; null if the caller may not see it.", examples=[0]),
    ] = None


class OpeningProgress(Schema):
    """How far a start has come: the member ``progress`` of the 503 until it is ready."""

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

    partitions_done: Annotated[Count, Field(description="Partitions that are open.")]
    partition_count: Annotated[Count, Field(description="All partitions.")]
    scanned_bytes: Annotated[Count, Field(description="Bytes of log that were checked.")]
    byte_count: Annotated[
        Count, Field(description="Bytes of log to check: those of an unclean stop, 0 after a clean one.")
    ]
    bytes_per_second: Annotated[Count, Field(description="Bytes checked per second so far.")]
    elapsed_ms: Annotated[Count, Field(description="Time since opening began.")]
    remaining_ms: Annotated[Count | None, Field(description="About how long it will take yet; null: not known.")]
