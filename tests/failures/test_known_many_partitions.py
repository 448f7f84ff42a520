"""Requests for very many partitions, or topics: whatever grows with them is done a piece at a time."""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import httpx
import pytest

from app.engine_local import topics as local_topics
from app.engine_local.transactions.markers import MarkerWriter
from app.event_loop.piecewise import BEGUN_COUNT, PIECE_COUNT
from app.event_loop.turns import Turns
from app.routes import topic_answers
from app.server import full_collections
from app.server.full_collections import OTHER_OBJECTS_MAX, PARTITIONS_MAX, short_collections
from schemas.topics import PartitionDescription
from storage.manager.log_manager import LogManager
from tests.failures.turn_counts import TurnCounts
from tests.support.servers import ThreadedServer

PARTITION_COUNT = BEGUN_COUNT + 8


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> TurnCounts:
    return TurnCounts(monkeypatch)


def test_an_atomic_request_to_many_partitions_begins_a_few_at_a_time(
    server: ThreadedServer, client: httpx.Client, counts: TurnCounts
) -> None:
    """What makes records durable, and the markers, were begun in all partitions within one turn of the loop."""
    client.put("/v1/topics/wide", json={"partitions": PARTITION_COUNT}).raise_for_status()
    counts.watch_steps(MarkerWriter, "_make_durable")
    counts.watch_steps(MarkerWriter, "_write_until_done")
    parts = [{"topic": "wide", "partition": at, "records": [{"value": "x"}]} for at in range(PARTITION_COUNT)]
    answer = client.post("/v1/produce?atomic=true", json={"partitions": parts})
    assert answer.status_code == 200
    assert {result["base_offset"] for result in answer.json()["results"]} == {0}
    for name in ("_make_durable", "_write_until_done"):
        assert counts.all[name] == PARTITION_COUNT
        assert counts.most[name] <= BEGUN_COUNT


def test_tasks_that_wake_up_together_go_on_a_few_at_a_time(counts: TurnCounts) -> None:
    """As markers that wait for their partitions do when a topic is deleted."""

    async def run() -> None:
        pace, started = Turns(BEGUN_COUNT), asyncio.Event()

        async def wait() -> None:
            await started.wait()
            await pace.enter()
            counts.note("went on")

        tasks = [asyncio.ensure_future(wait()) for _ in range(200)]
        await asyncio.sleep(0)
        started.set()
        await asyncio.sleep(0)
        tasks[-1].cancel()
        await asyncio.wait(tasks)

    asyncio.run(run())
    assert counts.all["went on"] == 199
    # Those whose turn came at once, and those that were let go on.
    assert counts.most["went on"] <= 2 * BEGUN_COUNT


def test_one_topic_of_a_page_is_described_at_a_time(
    server: ThreadedServer, client: httpx.Client, counts: TurnCounts
) -> None:
    """A page of 1,000 topics held the loop for 230 ms."""
    for number in range(5):
        client.put(f"/v1/topics/page-{number}").raise_for_status()
    counts.watch(topic_answers, "describe_topic")
    page = client.get("/v1/topics?prefix=page-&limit=4").json()
    assert [topic["name"] for topic in page["data"]] == [f"page-{number}" for number in range(4)]
    assert (page["has_more"], page["next_cursor"]) == (True, "page-3")
    assert (counts.all["describe_topic"], counts.most["describe_topic"]) == (4, 1)
    alone = client.get("/v1/topics/page-3").json()
    assert alone == page["data"][3]
    partitions = client.get("/v1/topics/page-3/partitions").json()
    assert partitions == {"topic_id": alone["topic_id"], "partitions": alone["partitions"]}


def test_a_topic_of_many_partitions_is_described_in_pieces(counts: TurnCounts, monkeypatch: pytest.MonkeyPatch) -> None:
    """2,700 partitions took 25 ms, 10,000 would have taken 100 ms."""

    def describe(number: int) -> PartitionDescription:
        values = dict.fromkeys(PartitionDescription.model_fields, 0)
        return PartitionDescription.model_construct(
            **{**values, "partition": number, "replicas": [1], "isr": [1], "offline_reason": None}
        )

    monkeypatch.setattr(topic_answers, "describe_partition", describe)
    counts.watch(topic_answers, "describe_partition")
    # The engine's part: a view of each partition.
    monkeypatch.setattr(local_topics, "topic_behind", lambda topic: topic)
    monkeypatch.setattr(local_topics, "_view_of", lambda _, number: number)
    counts.watch(local_topics, "_view_of")
    topics: Any = SimpleNamespace(describe=partial(local_topics.LocalTopics.describe, None))
    topic: Any = SimpleNamespace(name="wide", topic_id="vbX5CGHpTq2OyL3cZhW1Uw", partition_count=2_700)
    answer = asyncio.run(topic_answers.partitions_json(topics, topic))
    assert answer.count(b'"high_watermark":0') == counts.all["describe_partition"] == 2_700
    assert counts.most["describe_partition"] <= PIECE_COUNT
    assert counts.all["_view_of"] == 2_700
    assert counts.most["_view_of"] <= PIECE_COUNT


# Full garbage collections


@pytest.fixture
def thawed() -> Any:
    """Leaves this process as it was: what a test has left out of collections is looked at again."""
    was_frozen = gc.get_freeze_count()
    yield
    if not was_frozen:
        gc.unfreeze()


class _Cycle:
    freed: ClassVar[list[int]] = []

    def __init__(self, number: int) -> None:
        self.own, self.number = self, number

    def __del__(self) -> None:
        self.freed.append(self.number)


def test_new_partitions_are_looked_at_once(thawed: None) -> None:
    """Full collections looked at every partition that was made since the start, 150 ms for 2,700."""
    created = 0
    with short_collections(lambda: created):
        partitions = [[[] for _ in range(50)] for _ in range(1_000)]
        created = len(partitions)
        gc.collect()
        assert len(gc.get_objects(generation=2)) < 1_000
        assert sum(map(len, partitions)) == 50_000


def test_a_crowd_is_not_left_out_with_partitions(thawed: None) -> None:
    """Requests and connections may die in cycles: what is mostly theirs stays with the collector."""
    created = 0
    with short_collections(lambda: created):
        crowd = [[] for _ in range(2 * OTHER_OBJECTS_MAX)]
        created = full_collections.PARTITIONS_MIN
        gc.collect()
        assert len(gc.get_objects(generation=2)) > len(crowd)


def test_cycles_that_were_left_out_are_found_in_the_end(thawed: None) -> None:
    created = 0
    _Cycle.freed.clear()
    with short_collections(lambda: created):
        cycle = _Cycle(1)
        created = PARTITIONS_MAX + 1
        gc.collect()
        del cycle
        assert _Cycle.freed == []
        gc.collect()
        assert _Cycle.freed == [1]


def test_partitions_that_are_opened_are_counted(tmp_path: Path) -> None:
    manager = LogManager.open(tmp_path / "data")
    manager.create_topic("a", 3)
    manager.alter_topic("a", partition_count=5)
    assert manager.factory.opened_count == 0
    assert len(list(manager.topic("a").partitions)) == 5
    assert manager.factory.opened_count == 5
    manager.close()
    again = LogManager.open(tmp_path / "data")
    assert again.factory.opened_count == 0
    again.close()
