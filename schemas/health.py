"""Answers of the health routes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Count, Schema


class Health(Schema):
    """The process runs and answers."""

    status: Literal["ok"] = "ok"


class Readiness(Schema):
    """Recovery is done and every route answers."""

    status: Literal["ready"] = "ready"
    partitions: Annotated[
        Count | None, Field(description="Partitions that are open; null for who may not know.", examples=[6])
    ] = None
    offline_partitions: Annotated[
        Count | None, Field(description="Partitions that take no appends; null for who may not know.", examples=[0])
    ] = None
