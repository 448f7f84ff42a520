"""The command line against a real service."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli import run
from demo.service import Service, rollway_command
from rollway.records import decode_batch, partition_for_key, split_batches

Rollway = Callable[..., str]
_numbers = count()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running = Service.start(tmp_path_factory.mktemp("cli"))
    yield running
    assert running.stop() == 0


@pytest.fixture
def rollway(service: Service, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Rollway:
    """Runs a command in this process; returns its stdout after checking status and stderr."""
    monkeypatch.setenv("ROLLWAY_SERVER", service.url)

    def call(*arguments: str | Path, status: int = 0, error: str = "") -> str:
        capfd.readouterr()
        ended = run([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        assert (ended, captured.err.count("\n")) == (status, 1 if error else 0), captured.err
        assert error in captured.err
        return captured.out

    return call


@pytest.fixture
def topic(rollway: Rollway) -> str:
    """A new topic with one partition."""
    name = f"orders-{next(_numbers)}"
    rollway("topics", "create", name)
    return name


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def write_lines(path: Path, values: list[str]) -> Path:
    path.write_text("".join(f"{value}\n" for value in values))
    return path


def test_the_engine_and_its_capabilities(rollway: Rollway) -> None:
    first, *table = rollway("engine").splitlines()
    document = json.loads(rollway("engine", "--json"))
    assert first == f"Engine local, version {document['version']}."
    assert [row.split() for row in table] == [
        ["CAPABILITY", "AVAILABLE"],
        *([name, "yes"] for name in document["capabilities"]),
    ]
    assert document["capabilities"]["segments"] is True


def test_create_says_what_it_did(rollway: Rollway) -> None:
    name = f"created-{next(_numbers)}"
    arguments = ["topics", "create", name, "--partitions", "3", "--config", "retention.ms=-1"]
    assert rollway(*arguments) == f"Created topic {name} with 3 partitions.\n"
    assert "already exists" in rollway(*arguments)
    assert json.loads(rollway(*arguments, "--json"))["created"] is False
    rollway("topics", "create", name, "--partitions", "4", status=1, error=name)


def test_a_setting_that_does_not_exist_is_refused_with_its_name(rollway: Rollway) -> None:
    rollway("topics", "create", "refused", "--config", "no.such.setting=1", status=1, error="no.such.setting")


@pytest.mark.parametrize("name", ["a/b", "..", "a b", "ü", "x" * 250])
def test_an_impossible_topic_name_is_refused(rollway: Rollway, name: str) -> None:
    rollway("topics", "create", name, status=2, error="names no topic")


def test_list_pages_and_prefix(rollway: Rollway, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = f"page-{next(_numbers)}-"
    names = [f"{prefix}{letter}" for letter in "abcde"]
    for name in names:
        rollway("topics", "create", name)
    monkeypatch.setattr("app.cli.http_session.PAGE_LIMIT", 2)
    listed = json.loads(rollway("topics", "list", "--prefix", prefix, "--json"))["topics"]
    assert [entry["name"] for entry in listed] == names
    table = rollway("topics", "list", "--prefix", prefix).splitlines()
    assert [row.split()[0] for row in table] == ["TOPIC", *names]
    assert rollway("topics", "list", "--prefix", "none-such") == "No topic begins with none-such.\n"


def test_describe_and_alter(rollway: Rollway, topic: str) -> None:
    rollway("topics", "alter", topic, "--config", "retention.bytes=1000", "--partitions", "2")
    described = rollway("topics", "describe", topic)
    assert "2 partitions" in described
    assert ["retention.bytes", "1000", "topic"] in [row.split() for row in described.splitlines()]
    assert "segment.bytes" not in described
    assert "segment.bytes" in rollway("topics", "describe", topic, "--all")
    rollway("topics", "alter", topic, "--unset", "retention.bytes")
    document = json.loads(rollway("topics", "describe", topic, "--json"))
    assert document["config"]["retention.bytes"] == {"value": -1, "source": "default"}
    assert len(document["partitions"]) == 2


def test_delete(rollway: Rollway, topic: str) -> None:
    assert rollway("topics", "delete", topic, "--yes") == f"Deleted topic {topic}.\n"
    rollway("topics", "describe", topic, status=1, error=topic)


def output_of(service: Service, *arguments: str) -> bytes:
    """What a command writes to its stdout, byte for byte."""
    command = [*rollway_command(), *arguments, "--server", service.url]
    return subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=True).stdout


def test_lines_in_and_out_byte_for_byte(service: Service, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    content = b"plain\n\ncaf\xc3\xa9\nnot utf-8 \xff\xfe\r\nlast without end"
    path.write_bytes(content)
    assert output_of(service, "produce", topic, str(path)).startswith(b"Produced 5 records")
    assert output_of(service, "fetch", topic, "--format", "value") == content + b"\n"


def test_ndjson_with_paths(rollway: Rollway, tmp_path: Path) -> None:
    name = f"keyed-{next(_numbers)}"
    rollway("topics", "create", name, "--partitions", "4", "--config", "retention.ms=-1")
    rows = [
        {"carrier": carrier, "at": 1372910400000 + number, "meta": {"n": str(number)}}
        for number, carrier in enumerate(["AA", "UA", "B6", "AA", "WN", "AA"])
    ]
    path = write_lines(tmp_path / "rows", [json.dumps(row) for row in rows])
    answer = json.loads(
        rollway("produce", name, path, "--key", "$.carrier", "--timestamp", "$.at", "--headers", "$.meta", "--json")
    )
    assert (answer["record_count"], answer["first_unacknowledged_line"]) == (6, None)
    stored = lines(rollway("fetch", name))
    assert len(stored) == 6
    for record in stored:
        row = json.loads(record["value"])
        assert record["key"] == row["carrier"]
        assert record["timestamp"] == row["at"]
        assert record["headers"] == [{"name": "n", "value": row["meta"]["n"]}]
        assert record["partition"] == partition_for_key(row["carrier"].encode(), 4)
    assert [json.loads(record["value"])["at"] for record in stored if record["key"] == "AA"] == [
        row["at"] for row in rows if row["carrier"] == "AA"
    ]


def test_fetched_records_can_be_produced_again(rollway: Rollway, topic: str, tmp_path: Path) -> None:
    records = [
        {"key": "k", "value": "v", "timestamp": 5, "headers": [{"name": "h", "value_base64": "/w=="}]},
        {"key": None, "value_base64": "/w==", "timestamp": 6, "headers": []},
        {"key": "gone", "value": None, "timestamp": 7, "headers": []},
    ]
    path = write_lines(tmp_path / "records", [json.dumps(record) for record in records])
    rollway("topics", "alter", topic, "--config", "retention.ms=-1")
    rollway("produce", topic, path, "--format", "records")
    copy = write_lines(tmp_path / "copy", rollway("fetch", topic).splitlines())
    rollway("produce", topic, copy, "--format", "records")
    stored = lines(rollway("fetch", topic))
    assert len(stored) == 6
    for first, again in zip(stored[:3], stored[3:], strict=True):
        assert {**first, "offset": 0} == {**again, "offset": 0}
    own = {"offset", "timestamp_type", "partition"}
    assert [{name: part for name, part in record.items() if name not in own} for record in stored[:3]] == records


def test_a_bad_line_stops_and_says_how_to_go_on(rollway: Rollway, topic: str, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows", ['{"id": 1}', '{"id": 2}', "oops", '{"id": 4}'])
    rollway("produce", topic, path, "--key", "$.id", status=1, error="Line 3: it is not JSON")
    assert len(lines(rollway("fetch", topic))) == 2
    write_lines(path, ['{"id": 1}', '{"id": 2}', '{"id": 3}', '{"id": 4}'])
    rollway("produce", topic, path, "--key", "$.id", "--skip", "2")
    assert [json.loads(record["value"])["id"] for record in lines(rollway("fetch", topic))] == [1, 2, 3, 4]


def test_a_record_the_service_refuses_is_named_by_its_line(rollway: Rollway, topic: str, tmp_path: Path) -> None:
    rollway("topics", "alter", topic, "--config", "max.message.bytes=200")
    path = write_lines(tmp_path / "lines", ["x" * 1000])
    rollway("produce", topic, path, status=1, error="not acknowledged is line 1;")
    assert rollway("fetch", topic) == ""


def test_requests_fit_into_the_topics_segments(rollway: Rollway, tmp_path: Path) -> None:
    cases = [(100_000, 1_048_588, 500, 1500), (20_000, 200, 3, 1500), (1_000, 1_000_000, 700, 300)]
    for segment_bytes, batch_bytes, length, line_count in cases:
        name = f"small-{segment_bytes}"
        config = [f"--config=segment.bytes={segment_bytes}", f"--config=max.message.bytes={batch_bytes}"]
        rollway("topics", "create", name, *config)
        rollway("produce", name, write_lines(tmp_path / "lines", ["x" * length] * line_count))
        assert len(lines(rollway("fetch", name))) == line_count


def test_produce_to_a_partition_that_does_not_exist(rollway: Rollway, topic: str, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "lines", ["x"])
    rollway("produce", topic, path, "-p", "5", status=1, error="has no partition 5")
    rollway("produce", topic, tmp_path / "missing", status=1, error="cannot be read")
    rollway("produce", "no-such-topic", path, status=1, error="no-such-topic")


def test_many_records_in_many_requests(
    rollway: Rollway, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.cli.records.produce.REQUEST_BYTES", 5_000)
    values = [f"value {number}" for number in range(2_000)]
    rollway("produce", topic, write_lines(tmp_path / "lines", values))
    monkeypatch.setattr("app.cli.records.fetch.FETCH_BYTES", 3_000)
    assert rollway("fetch", topic, "--format", "value").splitlines() == values
    assert rollway("fetch", topic, "-o", "990", "--end", "1003", "-f", "value").splitlines() == values[990:1003]
    assert rollway("fetch", topic, "-o", "1500", "-n", "7", "-f", "value").splitlines() == values[1500:1507]
    assert rollway("fetch", topic, "--tail", "3", "-f", "value").splitlines() == values[-3:]
    assert rollway("fetch", topic, "-o", "latest") == ""


def test_fetch_by_time(rollway: Rollway, topic: str, tmp_path: Path) -> None:
    rollway("topics", "alter", topic, "--config", "retention.ms=-1")
    rows = [json.dumps({"value": str(time), "timestamp": time}) for time in (1000, 3000, 2000, 5000)]
    rollway("produce", topic, write_lines(tmp_path / "records", rows), "--format", "records")
    assert rollway("fetch", topic, "-t", "1970-01-01T00:00:01.5Z", "-f", "value").split() == ["3000", "2000", "5000"]
    assert rollway("fetch", topic, "--until", "5000", "-f", "value").split() == ["1000", "3000", "2000"]


def test_offsets(rollway: Rollway, topic: str, tmp_path: Path) -> None:
    rollway("topics", "alter", topic, "--config", "retention.ms=-1")
    rows = [json.dumps({"value": "x", "timestamp": time}) for time in (1000, 3000, 2000)]
    rollway("produce", topic, write_lines(tmp_path / "records", rows), "--format", "records")
    results = json.loads(rollway("offsets", topic, "--json"))["results"]
    assert [(each["asked_for"], each["offset"]) for each in results] == [
        ("earliest", 0),
        ("latest", 3),
        ("max_timestamp", 1),
    ]
    results = json.loads(rollway("offsets", topic, "-t", "1001", "-t", "9999", "--json"))["results"]
    assert [(each["offset"], each["timestamp"]) for each in results] == [(1, 3000), (None, None)]
    assert "1970-01-01T00:00:03.000Z" in rollway("offsets", topic, "-t", "1001")


def test_raw_fetch_is_record_batches(service: Service, rollway: Rollway, topic: str, tmp_path: Path) -> None:
    rollway("produce", topic, write_lines(tmp_path / "lines", ["a", "b", "c"]))
    raw = output_of(service, "fetch", topic, "--format", "raw")
    values = [value for batch in split_batches(raw) for value in decode_batch(batch).values.to_list()]
    assert values == [b"a", b"b", b"c"]


def test_retention_plan_and_run(rollway: Rollway, tmp_path: Path) -> None:
    name = f"retained-{next(_numbers)}"
    rollway("topics", "create", name, "-c", "segment.bytes=2000", "-c", "retention.ms=-1")
    for number in range(5):
        rollway("produce", name, write_lines(tmp_path / "lines", [f"{number} " + "x" * 900]))
    assert rollway("retention", "run", name) == f"Nothing of {name} is due for deletion.\n"
    rollway("topics", "alter", name, "-c", "retention.bytes=2500")
    planned = [
        segment["base_offset"]
        for segment in json.loads(rollway("retention", "plan", name, "--json"))["partitions"][0]["segments"]
        if segment["deleted"]
    ]
    assert planned == [0]
    assert "retention.bytes" in rollway("retention", "plan", name)
    assert "Deleted 1 segment" in rollway("retention", "run", name)
    rollway("fetch", name, "-o", "0", status=1, error="0")


def test_tail_follows_until_it_has_enough(service: Service, rollway: Rollway, topic: str, tmp_path: Path) -> None:
    rollway("produce", topic, write_lines(tmp_path / "lines", ["before"]))
    follower = subprocess.Popen(
        [*rollway_command(), "tail", topic, "--tail", "1", "-n", "3", "--format", "value"],
        stdout=subprocess.PIPE,
        env={**os.environ, "ROLLWAY_SERVER": service.url},
    )
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"before\n"
    rollway("produce", topic, write_lines(tmp_path / "lines", ["one", "two"]))
    assert follower.stdout.read() == b"one\ntwo\n"
    follower.stdout.close()
    assert follower.wait() == 0


def test_tail_of_many_partitions_ends_quietly_with_ctrl_c(service: Service, rollway: Rollway, tmp_path: Path) -> None:
    name = f"followed-{next(_numbers)}"
    rollway("topics", "create", name, "--partitions", "3")
    follower = subprocess.Popen(
        [*rollway_command(), "tail", name, "--offset", "earliest", "--format", "value"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "ROLLWAY_SERVER": service.url},
    )
    assert follower.stdout is not None
    assert follower.stderr is not None
    for number in range(3):
        rollway("produce", name, write_lines(tmp_path / "lines", [f"to {number}"]), "-p", str(number))
    assert {follower.stdout.readline() for _ in range(3)} == {b"to 0\n", b"to 1\n", b"to 2\n"}
    follower.send_signal(signal.SIGINT)
    assert follower.wait(60) == 130
    assert follower.stderr.read() == b""
    follower.stdout.close()
    follower.stderr.close()


def test_standard_input_is_sent_when_nothing_more_comes(service: Service, topic: str, rollway: Rollway) -> None:
    """As in ``tail -F app.log | rollway produce logs``: a line is in the log long before the input ends."""
    producer = subprocess.Popen(
        [*rollway_command(), "produce", topic, "--linger-ms", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "ROLLWAY_SERVER": service.url},
    )
    assert producer.stdin is not None
    assert producer.stdout is not None
    producer.stdin.write(b"first\n")
    producer.stdin.flush()
    followed = subprocess.run(
        [*rollway_command(), "tail", topic, "-o", "earliest", "-n", "1", "-f", "value", "--server", service.url],
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
    )
    assert followed.stdout == b"first\n"
    producer.stdin.close()
    assert producer.stdout.read().startswith(b"Produced 1 record ")
    producer.stdout.close()
    assert producer.wait() == 0


def test_a_second_service_on_the_same_directory_is_refused(service: Service, rollway: Rollway) -> None:
    """Architecture: a second process on the same directory exits with a clear message and status 2."""
    (partition,) = json.loads(rollway("topics", "describe", _any_topic(rollway), "--json"))["partitions"]
    assert partition["partition"] == 0
    done = subprocess.run(
        [*rollway_command(), "serve", "--data-dir", str(service.data_dir), "--port", "0"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert str(service.data_dir).encode() in done.stderr
    assert b"Traceback" not in done.stderr


def _any_topic(rollway: Rollway) -> str:
    name = f"any-{next(_numbers)}"
    rollway("topics", "create", name)
    return name


def test_a_live_directory_verifies(service: Service, rollway: Rollway, topic: str, tmp_path: Path) -> None:
    rollway("produce", topic, write_lines(tmp_path / "lines", [str(number) for number in range(500)]))
    document = json.loads(rollway("log", "verify", service.data_dir, "--topic", topic, "--json"))
    assert (document["clean"], document["live"]) == (True, True), document["findings"]
    assert document["partitions"][0]["record_count"] == 500


def test_the_progress_bar_is_on_a_terminal_and_nowhere_else(rollway: Rollway, topic: str, tmp_path: Path) -> None:
    """Through a pipe stderr stays empty; on a terminal it shows records, bytes and rate."""
    import pty

    path = write_lines(tmp_path / "lines", [f"value {number}" for number in range(20_000)])
    rollway("produce", topic, path)
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*rollway_command(), "produce", topic, str(path)],
        stdout=subprocess.DEVNULL,
        stderr=child,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "160"},
    )
    os.close(child)
    shown = b""
    try:
        while piece := os.read(parent, 65536):
            shown += piece
    except OSError:
        pass  # a pseudo-terminal ends so on Linux
    finally:
        os.close(parent)
    assert process.wait() == 0
    assert b"records" in shown
    assert b"/s" in shown


def test_errors_are_on_stderr_when_the_command_runs_on_its_own(service: Service) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from app.cli import main; main()", "topics", "describe", "nowhere"],
        capture_output=True,
        env={**os.environ, "ROLLWAY_SERVER": service.url},
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == b""
    assert done.stderr.startswith(b"rollway: ")
    assert done.stderr.count(b"\n") == 1


def test_transactions_are_listed_described_and_aborted(rollway: Rollway, service: Service, topic: str) -> None:
    with httpx.Client(base_url=service.url) as client:
        producer = client.post("/v1/producers", json={"transactional_id": "cli loader"}).json()
        headers = {
            "Transactional-Id": "cli loader",
            "Producer-Id": str(producer["producer_id"]),
            "Producer-Epoch": "0",
            "Base-Sequence": "0",
        }
        path = f"/v1/topics/{topic}/partitions/0/records"
        assert client.post(path, json={"records": [{"value": "a"}]}, headers=headers).status_code == 200
    assert "cli loader" in rollway("transactions", "list")
    assert json.loads(rollway("transactions", "list", "--json"))["transactions"][0]["state"] == "ongoing"
    assert topic in rollway("transactions", "describe", "cli loader")
    assert rollway("transactions", "abort", "cli loader") == "The transaction of cli loader is aborted.\n"
    assert rollway("transactions", "list") == "No transaction is open.\n"
    # A producer between two transactions is left alone.
    epoch = json.loads(rollway("transactions", "describe", "cli loader", "--json"))["producer_epoch"]
    rollway("transactions", "abort", "cli loader", status=1, error="no open transaction: it is complete_abort")
    assert json.loads(rollway("transactions", "describe", "cli loader", "--json"))["producer_epoch"] == epoch
    rollway("transactions", "describe", "nobody", status=1, error="nobody")
    rollway("transactions", "list", "--state", "no-such", status=1, error="state")


def test_start_positions_are_shown_and_forgotten(rollway: Rollway, service: Service, topic: str) -> None:
    httpx.post(f"{service.url}/v1/groups/a group/start-positions", json={"positions": {topic: {"0": 123}}})
    assert re.search(rf"{topic} +0 +123\n", rollway("positions", "show", "a group"))
    assert json.loads(rollway("positions", "show", "a group", "--json"))["positions"] == {topic: {"0": 123}}
    forgot = "Forgot 0 start positions of group a group.\n"
    assert rollway("positions", "delete", "a group", "--topic", "nowhere") == forgot
    assert rollway("positions", "delete", "a group") == "Forgot 1 start position of group a group.\n"
    assert rollway("positions", "show", "a group") == "Nothing is pinned for group a group.\n"
    rollway("positions", "show", "a/group", status=1, error="there is nothing")


def test_with_json_errors_are_json_too(service: Service) -> None:
    for arguments, status, code in (
        (["topics", "describe", "nowhere", "--json"], 1, "unknown_topic_or_partition"),
        (["topics", "describe", "--json"], 2, None),
        (["topics", "list", "--json", "--server", "http://127.0.0.1:1"], 1, None),
    ):
        done = subprocess.run(
            [sys.executable, "-c", "from app.cli import main; main()", *arguments],
            capture_output=True,
            env={**os.environ, "ROLLWAY_SERVER": service.url},
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (status, b"", 1)
        failure = json.loads(done.stderr)
        assert failure["exit_status"] == status
        assert failure["error"].endswith(".")
        problem = failure["problem"]
        assert (problem and problem["code"]) == code
