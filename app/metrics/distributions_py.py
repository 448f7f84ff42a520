"""Counts of values and of requests, in plain Python. Thread: counted on the event loop, read in any thread."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Distribution:
    """Counts of values by their upper bounds, and the sum of the values.

    Example: bounds (1, 5) and the values 1, 3 and 9 give the counts [1, 1, 1] and the sum 13.
    """

    __slots__ = ("_least", "bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._least = bounds[0]
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count ``value``."""
        # Most values are in the first bucket.
        self.counts[0 if value <= self._least else bisect_left(self.bounds, value)] += 1
        self.sum += value


class RouteCount(Distribution):
    """Answered requests of one method and route by status, and the distribution of their durations in seconds."""

    __slots__ = ("statuses",)

    def __init__(self, bounds: Sequence[float]) -> None:
        super().__init__(bounds)
        self.statuses: dict[int, int] = {}

    def count(self, status: int, seconds: float) -> None:
        """Count a request."""
        self.statuses[status] = self.statuses.get(status, 0) + 1
        # As ``observe``, without the call: every request comes here.
        self.counts[0 if seconds <= self._least else bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds
