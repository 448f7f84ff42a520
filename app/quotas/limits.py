"""Which limit holds for whom: the table of quotas, in Kafka's order of precedence (spec D4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

DEFAULT = "<default>"
"""Stands for every user, or every client id, that no quota names."""
QUOTA_COUNT_MAX = 10_000


class QuotaKind(Enum):
    """What is limited, by the names of Kafka's quota configuration where it has them."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_rate"


class QuotaEntity(NamedTuple):
    """Whom a quota is for: a user, a client id, or a client id of a user. ``DEFAULT`` is all that are not named."""

    user: str | None
    client_id: str | None

    def __str__(self) -> str:
        parts = [f"user {self.user}"] if self.user is not None else []
        parts += [f"client id {self.client_id}"] if self.client_id is not None else []
        return ", ".join(parts)


Limits = Mapping[QuotaKind, float]


class Limit(NamedTuple):
    """The limit that holds for one client, and whom it shares the limit with."""

    per_second: float
    shared_by: QuotaEntity


class QuotaTable:
    """All quotas. Immutable: a change makes a new table, so a reader sees the old or the new one, whole."""

    def __init__(self, quotas: Mapping[QuotaEntity, Limits] | None = None) -> None:
        self._quotas = {entity: dict(limits) for entity, limits in (quotas or {}).items() if limits}

        self.has_any = bool(self._quotas)

    def __len__(self) -> int:
        return len(self._quotas)

    def items(self) -> Iterable[tuple[QuotaEntity, Limits]]:
        """Every entity with its limits, by name."""
        return sorted(self._quotas.items(), key=lambda item: (item[0].user or "", item[0].client_id or ""))

    def with_limits(self, entity: QuotaEntity, limits: Limits) -> QuotaTable:
        """The table in which ``entity`` has exactly ``limits``; with none it has no quota any more."""
        return QuotaTable({**self._quotas, entity: limits})

    def find(self, kind: QuotaKind, user: str, client_id: str) -> Limit | None:
        """The limit for a user's client: the most special quota that names this kind; ``None``, as much as it likes.

        Clients that one entry covers share its limit when it names no client id (or no user), and have one each when
        it names both, also as ``DEFAULT``.
        """
        if not self._quotas:
            return None
        both, user_alone, client_alone = (
            QuotaEntity(user, client_id),
            QuotaEntity(user, None),
            QuotaEntity(None, client_id),
        )
        for entity, shared_by in (
            (both, both),
            (QuotaEntity(user, DEFAULT), both),
            (user_alone, user_alone),
            (QuotaEntity(DEFAULT, client_id), both),
            (QuotaEntity(DEFAULT, DEFAULT), both),
            (QuotaEntity(DEFAULT, None), user_alone),
            (client_alone, client_alone),
            (QuotaEntity(None, DEFAULT), client_alone),
        ):
            per_second = self._quotas.get(entity, {}).get(kind)
            if per_second is not None:
                return Limit(per_second, shared_by)
        return None
