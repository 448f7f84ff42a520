"""Access control lists as in Kafka: they allow or deny principals operations on resources.

A deny wins over every allow. An operation that no ACL allows is denied. Super users may do everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from app.access.operations import WILDCARD, Operation, Pattern, PatternKind, Resource, ResourceKind, implied_by

_DECISIONS_MAX = 20_000


class Permission(StrEnum):
    """The effect of an ACL: it allows or it denies."""

    ALLOW = "allow"
    DENY = "deny"


class Acl(NamedTuple):
    """One access control list entry. ``principal`` is ``Type:name``, ``Type:*`` for all of a type, ``*`` for all.

    Example: ``Acl("User:loader", Permission.ALLOW, Operation.WRITE, Pattern(ResourceKind.TOPIC, "orders-",
    PatternKind.PREFIXED))`` lets the loader write to all topics whose names begin with ``orders-``.
    """

    principal: str
    permission: Permission
    operation: Operation
    pattern: Pattern


def names_of(principal: str) -> tuple[str, str, str]:
    """Return the three names by which ACLs refer to a principal: ``Type:name``, ``Type:*`` and ``*``."""
    kind = principal.partition(":")[0]
    return principal, f"{kind}:{WILDCARD}", WILDCARD


class Acls:
    """All ACLs, and the decisions that follow from them. Immutable: a change makes a new instance.

    Thread: the event loop, because it caches decisions.
    """

    def __init__(self, acls: Iterable[Acl] = (), super_users: Iterable[str] = ()) -> None:
        self.acls = frozenset(acls)
        self.super_users = frozenset(super_users)
        self._by_principal: dict[str, list[Acl]] = {}
        for acl in self.acls:
            self._by_principal.setdefault(acl.principal, []).append(acl)
        self._decisions: dict[tuple[str, Operation, Resource], bool] = {}

    def allows(self, principal: str, operation: Operation, resource: Resource) -> bool:
        """Return whether ``principal`` may perform ``operation`` on ``resource``."""
        key = (principal, operation, resource)
        decision = self._decisions.get(key)
        if decision is None:
            if len(self._decisions) >= _DECISIONS_MAX:
                self._decisions.clear()
            decision = self._decisions[key] = self._decide(principal, operation, resource)
        return decision

    def _decide(self, principal: str, operation: Operation, resource: Resource) -> bool:
        if principal in self.super_users:
            return True
        sufficient = implied_by(operation)
        is_allowed = False
        for acl in self._of(principal):
            if acl.pattern.matches(resource):
                if acl.permission is Permission.ALLOW:
                    is_allowed = is_allowed or acl.operation in sufficient
                elif acl.operation in (operation, Operation.ALL):
                    return False
        return is_allowed

    def allows_any(self, principal: str, operation: Operation, kind: ResourceKind) -> bool:
        """Return whether ``principal`` may do it to some resource of this kind (Kafka's ``authorizeByResourceType``).

        As in Kafka, an allowed prefix counts unless a denied prefix covers all of it.
        """
        return any(True for _ in self.allowed_patterns(principal, operation, kind))

    def allowed_patterns(self, principal: str, operation: Operation, kind: ResourceKind) -> Iterator[Pattern]:
        """Yield the patterns of this kind that allow the operation, without those that a deny covers completely."""
        if principal in self.super_users:
            yield Pattern(kind, WILDCARD)
            return
        sufficient = implied_by(operation)
        denied = [
            acl.pattern
            for acl in self._of(principal)
            if acl.permission is Permission.DENY and acl.operation in (operation, Operation.ALL)
        ]
        for acl in self._of(principal):
            if (
                acl.permission is Permission.ALLOW
                and acl.pattern.kind is kind
                and acl.operation in sufficient
                and not any(pattern.covers(acl.pattern) for pattern in denied)
            ):
                yield acl.pattern

    def covers(self, principal: str, operation: Operation, pattern: Pattern) -> bool:
        """Return whether ``principal`` may do it to all resources of ``pattern``.

        Denied names within a wider pattern do not count.
        """
        if pattern.pattern is PatternKind.LITERAL and pattern.name != WILDCARD:
            return self.allows(principal, operation, Resource(pattern.kind, pattern.name))
        if principal in self.super_users:
            return True
        denied = any(
            acl.permission is Permission.DENY
            and acl.operation in (operation, Operation.ALL)
            and acl.pattern.covers(pattern)
            for acl in self._of(principal)
        )
        return not denied and any(
            allowed.covers(pattern) for allowed in self.allowed_patterns(principal, operation, pattern.kind)
        )

    def _of(self, principal: str) -> Iterator[Acl]:
        for name in names_of(principal):
            yield from self._by_principal.get(name, ())
