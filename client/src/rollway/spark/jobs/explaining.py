"""One sentence out of what Spark raises, however many lines of Java are around it."""

from __future__ import annotations

import logging
import re

from pyspark.logger import PySparkLogger

from rollway.spark.jobs.expressions import first_sentence

# The last line of a Python traceback, as workers send it through the JVM.
_PYTHON_ERROR = re.compile(r"^(?:[\w.]+: )?(?:[a-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Exit)): (.+)$", re.MULTILINE)
_OURS = re.compile(r"^(?:[\w.]+: )?rollway\.[\w.]+\.(\w+): (.+)$", re.MULTILINE)


def leave_errors_to_us() -> None:
    """Keep PySpark in this process from writing each error of a query, as JSON with Java's stack, to stderr."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def explain(error: Exception) -> str:
    """What went wrong, in the words of whoever found it: this library, else Python code in a worker, else Spark."""
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
