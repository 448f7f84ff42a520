"""Group commit: 32 clients that each wait until their batch of 1 KiB is on the disk, and share the waiting.

The clients write to one partition, or to many: then the journal shares the fsync among the partitions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from bench.bare_syncs import BareSyncs, bare_syncs
from bench.closed_loop import Load
from bench.machine import choose_cores
from bench.processes import BenchError, limit_server
from bench.requests import batch_of_bytes, post, records_path
from bench.rollway_server import RollwayServer
from bench.rounds import in_turns
from bench.rows import Goal, Plan, Row, row_of
from bench.scenes import Scene, measure_load, once_per_server

BENCH = "fsync"
CLIENTS = 32
BATCH_BYTES = 1024
UNSYNCED, INLINE = "the same without fsync", "inline fsync, bare Python server"
PARTITION_COUNTS = (32, 1_000, 10_000, 100_000)
COMPARED_COUNTS = (32, 1_000)
PARTITIONS_PER_TOPIC = 500
# Descriptors that connections need limit the number of partitions.
_SETTINGS = {"connections_max": "64", "partition_count_max": "1000000"}


def _scene(name: str, topic: str, policy: str) -> Scene:
    @once_per_server
    def prepare(server: RollwayServer) -> None:
        server.create_topic(topic, 1, flush_policy=policy)

    request = post(records_path(topic), batch_of_bytes(BATCH_BYTES)[0])
    return Scene(BENCH, name, "requests/s", Load([request], CLIENTS, body_bytes=BATCH_BYTES), prepare)


def _spread(partition_count: int) -> Scene:
    """The clients write to all partitions in an order that no cache can foresee."""
    starts = range(0, partition_count, PARTITIONS_PER_TOPIC)
    sizes = [min(PARTITIONS_PER_TOPIC, partition_count - start) for start in starts]
    topics = {f"fsync-{partition_count}-{number}": size for number, size in enumerate(sizes)}

    @once_per_server
    def prepare(server: RollwayServer) -> None:
        for topic, size in topics.items():
            server.create_topic(topic, size, flush_policy="group")

    batch = batch_of_bytes(BATCH_BYTES)[0]
    requests = [post(records_path(topic, number), batch) for topic, size in topics.items() for number in range(size)]
    random.Random(1).shuffle(requests)
    name = f"group fsync, 32 clients, 1 KiB, {partition_count:,} partitions"
    return Scene(BENCH, name, "requests/s", Load(requests, CLIENTS, body_bytes=BATCH_BYTES), prepare)


def _alone() -> list[Scene]:
    return [
        _scene("group fsync, 32 clients, 1 KiB", "fsync-group", "group"),
        _scene("no fsync, 32 clients, 1 KiB", "fsync-none", "interval"),
    ]


def scenes(smoke: bool = False) -> list[Scene]:
    """Scenes of one partition, with the shared fsync and with none, and of many partitions."""
    return [*_alone(), *(_spread(count) for count in ((4,) if smoke else COMPARED_COUNTS))]


def measure(plan: Plan) -> Iterator[Row]:
    """Rows: group commit beside no fsync at all, beside an fsync for each request, and over many partitions.

    Each has the disk's own fsyncs of the same minute.
    """
    cores = choose_cores()
    with (
        RollwayServer(plan.data_dir / BENCH, cores.server, settings=_SETTINGS) as ours,
        bare_syncs(plan.data_dir / "bare.bin", cores.server) as bare,
    ):
        yield from _one_partition(plan, ours, bare)
        for count in (4,) if plan.smoke else PARTITION_COUNTS:
            yield _many_partitions(plan, ours, bare, count)


def _one_partition(plan: Plan, ours: RollwayServer, bare: BareSyncs) -> Iterator[Row]:
    arguments = (str(plan.data_dir / "inline.log"), "--fsync")
    server = limit_server("append_server", plan.data_dir / "limits.log", choose_cores().server, *arguments)
    with server as inline:
        group, unsynced = _alone()
        group.prepare(ours)
        unsynced.prepare(ours)
        samples = in_turns(
            plan,
            f"{BENCH}, {group.name}",
            {
                ours.name: bare.beside(group.measure(ours)),
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


def _many_partitions(plan: Plan, ours: RollwayServer, bare: BareSyncs, count: int) -> Row:
    group, spread = _alone()[0], _spread(count)
    plan.say(f"{BENCH}: making {count:,} partitions")
    try:
        spread.prepare(ours)
    except BenchError as error:
        return Row(BENCH, spread.name, None, spread.unit, note=str(error)[:200])
    contestants = {ours.name: bare.beside(spread.measure(ours)), group.name: group.measure(ours)}
    samples = in_turns(plan, f"{BENCH}, {spread.name}", contestants)
    return row_of(
        BENCH,
        spread.name,
        spread.unit,
        samples[ours.name],
        limit=group.name,
        limits=samples[group.name],
        goal=Goal("ratio", ">=", 0.8),
    )
