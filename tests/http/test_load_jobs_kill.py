"""Load jobs and a service that is killed, a driver that never comes back, and who may write in whose job."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import httpx
import pytest

from app.access.access_documents import acl_from
from app.cli.administration.offline_access import open_registry
from tests.support.access import bearer
from tests.support.load_jobs import Driver, Writer, committed, is_held_up
from tests.support.servers import ServerProcess, ThreadedServer, http_client

TASKS = 6
ROUNDS = 4


def load(client: httpx.Client, job: Driver, partitions: list[str], mark: int) -> tuple[list[Writer], list[Writer]]:
    """Two attempts of each task; those that shall win, and the others."""
    chosen: list[Writer] = []
    others: list[Writer] = []
    for task in range(TASKS):
        for attempt, into in enumerate((chosen, others)):
            writer = job.enlist(task, attempt)
            for path in partitions:
                assert writer.send(path, b"%d.%d" % (mark, task), b"x" * 500).status_code == 200
            into.append(writer)
    return chosen, others


@pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")
def test_a_service_killed_in_the_middle_of_a_commit(tmp_path: Path) -> None:
    """kill -9 at random moments of the commit. Committed again, the winners are there, once, and nothing else."""
    source = random.Random(5)
    expected: list[str] = []
    partitions = [f"/v1/topics/t/partitions/{number}" for number in range(3)]
    service = ServerProcess(tmp_path / "data").start()
    try:
        with http_client(service.url) as client:
            assert client.put("/v1/topics/t", json={"partitions": 3}).status_code == 201
        for mark in range(ROUNDS):
            with http_client(service.url) as client:
                job = Driver.begin(client, "loader", mark)
                chosen, others = load(client, job, partitions, mark)
                body = {"winners": [writer.winner for writer in chosen]}
                killing = threading.Timer(source.choice((0.0, 0.002, 0.005, 0.01, 0.03)), service.kill_if_alive)
                killing.start()
                try:
                    answered = client.post(f"{job.path}/commit", json=body)
                except httpx.HTTPError:
                    answered = None
                killing.join()
                assert answered is None or answered.status_code == 200, answered.text
            service = ServerProcess(tmp_path / "data").start()
            with http_client(service.url) as client:
                again = client.post(f"{job.path}/commit", json=body)
                assert (again.status_code, again.json()["rows"]) == (200, 2 * TASKS * len(partitions)), again.text
                for writer in (*chosen, *others):
                    writer.client = client
                    assert writer.send(partitions[0], b"late").status_code == 409
                expected += [value for task in range(TASKS) for value in (f"{mark}.{task}", "x" * 500)]
                for path in partitions:
                    assert sorted(committed(client, path)) == sorted(expected)
                    assert not is_held_up(client, path)
    finally:
        service.kill_if_alive()


@pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")
def test_a_load_goes_on_after_the_service_was_killed(tmp_path: Path) -> None:
    """Its tasks repeat what was not answered; nothing is lost and nothing is there twice."""
    path = "/v1/topics/t/partitions/0"
    service = ServerProcess(tmp_path / "data").start()
    try:
        with http_client(service.url) as client:
            assert client.put("/v1/topics/t", json={"partitions": 1}).status_code == 201
            job = Driver.begin(client, "loader")
            writer = job.enlist(0)
            writer.send(path, b"a")
            forgotten = job.enlist(0, 1)
            forgotten.send(path, b"a")
        service.kill()
        service = ServerProcess(tmp_path / "data").start()
        with http_client(service.url) as client:
            job.client = writer.client = client
            assert (job.look()["rows"], job.look()["attempt_count"]) == (2, 2)
            sent_again = Writer(client, writer.producer_id).send(path, b"a")
            assert sent_again.json()["duplicate"] is True
            writer.send(path, b"b")
            job.commit(writer)
            assert committed(client, path) == ["a", "b"]
    finally:
        service.kill_if_alive()


@pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")
def test_the_next_run_after_a_killed_driver_and_service_sees_to_the_last(tmp_path: Path) -> None:
    path = "/v1/topics/t/partitions/0"
    service = ServerProcess(tmp_path / "data").start()
    try:
        with http_client(service.url) as client:
            assert client.put("/v1/topics/t", json={"partitions": 1}).status_code == 201
            Driver.begin(client, "loader").enlist(0).send(path, b"old")
        service.kill()
        service = ServerProcess(tmp_path / "data").start()
        with http_client(service.url) as client:
            assert is_held_up(client, path)
            job = Driver.begin(client, "loader")
            assert not is_held_up(client, path)
            writer = job.enlist(0)
            writer.send(path, b"new")
            job.commit(writer)
            assert committed(client, path) == ["new"]
    finally:
        service.kill_if_alive()


def test_a_job_that_nobody_finishes_holds_up_nobody(tmp_path: Path) -> None:
    """Nothing happens in it for its timeout: it is aborted, and its writers are refused."""
    path = "/v1/topics/t/partitions/0"
    with ThreadedServer(tmp_path / "data", load_job_check_interval_ms=100) as server, http_client(server.url) as client:
        assert client.put("/v1/topics/t", json={"partitions": 1}).status_code == 201
        job = Driver.begin(client, "orphan", timeout_ms=3_000)
        writer = job.enlist(0)
        writer.send(path, b"a")
        while job.look()["state"] != "aborted":
            pass
        assert (job.look()["reason"], is_held_up(client, path)) == ("timed_out", False)
        assert writer.send(path, b"late").status_code == 409
        assert committed(client, path) == []


@pytest.mark.parametrize("is_allowed", [True, False])
def test_writing_in_a_job_needs_the_right_of_its_application(tmp_path: Path, is_allowed: bool) -> None:
    with open_registry(tmp_path / "data") as registry:
        registry.acls.super_users = frozenset({"User:admin"})
        _, super_key = registry.create_key("User:admin")
        _, key = registry.create_key("User:task")
        rights = [("WRITE", "topic", "t"), ("WRITE", "transactional_id", "loader" if is_allowed else "another")]
        registry.add_acls(
            acl_from({"principal": "User:task", "operation": operation, "resource_type": kind, "resource_name": name})
            for operation, kind, name in rights
        )
    settings = {"authentication": True, "super_users": ["User:admin"]}
    with ThreadedServer(tmp_path / "data", **settings) as server:
        with http_client(server.url, headers=bearer(super_key)) as client:
            assert client.put("/v1/topics/t", json={"partitions": 1}).status_code == 201
            job = Driver.begin(client, "loader")
            enlisted = job.enlist(0)
        with http_client(server.url, headers=bearer(key)) as client:
            sent = Writer(client, enlisted.producer_id).send("/v1/topics/t/partitions/0", b"a")
            seen = client.get(job.path)
            listed = client.get("/v1/jobs").json()["data"]
    assert (sent.status_code, seen.status_code, len(listed)) == ((200, 200, 1) if is_allowed else (403, 403, 0))
    assert is_allowed or sent.json()["kafka_code"] == 53
