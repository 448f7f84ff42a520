"""The output of commands: tables and sentences for people, JSON for programs.

Results go to stdout, everything else to stderr. There is colour only on a terminal, and never with NO_COLOR.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from app.cli.json_text import json_text
from rollway.printable import escape_unprintable

PIPE_WIDTH = 10_000
"""Width for tables in a pipe, so that nothing is cut or wrapped."""


class _QuietConsole(Console):
    """A console that raises an error for a closed pipe. Rich would end the process with status 1, and the command line
    has another status for it."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def output_console() -> Console:
    """Return the console for results."""
    return _QuietConsole(
        file=sys.stdout, highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else PIPE_WIDTH
    )


def message_console() -> Console:
    """Return the console for notes and progress."""
    return Console(file=sys.stderr, highlight=False, soft_wrap=not sys.stderr.isatty())


def say(sentence: str) -> None:
    """Print a sentence as the result."""
    output_console().print(Text(escape_unprintable(sentence, keep_lines=True)), soft_wrap=True)


def note(sentence: str) -> None:
    """Print a sentence beside the result."""
    message_console().print(Text(escape_unprintable(sentence, keep_lines=True)), soft_wrap=True)


def print_json(document: object) -> None:
    """Print one JSON document on one line."""
    sys.stdout.buffer.write(json_text(document).encode() + b"\n")
    sys.stdout.buffer.flush()


def print_result(document: object, sentence: str, *, as_json: bool) -> None:
    """Print the result of a command as JSON, or as a sentence."""
    if as_json:
        print_json(document)
    else:
        say(sentence)


def print_entries(
    name: str,
    entries: Collection[object],
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    if_none: str,
    as_json: bool,
) -> None:
    """Print a list as JSON under ``name``, or as a table with one row for each entry; ``if_none`` if it is empty."""
    if as_json:
        print_json({name: entries})
    elif not entries:
        say(if_none)
    else:
        print_table(columns, rows)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Print rows under headings. Columns with only numbers are aligned right."""
    kept = [[_cell(value) for value in row] for row in rows]
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        is_number = bool(kept) and all(_is_number(row[number]) for row in kept)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold", no_wrap=is_number)
    for row in kept:
        table.add_row(*(Text(value) for value in row))
    console = output_console()
    if sys.stdout.isatty():
        console.print(table)
        return
    # Without a terminal there is no width to fill: lines are printed without the padding of the last column.
    with console.capture() as capture:
        console.print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return escape_unprintable(str(value))


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(",", "").removeprefix("-").isdecimal()


def format_bytes(count: float) -> str:
    """Return a size in a suitable unit: ``31.1 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def plural(count: int, noun: str) -> str:
    """Return a number with its noun: ``1 record``, ``2,500 records``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{'es' if noun.endswith('ch') else 's'}"


class RecordRateColumn(ProgressColumn):
    """Column with the records so far, and the records per second. The count is the task's field ``records``."""

    def render(self, task: Task) -> Text:
        records = int(task.fields.get("records", 0))
        elapsed = task.finished_time if task.finished else task.elapsed
        rate = f" {records / elapsed:,.0f}/s" if elapsed else ""
        return Text(f"{records:,} records{rate}", style="progress.data.speed")


def progress_bar(*, shown: bool, knows_size: bool) -> Progress:
    """Return a bar on stderr with records, bytes, rate, and, if the size is known, the time left."""
    columns: list[ProgressColumn] = [TextColumn("{task.description}")]
    if knows_size:
        columns += [BarColumn(), DownloadColumn(), TransferSpeedColumn(), RecordRateColumn(), TimeRemainingColumn()]
    else:
        columns += [DownloadColumn(), TransferSpeedColumn(), RecordRateColumn(), TimeElapsedColumn()]
    return Progress(*columns, console=message_console(), disable=not shown, transient=True)
