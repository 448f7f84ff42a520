"""What every run of benchmarks needs: a place for its data, the revision that is measured, progress on stderr."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console

from bench.processes import ROOT, BenchError

progress = Console(stderr=True)


def revision() -> str:
    """The commit that is measured and what it says, as a rebase gives it another name; empty outside of a repository.

    A ``+`` says that files differ from it.
    """
    name = _git("describe", "--always", "--dirty=+", "--exclude=*")
    return f"{name} ({_git('log', '-1', '--format=%s')})" if name else ""


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False, text=True).stdout.strip()


@contextmanager
def work_directory(parent: Path) -> Iterator[Path]:
    """A directory for the data of this run, gone afterwards.

    Raises:
        BenchError: it cannot be made.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        directory = tempfile.TemporaryDirectory(prefix="rollway-bench-", dir=parent, ignore_cleanup_errors=True)
    except OSError as error:
        raise BenchError(f"The data cannot lie in {parent}: {error.strerror}.") from None
    with directory as path:
        yield Path(path)


@contextmanager
def failures_told(program: str) -> Iterator[None]:
    """What stops a run is one line and an exit status, not a traceback."""
    try:
        yield
    except BenchError as error:
        print(f"{program}: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        print(f"{program}: stopped.", file=sys.stderr)
        raise typer.Exit(130) from None


def run_program(main: Callable[..., None]) -> None:
    """Be the program whose options are the parameters of ``main``."""
    application = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    application.command()(main)
    application()


def say(line: str) -> None:
    """Show what is measured now, where somebody looks."""
    if progress.is_terminal:
        progress.print(line, style="dim", end="\r", no_wrap=True, overflow="ellipsis", highlight=False, width=100)
