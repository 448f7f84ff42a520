"""kill -9 of the real service under load, again and again: nothing acknowledged is lost, reordered or torn."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from functools import partial
from pathlib import Path

import pytest

from storage.log_inspection import verify_directory
from tests.http.kill_load import PRODUCERS, Ledger, check_logs, create_topics, load_until_killed, many_places, places
from tests.support.servers import ServerProcess, http_client

pytestmark = pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")

CYCLES = int(os.environ.get("KILL_CYCLES", "20"))
SEED = int(os.environ.get("KILL_SEED", "1"))


def test_kill_nine_under_load_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each cycle kills in the midst of requests; each restart must find every acknowledged record in its place.

    Every second cycle spreads over many partitions, whose records only the journal may have made durable.
    KILL_CYCLES sets how often. What a killed process cannot show, lost fsyncs, is the simulated disk's part.
    """
    source = random.Random(SEED)
    ledger = Ledger()
    sequences = [0] * PRODUCERS
    replays = 0
    data_dir = tmp_path / "data"
    for cycle in range(CYCLES):
        server = ServerProcess(data_dir).start()
        try:
            with http_client(server.url) as client:
                if cycle == 0:
                    create_topics(client)
                check_logs(client, ledger)
            load = load_until_killed(
                server.url,
                ledger,
                source,
                source.randint(5, 150),
                partial(server.signal, signal.SIGKILL),
                sequences,
                list(many_places() if cycle % 2 else places()),
            )
            asyncio.run(load)
        finally:
            server.signal(signal.SIGKILL)
            assert server.wait() == -signal.SIGKILL
        replays += b"rollway.journal.id" in (data_dir / "logs" / "meta.properties").read_bytes()
        if (cycle + 1) % 50 == 0:
            with capsys.disabled():
                print(
                    f"{cycle + 1} kills, {ledger.acknowledged_count} records acknowledged, {ledger.found_count} found"
                )
    server = ServerProcess(data_dir).start()
    with http_client(server.url) as client:
        check_logs(client, ledger)
    assert server.stop() == 0
    report = verify_directory(data_dir)
    assert report.is_clean
    assert not report.is_damaged, report.findings
    assert b"rollway.journal.id" not in (data_dir / "logs" / "meta.properties").read_bytes()
    assert replays > 0
    assert ledger.found_count >= ledger.acknowledged_count > 0
    with capsys.disabled():
        print(
            f"\n{CYCLES} kills: {ledger.acknowledged_count} records acknowledged, all found in order; "
            f"{ledger.found_count - ledger.acknowledged_count} more were in flight and are whole"
        )
