"""A small request beside 8 connections that fetch 8 MiB slices as fast as they can."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from bench.bench_fetch import bulk_limit, slices_scene
from bench.closed_loop import Probe, large_answers, measured
from bench.histogram import histogram_of
from bench.machine import choose_cores
from bench.requests import get
from bench.rollway_server import RollwayServer
from bench.rounds import in_turns
from bench.rows import Goal, Plan, Row, Sample, row_of

BENCH = "under-bulk"
MIB = 1024 * 1024
PROBES_PER_SECOND = 200.0
GOAL_MS = 1.0


def measure(plan: Plan) -> Iterator[Row]:
    """Rows: the median of a small request under bulk, and the bulk beside nginx that has nothing else to do."""
    cores = choose_cores()
    size = MIB if plan.smoke else 8 * MIB
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(RollwayServer(plan.data_dir / BENCH, cores.server))
        scene = slices_scene(size, plan.smoke)
        scene.prepare(ours)
        probe_request = get("/healthz", "application/json")

        def mixed(seconds: float) -> Sample:
            probe = Probe(probe_request, PROBES_PER_SECOND)
            cpu = ours.cpu_seconds()
            counted = large_answers(ours.address, scene.load.requests, scene.load.outstanding, seconds, probe)
            cpu = ours.cpu_seconds() - cpu
            rate = counted.body_bytes / counted.seconds / 1e6
            table = histogram_of(probe.latencies).table()
            return Sample(rate, cpu / counted.seconds, 1 - counted.idle_seconds / counted.seconds, table)

        contestants = {ours.name: mixed}
        limit, server, load, note = bulk_limit(size, ours, plan, stack)
        if server is not None:
            contestants[limit] = lambda seconds: measured(server, load, seconds, "MB/s")
        samples = in_turns(plan, BENCH, contestants)
        medians = [each._replace(value=each.extra.get("p50_ms", 0.0)) for each in samples[ours.name]]
        title = f"tiny request under bulk of {size // MIB} MiB slices"
        yield row_of(BENCH, f"{title}, p50", "ms", medians, goal=Goal("value", "<=", GOAL_MS))
        yield row_of(
            BENCH,
            f"{title}, the bulk",
            "MB/s",
            samples[ours.name],
            limit=limit,
            limits=samples.get(limit, []),
            goal=Goal("ratio", ">=", 0.8),
            note=note,
        )
