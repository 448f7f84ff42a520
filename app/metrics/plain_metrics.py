"""Counters that cost one addition, for every request. Prometheus' own counters take a lock and a look-up each time.

A collector in the same registry reads them. Thread: counted on the event loop, read in any thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from rollway.records.compiled import load


class PlainCounter:
    """A number that grows."""

    __slots__ = ("name", "text", "value")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.value = 0

    def inc(self, amount: int = 1) -> None:
        """Add ``amount``."""
        self.value += amount

    def collect(self) -> Iterable[Metric]:
        """Return the metric for Prometheus."""
        return [CounterMetricFamily(self.name, self.text, value=self.value)]


class WatchedCounter(Collector):
    """A number that grows and is counted elsewhere. It is read when the metrics are collected."""

    def __init__(self, name: str, text: str, value: Callable[[], int]) -> None:
        self._name = name
        self._text = text
        self._value = value

    def collect(self) -> Iterable[Metric]:
        """Return the metric for Prometheus."""
        return [CounterMetricFamily(self._name, self._text, value=self._value())]


class PlainCounters:
    """Numbers that grow, one for each value of a label."""

    __slots__ = ("label", "name", "text", "values")

    def __init__(self, name: str, text: str, label: str) -> None:
        self.name = name
        self.text = text
        self.label = label
        self.values: dict[str, int] = {}

    def inc(self, value: str, amount: int = 1) -> None:
        """Add ``amount`` to the number of one value of the label."""
        self.values[value] = self.values.get(value, 0) + amount

    def collect(self) -> Iterable[Metric]:
        """Return the metric for Prometheus."""
        family = CounterMetricFamily(self.name, self.text, labels=(self.label,))
        # A copy: the event loop counts meanwhile.
        for value, number in list(self.values.items()):
            family.add_metric((value,), number)
        return [family]


class Distribution:
    """Counts of values by their upper bounds, and the sum of the values. ``make_distribution`` makes one to count in.

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


def buckets_of(distribution: Distribution) -> list[tuple[str, float]]:
    """Return each upper bound with the number of values up to it, as Prometheus writes them."""
    total = 0
    rows: list[tuple[str, float]] = []
    for bound, count in zip((*distribution.bounds, float("inf")), distribution.counts, strict=True):
        total += count
        rows.append(("+Inf" if bound == float("inf") else str(float(bound)), total))
    return rows


class PlainHistogram:
    """A distribution with a name and a description."""

    __slots__ = ("distribution", "name", "observe", "text")

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self.name = name
        self.text = text
        self.distribution = make_distribution(bounds)
        self.observe = self.distribution.observe

    def collect(self) -> Iterable[Metric]:
        """Return the metric for Prometheus."""
        distribution = self.distribution
        return [HistogramMetricFamily(self.name, self.text, buckets_of(distribution), distribution.sum)]


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


_compiled: Any = load("app.metrics.distributions_c")


def make_distribution(bounds: Sequence[float]) -> Distribution:
    """Make an empty distribution; in C, if the service was installed with a compiler."""
    made: Distribution = Distribution(bounds) if _compiled is None else _compiled.Distribution(bounds)
    return made


def make_route_count(bounds: Sequence[float]) -> RouteCount:
    """Make an empty route count, as ``make_distribution``."""
    made: RouteCount = RouteCount(bounds) if _compiled is None else _compiled.RouteCount(bounds)
    return made


class RouteCounts:
    """Answered requests by method, route and status, and their durations by method and route."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._routes: dict[tuple[str, str], RouteCount] = {}

    def of(self, method: str, route: str) -> RouteCount:
        """Return the count of a route. Prometheus sees it after the first request."""
        found = self._routes.get((method, route))
        if found is None:
            found = self._routes[method, route] = make_route_count(self._bounds)
        return found

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.of(method, route).count(status, seconds)

    def collect(self) -> Iterable[Metric]:
        """Return the metric for Prometheus."""
        requests = CounterMetricFamily(
            "rollway_http_requests_total", "Answered requests.", labels=("method", "route", "status")
        )
        seconds = HistogramMetricFamily(
            "rollway_http_request_seconds",
            "From the head of a request to the end of its response.",
            labels=("method", "route"),
        )
        # Copies: the event loop counts meanwhile.
        for (method, route), counted in list(self._routes.items()):
            statuses = list(counted.statuses.items())
            for status, count in statuses:
                requests.add_metric((method, route, str(status)), count)
            if statuses:
                seconds.add_metric((method, route), buckets_of(counted), counted.sum)
        return [requests, seconds]


class PlainCollector(Collector):
    """Collector of all plain metrics, for a registry."""

    def __init__(self, *counted: PlainCounter | PlainCounters | PlainHistogram | RouteCounts) -> None:
        self._counted = counted

    def collect(self) -> Iterable[Metric]:
        """Return the metrics with their present values."""
        for each in self._counted:
            yield from each.collect()
