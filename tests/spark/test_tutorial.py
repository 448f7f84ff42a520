"""The Spark tutorial runs as a reader would run it: its commands in one shell, its cells in one session."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.docs.console import output_matches, read_blocks, read_commands
from tests.docs.pages import NOTEBOOK, PageRun, free_port
from tests.spark.conftest import spark_environment


def test_the_tutorial_does_what_it_says(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with free_port(NOTEBOOK) as port:
        _run_tutorial(tmp_path, port, monkeypatch)


def _run_tutorial(tmp_path: Path, port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "spark-and-rollway"
    commands = {command.line_number: command for command in read_commands(NOTEBOOK)}
    blocks = read_blocks(NOTEBOOK)
    reader = PageRun(NOTEBOOK, tmp_path, port, spark_environment())
    names: dict[str, object] = {}
    try:
        for block, following in zip(blocks, [*blocks[1:], None], strict=True):
            lines = range(block.line_number, block.line_number + len(block.lines) + 1)
            for command in (commands[number] for number in lines if number in commands):
                reader.run(command)
            if block.language == "python":
                # As the page says, the notebook is in the directory that its first command makes.
                monkeypatch.chdir(here)
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    source = reader.with_port("\n".join(block.lines))
                    exec(compile(source, f"{NOTEBOOK.name}:{block.line_number}", "exec"), names)  # the page's own cells
                if following is not None and following.language == "text":
                    shown = printed.getvalue().rstrip("\n")
                    assert output_matches(following.lines, shown), shown
        reader.check_nothing_runs(commands[max(commands)])
    finally:
        reader.close()
