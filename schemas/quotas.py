"""Quotas: how fast a principal or a client may produce, fetch and ask."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.base import Schema

DEFAULT = "<default>"

_RATE_MIN = 0.001
"""One in a thousand seconds; how long to wait is counted in milliseconds of 32 bits."""
_RATE_MAX = 1e15

User = Annotated[
    str,
    Field(
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description='Name of a principal; "<default>" is every principal that no quota names.',
        examples=["alice"],
    ),
]
ClientId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description='What a client sends as Client-Id; "<default>" is every one that no quota names.',
        examples=["loader"],
    ),
]
Rate = Annotated[float, Field(ge=_RATE_MIN, le=_RATE_MAX)]


class QuotaLimits(Schema):
    """Limits per second. What is absent or null has no limit here, and the next less special quota holds."""

    producer_byte_rate: Annotated[
        Rate | None, Field(description="Bytes of record batches produced a second.", examples=[1048576])
    ] = None
    consumer_byte_rate: Annotated[
        Rate | None, Field(description="Bytes of answers with records a second.", examples=[2097152])
    ] = None
    request_rate: Annotated[Rate | None, Field(description="Requests a second.", examples=[100])] = None


class QuotaHolder(Schema):
    """A user, a client id, or a client id of a user."""

    user: Annotated[User | None, Field(description="null: any user.")]
    client_id: Annotated[ClientId | None, Field(description="null: whatever the client id is.")]


class Quota(QuotaLimits, QuotaHolder):
    """The limits of a user, of a client id, or of a client id of a user."""


class QuotaList(Schema):
    """All quotas."""

    data: Annotated[list[Quota], Field(description="The quotas, by user and client id.")]
