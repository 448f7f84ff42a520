"""The wheels that ``make wheels`` has built, and the sdists, each installed into an empty environment and used there.

``make wheels-test`` runs this for every Python whose wheels are in ``WHEELS_DIR``.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from wheels.__main__ import find_python
from wheels.contents import DIRECTORIES, ROOT, Target, read_distribution, supported_pythons

WHEELS = Path(os.environ.get("WHEELS_DIR", ""))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("WHEELS_DIR" not in os.environ, reason="make wheels-test runs it"),
]
DISTRIBUTIONS = [read_distribution(directory) for directory in DIRECTORIES]
MODULES = sorted(module for each in DISTRIBUTIONS for module in each.modules)
SERVICE = DISTRIBUTIONS[-1]
TARGETS = [
    target
    for target in (Target(platform.machine(), python) for python in supported_pythons())
    if (WHEELS / SERVICE.wheel_name(target)).is_file()
]
IN_PYTHON = "records are read and written in Python"
"""What the service logs when it starts without compiled modules."""
STEPS = {
    "produce, keyed by carrier",
    "offsets by random time",
    "nothing acknowledged is lost",
    "stop cleanly (SIGTERM)",
}
PROBE = """
import importlib, importlib.util, json, pkgutil, sys
import app, rollway, schemas, storage
compiled = json.loads(sys.argv[1])
# Compiled modules are not imported here: whether those that need them have done it is asked.
for package in (app, schemas, storage):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if module.name not in compiled:
            importlib.import_module(module.name)
print(json.dumps({
    "path": sys.path,
    "files": [package.__file__ for package in (app, rollway, schemas, storage)],
    "loaded": {name: sys.modules[name].__file__ for name in compiled if name in sys.modules},
    "there": [name for name in compiled if importlib.util.find_spec(name)],
}))
"""


class Environment:
    """A virtual environment outside the repository, with what the service's lock names and nothing else."""

    def __init__(self, directory: Path, target: Target) -> None:
        self.directory = directory
        self.target = target
        self.python = directory / "bin" / "python"
        base = find_python(target.python)
        assert base is not None, f"no Python {target.python} is here any more"
        self._call([base, "-m", "venv", "--without-pip", str(directory)])
        for lock in ("service", "build"):
            self._install_with_uv(lock)
        # The data of the demo; the code of its package would need pandas.
        self._install_with_uv("demo", "--no-deps")

    def _install_with_uv(self, lock: str, *options: str) -> None:
        path = ROOT / "requirements" / f"{lock}.lock"
        command = [find_uv_bin(), "pip", "install", "--python", str(self.python), "--require-hashes"]
        self._call([*command, *options, "-r", str(path)])

    def install(self, *files: Path, **variables: str) -> None:
        """Replace our distributions. No index is asked, so that what they depend on must be in the lock."""
        self._pip("uninstall", "--yes", *(each.name for each in DISTRIBUTIONS))
        self._pip("install", "--no-index", "--no-cache-dir", "--no-build-isolation", *map(str, files), **variables)

    def _pip(self, *arguments: str, **variables: str) -> None:
        self._call([sys.executable, "-m", "pip", "--isolated", "--python", str(self.python), *arguments], **variables)

    def run(self, *command: str | Path, cwd: Path) -> str:
        """Run a program of the environment's own ``bin``, as a shell would in which it is not activated."""
        return self._call([str(self.directory / "bin" / command[0]), *map(str, command[1:])], cwd=cwd)

    def _call(self, command: list[str], *, cwd: Path | None = None, **variables: str) -> str:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ROLLWAY_", "PYTHON"))}
        done = subprocess.run(
            command,
            cwd=cwd or self.directory.parent,
            env={**inherited, **variables},
            capture_output=True,
            check=False,
            text=True,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module", params=TARGETS, ids=lambda target: target.tag)
def environment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    directory = tmp_path_factory.mktemp("installed")
    assert not directory.resolve().is_relative_to(ROOT)
    yield Environment(directory / "environment", request.param)
    shutil.rmtree(directory)


def test_there_are_wheels_that_run_here() -> None:
    assert TARGETS, f"{WHEELS.resolve()} has no wheels for {platform.machine()}"


def test_wheels_run_what_is_compiled(environment: Environment, tmp_path: Path) -> None:
    environment.install(*(WHEELS.resolve() / each.wheel_name(environment.target) for each in DISTRIBUTIONS))
    loaded = probe(environment, tmp_path)["loaded"]
    assert sorted(loaded) == MODULES
    for path in loaded.values():
        assert path.endswith(environment.target.suffix)
    assert IN_PYTHON not in use(environment, tmp_path)


def test_sdists_need_no_compiler(environment: Environment, tmp_path: Path) -> None:
    sdists = [WHEELS.resolve() / f"{each.name}-{each.version}.tar.gz" for each in DISTRIBUTIONS]
    environment.install(*sdists, CC="false", LDSHARED="false")
    assert probe(environment, tmp_path)["there"] == []
    assert IN_PYTHON in use(environment, tmp_path)


def probe(environment: Environment, directory: Path) -> dict[str, Any]:
    """Where the service and the library come from: the environment, and nothing of them or beside them from here."""
    found = json.loads(environment.run("python", "-I", "-c", PROBE, json.dumps(MODULES), cwd=directory))
    assert [path for path in found["path"] if Path(path).is_relative_to(ROOT)] == []
    for path in (*found["files"], *found["loaded"].values()):
        assert Path(path).is_relative_to(environment.directory)
    return dict(found)


def use(environment: Environment, directory: Path) -> str:
    """Run the commands, the core of the demo and a load with the library; returns what the demo's service logged."""
    assert environment.run("rollway", "--version", cwd=directory).split() == ["rollway", SERVICE.version]
    assert "--data-dir" in environment.run("rollway", "serve", "--help", cwd=directory)
    program = directory / "program"
    shutil.copytree(ROOT / "demo", program / "demo", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(Path(__file__).with_name("library_round_trip.py"), program)
    options = ["--http", "--limit", "4000", "--json", "--data-dir", directory / "data"]
    report = json.loads(environment.run("python", "-m", "demo", *options, cwd=program))
    assert report["ok"], report
    assert {step["name"] for step in report["steps"]} >= STEPS
    environment.run("python", "library_round_trip.py", directory / "library-data", cwd=program)
    return (directory / "data" / "service.log").read_text("utf-8")
