"""Latency against load: raw produce of 1 KiB at fixed rates, up to what a closed loop reached."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bench.closed_loop import Load, measured
from bench.machine import choose_cores
from bench.open_loop import at_rate
from bench.requests import batch_of_bytes, post, records_path
from bench.rollway_server import RollwayServer
from bench.rows import Plan, Row, Sample, row_of

BENCH = "latency"
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
BATCH_BYTES = 1024


def measure(plan: Plan) -> Iterator[Row]:
    """Rows: the 99th percentile at shares of the highest rate; other percentiles beside it, for the plot."""
    cores = choose_cores()
    with RollwayServer(plan.data_dir / BENCH, cores.server) as ours:
        for policy, name in (("interval", "raw produce"), ("group", "group fsync produce")):
            topic = f"latency-{policy}"
            ours.create_topic(topic, flush_policy=policy)
            request = post(records_path(topic), batch_of_bytes(BATCH_BYTES)[0])
            load = Load([request], 32)
            plan.say(f"{BENCH}, {name}: the highest rate")
            capacity = statistics.median(
                measured(ours, load, plan.seconds, "requests/s").value for _ in range(min(3, plan.rounds))
            )
            samples: dict[float, list[Sample]] = {share: [] for share in SHARES}
            for number in range(plan.rounds):
                for share in SHARES:
                    plan.say(f"{BENCH}, {name}: {share:.0%} of the highest rate, round {number + 1} of {plan.rounds}")
                    samples[share].append(_sample(ours, request, capacity * share, plan.seconds))
            for share in SHARES:
                title = f"{name} of 1 KiB, p99 at {share:.0%} of {capacity:,.0f} requests/s"
                yield row_of(BENCH, title, "ms", samples[share])


def _sample(server: RollwayServer, request: bytes, rate: float, seconds: float) -> Sample:
    cpu = server.cpu_seconds()
    timed = at_rate(server.address, request, rate, seconds)
    cpu = server.cpu_seconds() - cpu
    table = timed.latencies.table()
    extra = {**table, "rate": rate, "sent_late_p99_ms": timed.late.percentile(99) * 1000}
    return Sample(table["p99_ms"], cpu / timed.seconds, 1 - timed.idle_seconds / timed.seconds, extra)
