"""Load jobs name up to 1,000 topics each: their memory has a bound, and looking for old jobs costs little."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from app.load_jobs.registry import LoadJobs
from app.load_jobs.state import JobMode, JobState, JobTable, LoadJob
from app.load_jobs.store import JobLimits, JobStore
from log_model.clock import Ages, ManualClock, ProtectedClock
from tests.support.servers import ThreadedServer, http_client

LISTS_BYTES_MAX = 4 * 1024 * 1024
TOPICS = ["t" * 245 + f"{number:04}" for number in range(1_000)]
FITTING = LISTS_BYTES_MAX // (1_000 * (249 + 60))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedServer]:
    with ThreadedServer(tmp_path_factory.mktemp("jobs") / "data", load_job_lists_bytes_max=LISTS_BYTES_MAX) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: ThreadedServer) -> Iterator[httpx.Client]:
    with http_client(server.url) as client:
        yield client


def begin(client: httpx.Client, application: str, topics: list[str]) -> httpx.Response:
    return client.post("/v1/jobs", json={"application_id": application, "version": 1, "topics": topics})


def test_topics_of_jobs_have_a_budget(server: ThreadedServer, client: httpx.Client) -> None:
    jobs: LoadJobs = server.service.parts.load_jobs
    table = jobs._store.table
    begun = [begin(client, f"open.{number}", TOPICS) for number in range(FITTING)]
    assert {answer.status_code for answer in begun} == {201}
    refused = begin(client, "one.more", TOPICS)
    assert (refused.status_code, refused.json()["code"], refused.json()["applied"]) == (503, "overloaded", "no")
    assert "lists of topics" in refused.json()["detail"]
    assert table.open_lists_bytes <= LISTS_BYTES_MAX
    # Jobs that name none have no part in it.
    assert begin(client, "without", []).status_code == 201
    ids = [answer.json()["job_id"] for answer in begun]
    for job_id in ids:
        assert client.post(f"/v1/jobs/{job_id}/abort").status_code == 200
    last = begin(client, "later", TOPICS)
    assert client.post(f"/v1/jobs/{last.json()['job_id']}/abort").status_code == 200
    assert 0 < table.over_lists_bytes <= LISTS_BYTES_MAX
    assert table.open_lists_bytes == 0
    first, newest = (client.get(f"/v1/jobs/{job_id}").json() for job_id in (ids[0], last.json()["job_id"]))
    assert (first["state"], first["topics"]) == ("aborted", [])
    assert (newest["state"], newest["topics"]) == ("aborted", TOPICS)


def job_of(number: int, state: JobState) -> LoadJob:
    return LoadJob(f"{number:016}", f"app.{number % 3}", number, JobMode.IDEMPOTENT, 1, ("t",), number, number, state)


def test_the_table_counts_what_its_jobs_hold() -> None:
    table = JobTable()
    for number in range(9):
        table.put(job_of(number, JobState.OPEN))
    assert (table.open_lists_bytes, table.over_lists_bytes, table.over_count) == (9 * 61, 0, 0)
    for number in (4, 2, 7, 1):
        table.put(job_of(number, JobState.ABORTED))
        table.put(job_of(number, JobState.ABORTED))
    assert (table.open_lists_bytes, table.over_lists_bytes, table.over_count) == (5 * 61, 4 * 61, 4)
    assert [job.version for job in table.over_while(lambda job_id: job_id != f"{7:016}")] == [4, 2]
    assert [job.version for job in table.over_beyond(1)] == [4, 2, 1]
    assert sorted(job.version for job in table.over_beyond_of_each(1)) == [1, 4]
    assert [job.version for job in table.lists_to_drop([job_of(8, JobState.ABORTED)], 2 * 61)] == [4, 2, 7]
    table.remove(f"{4:016}")
    table.sort_over()
    assert [job.version for job in table.over_while(lambda _: True)] == [1, 2, 7]
    for number in range(9):
        table.remove(f"{number:016}")
    assert (table.open_lists_bytes, table.over_lists_bytes, table.over_count, len(table)) == (0, 0, 0, 0)
    assert table.over_beyond(0) == table.over_beyond_of_each(0) == []


def test_looking_for_old_jobs_asks_for_the_age_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = ManualClock(), 0
    age_ms = Ages.age_ms

    def counted(self: Ages[str], key: str) -> int:
        nonlocal asked
        asked += 1
        return age_ms(self, key)

    class EngineWithoutLogs:
        protected_clock = ProtectedClock(clock)

        def state(self, topic: str) -> None:
            """Nothing is written here."""

    store = JobStore(EngineWithoutLogs(), JobLimits())  # type: ignore[arg-type]
    for number in range(2_000):
        store.table.put(replace(job_of(number, JobState.ABORTED), application_id=str(number)))
    monkeypatch.setattr(Ages, "age_ms", counted)
    asyncio.run(store._expire())
    assert asked == 1
