"""Apache Kafka's jars from Maven: the versions that tests and benchmarks run, each jar by its checksum.

``python -m bench.peers.kafka_packages DIRECTORY`` gets them. ``--record`` writes their checksums, after a change of
versions.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from pathlib import Path

from bench.peers import packages
from bench.peers.peer import CannotRunError

OLDEST, NEWEST = "3.9.1", "4.1.1"
"""The oldest and the newest version of Kafka that Rollway supports."""
VERSIONS = (OLDEST, NEWEST)

LOCK = Path(__file__).with_suffix(".lock")
_LOCK_HEAD = "# Kafka's version, SHA-256, jar. Written by: python -m bench.peers.kafka_packages DIRECTORY --record\n"
_LOGGING = ("slf4j-simple", "1.7.36")
_OTHER_LOGGING = ("slf4j-reload4j", "reload4j")
"""Jars of Kafka that would compete with ours for the log output."""


def class_path(version: str, cache: Path, *, may_install: bool) -> str:
    """Return the class path of a Kafka: exactly the jars that the lock names, which Maven brings if they are missing.

    Raises:
        CannotRunError: Maven cannot get them, or a jar is not the one that the lock names.
    """
    jars = _brought(version, cache, may_install=may_install)
    pinned = _locked()[version]
    for name, checksum in pinned.items():
        if name not in jars:
            raise CannotRunError(f"Kafka {version}: {name} is in {LOCK.name}, and Maven did not bring it.")
        if (found := _checksum(jars[name])) != checksum:
            raise CannotRunError(f"Kafka {version}: {name} has the SHA-256 {found}, and not that of {LOCK.name}.")
    return os.pathsep.join(str(jars[name]) for name in pinned)


def _brought(version: str, cache: Path, *, may_install: bool) -> dict[str, Path]:
    artifacts = [
        ("org.apache.kafka", "kafka_2.13", version),
        ("org.apache.kafka", "kafka-tools", version),
        ("org.slf4j", *_LOGGING),
    ]
    libraries = packages.maven(f"kafka-{version}", artifacts, cache, may_install=may_install)
    jars = sorted(Path(libraries).parent.glob("*.jar"))
    return {jar.name: jar for jar in jars if not jar.name.startswith(_OTHER_LOGGING)}


def _locked() -> dict[str, dict[str, str]]:
    """Checksums by version and jar."""
    locked: dict[str, dict[str, str]] = {version: {} for version in VERSIONS}
    for line in LOCK.read_text("utf-8").splitlines()[1:]:
        version, checksum, name = line.split()
        locked[version][name] = checksum
    return locked


def _checksum(jar: Path) -> str:
    with jar.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _record(cache: Path) -> None:
    lines = [
        f"{version} {_checksum(jar)} {name}\n"
        for version in VERSIONS
        for name, jar in _brought(version, cache, may_install=True).items()
    ]
    LOCK.write_text(_LOCK_HEAD + "".join(lines), "utf-8")


def main(arguments: list[str]) -> int:
    """Get every version into a directory, and check it."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers.kafka_packages", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--record", action="store_true", help="write the checksums of what Maven brings")
    options = parser.parse_args(arguments)
    cache = options.directory.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    try:
        if options.record:
            _record(cache)
        for version in VERSIONS:
            class_path(version, cache, may_install=True)
    except CannotRunError as error:
        print(f"Kafka's packages cannot be had: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
