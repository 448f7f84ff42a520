"""Long answers without records lie in memory, too, while a client does not take them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from app.problems import kinds
from app.problems.problem import Problem
from tests.support.edge_server import Connection
from tests.support.servers import ThreadedServer, http_client

LIMIT_BYTES = 1024 * 1024
TIMEOUT_SECONDS = 30
SMALL_BUFFER_BYTES = 4096
LONG = "/openapi.json"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline


def test_answers_that_nobody_takes_are_counted_and_refused(tmp_path: Path) -> None:
    """4 MB for each client that asked for offsets of topics that are not there, with 3,489 bytes, and 0.6 MB for each
    that asked for the partitions of a topic: no limit counted them."""
    with (
        ThreadedServer(
            tmp_path, decoded_answers_bytes_max=LIMIT_BYTES, tcp_unsent_bytes_max=SMALL_BUFFER_BYTES
        ) as server,
        http_client(server.url) as client,
    ):
        budget = server.service.parts.answer_budget
        size_bytes = len(client.get(LONG).content)
        assert size_bytes > 65536
        with contextlib.ExitStack() as stack:
            # What goes into the kernel is not the service's: so each asks again and again.
            for _ in range(2 * LIMIT_BYTES // size_bytes + 1):
                reader = stack.enter_context(Connection(server.port, receive_buffer_bytes=SMALL_BUFFER_BYTES))
                reader.send(f"GET {LONG} HTTP/1.1\r\nHost: a\r\n\r\n".encode() * 30)
            wait_for(lambda: budget.held_bytes + size_bytes > 2 * LIMIT_BYTES)
            assert budget.held_bytes <= 2 * LIMIT_BYTES
            refused = client.get(LONG)
            assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
            assert refused.json()["retryable"] is True
            assert client.head(LONG).status_code == 503
            # What became of a request that may have changed something is told.
            parts = [{"topic": "none", "partition": 0, "records": [{"value": "a"}]}] * 200
            told = client.post("/v1/produce", json={"partitions": parts})
            assert (told.status_code, len(told.json()["results"])) == (404, 200)
            assert len(told.content) > 65536
            assert client.get("/v1/topics").status_code == 200
        wait_for(lambda: budget.held_bytes == 0)
        assert client.get(LONG).status_code == 200


@pytest.mark.parametrize(("detail", "shown"), [("é\u2028\x1f'\"", "é\u2028\x1f'\""), ("\ud800", "?")])
def test_a_problem_with_many_results_says_what_it_said(detail: str, shown: str) -> None:
    """They are written ten times as quickly: 10,000 took 70 ms of the loop."""
    entry = Problem(kinds.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic").document("/v1/offsets")
    many = Problem(kinds.UNKNOWN_TOPIC_OR_PARTITION, detail, results=[entry] * 3)
    assert httpx.Response(404, content=many.body("/é")).json() == {**many.document("/é"), "detail": shown}
