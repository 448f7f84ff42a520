"""Rows as text, Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.rows import Row

HEADINGS = (
    "what",
    "measured",
    "limit beside it",
    "limit",
    "ratio",
    "goal",
    "met",
    "CPU, server/load",
    "limit's CPU",
    "us/request",
    "fsync, ms",
)
MISSING = "-"
LEGEND = (
    "Ratio: ours to the limit beside it, the median of the rounds. CPU: shares of one core, the server's and the load",
    "generator's. us/request: CPU time of the server for one request, ours / the limit's. fsync: what a bare fdatasync",
    "took in the same minute, median / 99th / 99.9th percentile.",
)


def figure(value: float | None, unit: str = "") -> str:
    """A number with three digits that count, and its unit."""
    if value is None:
        return MISSING
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2
    text = f"{value:,.{digits}f}" if size >= 0.1 else f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def _shares(server: float | None, generator: float | None) -> str:
    if server is None and generator is None:
        return ""
    return " / ".join(MISSING if share is None else f"{share * 100:.0f} %" for share in (server, generator))


def _costs(row: Row) -> str:
    """CPU of the server per request, ours and the limit's: other programs disturb it less than rates."""
    costs = [extra.get("server_us_per_request") for extra in (row.extra, row.limit_extra)]
    return " / ".join(figure(cost) for cost in costs if cost is not None)


def _fsyncs(row: Row) -> str:
    """Percentiles of the disk's own fsyncs, which ``bare_syncs`` measured beside the row."""
    found = {**row.limit_extra, **row.extra}
    names = ("fsync_p50_ms", "fsync_p99_ms", "fsync_p99.9_ms")
    return " / ".join(figure(found[name]) for name in names if name in found)


def goal_text(row: Row) -> str:
    """A goal in words: a bound on the ratio ends in x."""
    if row.goal is None:
        return ""
    sign = {">=": "≥", "<=": "≤"}[row.goal.at]
    return f"{sign} {row.goal.bound:g} x" if row.goal.of == "ratio" else f"{sign} {figure(row.goal.bound, row.unit)}"


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table, by ``HEADINGS``."""
    return (
        row.name + (f" ({row.note})" if row.note else ""),
        figure(row.value, row.unit),
        row.limit,
        figure(row.limit_value) if row.limit_value is not None else "",
        "" if row.ratio is None else f"{row.ratio:.2f}",
        goal_text(row),
        {True: "yes", False: "no", None: ""}[row.met],
        _shares(row.server_cpu, row.generator_cpu),
        _shares(row.limit_server_cpu, row.limit_generator_cpu),
        _costs(row),
        _fsyncs(row),
    )


def markdown(rows: Iterable[Row], machine: dict[str, Any]) -> str:
    """A page: the machine and the run, the table, and what its columns mean."""
    lines = ["# Results of make bench", ""]
    lines += [f"- {name.replace('_', ' ')}: {value}" for name, value in machine.items()]
    lines += ["", *LEGEND, ""]
    lines += ["| " + " | ".join(HEADINGS) + " |", "|---|--:|---|--:|--:|--:|---|--:|--:|--:|--:|"]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def write_json(path: Path, rows: Sequence[Row], machine: dict[str, Any], about: dict[str, Any]) -> None:
    """Everything that was measured, for ``read_json``."""
    document = {"machine": machine, **about, "rows": [row.as_json() for row in rows]}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")


def read_json(paths: Iterable[Path]) -> tuple[list[Row], dict[str, Any], dict[str, Any]]:
    """Rows of several files, the machine and the rest of the last. Of a row that is in two the later counts."""
    rows: dict[tuple[str, str, str], Row] = {}
    machine: dict[str, Any] = {}
    about: dict[str, Any] = {}
    took_s = 0
    for path in paths:
        document = json.loads(path.read_text("utf-8"))
        for each in document.pop("rows"):
            row = Row.from_json(each)
            rows[row.bench, row.name, row.limit] = row
        machine = document.pop("machine")
        about = document
        took_s += about.get("took_s", 0)
        about["took_s"] = took_s
    return list(rows.values()), machine, about
