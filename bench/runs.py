"""What every run of benchmarks needs: a place for its data, the revision that is measured, progress on stderr."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from bench.processes import ROOT, BenchError

progress = Console(stderr=True)


def revision() -> str:
    """The commit that is measured, with a ``+`` when files differ from it; empty outside of a repository."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True)
    return answer.stdout.strip()


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


def say(line: str) -> None:
    """Show what is measured now, where somebody looks."""
    if progress.is_terminal:
        progress.print(line, style="dim", end="\r", no_wrap=True, overflow="ellipsis", highlight=False, width=100)
