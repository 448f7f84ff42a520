"""Every request sent one to four times, over connections that break, to a service that is killed: nothing is twice."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import httpx
import pytest

from storage.log_inspection import verify_directory
from tests.http.fault_proxy import FaultProxy
from tests.http.retry_load import PARTITIONS, TOPIC, Client, Places, check_log
from tests.support.servers import ServerProcess, http_client

pytestmark = pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")

ROUNDS = int(os.environ.get("RETRY_ROUNDS", "3"))
SEED = int(os.environ.get("RETRY_SEED", "1"))
CLIENTS = 6
REQUESTS_PER_ROUND = 60
FAULT_SHARE = 0.4
CONFIG = {"segment.bytes": 30_000, "max.message.bytes": 3_000}


def test_retries_write_nothing_twice_and_lose_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No duplicate, no loss, original offsets; a kill -9 and a restart in the midst of every round.

    RETRY_ROUNDS sets how many.
    """
    places, proxy = asyncio.run(_run(tmp_path / "data"))
    server = ServerProcess(tmp_path / "data").start()
    with http_client(server.url) as client:
        record_count = check_log(client, places)
    assert server.stop() == 0
    assert not verify_directory(tmp_path / "data").is_damaged
    assert places.replay_count > 0
    assert all(proxy.counts.values()), proxy.counts
    with capsys.disabled():
        print(
            f"\n{ROUNDS} kills: {places.done_count} requests sent {places.sent_count} times, {record_count} records "
            f"once each, {places.replay_count} answers told of duplicates"
        )


async def _run(data_dir: Path) -> tuple[Places, FaultProxy]:
    source = random.Random(SEED)
    places = Places()
    target = REQUESTS_PER_ROUND * (ROUNDS + 1)

    def is_over() -> bool:
        return places.done_count >= target

    async with FaultProxy(source, FAULT_SHARE) as proxy:
        finished = asyncio.Event()
        service = asyncio.create_task(_kill_again_and_again(data_dir, proxy, places, finished))
        limits = httpx.Limits(max_connections=CLIENTS, max_keepalive_connections=0)
        async with httpx.AsyncClient(base_url=proxy.url, limits=limits) as http, asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                client = Client(number, http, random.Random(source.random()), places, is_over)
                group.create_task(client.run())
        finished.set()
        await service
    return places, proxy


async def _kill_again_and_again(data_dir: Path, proxy: FaultProxy, places: Places, finished: asyncio.Event) -> None:
    for number in range(ROUNDS + 1):
        server = await asyncio.to_thread(ServerProcess(data_dir).start)
        try:
            if number == 0:
                with http_client(server.url) as client:
                    made = client.put(TOPIC, json={"partitions": PARTITIONS, "config": CONFIG})
                    assert made.status_code == 201, made.text
            proxy.point_to(int(server.url.rsplit(":", 1)[1]))
            if number == ROUNDS:
                await finished.wait()
            else:
                await _wait_for(places, REQUESTS_PER_ROUND * (number + 1))
            proxy.point_to(None)
        finally:
            await asyncio.to_thread(server.kill)


async def _wait_for(places: Places, done_count: int) -> None:
    while places.done_count < done_count:
        places.progressed.clear()
        await places.progressed.wait()
