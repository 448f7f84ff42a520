"""The files that a wheel must have, read from ``pyproject.toml`` and git, and a check of a wheel against them."""

from __future__ import annotations

import subprocess
import tomllib
import zipfile
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DIRECTORIES = (ROOT / "client", ROOT)
"""Where the ``pyproject.toml`` of each distribution lies. The library comes first: the service depends on it."""

GLIBC = (2, 28)
"""The oldest glibc that a wheel runs on. pyarrow and cramjam need it too, and ``preadv2`` needs 2.26."""
ELF_MACHINES = {"x86_64": 62, "aarch64": 183}
"""The machines that wheels are built for, each with its number in the header of an ELF file."""


class Target(NamedTuple):
    """A Python on a machine: ``Target("aarch64", "3.12")``."""

    machine: str
    python: str

    @property
    def tag(self) -> str:
        """The last part of a wheel's name: ``cp312-cp312-manylinux_2_28_aarch64``."""
        python = "cp" + self.python.replace(".", "")
        return f"{python}-{python}-{self.platform}"

    @property
    def platform(self) -> str:
        """``manylinux_2_28_aarch64``."""
        return "manylinux_{}_{}_{}".format(*GLIBC, self.machine)

    @property
    def suffix(self) -> str:
        """The end of an extension module's file name: ``.cpython-312-aarch64-linux-gnu.so``."""
        return f".cpython-{self.python.replace('.', '')}-{self.machine}-linux-gnu.so"


@dataclass(frozen=True)
class Distribution:
    """One of the two distributions.

    Attributes:
        directory: where its ``pyproject.toml`` lies.
        name: as in the names of its files: ``rollway_server``.
        modules: its extension modules by name; a wheel that lacks one of them is faulty.
        sources: the folder of its packages, below ``directory``.
        files: all files of its packages that git tracks, as a wheel has them: ``storage/py.typed``.
        licences: its licence files, below ``directory``.
        readme: the text for its page on a package index, below ``directory``, if it has one.
    """

    directory: Path
    name: str
    version: str
    modules: tuple[str, ...]
    sources: PurePosixPath
    files: frozenset[str]
    licences: tuple[str, ...]
    readme: str | None

    def wheel_name(self, target: Target) -> str:
        """``rollway_server-0.1.0-cp312-cp312-manylinux_2_28_aarch64.whl``."""
        return f"{self.name}-{self.version}-{target.tag}.whl"

    def files_of_sdist(self) -> list[str]:
        """The files below ``directory`` that an sdist is made from: no tests, nothing that git does not track."""
        readme = [] if self.readme is None else [self.readme]
        return ["pyproject.toml", *self.licences, *readme, *sorted(str(self.sources / name) for name in self.files)]


def read_distribution(directory: Path) -> Distribution:
    """The distribution whose ``pyproject.toml`` lies in ``directory``."""
    document = tomllib.loads((directory / "pyproject.toml").read_text("utf-8"))
    project, settings = document["project"], document["tool"]["setuptools"]
    found = settings["packages"]["find"]
    sources = PurePosixPath(*found.get("where", ["."]))
    packages = found.get("include", ["*"])
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--", "."], cwd=directory / sources, capture_output=True, check=True, text=True
    )
    return Distribution(
        directory=directory,
        name=project["name"].replace("-", "_"),
        version=project["version"],
        modules=tuple(module["name"] for module in settings["ext-modules"]),
        sources=sources,
        files=frozenset(
            name
            for name in listing.stdout.split("\0")
            if "/" in name
            and any(fnmatchcase(name.partition("/")[0], pattern) for pattern in packages)
            and (directory / sources / name).is_file()
        ),
        licences=tuple(project["license-files"]),
        readme=project.get("readme"),
    )


def supported_pythons() -> list[str]:
    """The versions that the service's classifiers name, such as "3.12", the oldest first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return [name.rpartition(" ")[2] for name in project["classifiers"] if ":: Python :: 3." in name]


def faults(wheel: Path, distribution: Distribution, target: Target) -> list[str]:
    """A sentence for each thing that is wrong with the contents of ``wheel``; none if it can be released."""
    if wheel.name != distribution.wheel_name(target):
        return [f"it is called {wheel.name} instead of {distribution.wheel_name(target)}"]
    information = f"{distribution.name}-{distribution.version}.dist-info/"
    compiled = {name.replace(".", "/") + target.suffix for name in distribution.modules}
    licences = {f"{information}licenses/{name}" for name in distribution.licences}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        machines = {name: archive.read(name)[18:20] for name in names if name.endswith(".so")}
    missing = (distribution.files | compiled | licences | {f"{information}METADATA"}) - names
    strangers = {name for name in names if not name.startswith(information)} - distribution.files - compiled
    number = ELF_MACHINES[target.machine].to_bytes(2, "little")
    return [
        *(f"{name} is missing" for name in sorted(missing)),
        *(f"{name} does not belong there" for name in sorted(strangers)),
        *(f"{name} is not for {target.machine}" for name, found in sorted(machines.items()) if found != number),
    ]
