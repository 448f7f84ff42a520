"""Counters that cost an addition: what every request counts. Prometheus' own take a lock and a look-up each time.

They are asked for when the metrics are, by a collector in the same registry. Thread: counted on the event loop, read
in any.
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
        """As Prometheus shows it."""
        return [CounterMetricFamily(self.name, self.text, value=self.value)]


class WatchedCounter(Collector):
    """A number that grows and is counted elsewhere: it is asked for when the metrics are."""

    def __init__(self, name: str, text: str, value: Callable[[], int]) -> None:
        self._name = name
        self._text = text
        self._value = value

    def collect(self) -> Iterable[Metric]:
        """As Prometheus shows it."""
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
        """As Prometheus shows it."""
        family = CounterMetricFamily(self.name, self.text, labels=(self.label,))
        # A copy: it is counted meanwhile.
        for value, number in list(self.values.items()):
            family.add_metric((value,), number)
        return [family]


class Distribution:
    """How many values were at most how large, and their sum. ``make_distribution`` makes those that are counted in."""

    __slots__ = ("_least", "bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._least = bounds[0]
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count ``value``."""
        # Most are as small as can be told.
        self.counts[0 if value <= self._least else bisect_left(self.bounds, value)] += 1
        self.sum += value


def buckets_of(distribution: Distribution) -> list[tuple[str, float]]:
    """Upper bounds and how many values are not above, as Prometheus writes them."""
    total = 0
    rows: list[tuple[str, float]] = []
    for bound, count in zip((*distribution.bounds, float("inf")), distribution.counts, strict=True):
        total += count
        rows.append(("+Inf" if bound == float("inf") else str(float(bound)), total))
    return rows


class PlainHistogram:
    """One distribution."""

    __slots__ = ("distribution", "name", "observe", "text")

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self.name = name
        self.text = text
        self.distribution = make_distribution(bounds)
        self.observe = self.distribution.observe

    def collect(self) -> Iterable[Metric]:
        """As Prometheus shows it."""
        distribution = self.distribution
        return [HistogramMetricFamily(self.name, self.text, buckets_of(distribution), distribution.sum)]


class RouteCount(Distribution):
    """Answered requests of one method and route by status, and how long they took."""

    __slots__ = ("statuses",)

    def __init__(self, bounds: Sequence[float]) -> None:
        super().__init__(bounds)
        self.statuses: dict[int, int] = {}

    def count(self, status: int, seconds: float) -> None:
        """Count a request."""
        self.statuses[status] = self.statuses.get(status, 0) + 1
        # As ``observe``, without its call: this is for every request.
        self.counts[0 if seconds <= self._least else bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds


_compiled: Any = load("app.metrics._distributions")


def make_distribution(bounds: Sequence[float]) -> Distribution:
    """One that is empty; in C, where the service was installed with a compiler."""
    made: Distribution = Distribution(bounds) if _compiled is None else _compiled.Distribution(bounds)
    return made


def make_route_count(bounds: Sequence[float]) -> RouteCount:
    """As ``make_distribution``."""
    made: RouteCount = RouteCount(bounds) if _compiled is None else _compiled.RouteCount(bounds)
    return made


class RouteCounts:
    """Answered requests by method, route and status, and how long they took by method and route."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._routes: dict[tuple[str, str], RouteCount] = {}

    def of(self, method: str, route: str) -> RouteCount:
        """Where requests of a route are counted; it is shown once there are any."""
        found = self._routes.get((method, route))
        if found is None:
            found = self._routes[method, route] = make_route_count(self._bounds)
        return found

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.of(method, route).count(status, seconds)

    def collect(self) -> Iterable[Metric]:
        """As Prometheus shows it."""
        requests = CounterMetricFamily(
            "rollway_http_requests_total", "Answered requests.", labels=("method", "route", "status")
        )
        seconds = HistogramMetricFamily(
            "rollway_http_request_seconds",
            "From the head of a request to the end of its answer.",
            labels=("method", "route"),
        )
        # Copies: requests are counted meanwhile.
        for (method, route), counted in list(self._routes.items()):
            statuses = list(counted.statuses.items())
            for status, count in statuses:
                requests.add_metric((method, route, str(status)), count)
            if statuses:
                seconds.add_metric((method, route), buckets_of(counted), counted.sum)
        return [requests, seconds]


class PlainCollector(Collector):
    """All of them, for a registry."""

    def __init__(self, *counted: PlainCounter | PlainCounters | PlainHistogram | RouteCounts) -> None:
        self._counted = counted

    def collect(self) -> Iterable[Metric]:
        """The metrics of now."""
        for each in self._counted:
            yield from each.collect()
