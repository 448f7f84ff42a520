"""Routes for quotas: list, set, remove."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from app.access.needs import needs
from app.access.operations import Operation, ResourceKind
from app.openapi.documented_problems import BODY, CHANGE, problems
from app.paths import QUOTAS
from app.problems.problem import invalid_value
from app.quotas.control import QuotaControl
from app.quotas.limits import QuotaEntity, QuotaKind
from app.routes.answers import request_body
from app.routes.dependencies import QuotaControlOf, json_body
from schemas.quotas import ClientId, Quota, QuotaLimits, QuotaList, User

router = APIRouter(tags=["quotas"])

_KINDS = {kind: kind.value for kind in QuotaKind}
_User = Annotated[
    User | None, Query(description='Principal of the quota; "<default>": each principal without a quota of its own.')
]
_ClientId = Annotated[
    ClientId | None, Query(description='Client id of the quota; "<default>": each client id without one of its own.')
]


def _entity(user: str | None, client_id: str | None) -> QuotaEntity:
    if user is None and client_id is None:
        raise invalid_value("user", "give user, client_id or both")
    return QuotaEntity(user, client_id)


@router.get(QUOTAS, operation_id="listQuotas", summary="List quotas", responses=problems())
@needs(Operation.DESCRIBE_CONFIGS, ResourceKind.CLUSTER)
async def list_quotas(control: QuotaControlOf) -> QuotaList:
    """List all quotas, by user and client id."""
    return QuotaList(data=_shown(control))


def _shown(control: QuotaControl) -> list[Quota]:
    return [
        Quota(
            user=entity.user,
            client_id=entity.client_id,
            **{name: limits.get(kind) for kind, name in _KINDS.items()},
        )
        for entity, limits in control.quotas.table.items()
    ]


@router.put(
    QUOTAS,
    operation_id="setQuota",
    summary="Set a quota",
    responses=problems(*BODY, "quota_limit_reached", *CHANGE),
    openapi_extra=request_body(QuotaLimits, example={"producer_byte_rate": 1048576, "consumer_byte_rate": 2097152}),
)
@needs(Operation.ALTER_CONFIGS, ResourceKind.CLUSTER)
async def set_quota(
    control: QuotaControlOf,
    limits: Annotated[QuotaLimits, Depends(json_body(QuotaLimits))],
    user: _User = None,
    client_id: _ClientId = None,
) -> Quota:
    """Replace the quota of a user, of a client id, or of both together. The quota is in force at once.

    A body without limits removes the quota.
    """
    entity = _entity(user, client_id)
    chosen: dict[QuotaKind, float] = {
        kind: rate for kind, name in _KINDS.items() if (rate := getattr(limits, name)) is not None
    }
    await control.set(entity, chosen)
    return Quota(user=user, client_id=client_id, **limits.model_dump())


@router.delete(
    QUOTAS,
    operation_id="deleteQuota",
    summary="Remove a quota",
    status_code=204,
    response_description="The quota does not exist any more.",
    response_class=Response,
    responses=problems(*CHANGE),
)
@needs(Operation.ALTER_CONFIGS, ResourceKind.CLUSTER)
async def delete_quota(control: QuotaControlOf, user: _User = None, client_id: _ClientId = None) -> Response:
    """Remove the quota. The request succeeds also if there is no such quota."""
    await control.set(_entity(user, client_id), {})
    return Response(status_code=204)
