"""A wall clock that is set back in the midst of a request: what the request's records are given, is taken."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from app.engine_local.engine import LocalEngine

YEAR_MS = 366 * 86_400_000
LINES = {"Content-Type": "application/x-ndjson"}
KEY = {"Idempotency-Key": "set-back"}
RECORD = {"value": {"a": 1}}
DOCUMENT = json.dumps({"records": [RECORD, {"key": 7, "value": 2}]}).encode()
LINE = json.dumps(RECORD).encode() + b"\n"


def parts(topic: str) -> bytes:
    return json.dumps({"partitions": [{"topic": topic, "partition": 0, "records": [RECORD]}]}).encode()


@pytest.fixture
def _set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first reading is a year ahead, and all later ones are right."""
    now_ms = LocalEngine.now_ms
    ahead = [YEAR_MS]
    monkeypatch.setattr(LocalEngine, "now_ms", lambda engine: now_ms(engine) + (ahead.pop() if ahead else 0))


@pytest.mark.usefixtures("_set_back")
@pytest.mark.parametrize(
    ("path", "headers", "content"),
    [
        ("{topic}/partitions/0/records", {}, DOCUMENT),
        ("{topic}/partitions/0/records", KEY, DOCUMENT),
        ("{topic}/partitions/0/records", LINES, LINE),
        ("{topic}/records", {}, DOCUMENT),
        ("{topic}/records", KEY, DOCUMENT),
        ("{topic}/records", LINES, LINE),
        ("/v1/produce", {}, None),
        ("/v1/produce", KEY, None),
    ],
)
def test_a_clock_that_is_set_back_refuses_no_record(
    client: httpx.Client, topic: str, path: str, headers: dict[str, str], content: bytes | None
) -> None:
    """Records without a time were stamped by one reading of the clock and judged by a later one: 400
    ``invalid_timestamp``, seen in a history with steps of the clock."""
    body = parts(topic.rsplit("/", 1)[1]) if content is None else content
    media_type = {"Content-Type": "application/json"}
    answer = client.post(
        path.format(topic=topic), params={"encoding": "json"}, headers={**media_type, **headers}, content=body
    )
    assert answer.status_code == 200, answer.text
    results: Any = [json.loads(line) for line in answer.text.splitlines()]
    assert "invalid_timestamp" not in answer.text, results
