"""``python -m bench``: every path of the service beside its limit, measured in turns in the same run.

Servers run on one core and the load generator on another. Rates differ from machine to machine; ratios of one run are
what to go by. Each row shows its goal, whether it is met, and how busy server and generator were: a generator that is
busier than its server measures itself.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench import bench_fetch, bench_produce, bench_tiny, report
from bench.machine import choose_cores, description, running_on
from bench.processes import ROOT, BenchError
from bench.rows import Plan, Row

BENCHES: dict[str, Callable[[Plan], Iterator[Row]]] = {
    "tiny": bench_tiny.measure,
    "produce": bench_produce.measure,
    "fetch": bench_fetch.measure,
}
console = Console(width=max(160, Console().width))
progress = Console(stderr=True)


def revision() -> str:
    """The commit that is measured, with a ``+`` when files differ from it; empty outside of a repository."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True)
    return answer.stdout.strip()


@contextmanager
def work_directory(parent: Path) -> Iterator[Path]:
    """A directory for the data of this run, gone afterwards."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        directory = tempfile.TemporaryDirectory(prefix="rollway-bench-", dir=parent, ignore_cleanup_errors=True)
    except OSError as error:
        raise BenchError(f"The data cannot lie in {parent}: {error.strerror}.") from None
    with directory as path:
        yield Path(path)


def _say(line: str) -> None:
    if progress.is_terminal:
        progress.print(line, style="dim", end="\r", no_wrap=True, overflow="ellipsis", highlight=False, width=100)


def run(names: list[str], plan: Plan) -> list[Row]:
    """Measure the benches ``names`` and show their rows as they come.

    Raises:
        BenchError: a bench cannot be run.
    """
    cores = choose_cores()
    rows: list[Row] = []
    with work_directory(plan.data_dir) as directory, running_on(cores.generator):
        for name in names:
            place = directory / name
            place.mkdir()
            for row in BENCHES[name](plan._replace(data_dir=place)):
                rows.append(row)
                progress.print(_line(row), highlight=False, soft_wrap=True)
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
    data_dir: Annotated[Path, typer.Option(help="Where data lie meanwhile: the disk that is measured.")] = Path(),
) -> None:
    """Measure Rollway beside its limits."""
    if smoke:
        rounds, seconds = 1, 0.05
    try:
        _measure(only or list(BENCHES), Plan(rounds, seconds, smoke, data_dir.resolve(), _say), json, markdown)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        print("bench: stopped.", file=sys.stderr)
        raise typer.Exit(130) from None


def _measure(names: list[str], plan: Plan, json: Path | None, markdown: Path | None) -> None:
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        raise BenchError(f"There is no bench {unknown[0]}; there are {', '.join(BENCHES)}.")
    started = time.monotonic()
    rows = run(names, plan)
    show(rows)
    took_s = round(time.monotonic() - started)
    about = {"revision": revision(), "rounds": plan.rounds, "seconds": plan.seconds, "took_s": took_s}
    if json is not None:
        report.write_json(json, rows, description(), about)
    if markdown is not None:
        markdown.write_text(report.markdown(rows, {**description(), **about}), "utf-8")


if __name__ == "__main__":
    application = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    application.command()(main)
    application()
