"""Raw produce: one prebuilt batch per request, ``flush.policy=interval``, so that nothing waits for the disk."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

from bench.closed_loop import Load, Unit
from bench.machine import choose_cores
from bench.processes import ServerProcess, limit_server
from bench.requests import batch_of_bytes, post, post_head, records_path
from bench.rollway_server import RollwayServer
from bench.rows import Goal, Plan, Row, Sample, row_of
from bench.scenes import Scene, fresh_topic, measure_load, run_scene

BENCH = "produce"
TOPIC = "produce"
KIB = 1024
MIB = 1024 * KIB
LARGE_SECONDS_MAX = 0.5
"""At 3 GB/s the page cache has room for little more before it is written to the disk."""
SIZES = (1 * KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB, 4096 * KIB)


SMOKE_SIZES = (1 * KIB, 64 * KIB, 4096 * KIB)


def _load(size: int) -> Load:
    body, records = batch_of_bytes(size)
    path = records_path(TOPIC)
    if size < 32 * KIB:
        return Load([post(path, body)], 16, body_bytes=size, records=records)
    return Load([post_head(path, size)], 4, body, size, records)


def _name(size: int) -> str:
    return f"raw produce, {size // KIB} KiB" if size < KIB * KIB else f"raw produce, {size // KIB // KIB} MiB"


def _unit(size: int) -> Unit:
    return "requests/s" if size < 32 * KIB else "MB/s"


def scenes(smoke: bool = False) -> list[Scene]:
    """One batch of each size, again and again."""
    reset = fresh_topic(TOPIC, flush_policy="interval", segment_bytes=str(2**31 - 1), max_message_bytes=str(8 * MIB))
    return [
        Scene(BENCH, _name(size), _unit(size), _load(size), reset, reset, 60 if size < 32 * KIB else LARGE_SECONDS_MAX)
        for size in (SMOKE_SIZES if smoke else SIZES)
    ]


def _row(scene: Scene, ours: list[Sample], limit: ServerProcess, limits: list[Sample], goal: Goal | None) -> Row:
    names = {"append server": "bare Python server", "asgi chunks": "ASGI, chunk list"}
    return row_of(BENCH, scene.name, scene.unit, ours, limit=names[limit.name], limits=limits, goal=goal)


def measure(plan: Plan) -> Iterator[Row]:
    """Rows: each size beside the least a Python server does, and beside what ASGI allows."""
    cores = choose_cores()
    log = plan.data_dir / "limits.log"
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(RollwayServer(plan.data_dir / BENCH, cores.server))
        files = {name: plan.data_dir / f"{name}.log" for name in ("bare", "asgi")}
        bare = stack.enter_context(limit_server("append_server", log, cores.server, str(files["bare"])))
        asgi = stack.enter_context(limit_server("asgi_chunks", log, cores.server, str(files["asgi"])))
        servers = ((bare, partial(bare.clear, files["bare"])), (asgi, partial(asgi.clear, files["asgi"])))
        for scene, size in zip(scenes(plan.smoke), SMOKE_SIZES if plan.smoke else SIZES, strict=True):
            limits = [
                (server.name, measure_load(server, scene.load, scene.unit, clear, scene.seconds_max))
                for server, clear in servers
            ]
            samples = run_scene(plan, scene, ours, limits)
            for _, clear in servers:
                clear()
            goals = _goals(size)
            yield _row(scene, samples[ours.name], bare, samples[bare.name], goals[0])
            yield _row(scene, samples[ours.name], asgi, samples[asgi.name], goals[1])
        ours.delete_topic(TOPIC)


def _goals(size: int) -> tuple[Goal | None, Goal | None]:
    """Against the bare server, and against a list of pieces in ASGI; sizes without a goal are for the plot."""
    if size in (1 * KIB, 64 * KIB):
        return Goal("ratio", ">=", 0.9), None
    return None, Goal("ratio", ">=", 1.6) if size == 1024 * KIB else None
