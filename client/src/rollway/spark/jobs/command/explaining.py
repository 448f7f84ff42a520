"""One sentence from an error of Spark, without the lines of Java around it."""

from __future__ import annotations

import logging
import re
from typing import Any

from pyspark.logger import PySparkLogger

from rollway.printable import escape_unprintable
from rollway.spark.jobs.expressions import first_sentence

# The last line of a Python traceback, as workers send it through the JVM.
_PYTHON_ERROR = re.compile(r"^(?:[\w.]+: )?(?:[a-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Exit)): (.+)$", re.MULTILINE)
_OURS = re.compile(r"^(?:[\w.]+: )?rollway\.[\w.]+\.(\w+): (.+)$", re.MULTILINE)


def leave_errors_to_us() -> None:
    """Keep PySpark in this process from writing each error of a query, as JSON with Java's stack, to stderr."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


class _PrintableFormatter(logging.Formatter):
    """A formatter that makes a message one line of printable text. A traceback keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escape_unprintable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return escape_unprintable(super().formatException(ei), keep_lines=True)


def escape_warnings() -> None:
    """Escape the library's warnings if logging has no handler: they contain names of topics and options."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_PrintableFormatter())


def explain(error: Exception) -> str:
    """Return the message of the innermost error: of this library, else of Python code in a worker, else of Spark."""
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return _sentence(ours[-1][1])
    python = [found for found in _PYTHON_ERROR.findall(text) if not found[0].startswith("PySpark")]
    if python:
        kind, message = python[-1]
        return _sentence(f"{kind}: {message}")
    return first_sentence(error)


def _sentence(text: str) -> str:
    plain = text.strip()
    return plain if plain.endswith((".", "?", "!")) else f"{plain}."
