"""Log lines of a real service: in text and in JSON, each naming the request that caused it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.servers import ServerProcess

pytestmark = pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")

ACCESS = {"ROLLWAY_ACCESS_LOG": "true"}


def json_lines(server: ServerProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in server.errors().splitlines()]


def test_json_logs_name_request_and_principal(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--log-format", "json", environment=ACCESS) as server:
        answer = httpx.get(f"{server.url}/v1/topics/nothing")
        own = httpx.get(f"{server.url}/v1/topics", headers={"X-Request-Id": "order-7/a"})
        number = answer.headers["X-Request-Id"]
        assert re.fullmatch("[0-9a-f]{16}", number)
        assert own.headers["X-Request-Id"] == "order-7/a"
        server.stop()
        lines = {line["request_id"]: line for line in json_lines(server) if "request_id" in line}
        line = lines[number]
        assert (line["method"], line["path"], line["status"]) == ("GET", "/v1/topics/nothing", 404)
        assert line["logger"] == "uvicorn.access"
        assert line["level"] == "info"
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
        assert lines["order-7/a"]["status"] == 200


@pytest.mark.parametrize("number", ["", "two words", "x" * 129, "caf\u00e9"])
def test_a_request_id_that_could_disturb_a_log_is_replaced(tmp_path: Path, number: str) -> None:
    with ServerProcess(tmp_path / "data") as server:
        answer = httpx.get(f"{server.url}/healthz", headers={"X-Request-Id": number.encode()})
        assert re.fullmatch("[0-9a-f]{16}", answer.headers["X-Request-Id"])


def test_no_request_can_forge_a_line(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", environment=ACCESS) as server:
        httpx.get(f"{server.url}/v1/topics/a%0aforged%20line")
        httpx.post(f"{server.url}/v1/topics/a/partitions/0/records", content=b"\nforged line\n")
        server.stop()
        lines = server.errors().splitlines()
        assert len(lines) == 2
        for line in lines:
            assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO uvicorn.access: ", line)
            assert re.search(r" \[[0-9a-f]{16}\w*( \w+)?\]$", line)
