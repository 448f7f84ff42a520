"""Setting up: which Python is taken, what is said when none fits, and paths with spaces."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIND_PYTHON = ROOT / "requirements/find-python"


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A directory for PATH, with a shell and nothing else."""
    directory = tmp_path / "bin"
    directory.mkdir()
    shell = shutil.which("sh")
    assert shell is not None
    (directory / "sh").symlink_to(shell)
    return directory


def put_python(commands: Path, name: str, version: str | None) -> Path:
    """A Python that says this version when it is asked; ``None``: one without the module venv."""
    python = commands / name
    python.write_text("#!/bin/sh\nexit 1\n" if version is None else f"#!/bin/sh\necho {version}\n")
    python.chmod(0o700)
    return python


def find(commands: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", FIND_PYTHON, *arguments], capture_output=True, text=True, env={"PATH": str(commands)}, check=False
    )


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        ({"python3": "3.13", "python3.12": "3.12"}, "python3.12"),
        ({"python3": "3.15", "python3.14": "3.14", "python3.11": "3.11"}, "python3.11"),
        ({"python3": "3.12"}, "python3"),
        ({"python3.13": None, "python3.12": "3.12"}, "python3.12"),
    ],
)
def test_the_newest_supported_python_is_taken(commands: Path, there: dict[str, str | None], taken: str) -> None:
    for name, version in there.items():
        put_python(commands, name, version)
    found = find(commands)
    assert (found.returncode, found.stdout) == (0, f"{taken}\n"), found.stderr


@pytest.mark.parametrize("version", ["3.10", "3.14", "3.15", None])
def test_a_python_that_is_not_tested_is_not_taken_by_itself(commands: Path, version: str | None) -> None:
    put_python(commands, "python3", version)
    found = find(commands, "")
    assert (found.returncode, found.stdout) == (1, "")
    assert "Rollway needs Python 3.11, 3.12 or 3.13" in found.stderr
    assert version is None or f"python3 is {version}" in found.stderr


def test_a_python_that_is_named_is_taken_if_it_can_work(commands: Path) -> None:
    for version, status in {"3.10": 1, "3.11": 0, "3.13": 0, "3.14": 0, "3.15": 1, "4.0": 1}.items():
        python = put_python(commands, f"named-{version}", version)
        found = find(commands, python)
        assert found.returncode == status, version
        assert found.stdout == (f"{python}\n" if status == 0 else "")
        assert ("not tested with Python 3.14" in found.stderr) == (version == "3.14")
        assert status == 0 or f"is Python {version}. Rollway needs Python 3.11" in found.stderr


def test_another_python_than_that_of_the_environment_is_told(commands: Path) -> None:
    existing, wanted = put_python(commands, "existing", "3.11"), put_python(commands, "wanted", "3.13")
    told = find(commands, wanted, existing)
    assert told.returncode == 1
    assert ".venv has Python 3.11, and PYTHON=" in told.stderr
    assert "make clean removes .venv" in told.stderr
    assert find(commands, existing, existing).returncode == 0
    assert find(commands, "", existing).returncode == 0


@pytest.mark.parametrize(
    "target", ["run", "demo", "demo-http", "bench", "bench-peers", "bench-spark", "soak", "flame-graphs"]
)
def test_directories_with_a_space_reach_the_command_whole(target: str) -> None:
    """``make -n`` prints what it would run; a shell then splits it as it would."""
    names = ("DATA_DIR", "DEMO_DIR", "BENCH_DIR")
    printed = subprocess.run(
        ["make", "--dry-run", "--assume-old=.venv/.setup-stamp", target, *(f"{name}=my data" for name in names)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
        check=True,
    ).stdout
    lines = [line for line in printed.splitlines() if "my data" in line]
    assert lines
    for line in lines:
        assert line.count("my data") == line.count('"my data'), line


def test_the_statements_about_pythons_agree() -> None:
    for name in ("README.md", "CONTRIBUTING.md", "Makefile", "requirements/find-python", ".ci/run"):
        text = (ROOT / name).read_text("utf-8")
        assert "3.11, 3.12 or 3.13" in text, name
        assert "3.11 or newer" not in text, name
