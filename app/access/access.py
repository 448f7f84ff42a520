"""What one request may do: routes ask it, and nothing else decides."""

from __future__ import annotations

import itertools
import logging
from typing import Protocol

from app.access.credentials import TOKEN_PREFIX
from app.access.operations import (
    CLUSTER,
    Operation,
    Resource,
    ResourceKind,
    topic_resource,
)
from app.problems.problems import Problem, problem_for
from storage.errors import UnknownTopicOrPartitionError

audit = logging.getLogger("rollway.audit")

ANONYMOUS = "User:ANONYMOUS"

NAMES_SHOWN_MAX = 10
"""Of the resources that one request may not use, in one audit line."""
_NAME_LENGTH_MAX = 249
"""That of names of topics, groups and transactional ids; what is longer names none of them."""

_REFUSALS = {
    ResourceKind.TOPIC: ("topic_authorization_failed", 29),
    ResourceKind.GROUP: ("group_authorization_failed", 30),
    ResourceKind.CLUSTER: ("cluster_authorization_failed", 31),
    ResourceKind.TRANSACTIONAL_ID: ("transactional_id_authorization_failed", 53),
}


class Rights(Protocol):
    """Who decides what a principal may."""

    def allows(self, operation: Operation, resource: Resource) -> bool:
        """Whether this is allowed."""
        ...

    def allows_any(self, operation: Operation, kind: ResourceKind) -> bool:
        """Whether this is allowed on some resource of the kind."""
        ...

    def are_alive(self) -> bool:
        """Whether the credential that they come from still is believed."""
        ...


class Access:
    """What one request may do.

    Many-resource routes ask ``refusal`` for each item and put it into that item's answer; routes of one resource
    call ``require``. Both write the audit log: what is allowed at level debug, what is refused at info, and that in one
    line for all items of a request, however many those are: ``write_audit``, which the end of a request calls.

    Thread: the event loop.
    """

    __slots__ = ("_refused", "_rights", "credential", "is_authenticated", "principal")

    def __init__(
        self, principal: str, rights: Rights | None, *, is_authenticated: bool = True, credential: str | None = None
    ) -> None:
        """``credential`` is the public half of the key or token, for what is made with it."""
        self.principal = principal
        self.is_authenticated = is_authenticated
        self.credential = credential
        self._rights = rights
        self._refused: dict[tuple[Operation, ResourceKind], dict[str, None]] = {}

    @property
    def is_token(self) -> bool:
        """Whether it has only a scoped token."""
        return self.credential is not None and self.credential.startswith(TOKEN_PREFIX)

    def allows(self, operation: Operation, resource: Resource) -> bool:
        """Whether it may. Writes no audit line: for lists that show only what may be seen."""
        return self._rights is None or self._rights.allows(operation, resource)

    def allows_any(self, operation: Operation, kind: ResourceKind) -> bool:
        """Whether it may do this to some resource of the kind."""
        return self._rights is None or self._rights.allows_any(operation, kind)

    def allows_describe(self, topic: str) -> bool:
        """Whether it may see that there is this topic."""
        return self.allows(Operation.DESCRIBE, topic_resource(topic))

    def refusal(self, operation: Operation, resource: Resource, asked_as: str | None = None) -> Problem | None:
        """``None`` when it may, else the 403 with Kafka's code: 29 topic, 30 group, 31 cluster, 53 transactional id.

        The same whether the resource exists or not (spec A2, D3). ``asked_as`` is what the request calls it, where that
        is not its name: ``the topic with the id ...``. Callers without DESCRIBE on the resource do not see its name.
        """
        if self.allows(operation, resource):
            if audit.isEnabledFor(logging.DEBUG):
                audit.debug("allowed %s on %s to %s", operation, _shown(resource), self.principal)
            return None
        self._refused.setdefault((operation, resource.kind), {})[shown_name(resource.name)] = None
        code, kafka_code = _REFUSALS[resource.kind]
        if resource.kind is ResourceKind.CLUSTER:
            what = "the cluster"
        elif asked_as is not None and not self.allows(Operation.DESCRIBE, resource):
            what = asked_as
        else:
            what = f"{resource.kind} {shown_name(resource.name)!r}"
        return Problem(403, code, f"{self.principal} may not {operation} {what}", kafka_code=kafka_code)

    def write_audit(self) -> None:
        """Write one audit line for each operation on a kind of resource that was refused since this was last called.

        Example: ``denied READ on topic:a, topic:b to User:x``; of more than ten the first, and how many there are.
        """
        refused, self._refused = self._refused, {}
        for (operation, kind), names in refused.items():
            listed = [f"{kind}:{name}" for name in itertools.islice(names, NAMES_SHOWN_MAX)]
            more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
            audit.info("denied %s on %s%s to %s", operation, ", ".join(listed), more, self.principal)

    def require(self, operation: Operation, resource: Resource, asked_as: str | None = None) -> None:
        """Return when it may; ``asked_as`` as in ``refusal``.

        Raises:
            Problem: 403; for a topic that it may not even describe, the 404 of a topic that does not exist.
        """
        refusal = self.refusal(operation, resource, asked_as)
        if refusal is None:
            return
        self.write_audit()
        if (
            resource.kind is ResourceKind.TOPIC
            and operation is not Operation.CREATE
            and not self.allows(Operation.DESCRIBE, resource)
        ):
            raise problem_for(UnknownTopicOrPartitionError(f"there is no topic {shown_name(resource.name)!r}"))
        raise refusal

    def require_alive(self) -> None:
        """Return while the credential still is believed; for a request that goes on for long.

        Raises:
            Problem: 401.
        """
        if self._rights is not None and not self._rights.are_alive():
            raise Problem(401, "unauthenticated", "the credential was revoked or has expired meanwhile")

    def require_create(self, topic: str) -> None:
        """Return when it may create this topic: CREATE on the topic, or on the cluster, as in Kafka.

        Raises:
            Problem: 403.
        """
        if not self.allows(Operation.CREATE, CLUSTER):
            self.require(Operation.CREATE, topic_resource(topic))

    def require_producer_id(self) -> None:
        """Return when it may have a producer id: IDEMPOTENT_WRITE on the cluster, or WRITE on any topic.

        Raises:
            Problem: 403.
        """
        if not self.allows_any(Operation.WRITE, ResourceKind.TOPIC):
            self.require(Operation.IDEMPOTENT_WRITE, CLUSTER)


def shown_name(name: str) -> str:
    """The name as messages show it: of one that is too long to be a name, the beginning, and how long it is."""
    if len(name) <= _NAME_LENGTH_MAX:
        return name
    return f"{name[:_NAME_LENGTH_MAX]}... ({len(name)} characters)"


def _shown(resource: Resource) -> str:
    return f"{resource.kind}:{shown_name(resource.name)}"


EVERYTHING = Access(ANONYMOUS, None, is_authenticated=False)
"""What every request may do while authentication is off."""
