"""Arguments of ``rollway-spark`` that are not UTF-8: Java would make question marks of them."""

from __future__ import annotations

import json

import pytest

from rollway.spark.jobs.command.cli import run


@pytest.mark.parametrize(
    "arguments",
    [
        ["load", "in.csv", "--topic", "t", "--key", "'a\udcff'"],
        ["load", "\udce9.csv", "--topic", "t"],
        ["export", "t", "--to", "/tmp/\ud800"],
        ["--conf", "spark.app.name=\udc80", "compare", "a", "b"],
    ],
)
@pytest.mark.parametrize("is_beside_driver", [True, False])
def test_an_argument_that_is_not_utf8_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], is_beside_driver: bool
) -> None:
    """A key of such bytes was stored as ``?``."""
    assert run([*arguments, "--json"], is_beside_driver=is_beside_driver) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "is not UTF-8" in json.loads(said.err)["error"]
    assert "\\ud" in json.loads(said.err)["error"]
