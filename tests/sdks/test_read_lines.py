"""The programs of docs/how-to/read-lines.md print what a partition has, in each of the four languages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

import sdks
from tests.support.servers import ThreadedServer, http_client

PROGRAMS = Path(sdks.__file__).parent / "lines"
# Spark brings the only library that Java's program needs.
JACKSON = Path(pyspark.__file__).parent / "jars" / "*"
COMMANDS = {
    "python": [sys.executable, PROGRAMS / "read_lines.py"],
    "node": ["node", PROGRAMS / "read_lines.mjs"],
    "java": ["java", "-cp", JACKSON, PROGRAMS / "ReadLines.java"],
    "go": ["go", "run", PROGRAMS / "read_lines.go"],
}
RECORDS = [{"value": "21.5"}, {"value": "Grüße 🛫"}, {"value_base64": "AP8="}, {"value": None}, {"value": ""}]
PRINTED = {
    "python": ["0 21.5", "1 Grüße 🛫", r"2 b'\x00\xff'", "3 None", "4 "],
    "node": ["0 21.5", "1 Grüße 🛫", "2 <Buffer 00 ff>", "3 null", "4 "],
    "java": ["0 21.5", "1 Grüße 🛫", "2 [0, -1]", "3 null", "4 "],
    "go": ["0 21.5", "1 Grüße 🛫", "2 [0 255]", "3 <nil>", "4 "],
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ThreadedServer(tmp_path_factory.mktemp("lines") / "data") as server, http_client(server.url) as client:
        client.put("/v1/topics/orders", json={"partitions": 1}).raise_for_status()
        for record in RECORDS:
            client.post("/v1/topics/orders/partitions/0/records", json={"records": [record]}).raise_for_status()
        yield server.url


def run(language: str, url: str, topic: str) -> subprocess.CompletedProcess[str]:
    command = COMMANDS[language]
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {language} here")
    environment = {**os.environ, "ROLLWAY_URL": url, "JAVA_TOOL_OPTIONS": "-Dfile.encoding=UTF-8"}
    return subprocess.run([*command, topic, "0"], env=environment, capture_output=True, encoding="utf-8", check=False)


# Go compiles its library for HTTP first, which takes half a minute of CPU.
@pytest.mark.parametrize("language", ["python", "node", "java", pytest.param("go", marks=pytest.mark.slow)])
def test_the_values_of_a_partition_are_printed(language: str, url: str) -> None:
    done = run(language, url, "orders")
    assert (done.returncode, done.stdout.splitlines()) == (0, PRINTED[language]), done.stderr


@pytest.mark.parametrize("language", ["python", "node", "java", pytest.param("go", marks=pytest.mark.slow)])
def test_a_topic_that_does_not_exist_ends_the_program(language: str, url: str) -> None:
    done = run(language, url, "nothing")
    assert done.returncode != 0
    assert "404" in done.stderr or "unknown_topic_or_partition" in done.stderr


def test_the_commands_are_those_of_the_page(url: str) -> None:
    """Each program stands in the page as it is."""
    page = (Path(sdks.__file__).parent.parent / "docs" / "how-to" / "read-lines.md").read_text()
    for _, *rest in COMMANDS.values():
        program = Path(rest[-1])
        assert program.read_text().strip() in page, program.name
