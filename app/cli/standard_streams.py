"""The three standard streams of a command, which may be closed, full, or without a reader."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

STANDARD_OUTPUT = "Standard output"


def prepare() -> None:
    """Make the streams safe to use. Call it once, before a command opens a file.

    A closed descriptor is given to a file that refuses the stream's use. Otherwise the next file or connection would
    get its number, and the output would go there. Errors of writes to stdout name it.
    """
    for descriptor, unfit_mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            # The file gets the lowest free number, which is this one.
            os.open(os.devnull, unfit_mode)
    sys.stdout = _named_output()
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - as long as the process


def abandon_output() -> None:
    """Discard output that is still buffered for stdout: the interpreter would fail to write it at its exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def flush_if_possible() -> None:
    """Flush stdout, and ignore a missing reader: the work of the command does not depend on one."""
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
    # Characters that the terminal cannot show become escapes. Bytes of records take another path.
    errors = getattr(given, "errors", "strict")
    raw = _NamedOutput(1, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(given, "encoding", "utf-8"),
        errors="backslashreplace" if errors == "strict" else errors,
        line_buffering=raw.isatty(),
    )
