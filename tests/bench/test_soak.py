"""The soak runs for seconds, and its judgement of samples is right. No figure of the machine is judged."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import soak
from bench.processes import BenchError

ROOT = Path(__file__).resolve().parents[2]


def samples(**lines: float) -> list[soak.Sample]:
    """Forty samples in which each named figure begins at 100 and changes by so much per sample."""
    base = dict.fromkeys(soak.Sample.__dataclass_fields__, 100.0)
    return [
        soak.Sample(
            **{**base, **{name: 100 + each * number for name, each in lines.items()}, "at_seconds": 15 * number}
        )  # type: ignore[arg-type]
        for number in range(40)
    ]


def test_a_soak_of_seconds_rolls_and_writes_its_findings(tmp_path: Path) -> None:
    data, rows, table = tmp_path / "data", tmp_path / "soak.json", tmp_path / "soak.md"
    data.mkdir()
    outputs = ["--json", str(rows), "--markdown", str(table), "--data-dir", str(data)]
    command = [sys.executable, "-m", "bench.soak", "--seconds", "2", "--rate", "2", *outputs]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True, timeout=240)
    assert answer.returncode == 0, answer.stderr
    found = json.loads(rows.read_text())["samples"]
    assert len(found) == soak.SAMPLES
    assert all(each["resident_mib"] > 0 for each in found)
    # At least the log, the indexes and the sockets.
    assert all(each["descriptors"] > each["descriptors_beside"] > 0 for each in found)
    assert sum(each["requests_per_second"] for each in found) > 0
    assert "Memory " in table.read_text()
    assert not any(data.iterdir())


def test_flat_samples_are_called_flat() -> None:
    memory, descriptors, p99 = soak.verdicts(samples())
    assert memory.startswith("Memory does not grow: the line through 30 samples")
    assert "+0.0 MiB" in memory
    assert descriptors.startswith("Descriptors do not grow")
    assert p99.startswith("p99 of honest requests is flat: 100.00 ms")


def test_growth_is_called_growth() -> None:
    memory, descriptors, p99 = soak.verdicts(samples(resident_mib=1, descriptors_beside=0.5, p99_ms=20))
    assert memory.startswith("Memory grows")
    assert "+29.0 MiB" in memory
    assert descriptors.startswith("Descriptors grow")
    assert p99.startswith("p99 of honest requests is not flat")


def test_more_stored_files_are_no_growth() -> None:
    _, descriptors, _ = soak.verdicts(samples(descriptors=5))
    assert descriptors.startswith("Descriptors do not grow")


def test_what_is_open_beside_stored_files_is_counted(tmp_path: Path) -> None:
    before, beside = soak.open_files(Path("/proc/self"), tmp_path)
    assert before == beside
    with contextlib.ExitStack() as stack:
        for name in ("stored", "deleted"):
            stack.enter_context((tmp_path / name).open("w"))
        (tmp_path / "deleted").unlink()
        assert soak.open_files(Path("/proc/self"), tmp_path) == (before + 2, before + 1)
        stack.enter_context((tmp_path / "stored").open())
        assert soak.open_files(Path("/proc/self"), tmp_path) == (before + 3, before + 1)
        stack.enter_context((tmp_path / "stored").open())
        assert soak.open_files(Path("/proc/self"), tmp_path) == (before + 4, before + 2)


def test_a_slope_is_that_of_the_line() -> None:
    assert soak.slope([0, 1, 2, 3], [5, 7, 9, 11]) == pytest.approx(2)
    assert soak.slope([1], [1]) == 0
    assert soak.percentile([0.003, 0.001, 0.002], 0.99) == pytest.approx(3)
    assert soak.percentile([], 0.5) == 0


def test_a_plot_is_drawn_or_its_lack_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "soak.svg"
    if importlib.util.find_spec("matplotlib") is None:
        with pytest.raises(BenchError, match=r"^There is no matplotlib here, so nothing is plotted\.$"):
            soak.plot(samples(), path)
    else:
        soak.plot(samples(), path)
        assert path.read_text().startswith("<?xml")
