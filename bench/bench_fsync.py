"""Group commit: 32 clients that each wait until their batch of 1 KiB is on the disk, and share the waiting."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from bench.closed_loop import Load
from bench.machine import choose_cores
from bench.processes import limit_server
from bench.requests import batch_of_bytes, post, records_path
from bench.rollway_server import RollwayServer
from bench.rounds import in_turns
from bench.rows import Goal, Plan, Row, row_of
from bench.scenes import Scene, measure_load, once_per_server

BENCH = "fsync"
CLIENTS = 32
BATCH_BYTES = 1024
UNSYNCED, INLINE = "the same without fsync", "inline fsync, bare Python server"


def _scene(name: str, topic: str, policy: str) -> Scene:
    @once_per_server
    def prepare(server: RollwayServer) -> None:
        server.create_topic(topic, 1, flush_policy=policy)

    request = post(records_path(topic), batch_of_bytes(BATCH_BYTES)[0])
    return Scene(BENCH, name, "requests/s", Load([request], CLIENTS, body_bytes=BATCH_BYTES), prepare)


def scenes(smoke: bool = False) -> list[Scene]:
    """One waits for the shared fsync, the other for nothing."""
    del smoke
    return [
        _scene("group fsync, 32 clients, 1 KiB", "fsync-group", "group"),
        _scene("no fsync, 32 clients, 1 KiB", "fsync-none", "interval"),
    ]


def measure(plan: Plan) -> Iterator[Row]:
    """Rows: group commit beside no fsync at all, and beside an fsync for each request."""
    cores = choose_cores()
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(RollwayServer(plan.data_dir / BENCH, cores.server))
        inline = stack.enter_context(
            limit_server(
                "append_server",
                plan.data_dir / "limits.log",
                cores.server,
                str(plan.data_dir / "inline.log"),
                "--fsync",
            )
        )
        group, unsynced = scenes()
        group.prepare(ours)
        unsynced.prepare(ours)
        samples = in_turns(
            plan,
            f"{BENCH}, {group.name}",
            {
                ours.name: group.measure(ours),
                UNSYNCED: unsynced.measure(ours),
                INLINE: measure_load(inline, group.load, group.unit),
            },
        )
        for limit, bound in ((UNSYNCED, 0.65), (INLINE, 6.0)):
            yield row_of(
                BENCH,
                group.name,
                group.unit,
                samples[ours.name],
                limit=limit,
                limits=samples[limit],
                goal=Goal("ratio", ">=", bound),
            )
