"""The table of quotas: it finds the limit of a client, in Kafka's order of precedence (spec D4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

DEFAULT = "<default>"
"""Name that stands for every user, or every client id, that no quota names."""
QUOTA_COUNT_MAX = 10_000


class QuotaKind(Enum):
    """Rates that a quota limits, by their names in Kafka's quota configuration where it has them."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_rate"


class QuotaEntity(NamedTuple):
    """The holder of a quota: a user, a client id, or a client id of a user. ``DEFAULT`` stands for all without one.

    Example: ``QuotaEntity("alice", DEFAULT)`` is each client id of alice that has no quota.
    """

    user: str | None
    client_id: str | None

    def __str__(self) -> str:
        parts = [f"user {self.user}"] if self.user is not None else []
        parts += [f"client id {self.client_id}"] if self.client_id is not None else []
        return ", ".join(parts)


Limits = Mapping[QuotaKind, float]


class Limit(NamedTuple):
    """The limit of one client, and the entity whose clients share it."""

    per_second: float
    shared_by: QuotaEntity


class QuotaTable:
    """All quotas. Immutable: a change makes a new table, so that a reader sees either the old or the new table."""

    def __init__(self, quotas: Mapping[QuotaEntity, Limits] | None = None) -> None:
        self._quotas = {entity: dict(limits) for entity, limits in (quotas or {}).items() if limits}

        self.has_any = bool(self._quotas)

    def __len__(self) -> int:
        return len(self._quotas)

    def items(self) -> Iterable[tuple[QuotaEntity, Limits]]:
        """Return every entity with its limits, sorted by name."""
        return sorted(self._quotas.items(), key=lambda item: (item[0].user or "", item[0].client_id or ""))

    def with_limits(self, entity: QuotaEntity, limits: Limits) -> QuotaTable:
        """Return a table in which ``entity`` has exactly ``limits``. Without limits it has no quota any more."""
        return QuotaTable({**self._quotas, entity: limits})

    def find(self, kind: QuotaKind, user: str, client_id: str) -> Limit | None:
        """Find the limit of a user's client: that of the most specific quota that limits this kind; ``None``: no limit.

        A quota that names no client id (or no user) is one limit for all clients that it covers. A quota that names
        both, also as ``DEFAULT``, is a limit for each of them.
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
