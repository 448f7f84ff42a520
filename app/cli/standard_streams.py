"""The three streams a command is started with: some are closed, some are full, and some have no reader any more."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

STANDARD_OUTPUT = "Standard output"


def prepare() -> None:
    """Make the streams safe to use. Once, before a command opens anything.

    A descriptor that was closed is given to a file that can neither be read nor written where it would be used: else
    the next file or connection would get its number, and what is printed would go there. Errors of writing to stdout
    name it.
    """
    for descriptor, unfit_mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest number that is free, which is this one.
            os.open(os.devnull, unfit_mode)
    sys.stdout = _named_output()
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - as long as the process


def abandon_output() -> None:
    """Send nowhere what is still buffered for stdout: the interpreter would complain at its exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def flush_if_possible() -> None:
    """Flush stdout; a command whose work does not depend on it goes on, and ends, without a reader."""
    try:
        sys.stdout.flush()
    except OSError:
        abandon_output()


class _NamedOutput(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = STANDARD_OUTPUT
            raise


def _named_output() -> io.TextIOWrapper:
    given = sys.stdout
    # What the terminal cannot show is shown as an escape; bytes of records do not come this way.
    errors = getattr(given, "errors", "strict")
    raw = _NamedOutput(1, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(given, "encoding", "utf-8"),
        errors="backslashreplace" if errors == "strict" else errors,
        line_buffering=raw.isatty(),
    )
