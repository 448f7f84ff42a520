"""Requests that wait for an engine."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol


class Waiting(Protocol):
    """A wait that ends exactly once: ``done`` completes, or is cancelled when the client has gone."""

    done: asyncio.Future[Any]

    def cancel(self) -> None:
        """Cancel ``done`` unless it is complete: the client has gone."""

    def expire(self) -> None:
        """Complete ``done`` as if the time were up, unless it is complete."""
