"""The benchmark of Spark for a moment: every row is there, and memory is below its limit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.processes import ROOT


@pytest.mark.slow
def test_all_rows_are_measured(tmp_path: Path) -> None:
    path = tmp_path / "spark.json"
    command = [sys.executable, "-m", "bench.spark", "--smoke", "--data-dir", str(tmp_path), "--json", str(path)]
    command += ["--against", "HEAD", "--partitions", "8"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    rows = json.loads(path.read_text())["rows"]
    assert {row["bench"] for row in rows} == {"spark-read", "spark-revisions", "spark-takeover", "spark-write"}
    assert all(row["value"] > 0 for row in rows)
    memory = [row["met"] for row in rows if row["name"].startswith("peak memory")]
    assert memory == [True, True]
