"""A kind of problem: the facts that all errors with one code share. ``kinds`` is the table of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import Flag, auto
from typing import Any, Literal, NamedTuple

TYPE_PREFIX = "urn:rollway:problem:"

Applied = Literal["no", "unknown"]
"""Whether a request that failed changed anything: no, or not known."""


class At(Flag):
    """Groups of routes that answer with the same kinds. A route may be in several groups.

    Example: ``POST /v1/offsets`` reads a body and names topics, so OpenAPI shows the kinds of ``ALL``, ``BODY`` and
    ``NAMED`` there.
    """

    SINGLE = 0
    """No group: single routes name the code in their ``responses``."""
    ALL = auto()
    """Every route."""
    AUTHENTICATED = auto()
    """Routes that need an identity or a right when authentication is on."""
    BODY = auto()
    """Routes that read a body."""
    NAMED = auto()
    """Routes that name a topic."""
    EPOCH = auto()
    """Routes that compare the client's leader epoch."""
    WRITE = auto()
    """Routes that append to logs."""
    CHANGE = auto()
    """Routes that change files beside the logs."""
    PRODUCE = auto()
    """Routes that append records."""
    PRODUCER = auto()
    """Routes that give or end a producer's identity, including the routes of transactions."""
    TRANSACTION = auto()
    """Routes that end a transaction."""
    CONTROL = auto()
    """Routes that change topics."""
    READ = auto()
    """Routes that read records of one partition."""
    MULTI_FETCH = auto()
    """The fetch of many partitions."""


class Member(NamedTuple):
    """A member of the document that only some kinds have."""

    schema: Mapping[str, Any]
    example: Any


def offset_member(description: str, example: int) -> Member:
    """Return the member for an offset."""
    return Member({"type": "integer", "format": "int64", "minimum": 0, "description": description}, example)


def time_member(description: str, example: int) -> Member:
    """Return the member for a time in milliseconds, or null."""
    return Member({"type": ["integer", "null"], "format": "int64", "description": description}, example)


def name_member(description: str, example: str) -> Member:
    """Return the member for a name."""
    return Member({"type": "string", "description": description}, example)


def text_member(description: str, example: str) -> Member:
    """Return the member for a text, or null."""
    return Member({"type": ["string", "null"], "description": description}, example)


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One kind of problem.

    Two kinds may share a code: they differ in ``status`` or in ``applied``, and OpenAPI and errors.md show both.

    Example: ``Kind("disk_full", 507, "The disk is full.", kafka_code=56, retryable=True)`` has the title "Disk full".
    """

    code: str
    """The stable name that programs compare, in snake_case."""
    status: int
    """The HTTP status, 400 to 599."""
    when: str
    """When it happens, in one or two sentences for users."""
    _: KW_ONLY
    kafka_code: int = -1
    """Kafka's number for it; -1 where Kafka has none."""
    retryable: bool = False
    """Whether the same request can succeed later. A kind with ``retry_after_ms`` is retryable."""
    applied: Applied = "no"
    """Whether the request changed anything."""
    retry_after_ms: int | None = None
    """How long a client waits before it sends the request again, unless the error says so itself."""
    at: At = At.SINGLE
    """The groups of routes that answer with it."""
    headers: tuple[str, ...] = ()
    """Headers that its answers may have, beside those of every problem. ``retry_after_ms`` brings Retry-After."""
    members: Mapping[str, Member] = field(default_factory=dict)
    """Members of its document beside those of every problem."""
    component: str = ""
    """The name that a document with ``members`` has among the schemas of OpenAPI."""
    client_error: str = ""
    """The exception of ``rollway.client.errors`` that the library raises, where the status alone does not say it."""
    title: str = field(init=False)
    """The code in words."""
    type: str = field(init=False)
    """The URI of the kind."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.code.replace("_", " ").capitalize())
        object.__setattr__(self, "type", TYPE_PREFIX + self.code)
        if self.retry_after_ms is not None:
            object.__setattr__(self, "retryable", True)
            object.__setattr__(self, "headers", (*self.headers, "Retry-After"))


def kinds_in(module: Mapping[str, object]) -> list[Kind]:
    """Return the kinds among the values of a module, by status, code and ``applied``."""
    found = [value for value in module.values() if isinstance(value, Kind)]
    return sorted(found, key=lambda kind: (kind.status, kind.code, kind.applied))
