"""The load generator: does it measure itself? A generator with more to do measures the same, if it has room for it."""

from __future__ import annotations

from collections.abc import Iterator

from bench import bench_fetch, bench_produce, bench_tiny
from bench.closed_loop import Load, measured
from bench.machine import choose_cores
from bench.rollway_server import RollwayServer
from bench.rounds import in_turns
from bench.rows import Goal, Plan, Row, row_of
from bench.scenes import Scene

BENCH = "generator"
BURDEN_SHARE = 0.1
"""So much more than its own work on a request is added to it."""


def scenes(smoke: bool = False) -> list[Scene]:
    """Where the generator is busiest: the small requests that have goals."""
    return [bench_tiny.scenes(smoke)[0], bench_produce.scenes(smoke)[0], bench_fetch.scenes(smoke)[0]]


def measure(plan: Plan) -> Iterator[Row]:
    """Rows: each of these loads by a generator that has a tenth more to do, beside the generator as it is."""
    with RollwayServer(plan.data_dir / BENCH, choose_cores().server) as ours:
        for scene in scenes(plan.smoke):
            scene.prepare(ours)
            burdened = scene.load._replace(burden_seconds=BURDEN_SHARE * _own_seconds(ours, scene.load, plan.seconds))
            contestants = {
                "with more to do": scene._replace(load=burdened).measure(ours),
                "as it is": scene.measure(ours),
            }
            samples = in_turns(plan, f"{BENCH}, {scene.name}", contestants)
            yield row_of(
                BENCH,
                f"{scene.name}, by a generator with a tenth more to do",
                scene.unit,
                samples["with more to do"],
                limit="the generator as it is",
                limits=samples["as it is"],
                goal=Goal("ratio", ">=", 0.95),
            )


def _own_seconds(server: RollwayServer, load: Load, seconds: float) -> float:
    """What the generator takes for a request, without the time it waits."""
    sample = measured(server, load, seconds, "requests/s")
    return (sample.generator_cpu or 0.0) / sample.value
