"""Files of a running service that another process moves away or gives a second name."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from demo.service import rollway_command
from log_model.errors import UnavailableError
from storage.disk.file_system import LocalFileSystem
from storage.manager.log_manager import LogManager
from tests.failures.test_files_from_outside import FIRST, LARGE, RECORDS, await_that
from tests.support.servers import ServerProcess


def moved(log: Path) -> None:
    log.rename(log.with_suffix(".bak"))


def moved_with_its_directory(log: Path) -> None:
    log.parent.rename(log.parents[2] / "moved")


def linked_and_removed(log: Path) -> None:
    """As a backup that makes hard links leaves it."""
    os.link(log, log.with_suffix(".link"))
    log.unlink()


def linked_and_replaced(log: Path) -> None:
    os.link(log, log.with_suffix(".link"))
    shutil.copyfile(log, log.with_suffix(".copy"))
    log.with_suffix(".copy").replace(log)


@pytest.mark.parametrize("damage", [moved, moved_with_its_directory, linked_and_removed, linked_and_replaced])
@pytest.mark.parametrize("acks", ["1", "all"])
def test_appends_to_a_file_that_is_in_another_place_are_refused(
    tmp_path: Path, damage: Callable[[Path], None], acks: str
) -> None:
    """They were acknowledged until the next restart, which then found none of them."""
    with ServerProcess(tmp_path / "data") as server, httpx.Client(base_url=server.url, timeout=30) as client:
        assert client.put("/v1/topics/t", json={"partitions": 1}).status_code == 201
        assert client.put("/v1/topics/other", json={"partitions": 1}).status_code == 201
        assert client.post(RECORDS, json=LARGE).status_code == 200
        damage(tmp_path / f"data/logs/t-0/{FIRST}.log")
        began = time.monotonic()
        await_that(lambda: client.post(RECORDS, json=LARGE, params={"acks": acks}).status_code == 503, 20)
        # Within a second, with some for a machine that is busy.
        assert time.monotonic() - began < 5
        refused = client.post(RECORDS, json=LARGE)
        assert (refused.status_code, refused.json()["code"]) == (503, "partition_offline")
        (partition,) = client.get("/v1/topics/t").json()["partitions"]
        assert "by another process" in partition["offline_reason"]
        assert client.post("/v1/topics/other/partitions/0/records", json=LARGE).status_code == 200


def test_a_moved_index_is_written_again(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, httpx.Client(base_url=server.url, timeout=30) as client:
        config = {"index.interval.bytes": 0}
        assert client.put("/v1/topics/t", json={"partitions": 1, "config": config}).status_code == 201
        for _ in range(20):
            assert client.post(RECORDS, json=LARGE).status_code == 200
        index = tmp_path / f"data/logs/t-0/{FIRST}.index"
        index.rename(index.with_suffix(".bak"))
        assert client.post(RECORDS, json=LARGE).status_code == 200
        await_that(index.exists)
        assert client.get(RECORDS, params={"offset": 15, "max_bytes": 1}).json()["records"][0]["offset"] == 15


def test_a_directory_whose_lock_was_removed_is_still_held(tmp_path: Path) -> None:
    """A second service started, and both acknowledged records at the same offsets."""
    data = tmp_path / "data"
    with ServerProcess(data) as server:
        lock = data / "logs/.lock"
        lock.unlink()
        await_that(lock.exists)
        await_that(lambda: LocalFileSystem().is_locked(lock))
        second = subprocess.run(
            [*rollway_command(), "serve", "--data-dir", data, "--port", "0"],
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert (second.returncode, b"is in use by another process" in second.stderr) == (2, True)
        assert httpx.get(f"{server.url}/readyz").status_code == 200


def test_a_directory_that_another_process_has_taken_is_not_written_to(tmp_path: Path) -> None:
    manager = LogManager.open(tmp_path)
    topic, _ = manager.create_topic("t", 1)
    (tmp_path / "logs/.lock").unlink()
    other = LocalFileSystem().lock(tmp_path / "logs/.lock")
    manager.check_lock()
    manager.check_lock()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert "another process uses the directory" in str(topic.partitions[0].offline_reason)
    for change in (
        lambda: manager.create_topic("u", 1),
        manager.producer_ids.allocate,
        manager.checkpoint_high_watermarks,
    ):
        with pytest.raises((UnavailableError, OSError)):
            change()
    other.release()
    # What it knows is out of date: it does not take the directory back, so that a new start can.
    manager.check_lock()
    assert not LocalFileSystem().is_locked(tmp_path / "logs/.lock")
    assert not manager.close()
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
