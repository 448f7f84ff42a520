"""``python -m bench.soak``: mixed load at a fixed rate while segments roll and retention deletes all the time.

Says whether memory and descriptors grow, and whether the slowest percent of honest requests stays as it was; writes all
samples, a table and a plot.
"""

from __future__ import annotations

import json as json_format
import multiprocessing
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.machine import choose_cores, description, running_on
from bench.processes import BenchError
from bench.rollway_server import MIB, RollwayServer
from bench.runs import failures_told, revision, run_program, work_directory
from bench.soak_load import JSON_TOPIC, POLLED_TOPIC, PROBED_TOPIC, RAW_PARTITIONS, RAW_TOPIC, Load, Timed, probe

SEGMENT_BYTES = 4 * MIB
RETAINED_BYTES = 32 * MIB
SAMPLES = 60
KINDS = frozenset({"produce raw", "produce JSON", "fetch raw", "fetch JSON", "long poll"})
FIRST_TURN_SECONDS_MAX, POLL_SECONDS = 60.0, 0.1
_SETTINGS = {
    "retention_check_interval_ms": "1000",
    "file_delete_delay_ms": "1000",
    "file_delete_check_interval_ms": "250",
}
# A file, and its mapping if it has one.
DESCRIPTORS_PER_FILE_MAX = 2
# How the system names a file that is open but gone.
_UNLINKED = " (deleted)"
# The beginning fills caches, pools and the retained segments; growth is looked for behind it.
WARM_UP_SHARE = 0.25
# What is called growth: more than this over the time that is looked at.
MEMORY_SHARE_MAX, DESCRIPTORS_MAX, P99_RATIO_MAX = 0.05, 3.0, 1.5


@dataclass
class Sample:
    """One interval."""

    at_seconds: float
    resident_mib: float
    descriptors: int
    descriptors_beside: int
    """Without those of stored files: sockets, deleted files, and what is open more often than it may be."""
    threads: int
    cpu: float
    megabytes_per_second: float
    requests_per_second: float
    p50_ms: float
    p99_ms: float
    long_poll_p99_ms: float
    segment_files: int
    stored_mib: float
    rolls: int
    """Segments begun so far."""


def percentile(seconds: Sequence[float], share: float) -> float:
    """In milliseconds; 0 without any."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000 if ordered else 0.0


def open_files(process: Path, data_dir: Path) -> tuple[int, int]:
    """Descriptors of the process in ``/proc``: all of them, and those beside the ones of files under ``data_dir``.

    How many files are stored changes with what is written; what is open beside them must not.
    """
    stored: Counter[Path] = Counter()
    count = 0
    for descriptor in (process / "fd").iterdir():
        try:
            target = descriptor.readlink()
        except FileNotFoundError:
            continue
        count += 1
        if target.is_relative_to(data_dir) and not target.name.endswith(_UNLINKED):
            stored[target] += 1
    return count, count - sum(min(each, DESCRIPTORS_PER_FILE_MAX) for each in stored.values())


class Watch:
    """Looks at a service's process and files, interval by interval."""

    def __init__(self, server: RollwayServer) -> None:
        self._server = server
        self._started = self._last = time.perf_counter()
        self._cpu = server.cpu_seconds()
        self._seen: set[str] = set()

    def sample(self, timed: Sequence[Timed], probed: Sequence[float]) -> Sample:
        """What has been since the last call."""
        now, cpu = time.perf_counter(), self._server.cpu_seconds()
        elapsed, used = now - self._last, cpu - self._cpu
        self._last, self._cpu = now, cpu
        process = Path(f"/proc/{self._server.pid}")
        status = (process / "status").read_text("ascii")
        (threads,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("Threads:"))
        files, stored = self._segments()
        descriptors, beside = open_files(process, self._server.data_dir)
        return Sample(
            at_seconds=now - self._started,
            resident_mib=self._server.resident_bytes() / MIB,
            descriptors=descriptors,
            descriptors_beside=beside,
            threads=threads,
            cpu=used / elapsed,
            megabytes_per_second=sum(each.size_bytes for each in timed) / elapsed / 1e6,
            requests_per_second=(len(timed) + len(probed)) / elapsed,
            p50_ms=percentile(probed, 0.5),
            p99_ms=percentile(probed, 0.99),
            long_poll_p99_ms=percentile([each.seconds for each in timed if each.kind == "long poll"], 0.99),
            segment_files=files,
            stored_mib=stored / MIB,
            rolls=len(self._seen),
        )

    def _segments(self) -> tuple[int, int]:
        files = stored = 0
        for path in (self._server.data_dir / "logs").glob("*/*.log"):
            try:
                stored += path.stat().st_size
            except FileNotFoundError:
                continue
            files += 1
            self._seen.add(f"{path.parent.name}/{path.name}")
        return files, stored


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """Least squares, per second."""
    middle, average = statistics.fmean(times), statistics.fmean(values)
    spread = sum((at - middle) ** 2 for at in times)
    return sum((at - middle) * (value - average) for at, value in zip(times, values, strict=True)) / (spread or 1.0)


def settled(samples: Sequence[Sample]) -> Sequence[Sample]:
    """The samples behind the warm-up."""
    return samples[int(len(samples) * WARM_UP_SHARE) :]


def verdicts(samples: Sequence[Sample]) -> list[str]:
    """Whether memory and descriptors grow, and whether p99 is flat, a sentence each."""
    steady = settled(samples)
    times = [each.at_seconds for each in steady]
    minutes = (times[-1] - times[0]) / 60
    memory = [each.resident_mib for each in steady]
    grown = slope(times, memory) * (times[-1] - times[0])
    has_grown = grown > MEMORY_SHARE_MAX * statistics.median(memory)
    beside = [float(each.descriptors_beside) for each in steady]
    more = slope(times, beside) * (times[-1] - times[0])
    stored = statistics.median(each.descriptors - each.descriptors_beside for each in steady)
    third = max(1, len(steady) // 3)
    early = statistics.median(each.p99_ms for each in steady[:third])
    late = statistics.median(each.p99_ms for each in steady[-third:])
    is_flat = late <= P99_RATIO_MAX * early
    return [
        (
            f"Memory {'grows' if has_grown else 'does not grow'}: the line through {len(steady)} samples of the last "
            f"{minutes:.1f} minutes changes by {grown:+.1f} MiB at a median of {statistics.median(memory):.0f} MiB."
        ),
        (
            f"Descriptors {'grow' if more > DESCRIPTORS_MAX else 'do not grow'}: beside {stored:.0f} of stored files, "
            f"their line changes by {more:+.1f} at a median of "
            f"{statistics.median(beside):.0f}."
        ),
        (
            f"p99 of honest requests is {'flat' if is_flat else 'not flat'}: {early:.2f} ms in the first third of that "
            f"time, {late:.2f} ms in the last (medians of intervals)."
        ),
    ]


def soak(server: RollwayServer, seconds: float, bytes_per_second: float, cores: frozenset[int]) -> list[Sample]:
    """Put the load on a service for so long.

    Raises:
        BenchError: a request failed.
    """
    small = {"segment_bytes": str(SEGMENT_BYTES), "retention_bytes": str(RETAINED_BYTES), "flush_policy": "interval"}
    server.create_topic(RAW_TOPIC, RAW_PARTITIONS, **small)
    for topic in (JSON_TOPIC, POLLED_TOPIC, PROBED_TOPIC):
        server.create_topic(topic, **small)
    interval = seconds / SAMPLES
    samples: list[Sample] = []
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    prober = context.Process(target=probe, args=(server.address, cores, theirs), daemon=True)
    with Load(server, bytes_per_second) as load:
        prober.start()
        ours.send("begin")
        ours.recv()
        watch = Watch(server)
        load.taken()
        kinds: Counter[str] = Counter()
        due = time.perf_counter()
        for _ in range(SAMPLES):
            due += interval
            time.sleep(max(0.0, due - time.perf_counter()))
            ours.send("sample")
            timed = load.taken()
            kinds.update(each.kind for each in timed)
            samples.append(watch.sample(timed, ours.recv()))
            if load.failures:
                raise BenchError(f"A request failed after {samples[-1].at_seconds:.0f} s: {load.failures[0]}.")
        # A run of seconds on a busy machine may end before each kind had its first turn.
        while KINDS - set(kinds) and not load.failures and time.perf_counter() < due + FIRST_TURN_SECONDS_MAX:
            time.sleep(POLL_SECONDS)
            kinds.update(each.kind for each in load.taken())
        ours.send(None)
        prober.join(60)
    missing = KINDS - set(kinds)
    if missing:
        raise BenchError(f"Nothing was done of {', '.join(sorted(missing))}.")
    return samples


def markdown(samples: Sequence[Sample], about: dict[str, Any]) -> str:
    """What was found, and a line for each tenth of the time."""
    lines = [f"Measured: {', '.join(f'{name} {value}' for name, value in about.items())}.", ""]
    lines += [*(f"- {sentence}" for sentence in verdicts(samples)), ""]
    names = "s | MB/s | requests/s | p50 ms | p99 ms | RSS MiB | descriptors | threads | CPU | rolls | stored MiB"
    lines += [f"| {names} |", f"|{'---:|' * 11}"]
    step = max(1, len(samples) // 10)
    for each in samples[step - 1 :: step]:
        rates = f"{each.megabytes_per_second:.1f} | {each.requests_per_second:.0f} | {each.p50_ms:.2f}"
        held = f"{each.resident_mib:.0f} | {each.descriptors} | {each.threads} | {each.cpu:.0%}"
        lines.append(
            f"| {each.at_seconds:.0f} | {rates} | {each.p99_ms:.2f} | {held} | {each.rolls} | {each.stored_mib:.0f} |"
        )
    return "\n".join(lines) + "\n"


def plot(samples: Sequence[Sample], path: Path) -> None:
    """Four curves over time.

    Raises:
        BenchError: there is no matplotlib.
    """
    try:
        import matplotlib as mpl
    except ImportError:
        raise BenchError("There is no matplotlib here, so nothing is plotted.") from None
    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "rollway", "font.size": 8})
    from matplotlib import pyplot as plt

    times = [each.at_seconds for each in samples]
    figure, axes = plt.subplots(4, 1, sharex=True, figsize=(7, 7), layout="constrained")
    curves: list[tuple[str, list[tuple[str, list[float]]]]] = [
        ("ms", [("p99", [each.p99_ms for each in samples]), ("p50", [each.p50_ms for each in samples])]),
        ("MiB", [("resident memory", [each.resident_mib for each in samples])]),
        (
            "count",
            [
                ("descriptors", [float(each.descriptors) for each in samples]),
                ("beside those of stored files", [float(each.descriptors_beside) for each in samples]),
            ],
        ),
        (
            "",
            [
                ("MB/s", [each.megabytes_per_second for each in samples]),
                ("CPU %", [each.cpu * 100 for each in samples]),
            ],
        ),
    ]
    for axis, (unit, lines) in zip(axes, curves, strict=True):
        for name, values in lines:
            axis.plot(times, values, label=name, linewidth=1)
        axis.set_ylim(bottom=0)
        axis.set_ylabel(unit)
        axis.legend(loc="lower right")
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("seconds")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main(
    seconds: Annotated[float, typer.Option(help="How long.", min=1)] = 600.0,
    rate: Annotated[float, typer.Option(help="MB/s that go in and out together.", min=0.1)] = 24.0,
    json: Annotated[Path | None, typer.Option(help="Write all samples to this file.")] = None,
    markdown_file: Annotated[Path | None, typer.Option("--markdown", help="Write the table to this file.")] = None,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="Write the plot, an SVG, to this file.")] = None,
    data_dir: Annotated[Path, typer.Option(help="Where data lie meanwhile: the disk that is measured.")] = Path(),
) -> None:
    """Load the service for long, and look for growth."""
    cores, machine = choose_cores(), description()
    with failures_told("soak"):
        with work_directory(data_dir.resolve()) as directory, running_on(cores.generator):
            with RollwayServer(directory / "soak", cores.server, settings=_SETTINGS) as server:
                samples = soak(server, seconds, rate * 1e6, cores.generator)
            about = {**machine, "revision": revision(), "seconds": seconds, "MB/s wanted": rate}
        if json is not None:
            document = {"about": about, "samples": [asdict(each) for each in samples]}
            json.write_text(json_format.dumps(document) + "\n", "utf-8")
        text = markdown(samples, about)
        if markdown_file is not None:
            markdown_file.write_text(text, "utf-8")
        print(text)
        if plot_file is not None:
            plot(samples, plot_file)


if __name__ == "__main__":
    run_program(main)
