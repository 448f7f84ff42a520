"""Latency against load: raw produce of 1 KiB at fixed rates, up to what a closed loop reached, and beside the disk.

Segments roll and are deleted meanwhile. What the disk's own fsyncs take in the same minute stands in each row of group
fsync; ``bench.tail`` has the rows beside a bare program.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.bare_syncs import BareSyncs, bare_syncs
from bench.machine import choose_cores
from bench.open_loop import Schedule, at_rate
from bench.rollway_server import RollwayServer
from bench.rows import Plan, Row, Sample, row_of
from bench.tail import BENCH, SETTINGS, create_rolling_topic, highest_rate, measure_tail, requests_of

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
TAIL_SLICES_PER_ROUND = 2


def measure(plan: Plan) -> Iterator[Row]:
    """Rows: the 99th percentile at shares of the highest rate, with the others for the plot; then half of it, beside
    the disk."""
    yield from _by_load(plan)
    yield from measure_tail(plan.data_dir / "tail", 0.5, TAIL_SLICES_PER_ROUND * plan.rounds, plan.seconds)


def _by_load(plan: Plan) -> Iterator[Row]:
    cores = choose_cores()
    with (
        RollwayServer(plan.data_dir / BENCH, cores.server, settings=SETTINGS) as ours,
        bare_syncs(plan.data_dir / "bare.bin", cores.server) as bare,
    ):
        for policy, name in (("interval", "raw produce"), ("group", "group fsync produce")):
            topic = f"latency-{policy}"
            create_rolling_topic(ours, topic, policy)
            requests = requests_of(topic)
            plan.say(f"{BENCH}, {name}: the highest rate")
            capacity = highest_rate(ours, requests, plan.seconds, min(3, plan.rounds))
            samples: dict[float, list[Sample]] = {share: [] for share in SHARES}
            for number in range(plan.rounds):
                for share in SHARES:
                    plan.say(f"{BENCH}, {name}: {share:.0%} of the highest rate, round {number + 1} of {plan.rounds}")
                    schedule = Schedule(capacity * share, plan.seconds)
                    samples[share].append(_sample(ours, requests, schedule, bare if policy == "group" else None))
            for share in SHARES:
                title = f"{name} of 1 KiB, p99 at {share:.0%} of {capacity:,.0f} requests/s"
                yield row_of(BENCH, title, "ms", samples[share])


def _sample(server: RollwayServer, requests: list[bytes], schedule: Schedule, bare: BareSyncs | None) -> Sample:
    cpu = server.cpu_seconds()
    timed = at_rate(server.address, requests, schedule)
    cpu = server.cpu_seconds() - cpu
    table = timed.latencies.table()
    extra = {**table, "rate": schedule.rate, "sent_late_p99_ms": timed.late.percentile(99) * 1000}
    if bare is not None:
        extra |= bare.run().table()
    return Sample(table["p99_ms"], cpu / timed.seconds, 1 - timed.idle_seconds / timed.seconds, extra)
