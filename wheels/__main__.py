"""``python -m wheels``: both distributions as sdists, and as wheels for each machine and each supported Python.

The C compiler is zig's, from a locked package: it brings the headers of each machine and of old versions of glibc, so
wheels come out alike wherever they are built. Every wheel is checked before it is put into ``dist/``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from uv import find_uv_bin

from wheels.contents import (
    DIRECTORIES,
    ELF_MACHINES,
    GLIBC,
    ROOT,
    Distribution,
    Target,
    faults,
    read_distribution,
    supported_pythons,
)

BUILD_LOCK = ROOT / "requirements/build.lock"
ZIG_CACHE = ROOT / ".venv/zig-cache"
LINES_SHOWN = 40
"""Of the output of a program that failed."""


class BuildError(Exception):
    """Something cannot be built, or is not as it must be; the message says what."""


def run(command: list[str], *, cwd: Path = ROOT, environment: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Run a program and return its standard output, and what it wrote to the other one.

    Raises:
        BuildError: it failed; with the last lines that it wrote.
    """
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(environment or {})}, capture_output=True, check=False, text=True
    )
    if done.returncode:
        last = (done.stdout + done.stderr).strip().splitlines()[-LINES_SHOWN:]
        raise BuildError("\n".join([f"failed: {shlex.join(command)}", *last]))
    return done.stdout, done.stderr


def find_python(wanted: str) -> str | None:
    """The path of an interpreter, by a version such as "3.12", or by its path; ``None`` if there is none.

    Those that pyenv installed are found too: its shims run only the version that is chosen for the folder.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    search = os.pathsep.join([os.environ.get("PATH", os.defpath), *map(str, sorted(pyenv.glob("versions/*/bin")))])
    try:
        found, _ = run(
            [find_uv_bin(), "python", "find", "--no-project", wanted],
            environment={"PATH": search, "UV_PYTHON_DOWNLOADS": "never"},
        )
    except BuildError:
        return None
    return found.strip()


def compiler_environment(target: Target, python: str, scratch: Path) -> dict[str, str]:
    """Variables with which setuptools, run by ``python``, compiles for ``target``.

    Raises:
        BuildError: ``python`` does not run, or there is no zig.
    """
    package = importlib.util.find_spec("ziglang")
    if package is None or package.origin is None:
        raise BuildError("ziglang is not installed; `make wheels` installs it")
    zig = str(Path(package.origin).parent / "zig")
    headers = pyconfig_of_debian(target, python, scratch)
    compiler = shlex.join([zig, "cc", "-target", "{}-linux-gnu.{}.{}".format(target.machine, *GLIBC)])
    settings = scratch / "setup.cfg"
    settings.write_text(f"[build_ext]\nparallel = {os.cpu_count()}\n[bdist_wheel]\nplat_name = {target.platform}\n")
    return {
        "CC": compiler,
        "LDSHARED": f"{compiler} -shared",
        "CFLAGS": f"-DNDEBUG -fwrapv -O3 -I{shlex.quote(str(headers))}",
        "LDFLAGS": "-Wl,-s",
        "SETUPTOOLS_EXT_SUFFIX": target.suffix,
        "DIST_EXTRA_CONFIG": str(settings),
        "ZIG_GLOBAL_CACHE_DIR": str(ZIG_CACHE),
        "ZIG_LOCAL_CACHE_DIR": str(ZIG_CACHE),
    }


def pyconfig_of_debian(target: Target, python: str, scratch: Path) -> Path:
    """A folder with ``pyconfig.h`` where Debian's Python looks for that of ``target``'s machine; others ignore it.

    The one of this machine serves for all: those of x86-64 and aarch64 differ in nothing that an extension module sees
    (``HAVE_GCC_ASM_FOR_X64``, ``HAVE_GCC_ASM_FOR_X87``, ``HAVE_USABLE_WCHAR_T``, ``PY_SUPPORT_TIER``).
    """
    program = (
        "import sysconfig; print(sysconfig.get_config_h_filename(), sysconfig.get_config_var('MULTIARCH'), sep='\\n')"
    )
    told, _ = run([python, "-c", program])
    header, multiarch = told.splitlines()
    # Debian's own header includes <x86_64-linux-gnu/python3.12/pyconfig.h> from the system's folder.
    of_machine = Path(header).parents[1] / multiarch / f"python{target.python}" / "pyconfig.h"
    folder = scratch / "include" / f"{target.machine}-linux-gnu" / f"python{target.python}"
    folder.mkdir(parents=True)
    shutil.copyfile(of_machine if of_machine.is_file() else header, folder / "pyconfig.h")
    return scratch / "include"


def uv_build(kind: str, source: Path, out: Path, environment: Mapping[str, str], *more: str) -> str:
    """Build with the locked build requirements and nothing else; returns all that the build wrote.

    Raises:
        BuildError: it failed.
    """
    command = [find_uv_bin(), "build", kind, "--out-dir", str(out), "--no-create-gitignore", *more]
    command += ["--build-constraints", str(BUILD_LOCK), "--require-hashes", str(source)]
    return "".join(run(command, cwd=source.parent, environment=environment))


def build_sdist(distribution: Distribution, scratch: Path, environment: Mapping[str, str]) -> Path:
    """Raises: BuildError: it could not be built."""
    tree = scratch / distribution.name
    for name in distribution.files_of_sdist():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(distribution.directory / name, tree / name)
    uv_build("--sdist", tree, scratch, environment)
    return scratch / f"{distribution.name}-{distribution.version}.tar.gz"


def build_wheel(
    distribution: Distribution, sdist: Path, target: Target, python: str, environment: Mapping[str, str]
) -> tuple[Path, float]:
    """The checked wheel, which is made from ``sdist``, and the seconds that it took.

    Raises:
        BuildError: it could not be built, or is not as it must be.
    """
    started = time.monotonic()
    scratch = Path(tempfile.mkdtemp(dir=sdist.parent))
    compiling = compiler_environment(target, python, scratch)
    output = uv_build("--wheel", sdist, scratch, {**environment, **compiling}, "--python", python)
    [wheel] = scratch.glob("*.whl")
    if found := faults(wheel, distribution, target) or faults_of_linking(wheel, target):
        # A module that is not compiled is optional for setuptools, which only warns.
        said = [line for line in output.splitlines() if "error:" in line]
        raise BuildError("\n".join([f"{wheel.name} is faulty:", *found, *said[:LINES_SHOWN]]))
    return wheel, time.monotonic() - started


def faults_of_linking(wheel: Path, target: Target) -> list[str]:
    """Whether the modules need a newer glibc than the wheel's tag promises, or libraries that not every system has."""
    told, _ = run([sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)])
    found = json.loads(told)
    policy = re.fullmatch(rf"manylinux_(\d+)_(\d+)_{target.machine}", found["overall_tag"])
    wrong = []
    if policy is None or (int(policy[1]), int(policy[2])) > GLIBC:
        wrong.append(f"auditwheel says {found['overall_tag']}: {found['versioned_symbols']}")
    if found["external_libs"]:
        wrong.append(f"it needs libraries that it does not have: {', '.join(found['external_libs'])}")
    return wrong


def build_all(targets: Mapping[Target, str], out: Path) -> None:
    """Build everything, and only then replace the files of earlier builds in ``out``.

    Raises:
        BuildError: something could not be built.
    """
    ZIG_CACHE.mkdir(parents=True, exist_ok=True)
    committed, _ = run(["git", "log", "-1", "--format=%ct"])
    # The times in an archive are that of the commit, not those of the build.
    environment = {"SOURCE_DATE_EPOCH": committed.strip()}
    distributions = [read_distribution(directory) for directory in DIRECTORIES]
    with tempfile.TemporaryDirectory(prefix="rollway-wheels-") as directory, ThreadPoolExecutor(os.cpu_count()) as pool:
        sdists = {each: build_sdist(each, Path(directory), environment) for each in distributions}
        begun = [
            pool.submit(build_wheel, each, sdist, target, python, environment)
            for target, python in targets.items()
            for each, sdist in sdists.items()
        ]
        made = list(sdists.values())
        try:
            for future in begun:
                wheel, seconds = future.result()
                made.append(wheel)
                print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB in {seconds:.0f} s", flush=True)
        except BuildError:
            pool.shutdown(cancel_futures=True)
            raise
        out.mkdir(parents=True, exist_ok=True)
        for each in distributions:
            for old in (*out.glob(f"{each.name}-*.whl"), *out.glob(f"{each.name}-*.tar.gz")):
                old.unlink()
        for path in made:
            shutil.move(path, out / path.name)


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0 if everything that was asked for lies in the output folder."""
    parser = argparse.ArgumentParser(prog="python -m wheels", description=__doc__)
    parser.add_argument("--python", nargs="+", default=supported_pythons(), help="versions, or paths of interpreters")
    parser.add_argument("--machine", nargs="+", default=[*ELF_MACHINES], choices=[*ELF_MACHINES])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder to write to")
    options = parser.parse_args(arguments)
    pythons = {wanted: find_python(wanted) for wanted in options.python}
    if missing := [wanted for wanted, found in pythons.items() if found is None]:
        print(f"there is no Python {', '.join(missing)} here: name others with --python, or get it: uv python install")
        return 1
    version = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        found = {run([path, "-c", version])[0].strip(): path for path in pythons.values() if path is not None}
        build_all({Target(machine, each): found[each] for machine in options.machine for each in found}, options.out)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    foreign = [machine for machine in options.machine if machine != platform.machine()]
    if foreign:
        print(f"wheels for {', '.join(foreign)} were built and checked; this machine cannot run them")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
