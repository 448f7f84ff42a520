"""Plots of measured rows, as SVG files: rates by size, latency by load, CPU per GB, growth, partitions, readers.

Each plot is made of whatever rows there are; without any of its own it is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench.processes import BenchError
from bench.rows import Row

_SIZES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_SIZE = re.compile(r"(\d+) (KiB|MiB|GiB|B)\b")
OURS, LIMIT_STYLES = "#1f5fa8", ("#c44e52", "#8c8c8c", "#55a868")


def size_of(row: Row) -> int:
    """The size that a row's name tells, in bytes; 0 if none."""
    found = _SIZE.search(row.name)
    return int(found[1]) * _SIZES[found[2]] if found else 0


def _bytes_per_second(row: Row, value: float) -> float:
    """MB/s of a row in either of its units."""
    return value if row.unit == "MB/s" else value * size_of(row) / 1e6


def _by_size(axes: Any, rows: Iterable[Row], label: str) -> bool:
    chosen = sorted((row for row in rows if row.value is not None and size_of(row)), key=size_of)
    if not chosen:
        return False
    ours = {size_of(row): _bytes_per_second(row, row.value or 0) for row in chosen}
    axes.plot(list(ours), list(ours.values()), "o-", color=OURS, label="Rollway")
    for color, limit in zip(LIMIT_STYLES, sorted({row.limit for row in chosen if row.limit_value}), strict=False):
        theirs = {size_of(row): _bytes_per_second(row, row.limit_value or 0) for row in chosen if row.limit == limit}
        axes.plot(list(theirs), list(theirs.values()), "s--", color=color, label=limit)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(list(ours), [_size_text(size) for size in ours])
    axes.set_xlabel(label)
    axes.set_ylabel("MB/s")
    return True


def _size_text(size: int) -> str:
    unit = max((each for each, factor in _SIZES.items() if factor <= size), key=_SIZES.__getitem__)
    return f"{size // _SIZES[unit]} {unit}"


def produce_by_size(axes: Any, rows: list[Row]) -> bool:
    """Raw produce."""
    return _by_size(axes, [row for row in rows if row.bench == "produce"], "batch of one request")


def fetch_by_size(axes: Any, rows: list[Row]) -> bool:
    """Raw fetch."""
    return _by_size(axes, [row for row in rows if row.bench == "fetch" and row.unit != "s/GB"], "slice of one request")


def cpu_per_gb(axes: Any, rows: list[Row]) -> bool:
    """CPU of the server for each GB of raw fetch."""
    chosen = sorted((row for row in rows if row.bench == "fetch" and row.unit == "s/GB"), key=size_of)
    if not chosen:
        return False
    places = range(len(chosen))
    axes.bar([place - 0.2 for place in places], [row.value or 0 for row in chosen], 0.4, color=OURS, label="Rollway")
    if any(row.limit_value for row in chosen):
        theirs = [row.limit_value or 0 for row in chosen]
        axes.bar([place + 0.2 for place in places], theirs, 0.4, color=LIMIT_STYLES[1], label=chosen[0].limit)
    axes.set_xticks(list(places), [_size_text(size_of(row)) for row in chosen])
    axes.set_xlabel("slice of one request")
    axes.set_ylabel("CPU seconds per GB")
    return True


def latency_by_load(axes: Any, rows: list[Row]) -> bool:
    """Percentiles at fixed rates; time counts from when a request was due."""
    chosen = [row for row in rows if row.bench == "latency" and not row.limit]
    for policy, style in (("raw", "-"), ("group", "--")):
        group = sorted((row for row in chosen if row.name.startswith(policy)), key=lambda row: row.extra["rate"])
        for color, percentile in zip((OURS, *LIMIT_STYLES), ("p50_ms", "p99_ms", "p99.9_ms"), strict=False):
            label = f"{'no fsync' if policy == 'raw' else 'group fsync'}, {percentile.removesuffix('_ms')}"
            rates = [row.extra["rate"] for row in group]
            if group:
                axes.plot(rates, [row.extra[percentile] for row in group], f"o{style}", color=color, label=label)
    axes.set_yscale("log")
    axes.set_xlabel("requests of 1 KiB per second")
    axes.set_ylabel("ms")
    return bool(chosen)


def tail(axes: Any, rows: list[Row]) -> bool:
    """Percentiles of durable produce beside those of bare writes, by how rare a request is."""
    chosen = [row for row in rows if row.bench == "latency" and row.limit_extra]
    for row in chosen[:1]:
        for figures, prefix, style, name in (
            (row.extra, "p", "-", "durable produce"),
            (row.limit_extra, "p", "--", row.limit),
            (row.limit_extra, "fsync_p", ":", "fdatasync alone"),
        ):
            points = sorted(
                (float(key.removeprefix(prefix).removesuffix("_ms")), value)
                for key, value in figures.items()
                if re.fullmatch(rf"{prefix}[\d.]+_ms", key)
            )
            # The longest has no share of its own.
            points = [(percent, value) for percent, value in points if percent < 100]
            color = OURS if figures is row.extra else LIMIT_STYLES[1]
            axes.plot([100 / (100 - percent) for percent, _ in points], [y for _, y in points], style, color=color)
            axes.lines[-1].set_label(name)
        axes.set_title(f"Half of the highest rate: {row.extra['rate']:,.0f} requests/s of 1 KiB")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([2, 10, 100, 1_000, 10_000], ["p50", "p90", "p99", "p99.9", "p99.99"])
    axes.set_ylabel("ms")
    return bool(chosen)


_SPREAD = re.compile(r"^group fsync, 32 clients, 1 KiB(?:, ([\d,]+) partitions)?$")


def durable_by_partitions(axes: Any, rows: list[Row]) -> bool:
    """Durable appends spread over partitions, beside those to one in the same rounds."""
    points = {
        int((found[1] or "1").replace(",", "")): row
        for row in rows
        if row.bench == "fsync" and row.value and row.limit_value and (found := _SPREAD.match(row.name))
    }
    counts = sorted(points)
    many = [count for count in counts if count > 1]
    axes.plot(counts, [points[count].value for count in counts], "o-", color=OURS, label="32 clients, all partitions")
    if many:
        rates = [points[count].limit_value for count in many]
        axes.plot(many, rates, "s--", color=LIMIT_STYLES[1], label="one partition, in the same rounds")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("partitions that are written to")
    axes.set_ylabel("durable requests of 1 KiB per second")
    return bool(points)


_WOKEN = re.compile(r"p99 of ([\d,]+) waiters")


def waking_by_readers(axes: Any, rows: list[Row]) -> bool:
    """How long one append takes to answer all that wait for it."""
    points = {
        int(found[1].replace(",", "")): row
        for row in rows
        if row.bench == "waking" and row.limit_value and (found := _WOKEN.search(row.name))
    }
    counts = sorted(points)
    for color, percentile in ((OURS, "p50_ms"), (LIMIT_STYLES[0], "p99_ms")):
        name = percentile.removesuffix("_ms")
        ours, bare = (
            [getattr(points[count], which)[percentile] for count in counts] for which in ("extra", "limit_extra")
        )
        axes.plot(counts, ours, "o-", color=color, label=f"long polls, {name}")
        axes.plot(counts, bare, "s--", color=color, label=f"bare sends, {name}")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("clients that wait for one partition")
    axes.set_ylabel("ms from the append to the answer")
    return bool(points)


_GROWN = re.compile(r"^(.*?),? (?:a service of|at random in) ([\d,]+) (partitions|sealed segments)")


def growth(axes: Any, rows: list[Row]) -> bool:
    """Rates with many partitions or a long log, to those with one partition or one segment."""
    lines: dict[str, dict[int, float]] = {}
    for row in rows:
        found = _GROWN.match(row.name)
        if found and row.ratio is not None:
            name = f"{found[1]}, {found[3].removeprefix('sealed ')}"
            lines.setdefault(name, {1: 1.0})[int(found[2].replace(",", ""))] = row.ratio
    for name, points in lines.items():
        axes.plot(sorted(points), [points[size] for size in sorted(points)], "o-", label=name)
    axes.axhline(0.9, color=LIMIT_STYLES[1], linestyle=":", label="goal")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("partitions of the service, or segments of the log")
    axes.set_ylabel("rate to that with one")
    return bool(lines)


PLOTS: dict[str, tuple[str, Callable[[Any, list[Row]], bool]]] = {
    "produce-by-size": ("Raw produce by size of the batch", produce_by_size),
    "fetch-by-size": ("Raw fetch by size of the slice", fetch_by_size),
    "cpu-per-gb": ("CPU of raw fetch", cpu_per_gb),
    "latency-by-load": ("Latency of raw produce by load", latency_by_load),
    "latency-tail": ("The slowest requests", tail),
    "durable-by-partitions": ("Durable appends by number of partitions", durable_by_partitions),
    "waking-by-readers": ("Waking by number of readers", waking_by_readers),
    "growth": ("Growth", growth),
}


def draw(rows: list[Row], directory: Path) -> list[Path]:
    """Write the plots into ``directory``; returns the files.

    Raises:
        BenchError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise BenchError("Plots need matplotlib: make bench installs it.") from None
    written = []
    # The same rows give the same bytes; text stays text, which is small and can be searched.
    with mpl.rc_context({"svg.hashsalt": "rollway", "svg.fonttype": "none", "font.size": 9}):
        for name, (title, plot) in PLOTS.items():
            figure = Figure(figsize=(6.4, 3.8), layout="constrained")
            axes = figure.add_subplot()
            if not plot(axes, rows):
                continue
            axes.set_title(axes.get_title() or title)
            axes.grid(visible=True, alpha=0.3)
            axes.legend(fontsize=8)
            path = directory / f"{name}.svg"
            figure.savefig(path, metadata={"Date": None})
            # matplotlib leaves blanks at line ends.
            path.write_text("\n".join(line.rstrip() for line in path.read_text("utf-8").splitlines()) + "\n", "utf-8")
            written.append(path)
    return written
