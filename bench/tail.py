"""``python -m bench.tail``: the slowest requests at a fixed rate, while segments roll and retention deletes.

Slices of the service take turns with slices of a bare program that writes and syncs the same bytes at the same rate, on
the same core and disk. Both count from when a request was due. Says how far the service's percentiles are from those.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from bench import report
from bench.bare_syncs import BareSyncs, Synced, bare_syncs
from bench.closed_loop import Load, measured
from bench.histogram import FINE_PERCENTILES, Histogram
from bench.machine import choose_cores, description, running_on
from bench.open_loop import CONNECTIONS, Schedule, Timed, at_rate
from bench.plots import draw
from bench.requests import batch_of_bytes, post, records_path
from bench.rollway_server import MIB, RollwayServer
from bench.rows import Goal, Row
from bench.runs import failures_told, revision, run_program, say, work_directory

BENCH = "latency"
BATCH_BYTES = 1024
PARTITIONS = 32
SEGMENT_BYTES, RETAINED_BYTES = 8 * MIB, 8 * MIB
HEADS = 4096
"""So many different requests are asked in turn: more than anything would keep."""
BARE = "bare write and fdatasync"
RATIOS = {"p50_ms": 3.0, "p99_ms": 2.0, "p99.9_ms": 2.0, "p100_ms": None}
SETTINGS = {
    "retention_check_interval_ms": "1000",
    "file_delete_delay_ms": "1000",
    "connections_per_address_max": "4000",
}
WARM_UP_SECONDS, CAPACITY_SECONDS = 2.0, 3.0


def requests_of(topic: str, partitions: int = PARTITIONS) -> list[bytes]:
    """Raw produces of one batch, each with a request id of its own, in an order of partitions without a pattern."""
    draw_lots = random.Random(5)
    body = batch_of_bytes(BATCH_BYTES)[0]
    requests = []
    for _ in range(HEADS):
        request = post(records_path(topic, draw_lots.randrange(partitions)), body)
        identity = f"\r\nX-Request-Id: {draw_lots.getrandbits(64):016x}\r\n\r\n"
        requests.append(request.replace(b"\r\n\r\n", identity.encode(), 1))
    return requests


def create_rolling_topic(server: RollwayServer, topic: str, policy: str = "group") -> None:
    """A topic whose segments are full within seconds and deleted soon after."""
    server.create_topic(
        topic,
        PARTITIONS,
        flush_policy=policy,
        segment_bytes=str(SEGMENT_BYTES),
        retention_bytes=str(RETAINED_BYTES),
    )


def highest_rate(server: RollwayServer, requests: list[bytes], seconds: float, rounds: int = 1) -> float:
    """Requests a second of a closed loop on as many connections: saturation."""
    load = Load(requests, CONNECTIONS)
    return statistics.median(measured(server, load, seconds, "requests/s").value for _ in range(rounds))


class Slice(NamedTuple):
    """A turn of the service, and the bare program's after it."""

    ours: Timed
    bare: Synced
    server_cpu: float

    def ratio(self, percent: float) -> float:
        """The service's percentile to the bare program's."""
        return self.ours.latencies.percentile(percent) / self.bare.latencies.percentile(percent)


def take_turns(
    server: RollwayServer, bare: BareSyncs, requests: list[bytes], slices: int, each: Schedule
) -> list[Slice]:
    """Measure ``slices`` turns of both.

    Raises:
        BenchError: a request failed.
    """
    taken = []
    for number in range(slices):
        say(f"{BENCH}: {each.rate:,.0f} requests/s, slice {number + 1} of {slices}")
        cpu = server.cpu_seconds()
        ours = at_rate(server.address, requests, each)
        cpu = (server.cpu_seconds() - cpu) / ours.seconds
        taken.append(Slice(ours, bare.run(each, BATCH_BYTES), cpu))
    return taken


def rows_of(taken: list[Slice], rate: float) -> Iterator[Row]:
    """Rows: each percentile of all slices as one, beside the bare program's; the disk's fsyncs with them."""
    ours = Histogram.together(each.ours.latencies for each in taken)
    bare = Histogram.together(each.bare.latencies for each in taken)
    late = Histogram.together(each.ours.late for each in taken)
    fsyncs = Synced(bare, Histogram.together(each.bare.fsyncs for each in taken)).table()
    extra = {**ours.table(FINE_PERCENTILES), "rate": rate, "sent_late_p99_ms": late.percentile(99) * 1000}
    limit_extra = {**bare.table(FINE_PERCENTILES), **fsyncs}
    for name, bound in RATIOS.items():
        percent = float(name.removeprefix("p").removesuffix("_ms"))
        value, limit_value = ours.percentile(percent) * 1000, bare.percentile(percent) * 1000
        ratios = sorted(each.ratio(percent) for each in taken)
        yield Row(
            BENCH,
            f"durable produce of 1 KiB beside the disk, {'longest' if percent == 100 else f'p{percent:g}'}",
            value,
            "ms",
            BARE,
            limit_value,
            value / limit_value,
            None if bound is None else Goal("ratio", "<=", bound),
            statistics.median(each.server_cpu for each in taken),
            statistics.median(1 - each.ours.idle_seconds / each.ours.seconds for each in taken),
            note=f"{rate:,.0f} requests/s; ratios of {len(taken)} slices {ratios[0]:.2f} to {ratios[-1]:.2f}",
            extra=extra,
            limit_extra=limit_extra,
        )


@contextlib.contextmanager
def _contestants(directory: Path) -> Iterator[tuple[RollwayServer, BareSyncs]]:
    cores = choose_cores()
    with (
        running_on(cores.generator),
        RollwayServer(directory / "service", cores.server, settings=SETTINGS) as server,
        bare_syncs(directory / "bare.bin", cores.server) as bare,
    ):
        yield server, bare


def measure_tail(directory: Path, share: float, slices: int, slice_seconds: float) -> Iterator[Row]:
    """Rows of ``slices`` turns at ``share`` of the highest rate.

    Raises:
        BenchError: a request failed.
    """
    directory.mkdir(exist_ok=True)
    with _contestants(directory) as (server, bare):
        topic = "tail"
        create_rolling_topic(server, topic)
        requests = requests_of(topic)
        say(f"{BENCH}: the highest rate")
        highest_rate(server, requests, min(WARM_UP_SECONDS, slice_seconds))
        rate = share * highest_rate(server, requests, min(CAPACITY_SECONDS, slice_seconds), 3)
        take_turns(server, bare, requests, 1, Schedule(rate, min(WARM_UP_SECONDS, slice_seconds)))
        yield from rows_of(take_turns(server, bare, requests, slices, Schedule(rate, slice_seconds)), rate)


def main(
    seconds: Annotated[float, typer.Option(help="How long the service is measured in all.", min=0.01)] = 120,
    slice_seconds: Annotated[float, typer.Option(help="How long a turn of each takes.", min=0.01)] = 15,
    share: Annotated[float, typer.Option(help="Rate, as a share of the highest one.", min=0.01, max=1)] = 0.5,
    output: Annotated[Path | None, typer.Option(help="Directory of tail.json, tail.md and the plot.")] = None,
    data_dir: Annotated[Path, typer.Option(help="Where data lie meanwhile: the disk that is measured.")] = Path(),
) -> None:
    """Measure the slowest requests beside the disk."""
    with failures_told("tail"), work_directory(data_dir.resolve()) as directory:
        started = time.monotonic()
        slices = max(1, round(seconds / slice_seconds))
        rows = list(measure_tail(directory, share, slices, min(seconds, slice_seconds)))
        about = {"revision": revision(), "share": share, "seconds": seconds, "slice_seconds": slice_seconds}
        about["took_s"] = round(time.monotonic() - started)
        page = report.markdown(rows, {**description(), **about})
        print(page)
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)
            report.write_json(output / "tail.json", rows, description(), about)
            (output / "tail.md").write_text(page, "utf-8")
            draw(rows, output)


if __name__ == "__main__":
    run_program(main)
