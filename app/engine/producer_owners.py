"""The principals that producer ids belong to."""

from __future__ import annotations

from typing import Protocol


class ProducerOwners(Protocol):
    """Says which principal each producer id was given to. Thread: any."""

    def principal_of(self, producer_id: int) -> str | None:
        """Return the principal; ``None`` if the id was given to none, or if the engine has forgotten it since."""
