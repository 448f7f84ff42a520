"""Fetch sessions over HTTP (cases F-16 and F-17, spec D1, D2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rollway.records import decode_multi_frame
from tests.support.servers import ThreadedServer, http_client

FRAMES = "application/vnd.rollway.multi-fetch"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with ThreadedServer(tmp_path / "data") as server, http_client(server.url) as client:
        for name in ("t", "u"):
            assert client.put(f"/v1/topics/{name}", json={"partitions": 3}).status_code == 201
        yield client


def asked(partition: int, offset: int = 0, topic: str = "t", **more: Any) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "fetch_offset": offset, **more}


def produce(client: httpx.Client, partition: int, *values: str, topic: str = "t") -> None:
    body = {"records": [{"value": value} for value in values]}
    assert client.post(f"/v1/topics/{topic}/partitions/{partition}/records", json=body).status_code == 200


class Session:
    """A client of one session."""

    def __init__(self, client: httpx.Client, *partitions: dict[str, Any], session_id: int = 0) -> None:
        self._client = client
        self.epoch = 0
        self.session_id = session_id
        self.full = self.fetch(*partitions)
        assert self.session_id > 0

    def post(self, *partitions: dict[str, Any], **more: Any) -> httpx.Response:
        body = {"session_id": self.session_id, "session_epoch": self.epoch, "partitions": partitions, **more}
        return self._client.post("/v1/fetch", json=body)

    def fetch(self, *partitions: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
        answer = self.post(*partitions, **more)
        assert answer.status_code in (200, 207), answer.text
        self.session_id = answer.json()["session_id"]
        self.epoch += 1
        found: list[dict[str, Any]] = answer.json()["partitions"]
        return found

    def numbers(self, *partitions: dict[str, Any], **more: Any) -> list[int]:
        return [one["partition"] for one in self.fetch(*partitions, **more)]


def test_f_16_only_what_changed_is_told(client: httpx.Client) -> None:
    session = Session(client, asked(0), asked(1), asked(2))
    assert [one["partition"] for one in session.full] == [0, 1, 2]
    assert session.numbers() == []
    assert session.numbers() == []
    produce(client, 1, "a", "b")
    (one,) = session.fetch()
    assert (one["partition"], len(one["records"]), one["next_offset"]) == (1, 2, 2)
    # Not moved on: it is told again.
    assert session.numbers() == [1]
    assert session.numbers(asked(1, 2)) == []
    produce(client, 1, "c")
    assert session.fetch()[0]["records"][0]["value"] == "c"


def test_f_16_moved_limits_are_told_without_records(client: httpx.Client) -> None:
    produce(client, 0, "a", "b", "c")
    session = Session(client, asked(0, 3), asked(1))
    assert session.numbers() == []
    client.post("/v1/topics/t/partitions/0/delete-records", json={"offset": 2})
    (one,) = session.fetch()
    assert (one["partition"], one["records"], one["log_start_offset"]) == (0, [], 2)
    assert session.numbers() == []
    # The high watermark alone: a fetch offset at the end that the records do not fit to.
    produce(client, 1, "x" * 1000)
    produce(client, 0, "d")
    told = session.fetch(max_bytes=1)
    assert [(one["partition"], len(one["records"]), one["high_watermark"]) for one in told] == [(0, 1, 4), (1, 0, 1)]
    assert session.numbers(asked(0, 4), max_bytes=1) == [1]


def test_f_16_wrong_epoch_71_and_unknown_session_70(client: httpx.Client) -> None:
    session = Session(client, asked(0))
    session.fetch()
    for epoch in (1, 3):
        body = {"session_id": session.session_id, "session_epoch": epoch}
        wrong = client.post("/v1/fetch", json=body)
        assert (wrong.status_code, wrong.json()["kafka_code"]) == (409, 71)
        assert wrong.json()["code"] == "invalid_fetch_session_epoch"
    assert session.numbers() == []
    unknown = client.post("/v1/fetch", json={"session_id": 7, "session_epoch": 1})
    assert (unknown.status_code, unknown.json()["kafka_code"]) == (404, 70)
    assert unknown.json()["code"] == "fetch_session_not_found"


def test_f_16_a_session_ends_with_epoch_minus_one_or_a_new_one(client: httpx.Client) -> None:
    session = Session(client, asked(0))
    body = {"session_id": session.session_id, "session_epoch": -1, "partitions": [asked(1)]}
    last = client.post("/v1/fetch", json=body).json()
    assert (last["session_id"], [one["partition"] for one in last["partitions"]]) == (0, [1])
    assert session.post().json()["kafka_code"] == 70
    second = Session(client, asked(0))
    third = Session(client, asked(1), session_id=second.session_id)
    assert third.session_id != second.session_id
    assert second.post().json()["kafka_code"] == 70
    assert third.numbers() == []


def test_f_16_forgotten_partitions(client: httpx.Client) -> None:
    session = Session(client, asked(0), asked(1), asked(2))
    assert session.numbers(forgotten=[{"topic": "t", "partition": 1}]) == []
    for partition in (0, 1, 2):
        produce(client, partition, "a")
    assert session.numbers(asked(0, topic="u")) == [0, 2, 0]
    rest = [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 2}, {"topic": "u", "partition": 0}]
    # Without partitions there is nothing to keep: the session is gone.
    assert session.post(forgotten=rest).json() == {"session_id": 0, "throttle_time_ms": 0, "partitions": []}
    assert session.post().json()["kafka_code"] == 70


def test_f_16_an_error_is_told_each_time_and_its_end_too(client: httpx.Client) -> None:
    session = Session(client, asked(0), asked(1, topic="v"))
    assert [one["error"] is None for one in session.full] == [True, False]
    for _ in range(2):
        (failed,) = session.fetch()
        assert failed["error"]["kafka_code"] == 3
    client.put("/v1/topics/v", json={"partitions": 2})
    (well,) = session.fetch()
    assert (well["topic"], well["error"], well["high_watermark"]) == ("v", None, 0)
    assert session.numbers() == []


def test_f_16_who_brought_records_is_read_last(client: httpx.Client) -> None:
    for partition in range(3):
        for number in range(3):
            produce(client, partition, f"{number}")
    session = Session(client, asked(0), asked(1), asked(2))
    offsets = dict.fromkeys(range(3), 0)
    seen = []
    moved: list[dict[str, Any]] = [asked(partition) for partition in range(3)]
    for _ in range(6):
        with_records = [one for one in session.fetch(*moved, max_bytes=1) if one["records"]]
        assert len(with_records) == 1
        number = with_records[0]["partition"]
        offsets[number] = with_records[0]["next_offset"]
        moved = [asked(number, offsets[number])]
        seen.append(number)
    assert seen == [0, 1, 2, 0, 1, 2]


def test_f_16_frames_and_json_are_one_session(client: httpx.Client) -> None:
    session = Session(client, asked(0), asked(1))
    produce(client, 1, "a")
    body = {"session_id": session.session_id, "session_epoch": 1}
    answer = client.post("/v1/fetch", json=body, headers={"Accept": FRAMES})
    assert [len(one.content) > 0 for one in decode_multi_frame(answer.content).frames] == [True]
    assert answer.headers["fetched-partitions"] == "t/1/1/1/1/0"
    assert int(answer.headers["fetch-session-id"]) == session.session_id
    session.epoch = 2
    assert session.numbers(asked(1, 1)) == []
    body = {"session_id": session.session_id, "session_epoch": 3}
    nothing = client.post("/v1/fetch", json=body, headers={"Accept": FRAMES})
    assert (nothing.content, nothing.headers["fetched-partitions"]) == (bytes([0, 0, 0, 2, 0, 0]), "")


def test_f_17_topic_ids(client: httpx.Client) -> None:
    """An id means one topic, and never its successor of the same name."""
    old = client.get("/v1/topics/t").json()["topic_id"]
    other = client.get("/v1/topics/u").json()["topic_id"]
    session = Session(
        client,
        {"topic_id": old, "partition": 0, "fetch_offset": 0},
        {"topic_id": other, "partition": 0, "fetch_offset": 0},
    )
    assert [one["topic"] for one in session.full] == ["t", "u"]
    assert client.delete("/v1/topics/t").status_code == 204
    assert client.put("/v1/topics/t", json={"partitions": 3}).status_code == 201
    produce(client, 0, "of the successor")
    produce(client, 0, "a", topic="u")
    gone, good = session.fetch()
    assert (gone["error"]["kafka_code"], gone["error"]["code"]) == (100, "unknown_topic_id")
    assert [record["value"] for record in good["records"]] == ["a"]
    named = client.post("/v1/fetch", json={"partitions": [{"topic_id": old, **asked(0)}]})
    assert named.json()["partitions"][0]["error"]["kafka_code"] == 103
    # A session names all its topics in one way.
    wrong = session.post(asked(1))
    assert (wrong.status_code, wrong.json()["kafka_code"]) == (409, 106)
    by_name = Session(client, asked(0))
    wrong = by_name.post({"topic_id": other, "partition": 0, "fetch_offset": 0})
    assert (wrong.status_code, wrong.json()["code"]) == (409, "fetch_session_topic_id_error")
