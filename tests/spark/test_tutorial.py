"""The Spark tutorial runs as a reader would run it: its commands in one shell, its cells in one session."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.docs.console import Shell, output_matches, read_blocks, read_commands
from tests.docs.test_commands import DOCUMENTED_PORT, ROOT, free_port, reader_environment
from tests.spark.conftest import spark_environment

PAGE = ROOT / "docs/tutorial/spark.md"
PORT_PLACE = 40
"""Away from the ports of the other pages."""


def test_the_tutorial_does_what_it_says(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    port = str(free_port(PORT_PLACE))
    commands = {command.line_number: command for command in read_commands(PAGE)}
    blocks = read_blocks(PAGE)
    shell = Shell(tmp_path, {**spark_environment(), **reader_environment(tmp_path, int(port))})
    names: dict[str, object] = {}
    try:
        for block, following in zip(blocks, [*blocks[1:], None], strict=True):
            lines = range(block.line_number, block.line_number + len(block.lines) + 1)
            for command in (commands[number] for number in lines if number in commands):
                status, output = shell.run(command.text.replace(DOCUMENTED_PORT, port))
                where = f"{PAGE.name}:{command.line_number}: {command.text}\nprinted:\n{output}"
                assert status == command.exit_status, where
                assert not command.expected or output_matches(command.expected, output.replace(port, "8080")), where
            if block.language == "python":
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    source = "\n".join(block.lines).replace(DOCUMENTED_PORT, port)
                    exec(compile(source, f"{PAGE.name}:{block.line_number}", "exec"), names)  # the page's own cells
                if following is not None and following.language == "text":
                    assert output_matches(following.lines, printed.getvalue().rstrip("\n")), printed.getvalue()
    finally:
        shell.close()
