"""What the demo did, what it checked, how fast it was."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.table import Table

PIPE_WIDTH = 150


@dataclass(slots=True)
class Step:
    """One row of the table: a thing that was done, what came of it, and whether it is as it must be."""

    name: str
    answer: str = ""
    rate: str = ""
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def held(self) -> bool:
        return not self.problems

    def check(self, condition: bool, problem: str) -> None:
        """Demand ``condition``; ``problem`` says what is wrong when it does not hold."""
        if not condition:
            self.problems.append(problem)


class Report:
    """Collects the steps and shows them as they are finished."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.steps: list[Step] = []
        self.failed = False
        out = sys.stderr if as_json else sys.stdout
        self.console = Console(file=out, highlight=False, width=None if out.isatty() else PIPE_WIDTH)
        self._started = time.monotonic()

    @property
    def all_held(self) -> bool:
        return bool(self.steps) and not self.failed and all(step.held for step in self.steps)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Do something that becomes a row; an error becomes a problem of that row, and ends the demo."""
        step = Step(name)
        started = time.monotonic()
        try:
            yield step
        except Exception as error:
            step.problems.append(str(error) or type(error).__name__)
            raise
        finally:
            step.seconds = time.monotonic() - started
            self.steps.append(step)
            self._show(step)

    def _show(self, step: Step) -> None:
        mark = "[green]ok[/]" if step.held else "[red]FAILED[/]"
        self.console.print(f"{mark} {escape(step.name)}: {escape(step.answer)}", soft_wrap=True)
        for problem in step.problems[:5]:
            self.console.print(f"   {escape(problem)}", soft_wrap=True)

    def table(self) -> Table:
        table = Table(title=f"Rollway demo: {len(self.steps)} steps in {self.seconds:.1f} s", title_justify="left")
        table.add_column("step")
        table.add_column("what came of it")
        table.add_column("how fast")
        table.add_column("time", justify="right", no_wrap=True)
        table.add_column("held", no_wrap=True)
        for step in self.steps:
            held = "[green]yes[/]" if step.held else "[red]NO[/]"
            table.add_row(escape(step.name), escape(step.answer), escape(step.rate), f"{step.seconds:.1f} s", held)
        return table

    def document(self) -> dict[str, object]:
        steps = [{**asdict(step), "held": step.held} for step in self.steps]
        return {"ok": self.all_held, "seconds": round(self.seconds, 3), "steps": steps}


def is_terminal() -> bool:
    return sys.stderr.isatty()
