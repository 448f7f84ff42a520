"""Counters for Prometheus, in a registry of each service: two services in one process never share a number."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.connection.parking import Parked
from app.metrics.plain_metrics import (
    PlainCollector,
    PlainCounter,
    PlainCounters,
    PlainHistogram,
    RouteCounts,
    WatchedCounter,
)
from app.problems.request_context import CONTINUATION

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_GROUP_REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_UNMATCHED = "unmatched"


class Metrics:
    """All metrics of the service. Set and read on the event loop."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.requests = RouteCounts(_SECONDS)
        self.count_request = self.requests.count
        self.produced_records = PlainCounter(
            "rollway_produced_records_total", "Appended records, without repeated ones."
        )
        self.produced_bytes = PlainCounter("rollway_produced_bytes_total", "Appended bytes of record batches.")
        self.fetched_bytes = PlainCounters(
            "rollway_fetched_bytes_total", "Bytes of bodies with records, before compression.", "format"
        )
        self.group_requests = PlainHistogram(
            "rollway_group_requests", "Appends that were written together.", _GROUP_REQUESTS
        )
        self.append_seconds = PlainHistogram("rollway_append_seconds", "Writing one group.", _SECONDS)
        self.registry.register(
            PlainCollector(
                self.requests,
                self.produced_records,
                self.produced_bytes,
                self.fetched_bytes,
                self.group_requests,
                self.append_seconds,
            )
        )
        self.flush_seconds = Histogram("rollway_flush_seconds", "One fsync.", buckets=_SECONDS, registry=self.registry)
        self.partition_failures = Counter(
            "rollway_partition_failures_total", "Disk failures that took a partition offline.", registry=self.registry
        )
        self.dropped_appends = Counter(
            "rollway_unacknowledged_failures_total", "Failed appends with acks=0.", registry=self.registry
        )
        self.authentication_failures = Counter(
            "rollway_authentication_failures_total", "Credentials that were not accepted.", registry=self.registry
        )
        self.throttled_requests = Counter(
            "rollway_throttled_requests_total", "Requests that exceeded a quota.", ("quota",), registry=self.registry
        )
        self.job_last_run = Gauge(
            "rollway_job_last_run_timestamp_seconds",
            "When a background job last ended.",
            ("job",),
            registry=self.registry,
        )
        self.job_seconds = Gauge(
            "rollway_job_last_run_seconds",
            "Duration of a background job's last run.",
            ("job",),
            registry=self.registry,
        )
        self.job_runs = Counter("rollway_job_runs_total", "Runs of a background job.", ("job",), registry=self.registry)
        self.job_failures = Counter(
            "rollway_job_failures_total", "Failed runs of a background job.", ("job",), registry=self.registry
        )
        self.deleted_segments = Counter(
            "rollway_deleted_segments_total", "Segments that retention deleted.", ("reason",), registry=self.registry
        )
        self.recovered_bytes = Gauge(
            "rollway_recovery_scanned_bytes", "Log bytes the last start had to scan.", registry=self.registry
        )
        self.truncated_bytes = Gauge(
            "rollway_recovery_truncated_bytes", "Torn bytes the last start cut off.", registry=self.registry
        )

        ProcessCollector(registry=self.registry)

    def show_version(self, version: str) -> None:
        """Show the running release as other services do: as the label of a gauge that is always 1."""
        Gauge("rollway_build_info", "The running release.", ("version",), registry=self.registry).labels(version).set(1)

    def watch_count(self, name: str, text: str, value: Callable[[], int]) -> None:
        """Add a counter, named as one, that calls ``value`` when the metrics are collected."""
        self.registry.register(WatchedCounter(name, text, value))

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Add a gauge that calls ``value`` when the metrics are collected."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)


class RequestMetrics:
    """ASGI middleware that counts requests by the route that they matched, never by their path."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # A parked request passes here twice. It counts once, from its first arrival.
        parked: Parked | None = scope.get(CONTINUATION)
        began = time.perf_counter() if parked is None else parked.began
        status = 0

        async def send_and_see(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_see)
        except Parked as left:
            left.began = began
            raise
        except BaseException:
            self._count(scope, status, began)
            raise
        self._count(scope, status, began)

    def _count(self, scope: Scope, status: int, began: float) -> None:
        route = getattr(scope.get("route"), "path", _UNMATCHED)
        method = scope["method"] if route != _UNMATCHED else _UNMATCHED
        self._metrics.count_request(method, route, status, time.perf_counter() - began)
