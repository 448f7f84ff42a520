"""Offsets belong to a topic with an id: no request that names the id reaches another topic of the same name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.cli import run
from app.cli.records import fetch
from app.cli.records.fetch import _Follower
from rollway.client import ClientSettings, RollwayClient, TopicReplacedError
from tests.support.servers import ThreadedServer

RAW = "application/vnd.kafka.record-batch.v2"
FETCH_TRIES = 4
"""The first requests of a connection are the route's, those after them the fast path's."""


@pytest.fixture(scope="module")
def library(server: ThreadedServer) -> Iterator[RollwayClient]:
    with RollwayClient(ClientSettings(server.url)) as library:
        yield library


def fill(client: httpx.Client, topic: str, count: int) -> None:
    body = {"records": [{"value": f"{topic} {number}"} for number in range(count)]}
    assert client.post(f"{topic}/partitions/0/records", json=body).status_code == 200


def id_of(client: httpx.Client, topic: str) -> str:
    found = str(client.get(f"{topic}/partitions").json()["topic_id"])
    assert found == client.get(topic).json()["topic_id"]
    return found


def make_again(client: httpx.Client, topic: str) -> str:
    assert client.delete(topic).status_code in (200, 204)
    assert client.put(topic, json={"partitions": 2}).status_code == 201
    return id_of(client, topic)


def check_refused(answer: httpx.Response, old: str, new: str) -> None:
    assert answer.status_code == 409, answer.text
    problem = answer.json()
    assert (problem["code"], problem["kafka_code"]) == ("inconsistent_topic_id", 103)
    assert old in problem["detail"]
    assert new in problem["detail"]
    assert problem["retryable"] is False


@pytest.mark.parametrize("media_type", [RAW, "application/json", "application/x-ndjson"])
@pytest.mark.parametrize("more", ["", "&end_offset=3", "&wait_ms=1"])
def test_a_fetch_by_id_reads_no_other_topic(client: httpx.Client, topic: str, media_type: str, more: str) -> None:
    """From the first request on, which the route answers, and from those that the fast path answers."""
    fill(client, topic, 5)
    old = id_of(client, topic)
    headers = {"Accept": media_type}

    def fetch(topic_id: str) -> httpx.Response:
        url = f"{topic}/partitions/0/records?offset=0&topic_id={topic_id}{more}"
        return client.get(url, headers=headers)

    for _ in range(FETCH_TRIES):
        assert fetch(old).status_code == 200
    new = make_again(client, topic)
    fill(client, topic, 9)
    for _ in range(FETCH_TRIES):
        check_refused(fetch(old), old, new)
        assert fetch(new).status_code == 200
        # Without an id it is whatever topic has the name.
        assert client.get(f"{topic}/partitions/0/records?offset=0", headers=headers).status_code == 200
    head = client.head(f"{topic}/partitions/0/records?offset=0&topic_id={old}", headers=headers)
    assert head.status_code == 409


def test_an_id_that_is_none_is_refused(client: httpx.Client, topic: str) -> None:
    for wrong in ("", "short", "x" * 23, "%0A" * 22):
        for _ in range(FETCH_TRIES):
            url = f"{topic}/partitions/0/records?offset=0&topic_id={wrong}"
            assert client.get(url, headers={"Accept": RAW}).status_code == 422


def test_splits_and_start_positions_are_of_the_topic_that_is_meant(client: httpx.Client, topic: str) -> None:
    fill(client, topic, 5)
    old, name = id_of(client, topic), topic.rpartition("/")[2]
    pins = f"/v1/groups/group-of-{name}/start-positions"

    def split(topic_id: str) -> httpx.Response:
        return client.post(f"{topic}/splits", json={"topic_id": topic_id})

    def pin(topic_id: str, offset: int) -> httpx.Response:
        return client.post(pins, json={"positions": {name: {"0": offset}}, "topic_ids": {name: topic_id}})

    assert split(old).status_code == 200
    assert pin(old, 5).status_code == 201
    assert pin(old, 5).status_code == 200
    new = make_again(client, topic)
    check_refused(split(old), old, new)
    check_refused(pin(old, 5), old, new)
    assert client.get(pins).json()["positions"] == {}, "nothing was pinned in the new topic"
    assert split(new).status_code == 200
    assert pin(new, 2).json()["positions"] == {name: {"0": 2}}


def test_the_client_library_tells_the_topics_apart(client: httpx.Client, library: RollwayClient, topic: str) -> None:
    fill(client, topic, 5)
    name = topic.rpartition("/")[2]
    old = library.watermarks(name)[0].topic_id
    asked: dict[str, Any] = {"max_bytes": 1000, "isolation": "read_committed"}
    positions = {name: {0: 5}}
    assert library.fetch(name, 0, offset=0, topic_id=old, **asked).next_offset == 5
    assert not library.wait_for(positions, topic_ids={name: old}, isolation="read_committed", wait_ms=0)
    new = make_again(client, topic)
    fill(client, topic, 5)
    assert library.describe_topic(name).topic_id == library.watermarks(name)[0].topic_id == new != old
    with pytest.raises(TopicReplacedError, match=old):
        library.fetch(name, 0, offset=0, topic_id=old, **asked)
    with pytest.raises(TopicReplacedError, match=old):
        library.split(name, {"topic_id": old})
    with pytest.raises(TopicReplacedError, match=old):
        library.pin_positions("library", positions, topic_ids={name: old})
    # A topic that is another one is news, though it has as many records.
    assert library.wait_for(positions, topic_ids={name: old}, isolation="read_committed", wait_ms=0)
    assert not library.wait_for(positions, topic_ids={name: new}, isolation="read_committed", wait_ms=0)
    assert not library.wait_for(positions, isolation="read_committed", wait_ms=0)


def test_tail_does_not_go_on_in_another_topic(
    server: ThreadedServer,
    client: httpx.Client,
    topic: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It went on at the offset where the deleted topic had ended."""
    fill(client, topic, 3)
    old, poll = id_of(client, topic), _Follower._poll
    new = ""

    async def make_again_after_the_first(follower: _Follower, path: str, place: dict[str, Any]) -> int:
        nonlocal new
        offset = await poll(follower, path, place)
        if not new:
            new = make_again(client, topic)
            fill(client, topic, 9)
        return offset

    monkeypatch.setattr(_Follower, "_poll", make_again_after_the_first)
    name = topic.rpartition("/")[2]
    arguments = [
        "tail",
        name,
        "-p",
        "0",
        "--offset",
        "earliest",
        "-n",
        "9",
        "--format",
        "value",
        "--server",
        server.url,
    ]
    assert run(arguments) == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [f"{topic} {number}" for number in range(3)]
    assert old in shown.err
    assert new in shown.err


def test_fetch_does_not_go_on_in_another_topic(
    server: ThreadedServer,
    client: httpx.Client,
    topic: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between two answers of one partition."""
    monkeypatch.setattr("app.cli.records.fetch.FETCH_BYTES", 1)
    for _ in range(3):
        fill(client, topic, 3)
    old, copy = id_of(client, topic), fetch._copy
    copied = 0

    def make_again_after_the_first(response: httpx.Response, writer: Any) -> None:
        nonlocal copied
        copy(response, writer)
        copied += 1
        if copied == 1:
            make_again(client, topic)
            fill(client, topic, 20)

    monkeypatch.setattr(fetch, "_copy", make_again_after_the_first)
    arguments = ["fetch", topic.rpartition("/")[2], "-p", "0", "--format", "value", "--server", server.url]
    assert run(arguments) == 1
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 3
    assert old in shown.err
