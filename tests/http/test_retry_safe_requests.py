"""Requests that may be sent again, in any order: the fast path and the application answer and store the same."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path

import pytest

from app.fast_path.produce import compiled_handlers
from log_model.clock import ManualClock
from log_model.producers import SEQUENCE_COUNT
from tests.http.test_fast_path_agrees import (
    HAS_PARSER,
    Case,
    batch_of,
    comparable,
    connect,
    key,
    running_pair,
)
from tests.support.edge_server import Connection
from tests.support.servers import ThreadedServer, http_client

pytestmark = pytest.mark.needs_local("it tests the fast path of plain requests")

PRODUCERS, KEYS = 3, 12


class Draws:
    """Requests with keys and of producers, most of them in order."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._next = dict.fromkeys(range(PRODUCERS), (0, 0))
        self._sent: list[Case] = []

    def case(self) -> Case:
        draw = self._draw
        if self._sent and draw.random() < 0.15:
            return draw.choice(self._sent)
        query = draw.choice(["", "", "", "?acks=1", "?durability=fsynced"])
        topic = draw.choice(["t", "t", "group"])
        values = [draw.choice("abc") * draw.choice([1, 700]) for _ in range(draw.choice([1, 1, 2, 5]))]
        kind = draw.choice(["none", "key", "key", "producer", "producer", "producer"])
        if kind == "producer":
            body, headers = self._of_producer(values), ()
        elif kind == "key":
            body, headers = batch_of(*values), key(f"key-{draw.randrange(KEYS)}")
        else:
            body, headers = batch_of(*values), ()
        made = Case(kind, None, topic, query, body, headers)
        self._sent.append(made)
        return made

    def _of_producer(self, values: list[str]) -> bytes:
        """A batch of the first epochs: the next, or one that is refused."""
        number = self._draw.randrange(PRODUCERS)
        epoch, sequence = self._next[number]
        step = self._draw.choice(["next"] * 8 + ["gap", "epoch", "old"])
        if step == "next":
            self._next[number] = epoch, (sequence + len(values)) % SEQUENCE_COUNT
        elif step == "gap":
            sequence += 1
        elif step == "old":
            epoch -= epoch > 0
        else:
            epoch, sequence = epoch + 1, 0
            self._next[number] = epoch, len(values)
        return batch_of(*values, producer_id=100 + number, producer_epoch=epoch, base_sequence=sequence)


def _files(server: ThreadedServer, name: str) -> dict[str, bytes]:
    directory = server.settings.data_dir / "logs" / f"{name}-0"
    return {
        path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.suffix in (".log", ".snapshot")
    }


@pytest.mark.parametrize("seed", range(3))
def test_a_history_is_answered_and_stored_alike(tmp_path: Path, seed: int) -> None:
    draws = Draws(seed)
    with running_pair(tmp_path) as pair, contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(server)) for server in (pair.fast_path, pair.application)]
        for _ in range(250):
            request = draws.case().encode()
            answers = []
            for connection in connections:
                connection.send(request)
                answers.append(connection.read_answer())
            assert comparable(answers[0]) == comparable(answers[1])
        assert (pair.fast_path.fast_path_count > 200) is HAS_PARSER
    # The stop has written the snapshots of the producers.
    for name in ("t", "group"):
        files = _files(pair.fast_path, name)
        assert files == _files(pair.application, name)
        assert any(each.endswith(".snapshot") for each in files)


@pytest.mark.parametrize("topic", ["t", "group"])
def test_one_of_many_requests_with_a_key_at_once_is_appended(tmp_path: Path, topic: str) -> None:
    with running_pair(tmp_path) as pair, contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(pair.fast_path)) for _ in range(8)]
        for place in range(40):
            headers = key(f"key-{place}")
            for each in connections:
                each.send(Case("same", None, topic, headers=headers).encode())
            documents = [_document(each) for each in connections]
            assert {document["base_offset"] for document in documents} == {2 * place}
            assert sum(not document["duplicate"] for document in documents) == 1


def test_keys_of_requests_that_wait_together_are_told_apart(tmp_path: Path) -> None:
    """Each of a turn has a key or a producer of its own, or one that another of the turn has with other records."""
    with running_pair(tmp_path) as pair, contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(pair.fast_path)) for _ in range(8)]
        appended = 0
        for place in range(40):
            for number, each in enumerate(connections):
                body = batch_of(f"{number}")
                if number == 7:
                    body = batch_of("7", producer_id=50, producer_epoch=0, base_sequence=place)
                headers = () if number == 7 else key(f"key-{place}-{max(number, 3)}")
                each.send(Case("one", None, "group", body=body, headers=headers).encode())
            answers = [each.read_answer() for each in connections]
            refused = [answer for answer in answers if answer.status != 200]
            assert [json.loads(answer.body)["code"] for answer in refused] == ["idempotency_key_reused"] * 3
            appended += len(answers) - len(refused)
            assert json.loads(answers[7].body)["duplicate"] is False
        with http_client(pair.fast_path.url) as client:
            offsets = client.get("/v1/topics/group/partitions/0").json()
        assert offsets["log_end_offset"] == appended == 40 * 5


def _document(connection: Connection) -> dict[str, object]:
    answer = connection.read_answer()
    assert answer.status == 200, answer.body
    document: dict[str, object] = json.loads(answer.body)
    assert answer.headers.get("idempotent-replayed") == ("true" if document["duplicate"] else None)
    return document


def test_a_key_is_known_after_a_restart(tmp_path: Path) -> None:
    request = Case("key", None, headers=key("k")).encode()
    for is_first in (True, False):
        with ThreadedServer(tmp_path / "data", clock=ManualClock()) as server:
            with http_client(server.url) as client:
                config = {"flush.policy": "interval"}
                client.put("/v1/topics/t", json={"partitions": 1, "config": config}).raise_for_status()
            with connect(server) as connection:
                for place in range(4):
                    connection.send(request)
                    assert _document(connection)["duplicate"] is not (is_first and place == 0)
                    connection.send(Case("next", None, headers=key(f"{is_first} {place}".replace(" ", "-"))).encode())
                    assert _document(connection)["duplicate"] is False


@pytest.mark.skipif(compiled_handlers is None or not HAS_PARSER, reason="not compiled here")
def test_fresh_keys_and_next_sequences_need_no_handler_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_pair(tmp_path) as pair, connect(pair.fast_path) as connection:
        requests = [
            Case("x", True, headers=key(f"k{place}")).encode()
            + Case("x", True, body=batch_of("v", producer_id=9, producer_epoch=0, base_sequence=place)).encode()
            for place in range(20)
        ]
        for place, request in enumerate(requests):
            if place == 3:
                # Routes and handlers are known by now.
                monkeypatch.setattr("app.fast_path.dispatcher.FastPath.serve", None)
            connection.send(request)
            for _ in range(2):
                assert _document(connection)["duplicate"] is False
