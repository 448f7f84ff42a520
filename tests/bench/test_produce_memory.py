"""The profile of what produce requests allocate runs, and has each of its rows. No figure is judged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.produce_memory import cases

ROOT = Path(__file__).resolve().parents[2]


def test_a_profile_of_small_bodies_is_a_whole_table(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.produce_memory", "--smoke", "--data-dir", str(tmp_path)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True, timeout=240)
    assert answer.returncode == 0, answer.stderr
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in answer.stdout.splitlines()]
    assert [row[0] for row in rows[2:]] == [case.name for case in cases(1 / 16)]
    assert all(float(cell) >= 0 for row in rows[2:] for cell in row[1:])
    assert {len(row) for row in rows} == {4}
    assert not list(tmp_path.iterdir())
