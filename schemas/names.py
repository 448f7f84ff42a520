"""Names in paths and bodies: topics, ids, principals, hosts."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from schemas.base import Count, WholeNumber

TOPIC_NAME_PATTERN = r"^[a-zA-Z0-9._-]{1,249}$"
TOPIC_NAME_LENGTH_MAX = 249
PARTITION_MAX = 2**31 - 1


def _no_directory(name: str) -> str:
    if name in {".", ".."}:
        raise ValueError('a topic name cannot be "." or ".."')
    return name


TopicName = Annotated[
    str,
    # It stands before the validator, or the document does not show the pattern.
    Field(
        min_length=1,
        max_length=TOPIC_NAME_LENGTH_MAX,
        pattern=TOPIC_NAME_PATTERN,
        description='ASCII letters, digits, ".", "_" and "-"; at most 249 of them; not "." and not "..".',
        examples=["readings"],
    ),
    AfterValidator(_no_directory),
]
"""A topic's name in a body."""

TOPIC_ID_PATTERN = r"^[A-Za-z0-9_-]{22}$"

TopicId = Annotated[
    str,
    Field(
        pattern=TOPIC_ID_PATTERN,
        description="Identity of a topic. A later topic of the same name has a different id.",
        examples=["vbX5CGHpTq2OyL3cZhW1Uw"],
    ),
]
"""A topic's identity in a body."""

TopicIdParameter = Annotated[str, Field(pattern=TOPIC_ID_PATTERN)]
"""A topic's identity in a query."""

TRANSACTIONAL_ID_LENGTH_MAX = 249
TEXT_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]*$"
"""Text without control characters. A pattern cannot say which other characters are printable."""
ID_PATTERN = r"^[^\x00-\x1f\x2f\x7f-\x9f]+$"
"""An id that is part of a path: text without control characters and without a slash."""
KEY_PRINCIPAL = re.compile(r"User:[A-Za-z0-9._@+=-]{1,200}", re.ASCII)
"""The principals that a key can be for."""
KEY_PRINCIPAL_PATTERN = f"^{KEY_PRINCIPAL.pattern}$"
_OTHER_PRINCIPAL = re.compile(r"(?:Jwt|Certificate):(?!\*\Z).{1,500}")
INTERNAL_ID_PREFIX = "__rollway"


def principal_problem(name: str) -> str | None:
    """Say in a phrase why ``name`` cannot be a principal, or return ``None`` if it can."""
    is_known = KEY_PRINCIPAL.fullmatch(name) or _OTHER_PRINCIPAL.fullmatch(name)
    if is_known and name.isprintable():
        return None
    return (
        f"{name!r} is no principal: User:name, with letters, digits and . _ @ + = - in name, Jwt:subject, or "
        "Certificate:distinguished-name"
    )


_HOST_NAME = re.compile(r"\.?(?!-)[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?", re.ASCII)


def host_name_problem(name: str) -> str | None:
    """Say in a phrase why ``name`` cannot be an allowed host, or return ``None`` if it can.

    An allowed host is a name or an address without scheme and port. ``.name`` and ``*.name`` stand for all hosts below
    a name, ``*`` for all hosts.
    """
    if name == "*":
        return None
    text = name.removeprefix("*") if name.startswith("*.") else name
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        is_name = _HOST_NAME.fullmatch(text) is not None
        return None if is_name else f"{name!r} is no host name and no address; leave out scheme, port and path"
    return None


def transactional_id_problem(name: str, what: str = "a transactional id") -> str | None:
    """Say in a sentence why ``name`` cannot be a transactional id, or return ``None`` if it can.

    ``what`` names the kind of id in the sentence: other ids follow the same rules.
    """
    if not 1 <= len(name) <= TRANSACTIONAL_ID_LENGTH_MAX:
        return f"{what} has 1 to {TRANSACTIONAL_ID_LENGTH_MAX} characters"
    if name in {".", ".."}:
        return f'{what} cannot be "." or "..": it is part of a path'
    if not name.isprintable() or "/" in name:
        return f"{what} has printable characters only, and no slash: it is part of a path"
    if name.startswith(INTERNAL_ID_PREFIX):
        return f"{what} does not begin with {INTERNAL_ID_PREFIX}: those are the service's own"
    return None


def _usable(what: str) -> Callable[[str], str]:
    def check(name: str) -> str:
        problem = transactional_id_problem(name, what)
        if problem is not None:
            raise ValueError(problem)
        return name

    return check


_TRANSACTIONAL_ID_TEXT = (
    'Name of a transactional producer: printable characters without a slash, at most 249; not "." and not ".."; '
    "ids that begin with __rollway belong to the service."
)

ID_SCHEMA: dict[str, Any] = {"minLength": 1, "maxLength": TRANSACTIONAL_ID_LENGTH_MAX, "pattern": ID_PATTERN}
"""The JSON schema of transactional ids, and of other ids that are part of a path."""
TransactionalId = Annotated[
    str,
    AfterValidator(_usable("a transactional id")),
    Field(description=_TRANSACTIONAL_ID_TEXT, examples=["orders-loader-1"], json_schema_extra=ID_SCHEMA),
]
"""A transactional id in a body."""

ApplicationId = Annotated[
    str,
    AfterValidator(_usable("an application id")),
    Field(
        description="Id of the application that loads: printable characters without a slash, at most 249, like a "
        "transactional id.",
        examples=["readings-nightly"],
        json_schema_extra=ID_SCHEMA,
    ),
]
"""The id of an application that loads, in a body."""

GROUP_ID_LENGTH_MAX = 249


def group_id_problem(name: str) -> str | None:
    """Say in a sentence why ``name`` cannot be the id of a group, or return ``None`` if it can."""
    if not 1 <= len(name) <= GROUP_ID_LENGTH_MAX:
        return f"a group id has 1 to {GROUP_ID_LENGTH_MAX} characters"
    if name in {".", ".."}:
        return 'a group id cannot be "." or "..": it is part of a path'
    if not name.isprintable() or "/" in name:
        return "a group id has printable characters only, and no slash: it is part of a path"
    return None


Partition = Annotated[int, Field(ge=0, le=PARTITION_MAX, description="Number of the partition.", examples=[0])]
"""A partition's number in a body."""

PartitionParameter = Annotated[int, WholeNumber(0, PARTITION_MAX)]
"""A partition's number in a path."""

OffsetParameter = Annotated[int, WholeNumber()]
"""An offset in a path or a query."""

Offset = Annotated[Count, Field(description="Number of a record in its partition.", examples=[2])]
"""An offset in a body."""

LEADER_EPOCH_MAX = 2**31 - 1

LeaderEpoch = Annotated[
    int, Field(ge=0, le=LEADER_EPOCH_MAX, description="Generation of the partition's leader.", examples=[0])
]
"""A leader epoch in a body."""

LeaderEpochParameter = Annotated[int, WholeNumber(0, LEADER_EPOCH_MAX)]
"""A leader epoch in a query."""
