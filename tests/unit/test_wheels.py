"""A wheel that lacks a file, or has one too many, is found before a release. `make wheels-test` installs real ones."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
import zipfile
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import wheels.__main__
from wheels.__main__ import main
from wheels.contents import (
    DIRECTORIES,
    ELF_MACHINES,
    ROOT,
    Distribution,
    Target,
    faults,
    read_distribution,
    supported_pythons,
)

LIBRARY, SERVICE = (read_distribution(directory) for directory in DIRECTORIES)
TARGET = Target("aarch64", "3.12")
PLATFORM = "manylinux_2_28_aarch64"


def write_wheel(directory: Path, distribution: Distribution, *, without: str = "", more: str = "") -> Path:
    """A wheel with everything that it should have, but for one file."""
    information = f"{distribution.name}-{distribution.version}.dist-info"
    modules = [name.replace(".", "/") + ".cpython-312-aarch64-linux-gnu.so" for name in distribution.modules]
    names = [*distribution.files, *modules, f"{information}/licenses/LICENSE", f"{information}/METADATA", more]
    wheel = directory / f"{distribution.name}-{distribution.version}-cp312-cp312-{PLATFORM}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in filter(None, names):
            if name != without:
                archive.writestr(name, elf("aarch64") if name.endswith(".so") else b"")
    return wheel


def elf(machine: str) -> bytes:
    """The beginning of a compiled module."""
    return b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00" + ELF_MACHINES[machine].to_bytes(2, "little")


@pytest.mark.parametrize("distribution", [LIBRARY, SERVICE], ids=lambda each: each.name)
def test_a_whole_wheel_has_no_fault(distribution: Distribution, tmp_path: Path) -> None:
    assert faults(write_wheel(tmp_path, distribution), distribution, TARGET) == []


def compiled(name: str) -> str:
    return name.replace(".", "/") + ".cpython-312-aarch64-linux-gnu.so"


@pytest.mark.parametrize(
    ("distribution", "missing"),
    [
        *((each, compiled(name)) for each in (LIBRARY, SERVICE) for name in each.modules),
        *((each, name) for each in (LIBRARY, SERVICE) for name in sorted(each.files) if not name.endswith(".py")),
        (LIBRARY, f"rollway-{LIBRARY.version}.dist-info/licenses/LICENSE"),
        (SERVICE, f"rollway_server-{SERVICE.version}.dist-info/licenses/LICENSE"),
        (SERVICE, f"rollway_server-{SERVICE.version}.dist-info/METADATA"),
    ],
    ids=lambda each: each if isinstance(each, str) else each.name,
)
def test_a_missing_file_is_named(distribution: Distribution, missing: str, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, distribution, without=missing)
    assert faults(wheel, distribution, TARGET) == [f"{missing} is missing"]


@pytest.mark.parametrize(
    "stranger", ["tests/test_produce.py", "bench/rows.py", "app/request_heads_c.c", compiled("app.no_such"), "app/x.so"]
)
def test_a_file_too_many_is_named(stranger: str, tmp_path: Path) -> None:
    assert stranger not in SERVICE.files
    wheel = write_wheel(tmp_path, SERVICE, more=stranger)
    assert faults(wheel, SERVICE, TARGET) == [f"{stranger} does not belong there"]


def test_a_module_for_another_machine_is_named(tmp_path: Path) -> None:
    module = compiled(LIBRARY.modules[0])
    wheel = write_wheel(tmp_path, LIBRARY, without=module)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(module, elf("x86_64"))
    assert faults(wheel, LIBRARY, TARGET) == [f"{module} is not for aarch64"]


def test_a_wheel_of_another_version_or_platform_is_named(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, LIBRARY)
    later = dataclasses.replace(LIBRARY, version="99.0")
    assert "instead of rollway-99.0-cp312" in faults(wheel, later, TARGET)[0]
    [fault] = faults(wheel, LIBRARY, Target("x86_64", "3.12"))
    assert fault.endswith(
        "instead of rollway-0.1.0-cp312-cp312-manylinux_2_28_x86_64.whl".replace("0.1.0", LIBRARY.version)
    )


def test_distributions_are_read_from_their_projects() -> None:
    assert (LIBRARY.name, SERVICE.name) == ("rollway", "rollway_server")
    assert {name.partition("/")[0] for name in LIBRARY.files} == {"rollway", "pyspark_rollway"}
    assert {name.partition("/")[0] for name in SERVICE.files} == {"app", "log_model", "schemas", "storage"}
    for distribution in (LIBRARY, SERVICE):
        for name in distribution.files_of_sdist():
            assert (distribution.directory / name).is_file()
            assert "tests" not in Path(name).parts
        for module in distribution.modules:
            assert f"{module.replace('.', '/')}.pyx" in distribution.files


@pytest.mark.parametrize("distribution", [LIBRARY, SERVICE], ids=lambda each: each.name)
def test_every_file_that_is_no_module_is_package_data(distribution: Distribution) -> None:
    """Else a built wheel lacks it, which only `make wheels` would notice. setuptools takes ``py.typed`` by itself."""
    document = tomllib.loads((distribution.directory / "pyproject.toml").read_text("utf-8"))
    patterns = [
        f"{package.replace('.', '/')}/{pattern}"
        for package, each in document["tool"]["setuptools"]["package-data"].items()
        for pattern in each
    ]
    others = [name for name in distribution.files if not name.endswith((".py", "/py.typed"))]
    assert others
    # "**/" also stands for no folder at all.
    patterns += [pattern.replace("**/", "") for pattern in patterns]
    assert [name for name in others if not any(fnmatchcase(name, pattern) for pattern in patterns)] == []


def test_wheels_are_built_for_the_pythons_that_setup_takes() -> None:
    [line] = re.findall(r"^for name in (.*)python3; do$", (ROOT / "requirements/find-python").read_text(), re.MULTILINE)
    assert supported_pythons() == re.findall(r"python(3\.\d+)", line)[::-1]


@pytest.mark.parametrize(
    ("tag", "libraries", "fault"),
    [
        ("manylinux_2_17_aarch64", {}, None),
        ("manylinux_2_28_aarch64", {}, None),
        ("manylinux_2_31_aarch64", {}, "auditwheel says manylinux_2_31_aarch64: {'libc.so.6': ['GLIBC_2.17']}"),
        ("manylinux_2_17_x86_64", {}, "auditwheel says manylinux_2_17_x86_64: {'libc.so.6': ['GLIBC_2.17']}"),
        ("linux_aarch64", {}, "auditwheel says linux_aarch64: {'libc.so.6': ['GLIBC_2.17']}"),
        ("manylinux_2_17_aarch64", {"libz.so.1": None}, "it needs libraries that it does not have: libz.so.1"),
    ],
)
def test_what_a_wheel_needs_of_a_system_is_bounded(
    tag: str, libraries: dict[str, None], fault: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"overall_tag": tag, "external_libs": libraries, "versioned_symbols": {"libc.so.6": ["GLIBC_2.17"]}}
    monkeypatch.setattr(wheels.__main__, "run", lambda _: (json.dumps(told), ""))
    assert wheels.__main__.faults_of_linking(Path("x.whl"), TARGET) == ([] if fault is None else [fault])


def test_a_python_that_is_not_here_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--python", str(tmp_path / "python"), "--out", str(tmp_path / "dist")]) == 1
    assert f"there is no Python {tmp_path / 'python'} here" in capsys.readouterr().out
    assert not (tmp_path / "dist").exists()
