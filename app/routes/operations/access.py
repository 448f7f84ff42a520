"""Routes for keys, tokens and access control lists."""

from __future__ import annotations

import functools
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from app.access.access import Access
from app.access.access_documents import acl_of, describe_acl, describe_key, describe_token, grants_of
from app.access.acls import Acl
from app.access.authentication import unauthenticated
from app.access.control import AccessControl
from app.access.credentials import KEY_PREFIX, TOKEN_PREFIX, Token
from app.access.needs import AccessOf, asks, needs, needs_authentication
from app.access.operations import CLUSTER, Operation, ResourceKind
from app.openapi.documented_problems import BODY, CHANGE, problems
from app.paths import ACLS, KEY, KEYS, TOKEN, TOKENS
from app.problems import kinds
from app.problems.problem import Fault, Problem, invalid
from app.routes.answers import request_body
from app.routes.dependencies import ServiceOf, json_body
from schemas.access import (
    AclList,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    KeyList,
    KeySpecification,
    NewAcls,
    NewKey,
    NewToken,
    TokenList,
    TokenSpecification,
)

_SECRET = {"Cache-Control": "no-store", "Pragma": "no-cache"}
_NEW_SECRET: dict[int | str, dict[str, Any]] = {
    201: {
        "headers": {
            name: {"description": f"{value}: the response contains a secret.", "schema": {"type": "string"}}
            for name, value in _SECRET.items()
        }
    }
}
_CHANGE = ("overloaded", *CHANGE)

router = APIRouter(tags=["access"])

KeyId = Annotated[str, Path(description="key_id of the key.", max_length=64, examples=["3f9c1e6b5a7d8042"])]
TokenId = Annotated[str, Path(description="token_id of the token.", max_length=64, examples=["b07a4d2c91e35f68"])]


async def control_of(service: ServiceOf) -> AccessControl:
    """Return the registry of keys, tokens and ACLs.

    Raises:
        Problem: 503 before the data directory is open.
    """
    return service.access


ControlOf = Annotated[AccessControl, Depends(control_of)]


@router.post(
    KEYS,
    operation_id="createKey",
    summary="Make an API key",
    status_code=201,
    response_description="The new key with its secret, which no later response repeats.",
    responses={**_NEW_SECRET, **problems(*BODY, *_CHANGE)},
    openapi_extra=request_body(KeySpecification, example={"principal": "User:orders", "description": "order service"}),
)
@needs(Operation.ALTER, ResourceKind.CLUSTER)
async def create_key(
    access: AccessOf,
    control: ControlOf,
    response: Response,
    specification: Annotated[KeySpecification, Depends(json_body(KeySpecification))],
) -> NewKey:
    """Create a key for a principal.

    A principal may have several keys, so that a new key can replace an old one without interruption.
    """
    create = functools.partial(
        control.registry.create_key, specification.principal, specification.description, specification.expires_at
    )
    key, text = await control.change(create)
    control.note(access.principal, f"created key {KEY_PREFIX}{key.number} of {key.principal}")
    response.headers.update(_SECRET)
    return NewKey(**describe_key(key).model_dump(), api_key=text)


@router.get(KEYS, operation_id="listKeys", summary="List API keys", responses=problems("invalid_request"))
@needs(Operation.DESCRIBE, ResourceKind.CLUSTER)
async def list_keys(control: ControlOf) -> KeyList:
    """List all keys, the oldest first, without their secrets. The service does not store the secrets."""
    keys = sorted(control.registry.keys.values(), key=lambda key: (key.created_ms, key.number))
    return KeyList(data=[describe_key(key) for key in keys])


@router.delete(
    KEY,
    operation_id="revokeKey",
    summary="Revoke an API key",
    status_code=204,
    response_description="The key was revoked; requests with it get 401.",
    responses=problems("credential_not_found", *_CHANGE),
)
@needs(Operation.ALTER, ResourceKind.CLUSTER)
async def revoke_key(key_id: KeyId, access: AccessOf, control: ControlOf) -> Response:
    """Revoke a key at once, with all tokens that were created with it."""
    key = await control.change(functools.partial(control.registry.revoke_key, key_id))
    if key is None:
        raise _not_found("key")
    control.note(access.principal, f"revoked key {KEY_PREFIX}{key.number} of {key.principal}")
    return Response(status_code=204)


@router.post(
    ACLS,
    operation_id="addAcls",
    summary="Add access control entries",
    responses=problems(*BODY, *_CHANGE),
    openapi_extra=request_body(
        NewAcls,
        example={
            "acls": [
                {
                    "principal": "User:orders",
                    "operation": "WRITE",
                    "resource_type": "topic",
                    "resource_name": "orders.",
                    "pattern_type": "prefixed",
                }
            ]
        },
    ),
)
@needs(Operation.ALTER, ResourceKind.CLUSTER)
async def add_acls(
    access: AccessOf, control: ControlOf, wanted: Annotated[NewAcls, Depends(json_body(NewAcls))]
) -> AclList:
    """Add all entries or none, and return the entries that did not exist before."""
    added = await control.change(functools.partial(control.registry.add_acls, [acl_of(entry) for entry in wanted.acls]))
    for acl in added:
        control.note(access.principal, f"added acl {_text(acl)}")
    return AclList(data=[describe_acl(acl) for acl in added])


class AclFilter(BaseModel):
    """A filter of access control entries: an entry matches if each given member is equal to its own."""

    model_config = ConfigDict(extra="forbid", strict=True)

    principal: Annotated[str | None, Field(description="Only entries for this principal, compared as text.")] = None
    permission: Annotated[AclPermission | None, Field(description="Only entries with this permission.")] = None
    operation: Annotated[AclOperation | None, Field(description="Only entries for this operation.")] = None
    resource_type: Annotated[AclResourceType | None, Field(description="Only entries for this type of resource.")] = (
        None
    )
    resource_name: Annotated[str | None, Field(description="Only entries for this name, compared as text.")] = None
    pattern_type: Annotated[AclPatternType | None, Field(description="Only entries with this pattern type.")] = None

    def takes(self, acl: Acl) -> bool:
        """Return whether ``acl`` matches the filter."""
        have = describe_acl(acl).model_dump()
        return all(have[name] == value for name, value in self.model_dump(exclude_none=True).items())


@router.get(ACLS, operation_id="listAcls", summary="List access control entries", responses=problems("invalid_request"))
@needs(Operation.DESCRIBE, ResourceKind.CLUSTER)
async def list_acls(control: ControlOf, wanted: Annotated[AclFilter, Query()]) -> AclList:
    """List the entries that match the filter; without a filter, all entries."""
    return AclList(data=[describe_acl(acl) for acl in sorted(control.registry.acls.acls) if wanted.takes(acl)])


@router.delete(
    ACLS,
    operation_id="removeAcls",
    summary="Remove access control entries",
    responses=problems("invalid_request", *_CHANGE),
)
@needs(Operation.ALTER, ResourceKind.CLUSTER)
async def remove_acls(access: AccessOf, control: ControlOf, wanted: Annotated[AclFilter, Query()]) -> AclList:
    """Remove the entries that match the filter, and return the removed entries. A request without a filter gets 422."""
    if not wanted.model_dump(exclude_none=True):
        detail = f"give at least one of {', '.join(AclFilter.model_fields)}: without a filter all of them would go"
        raise invalid([Fault("principal", "missing", detail)], detail)
    removed = await control.change(functools.partial(control.registry.remove_acls, wanted.takes))
    for acl in removed:
        control.note(access.principal, f"removed acl {_text(acl)}")
    return AclList(data=[describe_acl(acl) for acl in removed])


@router.post(
    TOKENS,
    operation_id="createToken",
    summary="Make a scoped token",
    status_code=201,
    response_description="The new token with its secret, which no later response repeats.",
    responses={**_NEW_SECRET, **problems(*BODY, *_CHANGE, "cluster_authorization_failed")},
    openapi_extra=request_body(
        TokenSpecification,
        example={
            "grants": [{"operations": ["READ"], "resource_name": "orders.", "pattern_type": "prefixed"}],
            "expires_at": "2030-01-01T00:00:00Z",
        },
    ),
)
@needs_authentication
async def create_token(
    access: AccessOf,
    control: ControlOf,
    response: Response,
    specification: Annotated[TokenSpecification, Depends(json_body(TokenSpecification))],
) -> NewToken:
    """Create a token with a part of the caller's rights on topics, groups and transactional ids.

    The token acts for its issuer, the caller. At each use it has no more rights than its issuer has then. The token
    ends when it expires, when it is revoked, or when the API key that created it ends.
    """
    _require_issuer(access)
    create = functools.partial(
        control.registry.create_token,
        access.principal,
        grants_of(specification.grants),
        issuer_key=access.credential and access.credential.removeprefix(KEY_PREFIX),
        expires_ms=specification.expires_at,
        description=specification.description,
    )
    token, text = await control.change(create)
    control.note(access.principal, f"created token {TOKEN_PREFIX}{token.number}")
    response.headers.update(_SECRET)
    return NewToken(**describe_token(token).model_dump(), token=text)


@router.get(TOKENS, operation_id="listTokens", summary="List tokens", responses=problems("invalid_request"))
@needs_authentication
@asks(Operation.DESCRIBE, ResourceKind.CLUSTER)
async def list_tokens(access: AccessOf, control: ControlOf) -> TokenList:
    """List the caller's own tokens; with DESCRIBE on the cluster, all tokens. Their secrets are left out."""
    sees_all = access.allows(Operation.DESCRIBE, CLUSTER)
    tokens = sorted(control.registry.tokens.values(), key=lambda token: (token.created_ms, token.number))
    return TokenList(data=[describe_token(token) for token in tokens if sees_all or _is_own(access, token)])


@router.delete(
    TOKEN,
    operation_id="revokeToken",
    summary="Revoke a token",
    status_code=204,
    response_description="The token was revoked; requests with it get 401.",
    responses=problems("credential_not_found", *_CHANGE),
)
@needs_authentication
@asks(Operation.ALTER, ResourceKind.CLUSTER)
async def revoke_token(token_id: TokenId, access: AccessOf, control: ControlOf) -> Response:
    """Revoke a token at once: the caller's own token; with ALTER on the cluster, any token."""
    token = control.registry.tokens.get(token_id)
    if token is None or not (_is_own(access, token) or access.allows(Operation.ALTER, CLUSTER)):
        raise _not_found("token")
    await control.change(functools.partial(control.registry.revoke_token, token_id))
    control.note(access.principal, f"revoked token {TOKEN_PREFIX}{token_id} of {token.principal}")
    return Response(status_code=204)


def _require_issuer(access: Access) -> None:
    if not access.is_authenticated:
        raise unauthenticated("a token acts for its maker, and authentication is off")
    if access.is_token:
        detail = "a token makes no tokens; use the key that it was made with"
        raise Problem(kinds.CLUSTER_AUTHORIZATION_FAILED, detail)


def _is_own(access: Access, token: Token) -> bool:
    """Return whether the caller is the token's issuer. A caller that authenticated with a token never is."""
    return access.is_authenticated and not access.is_token and token.principal == access.principal


def _not_found(what: str) -> Problem:
    return Problem(kinds.CREDENTIAL_NOT_FOUND, f"there is no such {what}")


def _text(acl: Acl) -> str:
    return f"{acl.permission} {acl.operation} on {acl.pattern} to {acl.principal}"
