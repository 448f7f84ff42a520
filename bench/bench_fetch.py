"""Raw fetch: slices of a log of 1 GiB in the page cache, at random places, on 8 connections."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

from bench.closed_loop import Load, Unit
from bench.limits.nginx import HOW_TO_INSTALL, NginxServer, find_nginx
from bench.machine import choose_cores
from bench.processes import ServerProcess, limit_server
from bench.requests import batch_of_bytes, get, records_path
from bench.rollway_server import RollwayServer
from bench.rows import Goal, Plan, Row, Sample, row_of
from bench.scenes import Scene, measure_load, run_scene

BENCH = "fetch"
KIB = 1024
MIB = 1024 * KIB
OUTSTANDING = 8
SMALL_TOPIC, LARGE_TOPIC = "fetch-small", "fetch-large"
SMALL_BATCH_BYTES, LARGE_BATCH_BYTES = 4 * KIB, 64 * KIB
REQUESTS = 512
SIZES = (4 * KIB, 64 * KIB, 256 * KIB, MIB, 8 * MIB, 64 * MIB)
SMOKE_SIZES = (4 * KIB, 64 * KIB, MIB)
CPU_GOAL = 0.2
BARE = "bare sendfile server"


def _log_bytes(size: int, smoke: bool) -> int:
    if smoke:
        return 4 * MIB
    return 128 * MIB if size < LARGE_BATCH_BYTES else 1024 * MIB


def _batch_bytes(size: int) -> int:
    return SMALL_BATCH_BYTES if size < LARGE_BATCH_BYTES else LARGE_BATCH_BYTES


def _places(size: int, smoke: bool) -> list[int]:
    """Numbers of the batches where slices begin; every slice is whole."""
    batch_bytes = _batch_bytes(size)
    count = (_log_bytes(size, smoke) - size) // batch_bytes + 1
    generator = random.Random(size)
    return [generator.randrange(count) for _ in range(REQUESTS)]


def _name(size: int) -> str:
    return f"raw fetch, {size // KIB} KiB" if size < MIB else f"raw fetch, {size // MIB} MiB"


def _unit(size: int) -> Unit:
    return "requests/s" if size < LARGE_BATCH_BYTES else "MB/s"


def slices_scene(size: int, smoke: bool) -> Scene:
    """Slices of ``size`` at random places of a log."""
    batch_bytes = _batch_bytes(size)
    records = batch_of_bytes(batch_bytes)[1]
    topic = SMALL_TOPIC if batch_bytes == SMALL_BATCH_BYTES else LARGE_TOPIC
    paths = [f"{records_path(topic)}?offset={place * records}&max_bytes={size}" for place in _places(size, smoke)]

    def prepare(server: RollwayServer) -> None:
        if topic not in server.topics:
            server.create_topic(topic, 1, flush_policy="interval", segment_bytes=str(2**31 - 1))
            server.fill(topic, batch_bytes, _log_bytes(size, smoke))

    load = Load([get(path) for path in paths], OUTSTANDING, body_bytes=size, is_large_answer=size >= LARGE_BATCH_BYTES)
    return Scene(BENCH, _name(size), _unit(size), load, prepare)


def scenes(smoke: bool = False) -> list[Scene]:
    """Slices of each size."""
    return [slices_scene(size, smoke) for size in (SMOKE_SIZES if smoke else SIZES)]


def _ranges(size: int, smoke: bool, path: str, load: Load) -> Load:
    """The same slices, by position."""
    starts = [place * _batch_bytes(size) for place in _places(size, smoke)]
    requests = [
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nRange: bytes={start}-{start + size - 1}\r\n\r\n".encode("ascii")
        for start in starts
    ]
    return load._replace(requests=requests)


def _limit(
    size: int, ours: RollwayServer, plan: Plan, stack: contextlib.ExitStack, running: dict[str, ServerProcess]
) -> tuple[str, ServerProcess | None]:
    """The server that ``size`` is held against, started when it is first needed; ``None`` when it is not installed."""
    cores = choose_cores()
    root = ours.data_dir / "logs"
    if size <= 64 * KIB:
        return BARE, _bare(size, ours, plan, stack, running)
    command = find_nginx()
    if command is None:
        return "nginx (not installed)", None
    if "nginx" not in running:
        running["nginx"] = stack.enter_context(NginxServer(command, root, plan.data_dir / "nginx", cores.server))
    return "nginx", running["nginx"]


def _bare(
    size: int, ours: RollwayServer, plan: Plan, stack: contextlib.ExitStack, running: dict[str, ServerProcess]
) -> ServerProcess:
    """The bare sendfile server of the file that ``size`` is fetched from, started when it is first needed."""
    topic = SMALL_TOPIC if size < LARGE_BATCH_BYTES else LARGE_TOPIC
    if topic not in running:
        file = str(ours.log_file(topic))
        running[topic] = stack.enter_context(
            limit_server("sendfile_server", plan.data_dir / "limits.log", choose_cores().server, file)
        )
    return running[topic]


def measure(plan: Plan) -> Iterator[Row]:
    """Rows: each size beside a bare sendfile server or nginx, which serve the very same file; and CPU per GB.

    Large slices are shown beside the bare server, too: what is missing to nginx there is missing to it as well.
    """
    cores = choose_cores()
    running: dict[str, ServerProcess] = {}
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(RollwayServer(plan.data_dir / BENCH, cores.server))
        for size in SMOKE_SIZES if plan.smoke else SIZES:
            scene = slices_scene(size, plan.smoke)
            scene.prepare(ours)
            limit, server = _limit(size, ours, plan, stack, running)
            others = []
            if server is not None:
                topic = SMALL_TOPIC if size < LARGE_BATCH_BYTES else LARGE_TOPIC
                path = f"/{topic}-0/{ours.log_file(topic).name}"
                others = [(limit, measure_load(server, _ranges(size, plan.smoke, path, scene.load), scene.unit))]
            if limit != BARE:
                path = f"/{LARGE_TOPIC}-0/{ours.log_file(LARGE_TOPIC).name}"
                bare = _bare(size, ours, plan, stack, running)
                others.append((BARE, measure_load(bare, _ranges(size, plan.smoke, path, scene.load), scene.unit)))
            samples = run_scene(plan, scene, ours, others)
            bound = 0.9 if size == 256 * KIB or size > MIB else 0.8
            note = "" if server else HOW_TO_INSTALL
            yield row_of(
                BENCH,
                scene.name,
                scene.unit,
                samples[ours.name],
                limit=limit,
                limits=samples.get(limit, []),
                goal=Goal("ratio", ">=", bound),
                note=note,
            )
            if limit != BARE:
                yield row_of(BENCH, scene.name, scene.unit, samples[ours.name], limit=BARE, limits=samples[BARE])
            if size >= 256 * KIB:
                yield _cpu_row(scene, samples[ours.name], limit, samples.get(limit, []), note)


def bulk_limit(
    size: int, ours: RollwayServer, plan: Plan, stack: contextlib.ExitStack
) -> tuple[str, ServerProcess | None, Load, str]:
    """What large slices are held against: its name, its server if it is installed, its load, and why there is none."""
    limit, server = _limit(size, ours, plan, stack, {})
    path = f"/{LARGE_TOPIC}-0/{ours.log_file(LARGE_TOPIC).name}"
    load = _ranges(size, plan.smoke, path, slices_scene(size, plan.smoke).load)
    return limit, server, load, "" if server else HOW_TO_INSTALL


def _cpu_row(scene: Scene, ours: list[Sample], limit: str, limits: list[Sample], note: str) -> Row:
    """CPU of the server per GB, of the same measurements."""

    def per_gb(samples: list[Sample]) -> list[Sample]:
        return [sample._replace(value=sample.extra["server_seconds_per_gb"]) for sample in samples]

    return row_of(
        BENCH,
        f"{scene.name}, CPU",
        "s/GB",
        per_gb(ours),
        limit=limit,
        limits=per_gb(limits),
        goal=Goal("value", "<=", CPU_GOAL),
        note=note,
    )
