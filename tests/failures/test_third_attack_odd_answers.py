"""Answers whose members are not the service's, and refusals too deep to read: a sentence, no traceback."""

from __future__ import annotations

import httpx
import pytest

from app.cli import run
from app.cli.http_session import problem_error
from tests.failures.test_second_attack_command_line import answering

CASES = [
    ('{"data": [null], "next_cursor": null}', ["topics", "list"]),
    ('{"data": 3, "next_cursor": null}', ["topics", "list"]),
    ('{"data": {"a": 1}, "next_cursor": null}', ["jobs", "list"]),
    ('{"data": ["x"], "next_cursor": null}', ["transactions", "list"]),
    ('{"data": [], "next_cursor": [1]}', ["transactions", "list"]),
    ('{"partitions": [{"partition": "x"}], "topic_id": "x"}', ["offsets", "t"]),
    ('{"partitions": [{"partition": null}], "topic_id": "x"}', ["tail", "t"]),
    ('{"partitions": [3], "topic_id": "x"}', ["offsets", "t"]),
    ('{"positions": {"t": {"x": 1}}, "group_id": "g"}', ["positions", "show", "g"]),
    ('{"positions": {"t": 3}, "group_id": "g"}', ["positions", "show", "g"]),
    ('{"positions": [1], "group_id": "g"}', ["positions", "show", "g"]),
]


@pytest.mark.parametrize(("body", "command"), CASES)
def test_members_of_another_kind_are_one_sentence(
    body: str, command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    with answering("application/json", body.encode()) as address:
        assert run([*command, "--server", address]) == 1
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "Rollway service" in shown.err
    assert len(shown.err.splitlines()) == 1, shown.err


@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"a":' * 200_000])
def test_a_refusal_that_is_nested_too_deeply_is_one(body: bytes) -> None:
    assert str(problem_error(httpx.Response(500, content=body))) == "The service answered 500 Internal Server Error."
