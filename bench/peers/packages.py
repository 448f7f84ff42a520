"""Getting peers: Debian packages unpacked beside the system, Java libraries from Maven, crates from cargo.

Nothing is installed into the system, nothing needs root, and each tool asks the registry it is configured for.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.peers.peer import CannotRunError

SECONDS_MAX = 600
BUILD_SECONDS_MAX = 5400
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>rollway</groupId><artifactId>peers</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{}</dependencies></project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"  # as Maven says it
)


def run(command: Sequence[str], directory: Path, what: str, seconds: float = SECONDS_MAX) -> str:
    """Run a tool and return what it prints.

    Raises:
        CannotRunError: there is no such tool, it failed, or it took too long.
    """
    if shutil.which(command[0]) is None:
        raise CannotRunError(f"{what}: there is no {command[0]} here.")
    try:
        answer = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, check=False, timeout=seconds, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise CannotRunError(f"{what}: {command[0]} did not end within {seconds:.0f} s.") from None
    if answer.returncode:
        raise CannotRunError(f"{what}: {command[0]} failed: {_first_fault(answer.stdout + answer.stderr)}.")
    return answer.stdout


def _first_fault(output: str) -> str:
    """The line that says what is wrong, without addresses of registries and colours."""
    missing = re.search(r"Could not find artifact \S+|\S+ was not found", output)
    if missing is not None:
        return missing[0]
    lines = [line for line in output.splitlines() if re.search(r"error|\bE:|could not", line, re.IGNORECASE)]
    line = re.sub(r"\x1b\[[0-9;]*m", "", (lines or output.splitlines() or ["it said nothing"])[0])
    line = re.sub(r"\s*\(?https?://\S+", "", line).replace("[ERROR]", "")
    return line.strip().rstrip(".")[:200]


def debian(program: str, packages: Sequence[str], cache: Path, *, may_install: bool) -> tuple[str, dict[str, str]]:
    """The path of a program and the environment it needs: the system's, or unpacked from Debian packages.

    Raises:
        CannotRunError: it is not there and cannot be had.
    """
    installed = shutil.which(program)
    if installed is not None:
        return installed, dict(os.environ)
    root = cache / "debian"
    unpacked = next((path for place in ("bin", "sbin") if (path := root / "usr" / place / program).exists()), None)
    if unpacked is None:
        if not may_install:
            raise CannotRunError(f"{program} is not installed, and nothing is to be downloaded.")
        downloads = cache / "downloads"
        downloads.mkdir(parents=True, exist_ok=True)
        run(["apt-get", "download", "-q", *packages], downloads, program)
        for package in downloads.glob("*.deb"):
            run(["dpkg", "-x", str(package), str(root)], downloads, program)
        return debian(program, packages, cache, may_install=False)
    libraries = os.pathsep.join(str(path) for path in (root / "usr/lib").glob("*-linux-gnu*"))
    return str(unpacked), {**os.environ, "LD_LIBRARY_PATH": libraries}


def maven(name: str, artifacts: Sequence[tuple[str, str, str]], cache: Path, *, may_install: bool) -> str:
    """The class path with these artifacts and all they need.

    Raises:
        CannotRunError: they are not there and cannot be had.
    """
    if shutil.which("java") is None:
        raise CannotRunError(f"{name}: there is no java here.")
    libraries = cache / f"{name}-libraries"
    if not (libraries / ".complete").exists():
        if not may_install:
            raise CannotRunError(f"{name} is not there, and nothing is to be downloaded.")
        project = cache / f"{name}-project"
        project.mkdir(parents=True, exist_ok=True)
        pom = _POM.format("".join(_DEPENDENCY.format(*artifact) for artifact in artifacts))
        (project / "pom.xml").write_text(pom, "utf-8")
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={libraries}"]
        run(["mvn", "-B", "-q", f"-Dmaven.repo.local={cache / 'maven'}", *copy], project, name)
        (libraries / ".complete").touch()
    return str(libraries / "*")


def cargo(crate: str, program: str, cache: Path, *, may_install: bool) -> str:
    """The path of a program built from a crate.

    Raises:
        CannotRunError: it is not there and cannot be built.
    """
    built = cache / "cargo" / "bin" / program
    if not built.exists():
        if not may_install:
            raise CannotRunError(f"{crate} is not built, and nothing is to be downloaded.")
        cache.mkdir(parents=True, exist_ok=True)
        run(["cargo", "install", "--locked", "--root", str(cache / "cargo"), crate], cache, crate, BUILD_SECONDS_MAX)
    return str(built)
