"""What an operator does: a data directory that is moved under the service, numbers that are large, names misspelt."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import httpx
import pytest

from app.cli import run
from app.cli.records import fetch
from app.cli.records.line_source import LineSource
from app.engine.appending import AppendOptions
from app.event_loop.pools import Pools
from app.metrics.metrics import Metrics
from app.settings import Settings
from storage.log_inspection import verify_directory
from storage.manager.log_manager import LogManager
from tests.support.local_parts import local_parts
from tests.support.servers import ThreadedServer
from tests.support.writers import valid_batches


async def look_after_moved(tmp_path: Path) -> str | None:
    """Why the partition takes no appends after its data directory was moved, and files were looked after."""
    settings, metrics = Settings(), Metrics()
    pools = Pools(settings)
    manager = LogManager.open(tmp_path / "data")
    parts = local_parts(manager, settings, metrics, pools)
    scheduler = parts.scheduler()
    try:
        topic, _ = await parts.engine.topics.ensure("t", 1, {"flush.policy": "interval"})
        (log,) = topic.partitions
        options = AppendOptions(acks="1")
        await parts.engine.appends.outcome_of(
            parts.engine.appends.submit(log, valid_batches(log, b"x"), options), options
        )
        (tmp_path / "data").rename(tmp_path / "moved")
        await scheduler.run("check_files")
        return log.offline_reason
    finally:
        (tmp_path / "moved").rename(tmp_path / "data")
        await scheduler.close()
        await parts.close()
        pools.close()


def test_a_moved_data_directory_takes_its_partitions_offline(tmp_path: Path) -> None:
    """The lock could not be looked after, and nothing else was: appends were acknowledged on and on."""
    reason = asyncio.run(look_after_moved(tmp_path))
    assert reason is not None
    assert "was removed or moved by another process" in reason


@pytest.mark.parametrize("count", [5, 2_000_000])
def test_more_records_are_fetched_than_one_request_gives(
    server: ThreadedServer,
    client: httpx.Client,
    topic: str,
    count: int,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More than a million were refused, as ``max_records``, which the command line does not have."""
    values = [str(number) for number in range(7)]
    records = {"records": [{"value": value} for value in values]}
    assert client.post(f"{topic}/partitions/0/records", json=records).status_code == 200
    if count < len(values):
        monkeypatch.setattr(fetch, "FETCH_RECORDS_MAX", 2)
    name = topic.rpartition("/")[2]
    arguments = [name, "-p", "0", "-n", str(count), "--format", "value", "--server", server.url]
    assert run(["fetch", *arguments]) == 0
    assert capfd.readouterr().out.split() == values[:count]
    assert run(["tail", *arguments[:3], "-n", "2000000000", "--offset", "99", "--server", server.url]) == 1
    assert "offset 99 is beyond" in capfd.readouterr().err


def test_input_may_linger_for_ever() -> None:
    """What the system does not take as a timeout was a traceback, with records that were never sent."""
    reading, writing = os.pipe()
    try:
        os.write(writing, b"a\nb")
        lines = LineSource(reading, linger_ms=2**70).lines()
        assert next(lines) == b"a"
        os.close(writing)
        assert list(lines) == [b"b"]
    finally:
        os.close(reading)


@pytest.mark.parametrize("command", [["list"], ["revoke", "3f9c1e6b5a7d8042"]])
def test_keys_of_a_directory_that_is_none(
    tmp_path: Path, command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """A misspelt directory was made, and had no keys."""
    misspelt = tmp_path / "dta"
    assert run(["keys", *command, "--data-dir", str(misspelt)]) == 1
    assert f"{misspelt} is no data directory" in capfd.readouterr().err
    assert not misspelt.exists()
    assert run(["keys", "create", "--principal", "User:admin", "--data-dir", str(misspelt)]) == 0
    assert run(["keys", "list", "--data-dir", str(misspelt)]) == 0


def test_copies_that_a_broker_has_set_aside_are_no_reason_to_refuse(tmp_path: Path) -> None:
    """A broker was said to refuse a directory that it made itself."""
    LogManager.open(tmp_path).close()
    for kind in ("future", "stray", "else"):
        (tmp_path / f"logs/t-0.{'0123456789abcdef' * 2}-{kind}").mkdir()
    found = {each.path.name.rpartition("-")[2]: each.message for each in verify_directory(tmp_path).findings}
    assert {kind for kind, message in found.items() if "would refuse to start" in message} == {"else"}
    assert {kind for kind, message in found.items() if "set this copy" in message} == {"future", "stray"}
