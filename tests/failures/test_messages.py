"""Messages name the way out: what to send, set or type instead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli import run
from tests.support.servers import ThreadedServer

LIBRARY = Path(__file__).parents[2] / "client/src"
NDJSON = {"Content-Type": "application/x-ndjson"}


@pytest.mark.parametrize("value", [{"a": 1}, {}, 21.5, 7, True, [1]], ids=json.dumps)
@pytest.mark.parametrize("part", ["value", "key"])
def test_json_as_a_value_names_the_encoding(client: httpx.Client, topic: str, part: str, value: Any) -> None:
    """The first mistake everybody makes; what the message says then works."""
    record = {"value": "x", part: value}
    name = topic.rpartition("/")[2]
    requests: list[tuple[str, dict[str, Any]]] = [
        (f"{topic}/partitions/0/records", {"json": {"records": [record]}}),
        (f"{topic}/partitions/0/records", {"content": json.dumps(record).encode() + b"\n", "headers": NDJSON}),
        (f"{topic}/records", {"json": {"records": [record]}}),
        ("/v1/produce", {"json": {"partitions": [{"topic": name, "partition": 0, "records": [record]}]}}),
    ]
    for path, request in requests:
        refused = client.post(path, **request)
        assert "add encoding=json to the query, or send it as a string" in refused.text, path
        assert f"is the {part} JSON?" in refused.text
        answer = client.post(path, params={"encoding": "json"}, **request)
        assert answer.status_code == 200, answer.text
        assert "error" not in answer.text


def test_a_header_is_text_and_the_message_does_not_promise_otherwise(client: httpx.Client, topic: str) -> None:
    record = {"value": "x", "headers": [{"name": "h", "value": {"a": 1}}]}
    refused = client.post(f"{topic}/partitions/0/records", json={"records": [record]})
    assert "a header is text: write JSON as a string" in refused.json()["detail"]
    assert "encoding" not in refused.json()["detail"]


def test_post_where_put_creates_says_where(client: httpx.Client) -> None:
    refused = client.post("/v1/topics", json={"name": "orders"})
    assert refused.status_code == 405
    assert refused.json()["detail"] == "POST is not possible here; to create one: PUT /v1/topics/{topic}"
    # Nothing of the kind where nothing is created.
    assert client.post("/healthz").json()["detail"] == "POST is not possible here"
    assert client.put("/v1/topics").json()["detail"] == "PUT is not possible here"


def test_a_topic_that_does_not_exist_comes_with_the_command_that_makes_it(
    server: ThreadedServer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLWAY_SERVER", server.url)
    for command in (["topics", "describe", "nope"], ["fetch", "nope", "-p", "0"], ["tail", "nope"]):
        assert run(command) == 1
        assert capfd.readouterr().err == (
            "rollway: there is no topic 'nope'; create it with `rollway topics create nope`.\n"
        )


def test_without_a_key_the_command_line_says_where_one_goes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROLLWAY_API_KEY", raising=False)
    with ThreadedServer(tmp_path / "data", authentication=True) as server:
        assert run(["topics", "list", "--server", server.url]) == 1
        assert capfd.readouterr().err == (
            "rollway: say who you are: set ROLLWAY_API_KEY, or give --api-key, to an API key, a token or a JWT.\n"
        )
        detail = httpx.get(f"{server.url}/v1/topics").json()["detail"]
        assert detail == "say who you are: Authorization: Bearer with an API key, a token or a JWT"


def test_the_end_of_the_log_has_its_name(client: httpx.Client, topic: str) -> None:
    client.post(f"{topic}/partitions/0/records", json={"records": [{"value": "x"}]})
    refused = client.get(f"{topic}/partitions/0/records", params={"offset": 9})
    assert (refused.status_code, refused.json()["detail"]) == (416, "offset 9 is beyond the log end offset 1")


def test_problem_documents_are_as_compact_as_all_other_json(client: httpx.Client, topic: str) -> None:
    for answer in (
        client.get("/nowhere"),
        client.get("/v1/topics?limit=0"),
        client.get(f"{topic}/partitions/9/records"),
    ):
        document = answer.json()
        assert answer.text == json.dumps(document, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("missing", ["pyspark", "typer", "py4j"])
def test_rollway_spark_without_spark_says_what_to_install(tmp_path: Path, missing: str) -> None:
    """In an environment with the service alone, whose wheels install this command too."""
    program = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {missing!r}:\n"
        f"            raise ModuleNotFoundError('No module named {missing}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "sys.path.insert(0, sys.argv.pop(1))\n"
        "from rollway.spark.command import main\n"
        "main()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, LIBRARY, "--help"],
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": str(tmp_path)},
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"rollway-spark: {missing} is not installed here: pip install 'rollway[spark]'\n"
