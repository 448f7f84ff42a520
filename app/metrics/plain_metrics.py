"""Counters that cost one addition, for every request. Prometheus' own counters take a lock and a look-up each time.

A collector in the same registry reads them. Thread: counted on the event loop, read in any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from app.metrics.distributions import make_distribution, make_route_count
from app.metrics.distributions_py import Distribution, RouteCount


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
