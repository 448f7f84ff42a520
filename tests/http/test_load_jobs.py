"""Load jobs over HTTP: what a driver and its tasks see, and what readers of committed records do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import pytest

from tests.support.load_jobs import RAW, Driver, Writer, batch_count, committed, is_held_up
from tests.support.transactions import ProducerIdentity, transactional_batch
from tests.support.writers import record_batch

_numbers = count()


@pytest.fixture
def application() -> str:
    return f"loader.{next(_numbers)}"


@pytest.fixture
def paths(topic: str) -> tuple[str, str]:
    return f"{topic}/partitions/0", f"{topic}/partitions/1"


def test_clients_leave_the_log_of_decisions_alone(client: httpx.Client, application: str) -> None:
    Driver.begin(client, application)
    path = "/v1/topics/__load_jobs"
    assert client.get(path).json()["internal"] is True
    refusals = [
        client.patch(path, json={"config": {"retention.ms": 1}}),
        client.delete(path),
        client.post(f"{path}/partitions/0/records", json={"records": [{"key": "job/x", "value": "{}"}]}),
        client.post(f"{path}/partitions/0/delete-records", json={"offset": 0}),
    ]
    assert [answer.json().get("kafka_code") for answer in refusals] == [17] * len(refusals)


def test_only_winners_are_visible(client: httpx.Client, paths: tuple[str, str], application: str) -> None:
    """Two attempts of a task, one of them wins; one partition has both, the other only the loser."""
    job = Driver.begin(client, application)
    first, second, other = job.enlist(0, 0), job.enlist(0, 1), job.enlist(1)
    assert len({first.producer_id, second.producer_id, other.producer_id}) == 3
    for writer, values in ((first, (b"a", b"b")), (second, (b"a", b"b")), (other, (b"c",))):
        assert writer.send(paths[0], *values).status_code == 200
    first.send(paths[1], b"d")
    assert (committed(client, paths[0]), is_held_up(client, paths[0])) == ([], True)
    done = job.commit(second, other)
    assert (done["state"], done["rows"], done["winner_count"], done["task_count"]) == ("committed", 3, 2, 2)
    assert [committed(client, path) for path in paths] == [["a", "b", "c"], []]
    assert not any(is_held_up(client, path) for path in paths)


def test_committing_again_changes_nothing(client: httpx.Client, paths: tuple[str, str], application: str) -> None:
    job = Driver.begin(client, application)
    writer, loser = job.enlist(0), job.enlist(0, 1)
    writer.send(paths[0], b"a")
    first = job.commit(writer)
    before = batch_count(client, paths[0])
    assert job.commit(writer) == first
    assert batch_count(client, paths[0]) == before
    assert job.commit(loser, status=409)["code"] == "invalid_job_state"
    assert job.abort() == first
    assert committed(client, paths[0]) == ["a"]


def test_a_version_that_was_loaded_is_told_and_not_loaded_again(
    client: httpx.Client, paths: tuple[str, str], application: str
) -> None:
    job = Driver.begin(client, application, 7)
    writer = job.enlist(0)
    writer.send(paths[0], b"a")
    done = job.commit(writer)
    again = Driver.begin(client, application, 7, status=200)
    assert again.document == done
    assert again.document["state"] == "committed"
    assert Driver.begin(client, application, 7, status=200, join=True).document == done
    assert Driver.begin(client, application, 8).document["state"] == "open"
    assert Driver.begin(client, f"{application}x", 7).document["state"] == "open"


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_version_goes_to_the_same_topics_each_time(
    client: httpx.Client, paths: tuple[str, str], topic: str, application: str, is_committed: bool
) -> None:
    """Two writes of one application and version are one load: the second would write nothing, and say nothing."""
    name = topic.rpartition("/")[2]
    job = Driver.begin(client, application, 7, topics=[name, "b"])
    assert job.look()["topics"] == [name, "b"]
    if is_committed:
        writer = job.enlist(0)
        writer.send(paths[0], b"a")
        job.commit(writer)
    asked = {"application_id": application, "version": 7, "join": True}
    refused = client.post("/v1/jobs", json={**asked, "topics": ["c"]})
    told = "was loaded" if is_committed else "is being loaded"
    problem = refused.json()
    assert (refused.status_code, problem["code"], problem["topics"]) == (409, "job_topics_differ", [name, "b"])
    assert problem["detail"] == (
        f"version 7 of '{application}' {told} into {name}, b, not c: give each write an application of its own"
    )
    assert client.post("/v1/jobs", json={**asked, "topics": [name]}).status_code == 409
    for others in (["b", name], []):
        assert client.post("/v1/jobs", json={**asked, "topics": others}).json()["job_id"] == job.document["job_id"]
    assert job.look()["state"] == ("committed" if is_committed else "open")
    assert Driver.begin(client, application, 8, topics=["c"]).document["state"] == "open"


def test_a_job_that_named_no_topics_is_the_answer_whatever_topics_are_asked_for(
    client: httpx.Client, application: str
) -> None:
    job = Driver.begin(client, application, 7)
    joined = Driver.begin(client, application, 7, status=200, join=True, topics=["a"])
    assert joined.document["job_id"] == job.document["job_id"]
    job.commit()
    assert Driver.begin(client, application, 7, status=200, topics=["b"]).document["state"] == "committed"


def test_many_topics_that_differ_are_counted(client: httpx.Client, application: str) -> None:
    Driver.begin(client, application, 7, topics=[f"a{number}" for number in range(7)]).commit()
    refused = client.post("/v1/jobs", json={"application_id": application, "version": 7, "topics": ["b"]})
    assert "into a0, a1, a2, a3, a4 and 2 more, not b: " in refused.json()["detail"]


def test_a_zombie_writes_nothing_after_the_decision(
    client: httpx.Client, paths: tuple[str, str], application: str
) -> None:
    job = Driver.begin(client, application)
    winner, loser, idle = job.enlist(0, 0), job.enlist(0, 1), job.enlist(1)
    for writer in (winner, loser):
        writer.send(paths[0], b"a")
    job.commit(winner)
    for writer in (winner, loser, idle):
        late = writer.send(paths[0], b"late")
        assert (late.status_code, late.json()["retryable"]) == (409, False), late.text
    refused = client.post(f"{job.path}/attempts", json={"task": 5})
    assert (refused.status_code, refused.json()["code"]) == (409, "invalid_job_state")
    assert committed(client, paths[0]) == ["a"]
    assert not is_held_up(client, paths[0])


def test_the_next_job_of_an_application_fences_the_last(
    client: httpx.Client, paths: tuple[str, str], application: str
) -> None:
    """As after a killed driver: the same version again, and readers are held up by nothing old."""
    dead = Driver.begin(client, application)
    zombie = dead.enlist(0)
    zombie.send(paths[0], b"old")
    job = Driver.begin(client, application)
    assert not is_held_up(client, paths[0])
    assert job.document["job_id"] != dead.document["job_id"]
    assert (dead.look()["state"], dead.look()["reason"]) == ("aborted", "fenced")
    assert zombie.send(paths[0], b"late").status_code == 409
    refused = dead.commit(zombie, status=409)
    assert (refused["code"], refused["state"], refused["reason"]) == ("invalid_job_state", "aborted", "fenced")
    writer = job.enlist(0)
    writer.send(paths[0], b"new")
    job.commit(writer)
    assert committed(client, paths[0]) == ["new"]


def test_another_applications_job_is_left_alone(client: httpx.Client, paths: tuple[str, str], application: str) -> None:
    one, other = Driver.begin(client, application), Driver.begin(client, f"{application}x")
    writers = one.enlist(0), other.enlist(0)
    for writer, value in zip(writers, (b"a", b"b"), strict=True):
        writer.send(paths[0], value)
    one.commit(writers[0])
    assert is_held_up(client, paths[0])
    other.commit(writers[1])
    assert committed(client, paths[0]) == ["a", "b"]


def test_tasks_of_one_streaming_batch_join_its_job(
    client: httpx.Client, paths: tuple[str, str], application: str
) -> None:
    jobs = [Driver.begin(client, application, 3, join=True)]
    jobs += [Driver.begin(client, application, 3, status=200, join=True) for _ in range(3)]
    assert len({job.document["job_id"] for job in jobs}) == 1
    writers = [job.enlist(task) for task, job in enumerate(jobs)]
    for task, writer in enumerate(writers):
        writer.send(paths[0], b"%d" % task)
    jobs[0].commit(*writers)
    assert committed(client, paths[0]) == ["0", "1", "2", "3"]
    following = Driver.begin(client, application, 4, join=True)
    assert following.document["job_id"] != jobs[0].document["job_id"]


def test_a_driver_finds_its_jobs_by_its_own_id(client: httpx.Client, application: str) -> None:
    """Also those of a dead driver that a task of its own has joined."""
    mine, successor = f"{application}.mine", f"{application}.successor"

    def jobs_of(driver_id: str) -> list[str]:
        page = client.get("/v1/jobs", params={"driver_id": driver_id, "state": "open"}).json()
        assert {each["driver_id"] for each in page["data"]} <= {driver_id}
        return [each["job_id"] for each in page["data"]]

    job = Driver.begin(client, application, 3, join=True, driver_id=mine)
    Driver.begin(client, application, 3, status=200, join=True)
    assert (jobs_of(mine), jobs_of(successor)) == ([job.document["job_id"]], [])
    Driver.begin(client, application, 3, status=200, join=True, driver_id=successor)
    assert (jobs_of(mine), jobs_of(successor)) == ([], [job.document["job_id"]])
    job.abort()
    assert jobs_of(successor) == []


def test_a_begin_that_comes_after_its_own_repetition_begins_nothing(
    client: httpx.Client, paths: tuple[str, str], application: str
) -> None:
    """The first request was held up on its way; its repetition has begun the job, whose tasks write."""
    mine = f"{application}.mine"
    job = Driver.begin(client, application, 3, driver_id=mine)
    writer = job.enlist(0)
    writer.send(paths[0], b"a")
    late = Driver.begin(client, application, 3, status=200, driver_id=mine)
    assert (late.document["job_id"], late.document["state"]) == (job.document["job_id"], "open")
    writer.send(paths[0], b"b")
    assert job.commit(writer)["state"] == "committed"
    assert Driver.begin(client, application, 3, status=200, driver_id=mine).document["state"] == "committed"
    assert committed(client, paths[0]) == ["a", "b"]


@pytest.mark.parametrize(
    "other",
    [{"driver_id": "another"}, {}, {"mode": "idempotent"}, {"version": 4}],
    ids=["driver", "none", "mode", "version"],
)
def test_another_run_fences_all_the_same(client: httpx.Client, application: str, other: dict[str, Any]) -> None:
    """So does one that says no driver, even if the job has none."""
    mine = {"driver_id": f"{application}.mine"} if other else {}
    job = Driver.begin(client, application, 3, **mine)
    Driver.begin(client, application, **{"version": 3, **mine, **other})
    assert (job.look()["state"], job.look()["reason"]) == ("aborted", "fenced")


def test_an_aborted_job_is_begun_again_by_its_own_driver(client: httpx.Client, application: str) -> None:
    mine = f"{application}.mine"
    job = Driver.begin(client, application, 3, driver_id=mine)
    job.abort()
    assert Driver.begin(client, application, 3, driver_id=mine).document["state"] == "open"


def test_aborted_records_are_never_visible(client: httpx.Client, paths: tuple[str, str], application: str) -> None:
    job = Driver.begin(client, application)
    writer = job.enlist(0)
    writer.send(paths[0], b"a")
    done = job.abort()
    assert (done["state"], done["reason"], done["rows"]) == ("aborted", "asked", 0)
    assert job.abort() == done
    assert job.commit(writer, status=409)["state"] == "aborted"
    assert (committed(client, paths[0]), is_held_up(client, paths[0])) == ([], False)


def test_a_load_of_nothing_is_committed(client: httpx.Client, application: str) -> None:
    job = Driver.begin(client, application)
    job.enlist(0)
    assert (job.commit()["state"], job.look()["rows"]) == ("committed", 0)


def test_winners_must_be_one_attempt_of_each_task(
    client: httpx.Client, paths: tuple[str, str], application: str
) -> None:
    job = Driver.begin(client, application)
    one, two = job.enlist(0, 0), job.enlist(0, 1)
    for writers in ((one, two), (one, one), (Writer(client, 10**9),)):
        refused = job.commit(*writers, status=422)
        assert refused["code"] == "invalid_request"
        assert refused["errors"][0]["pointer"].startswith("/winners/")
    one.send(paths[0], b"a")
    assert job.commit(one)["rows"] == 1


def test_records_that_are_missing_stop_the_commit(
    client: httpx.Client, paths: tuple[str, str], application: str
) -> None:
    job = Driver.begin(client, application)
    writer = job.enlist(0)
    writer.send(paths[0], b"a", b"b")
    writer.sequences[paths[0]] = 3
    refused = job.commit(writer, status=409)
    assert (refused["code"], refused["rows"], refused["expected_rows"]) == ("job_incomplete", 2, 3)
    assert job.look()["state"] == "open"
    writer.sequences[paths[0]] = 2
    assert job.commit(writer)["rows"] == 2


def test_progress_of_an_open_job(client: httpx.Client, paths: tuple[str, str], topic: str, application: str) -> None:
    job = Driver.begin(client, application)
    for task, path in enumerate(paths):
        writer = job.enlist(task)
        for number in range(3):
            answer = writer.send(path, b"%d" % number, b"x" * 100)
            again = client.post(
                f"{path}/records",
                content=transactional_batch(
                    ProducerIdentity(writer.producer_id, 0), 2 * number, b"%d" % number, b"x" * 100
                ),
                headers={"Content-Type": RAW},
            )
            assert (answer.json()["duplicate"], again.json()["duplicate"]) == (False, True)
    seen = job.look()
    name = topic.rpartition("/")[2]
    assert [(each["topic"], each["partition"], each["rows"]) for each in seen["partitions"]] == [
        (name, 0, 6),
        (name, 1, 6),
    ]
    sizes = [client.get(path).json()["size_bytes"] for path in paths]
    assert [each["size_bytes"] for each in seen["partitions"]] == sizes
    assert (seen["rows"], seen["size_bytes"], seen["attempt_count"], seen["task_count"]) == (12, sum(sizes), 2, 2)
    assert seen["elapsed_ms"] >= 0


def test_lists_are_the_newest_first_a_page_at_a_time(client: httpx.Client, application: str) -> None:
    made = [Driver.begin(client, application, version).document["job_id"] for version in range(5)]
    cursor, found = "", []
    while True:
        params = {"application_id": application, "limit": 2} | ({"start_after": cursor} if cursor else {})
        page = client.get("/v1/jobs", params=params).json()
        found += page["data"]
        cursor = page["next_cursor"]
        assert page["has_more"] is (cursor is not None)
        if not page["has_more"]:
            break
    assert sorted(each["job_id"] for each in found) == sorted(made)
    assert [each["begin_timestamp"] for each in found] == sorted(
        (each["begin_timestamp"] for each in found), reverse=True
    )
    still_open = client.get("/v1/jobs", params={"application_id": application, "state": "open"}).json()["data"]
    assert [each["version"] for each in still_open] == [4]


def test_an_idempotent_job_has_one_producer_for_each_task(
    client: httpx.Client, paths: tuple[str, str], topic: str, application: str
) -> None:
    name = topic.rpartition("/")[2]
    job = Driver.begin(client, application, mode="idempotent", topics=[name])
    writers = [job.enlist(0, attempt) for attempt in range(2)]
    assert writers[0].producer_id == writers[1].producer_id != job.enlist(1).producer_id
    joined = Driver.begin(client, application, status=200, mode="idempotent", join=True)
    assert joined.enlist(0).producer_id == writers[0].producer_id
    headers = {"Producer-Id": str(writers[0].producer_id), "Producer-Epoch": "0", "Base-Sequence": "0"}
    for is_duplicate in (False, True):
        sent = client.post(f"{paths[0]}/records", json={"records": [{"value": "a"}]}, headers=headers)
        assert sent.json()["duplicate"] is is_duplicate
    assert job.look()["rows"] == 1
    assert committed(client, paths[0]) == ["a"]
    answer = client.post(f"{job.path}/commit", json={"winners": [{"producer_id": writers[0].producer_id, "rows": 1}]})
    assert (answer.status_code, answer.json()["state"], answer.json()["rows"]) == (200, "committed", 1)


def test_an_attempt_belongs_to_nobody_else(client: httpx.Client, paths: tuple[str, str], application: str) -> None:
    """Its transactional id cannot be taken over, ended or named by a client."""
    job = Driver.begin(client, application)
    writer = job.enlist(0)
    writer.send(paths[0], b"a")
    page = client.get("/v1/transactions", params={"limit": 1000}).json()["data"]
    (name,) = [each["transactional_id"] for each in page if each["producer_id"] == writer.producer_id]
    taken = client.post("/v1/producers", json={"transactional_id": name})
    ended = client.post(f"/v1/transactions/{name}/abort", json={"producer_id": writer.producer_id, "producer_epoch": 0})
    assert (taken.status_code, ended.status_code) == (422, 422)
    assert Driver.begin(client, application, status=201).document["state"] == "open"
    assert client.post("/v1/jobs", json={"application_id": name, "version": 1}).status_code == 422


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"application_id": "a"},
        {"application_id": "", "version": 1},
        {"application_id": "a/b", "version": 1},
        {"application_id": "__rollway_x", "version": 1},
        {"application_id": "a", "version": -1},
        {"application_id": "a", "version": "1"},
        {"application_id": "a", "version": 1, "mode": "atleastonce"},
        {"application_id": "a", "version": 1, "timeout_ms": 0},
        {"application_id": "a", "version": 1, "timeout_ms": 10**12},
        {"application_id": "a", "version": 1, "txnVersion": 1},
    ],
)
def test_what_no_job_can_be_is_refused(client: httpx.Client, body: dict[str, Any]) -> None:
    refused = client.post("/v1/jobs", json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request"), refused.text


def test_unknown_jobs_are_not_found(client: httpx.Client) -> None:
    asked: Iterator[httpx.Response] = iter(
        (
            client.get("/v1/jobs/nowhere"),
            client.post("/v1/jobs/nowhere/attempts", json={"task": 0}),
            client.post("/v1/jobs/nowhere/commit", json={"winners": []}),
            client.post("/v1/jobs/nowhere/abort"),
        )
    )
    for answer in asked:
        assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")


def test_a_deleted_topic_stops_the_commit_and_not_the_abort(client: httpx.Client, topic: str, application: str) -> None:
    path = f"{topic}/partitions/1"
    job = Driver.begin(client, application)
    writer = job.enlist(0)
    writer.send(path, b"a")
    assert client.delete(topic).status_code == 204
    assert writer.send(path, b"b").status_code == 404
    refused = job.commit(writer, status=409)
    assert (refused["code"], refused["rows"]) == ("job_incomplete", 0)
    assert job.abort()["state"] == "aborted"


def test_plain_records_stay_visible_around_a_job(
    client: httpx.Client, paths: tuple[str, str], application: str
) -> None:
    job = Driver.begin(client, application)
    writer = job.enlist(0)
    writer.send(paths[0], b"in")
    sent = client.post(f"{paths[0]}/records", content=record_batch(b"beside"), headers={"Content-Type": RAW})
    assert sent.status_code == 200
    job.commit(writer)
    assert committed(client, paths[0]) == ["in", "beside"]
