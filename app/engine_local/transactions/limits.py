"""How much the coordinator keeps, and for how long."""

from __future__ import annotations

from typing import NamedTuple

OVERLOAD_RETRY_AFTER_MS = 1_000


class TransactionLimits(NamedTuple):
    """How much there may be at once, and for how long."""

    timeout_ms_max: int = 900_000
    """``transaction.max.timeout.ms``"""
    expiration_ms: int = 604_800_000
    """``transactional.id.expiration.ms``"""
    id_count_max: int = 100_000
    partition_count_max: int = 1_000
