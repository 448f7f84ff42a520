"""``python -m bench``: every path of the service beside its limit, measured in turns in the same run.

Servers run on one core and the load generator on another. Rates differ from machine to machine; ratios of one run are
what to go by. Each row shows its goal, whether it is met, and how busy server and generator were: a generator that is
busier than its server measures itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from bench import (
    bench_crowd,
    bench_fetch,
    bench_fsync,
    bench_generator,
    bench_heads,
    bench_json,
    bench_latency,
    bench_poll,
    bench_produce,
    bench_records,
    bench_retries,
    bench_scale,
    bench_tiny,
    bench_tls,
    bench_under_bulk,
    bench_waking,
    report,
)
from bench.machine import choose_cores, description, running_on
from bench.plots import draw
from bench.processes import BenchError
from bench.rows import Plan, Row
from bench.runs import failures_told, progress, revision, run_program, say, work_directory

BENCHES: dict[str, Callable[[Plan], Iterator[Row]]] = {
    "tiny": bench_tiny.measure,
    "produce": bench_produce.measure,
    "retries": bench_retries.measure,
    "tls": bench_tls.measure,
    "fsync": bench_fsync.measure,
    "fetch": bench_fetch.measure,
    "heads": bench_heads.measure,
    "under-bulk": bench_under_bulk.measure,
    "json": bench_json.measure,
    "records": bench_records.rows,
    "poll": bench_poll.measure,
    "waking": bench_waking.measure,
    "latency": bench_latency.measure,
    "crowd": bench_crowd.measure,
    "scale": bench_scale.measure,
    "generator": bench_generator.measure,
}
FAILED = "not measured"
console = Console(width=max(160, Console().width))


def run(names: list[str], plan: Plan) -> list[Row]:
    """Measure the benches ``names`` and show their rows as they come.

    A bench that cannot go on leaves a row that says why, and the others are run.

    Raises:
        BenchError: there is no place for the data.
    """
    cores = choose_cores()
    rows: list[Row] = []
    with work_directory(plan.data_dir) as directory, running_on(cores.generator):
        for name in names:
            place = directory / name
            place.mkdir()
            try:
                for row in BENCHES[name](plan._replace(data_dir=place)):
                    rows.append(row)
                    progress.print(_line(row), highlight=False, soft_wrap=True)
            except BenchError as error:
                rows.append(Row(name, FAILED, None, "", note=str(error)))
                progress.print(f"{name:9}{error}", style="bold", highlight=False, soft_wrap=True)
    return rows


def _line(row: Row) -> str:
    beside = f", {row.ratio:.2f} of {row.limit}" if row.ratio is not None else ""
    met = {True: "  met", False: "  [bold]not met[/bold]", None: ""}[row.met]
    return f"{row.bench:9}{row.name}: {report.figure(row.value, row.unit)}{beside}{met}"


def show(rows: list[Row]) -> None:
    """The table, for people."""
    table = Table(title=", ".join(f"{name} {value}" for name, value in description().items()), title_justify="left")
    for heading in report.HEADINGS:
        table.add_column(heading, justify="left" if heading in ("what", "limit beside it", "met") else "right")
    for row in rows:
        table.add_row(*report.cells(row))
    console.print(table)


def main(
    only: Annotated[
        list[str] | None, typer.Option(help=f"Run this bench only; repeatable. One of {', '.join(BENCHES)}.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds; the median counts.", min=1)] = 5,
    seconds: Annotated[float, typer.Option(help="How long each is measured in a round.", min=0.01)] = 1.5,
    smoke: Annotated[bool, typer.Option(help="One short round with little data: whether all of it runs.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write everything measured to this file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the table to this file.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Write plots into this directory.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="Directory of results.json, results.md and the plots: all three at once.")
    ] = None,
    merge: Annotated[
        list[Path] | None, typer.Option(help="Also take rows of this JSON file, where this run has none; repeatable.")
    ] = None,
    data_dir: Annotated[Path, typer.Option(help="Where data lie meanwhile: the disk that is measured.")] = Path(),
) -> None:
    """Measure Rollway beside its limits."""
    if smoke:
        rounds, seconds = 1, 0.05
    if output is not None:
        json, markdown, plots = output / "results.json", output / "results.md", output
    with failures_told("bench"):
        plan = Plan(rounds, seconds, smoke, data_dir.resolve(), say)
        rows, about = _measure(only if only is not None else [] if merge else list(BENCHES), plan)
        if merge:
            measured, _, earlier = report.read_json(merge)
            rows, about = _merged(measured, rows), about if rows else earlier
        show(rows)
        _write(rows, about, json, markdown, plots)
        failures = [row for row in rows if row.name == FAILED]
        if failures:
            raise BenchError("; ".join(f"{row.bench}: {row.note}" for row in failures))


def _measure(names: list[str], plan: Plan) -> tuple[list[Row], dict[str, Any]]:
    """The rows of ``names``, and how they were measured."""
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        raise BenchError(f"There is no bench {unknown[0]}; there are {', '.join(BENCHES)}.")
    started = time.monotonic()
    rows = run(names, plan)
    took_s = round(time.monotonic() - started)
    return rows, {"revision": revision(), "rounds": plan.rounds, "seconds": plan.seconds, "took_s": took_s}


def _merged(earlier: list[Row], rows: list[Row]) -> list[Row]:
    """All rows in the order of ``BENCHES``; a bench that ``rows`` has is not taken from ``earlier``."""
    measured = {row.bench for row in rows}
    order = list(BENCHES)
    together = [*(row for row in earlier if row.bench not in measured), *rows]
    return sorted(together, key=lambda row: order.index(row.bench) if row.bench in order else len(order))


def _write(
    rows: list[Row], about: dict[str, Any], json: Path | None, markdown: Path | None, plots: Path | None
) -> None:
    machine = description()
    for path in (json, markdown):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
    if json is not None:
        report.write_json(json, rows, machine, about)
    if markdown is not None:
        markdown.write_text(report.markdown(rows, {**machine, **about}), "utf-8")
    if plots is not None:
        plots.mkdir(parents=True, exist_ok=True)
        draw(rows, plots)


if __name__ == "__main__":
    run_program(main)
