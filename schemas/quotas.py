"""Quotas: the rates at which a principal or a client may produce, fetch and send requests."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.base import Schema

DEFAULT = "<default>"

_RATE_MIN = 0.001
"""One in a thousand seconds. Times to wait are milliseconds of 32 bits."""
_RATE_MAX = 1e15

User = Annotated[
    str,
    Field(
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description='Name of a principal; "<default>" stands for every principal that no quota names.',
        examples=["alice"],
    ),
]
ClientId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description='Value of the header Client-Id; "<default>" stands for every client id that no quota names.',
        examples=["loader"],
    ),
]
Rate = Annotated[float, Field(ge=_RATE_MIN, le=_RATE_MAX)]


class QuotaLimits(Schema):
    """Limits per second. For a limit that is absent or null, the next less specific quota applies."""

    producer_byte_rate: Annotated[
        Rate | None, Field(description="Bytes of record batches produced per second.", examples=[1048576])
    ] = None
    consumer_byte_rate: Annotated[
        Rate | None, Field(description="Bytes of responses with records per second.", examples=[2097152])
    ] = None
    request_rate: Annotated[Rate | None, Field(description="Requests per second.", examples=[100])] = None


class QuotaHolder(Schema):
    """The holder of a quota: a user, a client id, or a client id of a user."""

    user: Annotated[User | None, Field(description="null: any user.")]
    client_id: Annotated[ClientId | None, Field(description="null: any client id.")]


class Quota(QuotaLimits, QuotaHolder):
    """The limits of a user, of a client id, or of a client id of a user."""


class QuotaList(Schema):
    """All quotas."""

    data: Annotated[list[Quota], Field(description="The quotas, by user and client id.")]
