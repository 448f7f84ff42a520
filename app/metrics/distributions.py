"""Counts of values by their size, for every request.

``distributions_c`` counts in C where it was compiled, otherwise ``distributions_py`` counts in Python. Both have the
same classes.

Thread: counted on the event loop, read in any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.metrics import distributions_py
from app.metrics.distributions_py import Distribution, RouteCount
from rollway.records.compiled import load

compiled: Any = load("app.metrics.distributions_c")
"""The compiled module, or ``None``. Tests set it to ``None`` to run on its plain twin."""


def make_distribution(bounds: Sequence[float]) -> Distribution:
    """Return an empty distribution. Example: ``make_distribution((0.5, 1))`` has three counts, all 0."""
    made: Distribution = (compiled or distributions_py).Distribution(bounds)
    return made


def make_route_count(bounds: Sequence[float]) -> RouteCount:
    """Return an empty route count."""
    made: RouteCount = (compiled or distributions_py).RouteCount(bounds)
    return made
