"""Watching and deciding a load job costs the loop what its attempts have written, not what they might have."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from app.load_jobs import progress
from storage.producer_state import ProducerState
from tests.servers import ThreadedServer

PARTITIONS = 20
TASKS = 30


@pytest.mark.parametrize("path", ["/v1/jobs/{job_id}", "/v1/jobs?application_id={name}"])
def test_attempts_that_wrote_nothing_are_not_looked_up(
    client: httpx.Client, topic: str, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """A job of 400 tasks for a topic of 1,500 partitions stopped the loop for 1.1 s whenever it was looked at."""
    wide = f"{topic}-wide"
    name = wide.rsplit("/", 1)[1]
    client.put(wide, json={"partitions": PARTITIONS, "config": {"flush.policy": "interval"}}).raise_for_status()
    job = {"application_id": name, "version": 1, "mode": "idempotent", "topics": [name]}
    job_id = client.post("/v1/jobs", json=job).json()["job_id"]
    attempts = [
        client.post(f"/v1/jobs/{job_id}/attempts", json={"task": task, "attempt": 0}).json() for task in range(TASKS)
    ]
    records = [{"value": "v"}, {"value": "w"}]
    producer = {"Producer-Id": str(attempts[7]["producer_id"]), "Producer-Epoch": "0", "Base-Sequence": "0"}
    client.post(f"{wide}/partitions/3/records", json={"records": records}, headers=producer).raise_for_status()
    looks: list[int] = []
    find = ProducerState.find

    def counted_find(self: ProducerState, producer_id: int) -> object:
        looks.append(producer_id)
        return find(self, producer_id)

    monkeypatch.setattr(ProducerState, "find", counted_find)
    answer = client.get(path.format(job_id=job_id, name=name)).json()
    shown = answer if "job_id" in answer else answer["data"][0]
    assert (shown["attempt_count"], shown["rows"]) == (TASKS, 2)
    assert looks == [attempts[7]["producer_id"]]
    winners = [{"producer_id": each["producer_id"], "rows": 2 * (each["task"] == 7)} for each in attempts]
    incomplete = client.post(f"/v1/jobs/{job_id}/commit", json={"winners": [*winners[:-1], {**winners[-1], "rows": 1}]})
    assert (incomplete.status_code, incomplete.json()["code"]) == (409, "job_incomplete")
    assert client.post(f"/v1/jobs/{job_id}/commit", json={"winners": winners}).json()["rows"] == 2
    client.delete(wide).raise_for_status()


def test_many_looks_take_turns(server: ThreadedServer, client: httpx.Client, topic: str) -> None:
    """Others have their turn of the loop at least once in so many."""
    name = topic.rsplit("/", 1)[1]
    log = server.service.broker.partition(name, 0)
    attempts = [progress.Attempt(producer_id, producer_id, 0) for producer_id in range(10)]
    turns: list[int] = []

    async def count_turns() -> None:
        watching = asyncio.ensure_future(_tick(turns))
        await progress.written_by(server.service.broker, [(attempts, [log.name])] * (2 * progress.LOOKS_PER_TURN))
        watching.cancel()

    loop = server.service.loop
    assert loop is not None
    asyncio.run_coroutine_threadsafe(count_turns(), loop).result(30)
    assert len(turns) >= 2


async def _tick(turns: list[int]) -> None:
    while True:
        turns.append(1)
        await asyncio.sleep(0)
