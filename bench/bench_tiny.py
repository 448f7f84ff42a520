"""The smallest requests: what a request costs before any record is touched."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from bench.closed_loop import Load
from bench.machine import choose_cores
from bench.processes import limit_server
from bench.requests import get, post, record_batch, records_path
from bench.rollway_server import RollwayServer
from bench.rows import Goal, Plan, Row, row_of
from bench.scenes import Scene, measure_load, once_per_server, run_scene

BENCH = "tiny"
OUTSTANDING = 16
CONSTANT = "tiny hot route, constant answer"


def scenes(smoke: bool = False) -> list[Scene]:
    """A constant answer; a fetch at the end of a log, answered at once with no batch; a batch of one short record."""
    del smoke

    @once_per_server
    def prepare(server: RollwayServer) -> None:
        server.create_topic("tiny", 2, flush_policy="interval")
        server.fill("tiny", 4096, 65536)

    fetch = Load([get(f"{records_path('tiny')}?offset=latest")], OUTSTANDING)
    produce = Load([post(records_path("tiny", 1), record_batch(1, 10))], OUTSTANDING)
    health = Load([get("/healthz", "application/json")], OUTSTANDING)
    return [
        Scene(BENCH, CONSTANT, "requests/s", health, prepare),
        Scene(BENCH, "tiny raw fetch, nothing new", "requests/s", fetch, prepare),
        Scene(BENCH, "tiny raw produce, 1 record of 10 B", "requests/s", produce, prepare),
    ]


def measure(plan: Plan) -> Iterator[Row]:
    """Rows: a tiny request on a hot route, beside a server that only answers and beside bare ASGI."""
    cores = choose_cores()
    log = plan.data_dir / "limits.log"
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(RollwayServer(plan.data_dir / BENCH, cores.server))
        bare = stack.enter_context(limit_server("bare_uvloop", log, cores.server))
        asgi = stack.enter_context(limit_server("raw_asgi", log, cores.server))
        for scene in scenes():
            limits = [(server.name, measure_load(server, scene.load, scene.unit)) for server in (bare, asgi)]
            samples = run_scene(plan, scene, ours, limits)
            for server, limit, bound in (
                (bare, "bare uvloop, constant answer", 0.7),
                (asgi, "raw ASGI, constant answer", 2.0),
            ):
                yield row_of(
                    BENCH,
                    scene.name,
                    scene.unit,
                    samples[ours.name],
                    limit=limit,
                    limits=samples[server.name],
                    goal=Goal("ratio", ">=", bound) if scene.name == CONSTANT else None,
                )
