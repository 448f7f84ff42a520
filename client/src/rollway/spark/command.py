"""The console script ``rollway-spark``, which every installation of the library has, and only some have Spark."""

from __future__ import annotations

import sys

_PARTS_OF_SPARK = frozenset({"pandas", "py4j", "pyspark", "rich", "typer"})
"""What the extra ``rollway[spark]`` installs."""


def main() -> None:
    """Run the command, or say in one sentence how to install what it needs (exit status 1)."""
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
