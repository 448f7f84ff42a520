"""Keys, tokens and ACLs as documents of the interface, without secrets and hashes of secrets."""

from __future__ import annotations

from collections.abc import Iterable

from app.access.acls import Acl, Permission
from app.access.credentials import Grant, Key, Token
from app.access.operations import Operation, Pattern, PatternKind, ResourceKind
from schemas.access import AclEntry, KeyDescription, TokenDescription, TokenGrant


def describe_key(key: Key) -> KeyDescription:
    """Describe a key without its secret."""
    return KeyDescription(
        key_id=key.number,
        principal=key.principal,
        description=key.description,
        created_at=key.created_ms,
        expires_at=key.expires_ms,
    )


def describe_token(token: Token) -> TokenDescription:
    """Describe a token without its secret. Grants on one pattern become one entry."""
    operations: dict[Pattern, list[str]] = {}
    for grant in token.grants:
        operations.setdefault(grant.pattern, []).append(grant.operation.value)
    return TokenDescription(
        token_id=token.number,
        principal=token.principal,
        description=token.description,
        created_at=token.created_ms,
        expires_at=token.expires_ms,
        grants=[
            TokenGrant.model_validate(
                {
                    "operations": names,
                    "resource_type": pattern.kind.value,
                    "resource_name": pattern.name,
                    "pattern_type": pattern.pattern.value,
                }
            )
            for pattern, names in operations.items()
        ],
    )


def grants_of(grants: Iterable[TokenGrant]) -> list[Grant]:
    """Return one grant for each operation of a request's grants."""
    return [
        Grant(Operation(name), _pattern(grant.resource_type, grant.resource_name, grant.pattern_type))
        for grant in grants
        for name in grant.operations
    ]


def describe_acl(acl: Acl) -> AclEntry:
    """Return the entry of an ACL."""
    return AclEntry.model_validate(
        {
            "principal": acl.principal,
            "permission": acl.permission.value,
            "operation": acl.operation.value,
            "resource_type": acl.pattern.kind.value,
            "resource_name": acl.pattern.name,
            "pattern_type": acl.pattern.pattern.value,
        }
    )


def acl_of(entry: AclEntry) -> Acl:
    """Return the ACL of a request's entry."""
    return Acl(
        entry.principal,
        Permission(entry.permission),
        Operation(entry.operation),
        _pattern(entry.resource_type, entry.resource_name, entry.pattern_type),
    )


def _pattern(kind: str, name: str, pattern: str) -> Pattern:
    return Pattern(ResourceKind(kind), name, PatternKind(pattern))


def acl_from(entry: dict[str, str]) -> Acl:
    """Return the ACL of a command line's entry.

    Raises:
        ValueError: the entry names an operation or a kind that does not exist.
    """
    return acl_of(AclEntry.model_validate(entry))
