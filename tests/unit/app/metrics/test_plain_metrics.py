"""Plain counters show what Prometheus' own would."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from app.metrics.plain_metrics import PlainCollector, PlainCounter, PlainHistogram, RouteCounts

pytestmark = pytest.mark.usefixtures("twin")

BOUNDS = (0.5, 1.0, 2)


def shown(registry: CollectorRegistry) -> list[str]:
    lines = generate_latest(registry).decode().splitlines()
    return sorted(line for line in lines if "_created" not in line)


def test_all_kinds_look_like_those_of_the_library() -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    counter = Counter("a_total", "A.", registry=theirs)
    histogram = Histogram("b", "B.", buckets=BOUNDS, registry=theirs)
    requests = Counter(
        "rollway_http_requests_total", "Answered requests.", ("method", "route", "status"), registry=theirs
    )
    text = "From the head of a request to the end of its response."
    seconds = Histogram("rollway_http_request_seconds", text, ("method", "route"), buckets=BOUNDS, registry=theirs)
    plain_counter, plain_histogram, routes = (
        PlainCounter("a_total", "A."),
        PlainHistogram("b", "B.", BOUNDS),
        RouteCounts(BOUNDS),
    )
    ours.register(PlainCollector(plain_counter, plain_histogram, routes))
    for value in (0.1, 0.5, 0.6, 2, 2.5):
        for each in (counter, plain_counter):
            each.inc(3)
        for each in (histogram, plain_histogram):
            each.observe(value)
        requests.labels("GET", "/x", "200").inc()
        seconds.labels("GET", "/x").observe(value)
        routes.count("GET", "/x", 200, value)
    assert shown(ours) == shown(theirs)


def test_nothing_counted_is_shown_as_such() -> None:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(PlainCollector(PlainCounter("a_total", "A."), RouteCounts(BOUNDS)))
    assert "a_total 0.0" in generate_latest(registry).decode()
