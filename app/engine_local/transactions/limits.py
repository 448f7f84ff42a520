"""The coordinator's limits on numbers and on times."""

from __future__ import annotations

from typing import NamedTuple

OVERLOAD_RETRY_AFTER_MS = 1_000


class TransactionLimits(NamedTuple):
    """Limits on the number of ids and partitions, and on the time of transactions and ids."""

    timeout_ms_max: int = 900_000
    """Kafka's ``transaction.max.timeout.ms``."""
    expiration_ms: int = 604_800_000
    """Kafka's ``transactional.id.expiration.ms``."""
    id_count_max: int = 100_000
    partition_count_max: int = 1_000
