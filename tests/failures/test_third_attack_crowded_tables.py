"""As many transactional ids, load jobs and start positions as there may be: nobody else waits for their lists."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from app.engine.transactions import ProducerIdentity, Transaction, TransactionState
from app.engine_local.transactions import upkeep as upkeeps
from app.engine_local.transactions.log.state import TransactionTable
from app.event_loop.piecewise import PIECE_COUNT, pieces, smallest
from app.load_jobs import progress
from app.load_jobs.decisions import Winner
from app.load_jobs.progress import Attempt
from app.load_jobs.state import JobMode, JobState, LoadJob
from app.problems.problem import Problem
from app.start_positions.registry import StartPositions
from app.start_positions.state import PinnedGroup, PinnedTopic
from log_model.clock import SETTLING_MS, Ages
from rollway.records import Record, columns_from_records, encode_batch, parse_header
from tests.support.servers import ThreadedServer, http_client
from tests.support.stands import Stand, on_stand
from tests.support.transactions import TestProducer, transactional_batch

COUNT = 4_000
RAW = {"Content-Type": "application/vnd.kafka.record-batch.v2"}
COMMITTED = {"offset": "0", "isolation": "read_committed"}


async def longest_turn(work: Coroutine[Any, Any, object], counted: list[int]) -> int:
    """What was ``counted`` between two turns of the loop at the most, while ``work`` was done."""
    longest = before = 0
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0)
        longest, before = max(longest, counted[0] - before), counted[0]
    task.result()
    assert counted[0] >= COUNT
    return longest


def counting(counted: list[int], function: Callable[..., Any]) -> Callable[..., Any]:
    def count(*arguments: Any) -> Any:
        counted[0] += 1
        return function(*arguments)

    return count


def fill(made: Stand) -> None:
    coordinator, jobs, positions = made.engine.transactions, made.parts.load_jobs, made.parts.start_positions
    for number in range(COUNT):
        name = f"{number:05}"
        coordinator._table.put(Transaction(name, number, 0, 60_000, updated_ms=1_700_000_000_000))
        jobs._store.table.put(
            LoadJob(name, name, 1, JobMode.TRANSACTIONAL, 1_000, (), number, number, state=JobState.COMMITTED)
        )
        positions._table.put(name, PinnedGroup({"t": PinnedTopic("id", {0: 1})}, 1))
        positions._asked.note(name)


@pytest.mark.parametrize("is_shown", [lambda _: True, lambda _: False])
def test_lists_are_made_a_piece_at_a_time(is_shown: Callable[[object], bool]) -> None:
    """One GET of 100,000 transactional ids, by who may see none of them, held up all others for two seconds."""

    async def scenario(made: Stand) -> None:
        await made.parts.load_jobs.start()
        fill(made)
        states = frozenset(TransactionState)
        counted = [0]
        listed = made.engine.transactions.page(states, "", COUNT, counting(counted, is_shown))
        assert await longest_turn(listed, counted) <= PIECE_COUNT
        counted = [0]
        assert (
            await longest_turn(made.parts.load_jobs.page(counting(counted, is_shown), None, COUNT), counted)
            <= PIECE_COUNT
        )
        found = await made.engine.transactions.page(states, "01000", 3, lambda name: name != "01002")
        assert [each.transactional_id for each in found] == ["01001", "01003", "01004"]
        jobs = await made.parts.load_jobs.page(lambda job: job.version == 1, (3_000, "03000"), 2)
        assert [job.job_id for job in jobs] == ["02999", "02998"]

    on_stand(scenario)


def test_background_jobs_look_at_a_piece_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every ten seconds a look at 100,000 transactional ids held up all requests for up to 400 ms, and one at as many
    start positions for a second."""

    async def scenario(made: Stand) -> None:
        await made.parts.load_jobs.start()
        await made.parts.start_positions.start()
        fill(made)
        for owner, name, job in (
            (TransactionTable, "is_timed_out", made.engine.transactions.run_jobs),
            (TransactionTable, "is_expired", made.engine.transactions.run_jobs),
            (StartPositions, "_is_old", made.parts.start_positions.run_jobs),
        ):
            counted = [0]
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, counting(counted, getattr(owner, name)))
                assert await longest_turn(job(), counted) <= PIECE_COUNT
        counted = [0]
        with monkeypatch.context() as patch:
            patch.setattr(Ages, "age_ms", counting(counted, Ages.age_ms))
            await made.parts.load_jobs.run_jobs()
        # Of jobs the one that ended first is asked, and it is not old.
        assert counted == [1]

    on_stand(scenario)


def test_timeouts_do_not_wait_until_all_old_ids_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was forgotten with an fsync of its own, and no transaction timed out meanwhile: minutes, for 100,000 ids."""
    monkeypatch.setattr(upkeeps, "EXPIRED_COUNT", 10)

    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        coordinator = made.engine.transactions
        upkeep = coordinator._upkeep
        for number in range(35):
            await coordinator.initialise(f"old{number}", 60_000, 1_000)
        made.clock.advance(604_800_000 + SETTLING_MS)
        producer = TestProducer(made.parts, "late", timeout_ms=1_000)
        await producer.initialise()
        await producer.send(log, b"held back")
        seen: list[int] = []
        abort = upkeep.abort_timed_out

        async def abort_and_look() -> int:
            seen.append(len(coordinator._table))
            if len(seen) == 2:
                made.clock.advance(1_001)
            return await abort()

        monkeypatch.setattr(upkeep, "abort_timed_out", abort_and_look)
        monkeypatch.setattr(upkeep, "expire", lambda expire=upkeep.expire: expire(10))
        await coordinator.run_jobs()
        assert seen == [36, 26, 16, 6]
        assert len(coordinator._table) == 1
        late = coordinator.find("late")
        assert late is not None
        assert not late.is_ongoing

    on_stand(scenario)


def test_the_smallest_are_those_of_a_sort() -> None:
    async def scenario() -> None:
        numbers = [number * 7_919 % 10_007 for number in range(3_000)]
        for limit in (1, 2, 255, 256, 257, 5_000):
            wanted = [number for number in numbers if number % 3]
            found = await smallest(numbers, limit, lambda number: number, lambda number: number % 3 != 0)
            assert found == sorted(wanted)[:limit]
        assert [len(piece) async for piece in pieces(range(600))] == [256, 256, 88]

    asyncio.run(scenario())


def test_what_an_atomic_request_of_the_last_run_left_open_is_aborted_at_once(tmp_path: Path) -> None:
    """Its producer was the process that is gone; readers of committed records waited a minute for its timeout."""
    name = "__rollway_atomic_0"
    with ThreadedServer(tmp_path / "data") as server, http_client(server.url) as client:
        assert client.put("/v1/topics/t", json={"partitions": 1}).status_code == 201
        parts, loop = server.service.ready_parts, server.service.loop
        assert parts is not None
        assert loop is not None
        begun = asyncio.run_coroutine_threadsafe(
            parts.engine.transactions.initialise(name, 60_000, 1_000), loop
        ).result(30)
        batch = transactional_batch(ProducerIdentity(*begun), 0, b"left")
        assert client.post("/v1/topics/t/partitions/0/records", content=batch, headers=RAW).status_code == 200
        assert client.post("/v1/topics/t/partitions/0/records", json={"records": [{"value": "free"}]}).is_success
    with ThreadedServer(tmp_path / "data") as server, http_client(server.url) as client:
        path = "/v1/topics/t/partitions/0"
        shown = client.get(path).json()
        while shown["last_stable_offset"] < shown["high_watermark"]:
            # It is decided as soon as others are served.
            coordinator = server.service.parts.engine.transactions
            left = coordinator.find(name)
            assert left is not None
            assert not left.is_ongoing or coordinator.is_busy
            shown = client.get(path).json()
        records = client.get("/v1/topics/t/partitions/0/records", params=COMMITTED).json()["records"]
        assert [record["value"] for record in records] == ["free"]


@pytest.mark.parametrize("mode", list(JobMode))
def test_what_a_job_has_written_is_counted_a_piece_at_a_time(monkeypatch: pytest.MonkeyPatch, mode: JobMode) -> None:
    """Every look at a load of 2,000 tasks to 100 partitions held up all others for 0.3 s, and its commit for 0.5 s."""

    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("crowded")
        jobs, coordinator = made.parts.load_jobs, made.engine.transactions
        await jobs.start()
        begun = await jobs.begin("app", 1, mode=mode, timeout_ms=60_000, topics=["crowded"], join=False, wait_ms=1_000)
        activity = jobs._store.active[begun.job.job_id]
        for number in range(COUNT):
            name = f"attempt{number}" if mode is JobMode.TRANSACTIONAL else ""
            jobs._store.note_attempt(activity, Attempt(number, number, 0, name))
            batch = encode_batch(
                columns_from_records([Record(0, 1, None, b"x")]), producer_id=number, producer_epoch=0, base_sequence=0
            )
            log.producers.update(parse_header(batch))
            if name:
                coordinator._table.put(
                    Transaction(name, number, 0, 60_000, TransactionState.ONGOING, frozenset({log.name}))
                )
        counted = [0]
        monkeypatch.setattr(progress, "_rows", counting(counted, progress._rows))
        assert await longest_turn(jobs.loaded(begun.job), counted) <= PIECE_COUNT
        loaded, rows, _ = await jobs.loaded(begun.job)
        assert (loaded, rows) == ([(log.name, COUNT, 0)], COUNT)
        with pytest.raises(Problem) as refused:
            await jobs.commit(begun.job.job_id, [Winner(number, 1 + (number == 7)) for number in range(COUNT)], 1_000)
        assert refused.value.code == "job_incomplete"

    on_stand(scenario)
