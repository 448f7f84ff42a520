"""Records, hashes of secrets and ACLs are the service's own: other users of the machine cannot read them."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli.administration.offline_access import open_registry
from tests.support.servers import ServerProcess, http_client


@pytest.fixture(autouse=True)
def _a_usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(directory: Path) -> dict[str, int]:
    """The mode of the directory and of everything in it."""
    found = [directory, *directory.rglob("*")]
    return {str(path.relative_to(directory.parent)): stat.S_IMODE(path.lstat().st_mode) for path in found}


def too_open(directory: Path) -> dict[str, str]:
    """What others may do anything with."""
    return {name: oct(mode) for name, mode in modes(directory).items() if mode & 0o077}


def test_everything_in_a_data_directory_is_its_owners(tmp_path: Path) -> None:
    """Of each kind of file that a service makes while it runs, rolls, deletes, and stops."""
    data_dir = tmp_path / "data"
    with open_registry(data_dir) as registry:
        registry.create_key("User:admin")
    assert too_open(data_dir) == {}
    with ServerProcess(data_dir, "--topic-default", "segment.ms=1") as process, http_client(process.url) as client:
        assert client.put("/v1/topics/kept", json={"partitions": 2}).status_code == 201
        assert client.put("/v1/topics/gone").status_code == 201
        for _ in range(3):
            assert client.post("/v1/topics/kept/records", json={"records": [{"value": "v"}] * 20}).status_code == 200
        given = client.post("/v1/producers", json={"transactional_id": "t"}).json()
        assert client.post("/v1/producers").status_code == 200
        headers = {"Producer-Id": str(given["producer_id"]), "Producer-Epoch": "0", "Base-Sequence": "0"}
        headers["Transactional-Id"] = "t"
        path = "/v1/topics/kept/partitions/0/records"
        assert client.post(path, json={"records": [{"value": "v"}]}, headers=headers).status_code == 200
        assert client.post("/v1/transactions/t/abort", json=given).status_code == 200
        assert client.put("/v1/quotas?user=x", json={"request_rate": 1}).status_code == 200
        assert client.delete("/v1/topics/gone").status_code == 204
        assert too_open(data_dir) == {}
    assert too_open(data_dir) == {}
    kinds = {Path(name).suffix or Path(name).name for name in modes(data_dir)}
    assert {".log", ".index", ".timeindex", ".snapshot", ".json", ".lock", "ballast", "quotas", "producer-ids"} <= kinds
    assert "every user" not in process.errors()


def test_a_directory_that_everybody_may_read_is_said(tmp_path: Path) -> None:
    """It was made by somebody else, or before: its mode is theirs to change."""
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    with ServerProcess(data_dir) as process:
        assert f"every user of this machine may look into {data_dir}" in process.errors()
        assert "chmod 700" in process.errors()
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o755
    assert {name for name in too_open(data_dir) if name != "data"} == set()


def test_pages_make_secrets_that_are_their_owners() -> None:
    """Where a page writes a secret into a file, that file is made behind ``umask 077``."""
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    found = []
    for page in pages:
        lines = page.read_text().splitlines()
        writes = [
            number
            for number, line in enumerate(lines)
            if re.search(r"(keys|tokens) create.*>|> [\w./-]+\.(key|token)\b", line)
        ]
        if writes:
            found.append(page.name)
            assert any("umask 077" in line for line in lines[: writes[0] + 1]), f"{page}: line {writes[0] + 1}"
    assert {"secure-a-service.md", "operate.md", "command-line.md"} <= set(found)


def test_what_the_page_says_makes_a_file_of_its_owner(tmp_path: Path) -> None:
    subprocess.run(["/bin/sh", "-c", "umask 077; echo secret > admin.key"], cwd=tmp_path, check=True)
    assert stat.S_IMODE((tmp_path / "admin.key").stat().st_mode) == 0o600
