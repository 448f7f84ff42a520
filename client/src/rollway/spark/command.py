"""The console script ``rollway-spark``. Every installation of the library has it, also one without Spark."""

from __future__ import annotations

import sys

_PARTS_OF_SPARK = frozenset({"pandas", "py4j", "pyspark", "rich", "typer"})
"""Modules that the extra ``rollway[spark]`` installs."""


def main() -> None:
    """Run the command. Without Spark, print one sentence on how to install it, and exit with status 1."""
    try:
        from rollway.spark.jobs.command.cli import main as run_command
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _PARTS_OF_SPARK:
            raise
        sentence = f"rollway-spark: {missing} is not installed here: pip install 'rollway[spark]'"
        print(sentence, file=sys.stderr)  # noqa: T201 - for the person who started it
        sys.exit(1)
    run_command()
