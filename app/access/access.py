"""The rights of one request. Every route decides by them."""

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
from app.problems import kinds
from app.problems.engine import problem_for
from app.problems.problem import Problem
from log_model.errors import UnknownTopicOrPartitionError

audit = logging.getLogger("rollway.audit")

ANONYMOUS = "User:ANONYMOUS"

NAMES_SHOWN_MAX = 10
"""Greatest number of resources that one audit line names."""
_NAME_LENGTH_MAX = 249
"""Greatest length of a name of a topic, a group or a transactional id. A longer text names none of them."""

REFUSALS = {
    ResourceKind.TOPIC: kinds.TOPIC_AUTHORIZATION_FAILED,
    ResourceKind.GROUP: kinds.GROUP_AUTHORIZATION_FAILED,
    ResourceKind.CLUSTER: kinds.CLUSTER_AUTHORIZATION_FAILED,
    ResourceKind.TRANSACTIONAL_ID: kinds.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""The kind of the refusal, by the kind of resource that a principal may not use."""


class Rights(Protocol):
    """The rights of a principal."""

    def allows(self, operation: Operation, resource: Resource) -> bool:
        """Return whether the operation on this resource is allowed."""

    def allows_any(self, operation: Operation, kind: ResourceKind) -> bool:
        """Return whether the operation is allowed on some resource of the kind."""

    def are_alive(self) -> bool:
        """Return whether the credential that they come from is still valid."""


class Access:
    """The rights of one request.

    A route of one resource calls ``require``. A route of many resources calls ``refusal`` for each item, and puts the
    problem into that item's result. Both write the audit log: allowed operations at level debug, refused ones at info.
    ``write_audit``, which the end of a request calls, writes one line for all refused items of a kind.

    Example: ``access.require(Operation.READ, topic_resource("readings"))`` returns, or raises a ``Problem``.

    Thread: the event loop.
    """

    __slots__ = ("_refused", "_rights", "credential", "is_authenticated", "principal")

    def __init__(
        self, principal: str, rights: Rights | None, *, is_authenticated: bool = True, credential: str | None = None
    ) -> None:
        """Hold the rights of ``principal``; ``None``: all rights.

        ``credential`` is the public half of the key or token of the request. Tokens that are created with it end with
        it.
        """
        self.principal = principal
        self.is_authenticated = is_authenticated
        self.credential = credential
        self._rights = rights
        self._refused: dict[tuple[Operation, ResourceKind], dict[str, None]] = {}

    @property
    def is_token(self) -> bool:
        """True if the request has a scoped token."""
        return self.credential is not None and self.credential.startswith(TOKEN_PREFIX)

    def allows(self, operation: Operation, resource: Resource) -> bool:
        """Return whether the operation is allowed. Writes no audit line: lists that leave items out call this."""
        return self._rights is None or self._rights.allows(operation, resource)

    def allows_any(self, operation: Operation, kind: ResourceKind) -> bool:
        """Return whether the operation is allowed on some resource of the kind."""
        return self._rights is None or self._rights.allows_any(operation, kind)

    def allows_describe(self, topic: str) -> bool:
        """Return whether the request may see that this topic exists."""
        return self.allows(Operation.DESCRIBE, topic_resource(topic))

    def refusal(self, operation: Operation, resource: Resource, asked_as: str | None = None) -> Problem | None:
        """Return ``None`` if the operation is allowed, else the 403 with Kafka's code.

        The codes are 29 for a topic, 30 for a group, 31 for the cluster, 53 for a transactional id. The result is the
        same whether the resource exists or not (spec A2, D3). ``asked_as`` is the request's own term for the resource,
        if that is not its name: ``the topic with the id ...``. Callers without DESCRIBE on the resource do not see its
        name.
        """
        if self.allows(operation, resource):
            if audit.isEnabledFor(logging.DEBUG):
                audit.debug("allowed %s on %s to %s", operation, _shown(resource), self.principal)
            return None
        self._refused.setdefault((operation, resource.kind), {})[shown_name(resource.name)] = None
        if resource.kind is ResourceKind.CLUSTER:
            what = "the cluster"
        elif asked_as is not None and not self.allows(Operation.DESCRIBE, resource):
            what = asked_as
        else:
            what = f"{resource.kind} {shown_name(resource.name)!r}"
        return Problem(REFUSALS[resource.kind], f"{self.principal} may not {operation} {what}")

    def write_audit(self) -> None:
        """Write one audit line for each operation on a kind of resource that was refused since the last call.

        Example: ``denied READ on topic:a, topic:b to User:x``. Of more than ten resources, the line names the first ten
        and the number of further ones.
        """
        refused, self._refused = self._refused, {}
        for (operation, kind), names in refused.items():
            listed = [f"{kind}:{name}" for name in itertools.islice(names, NAMES_SHOWN_MAX)]
            more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
            audit.info("denied %s on %s%s to %s", operation, ", ".join(listed), more, self.principal)

    def require(self, operation: Operation, resource: Resource, asked_as: str | None = None) -> None:
        """Return if the operation is allowed; ``asked_as`` is as in ``refusal``.

        Raises:
            Problem: 403. For a topic that the request may not describe: the 404 of a topic that does not exist.
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
        """Return if the credential is still valid. Long requests call this from time to time.

        Raises:
            Problem: 401.
        """
        if self._rights is not None and not self._rights.are_alive():
            raise Problem(kinds.UNAUTHENTICATED, "the credential was revoked or has expired meanwhile")

    def require_create(self, topic: str) -> None:
        """Return if the request may create this topic: it has CREATE on the topic or on the cluster, as in Kafka.

        Raises:
            Problem: 403.
        """
        if not self.allows(Operation.CREATE, CLUSTER):
            self.require(Operation.CREATE, topic_resource(topic))

    def require_producer_id(self) -> None:
        """Return if the request may get a producer id: it has IDEMPOTENT_WRITE on the cluster, or WRITE on any topic.

        Raises:
            Problem: 403.
        """
        if not self.allows_any(Operation.WRITE, ResourceKind.TOPIC):
            self.require(Operation.IDEMPOTENT_WRITE, CLUSTER)


def shown_name(name: str) -> str:
    """Return the name for a message. A text that is too long for a name is cut, and its length is added."""
    if len(name) <= _NAME_LENGTH_MAX:
        return name
    return f"{name[:_NAME_LENGTH_MAX]}... ({len(name)} characters)"


def _shown(resource: Resource) -> str:
    return f"{resource.kind}:{shown_name(resource.name)}"


EVERYTHING = Access(ANONYMOUS, None, is_authenticated=False)
"""The rights of every request while authentication is off."""
