"""The benchmark of peers runs with whatever peer is installed here, and says which are not. No figure is judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.peers import kafka, nats, packages, redis, report
from bench.peers.peer import CannotRunError, PeerRow, messages
from bench.peers.rollway import encoded_batch
from bench.peers.sockets import is_whole_http
from rollway.records import decode_batch, split_batches

ROOT = Path(__file__).resolve().parents[2]


def run_peers(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command with an empty cache, so that nothing is downloaded and only what the system has is found."""
    data = tmp_path / "data"
    data.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "bench.peers", "--data-dir", str(data), "--cache", str(tmp_path / "cache"), *arguments],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
        env=os.environ,
    )


def test_peers_that_are_not_there_are_named_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    answer = run_peers(tmp_path, "--smoke", "--json", str(path))
    assert answer.returncode == 0, answer.stderr
    rows = [PeerRow.from_json(row) for row in json.loads(path.read_text())["rows"]]
    assert {row.peer for row in rows} >= {
        "Rollway", "Apache Kafka", "NATS JetStream", "Redis Streams", "Strimzi HTTP bridge", "s2-lite",
    }  # fmt: skip
    for row in rows:
        assert (row.messages_per_second is None) == bool(row.reason)
    ours = [(row.operation, row.message_bytes, row.way, row.durability) for row in rows if row.peer == "Rollway"]
    assert len(ours) == len(set(ours)) == 10
    assert "s2-lite could not be run: s2-lite is not built, and nothing is to be downloaded." in answer.stdout
    assert not any((tmp_path / "data").iterdir())


def test_an_unknown_peer_is_one_sentence(tmp_path: Path) -> None:
    answer = run_peers(tmp_path, "--only", "nothing")
    assert answer.returncode == 1
    assert answer.stderr.startswith("bench-peers: There is no peer nothing; there are rollway, ")


def test_rows_of_an_earlier_run_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    other = PeerRow("Another", operation="append", way="by hand", message_bytes=100, messages_per_second=1.0)
    path.write_text(json.dumps({"rows": [other.__dict__]}))
    assert run_peers(tmp_path, "--smoke", "--only", "s2", "--json", str(path)).returncode == 0
    assert [row["peer"] for row in json.loads(path.read_text())["rows"]] == ["s2-lite", "Another"]


def test_everybody_gets_the_same_messages() -> None:
    wanted = messages(100)
    assert wanted == messages(100)
    assert {len(message) for message in wanted} == {100}
    (batch,) = split_batches(encoded_batch(100))
    assert decode_batch(batch).values.to_list() == wanted


def test_comparisons_are_with_the_best_of_the_same_durability() -> None:
    rows = [
        PeerRow("Rollway", operation="append", way="raw batch over HTTP", message_bytes=100, messages_per_second=800.0),
        PeerRow("A", operation="append", way="x", message_bytes=100, messages_per_second=100.0, is_http=True),
        PeerRow("B", operation="append", way="y", message_bytes=100, messages_per_second=400.0),
        PeerRow("C", operation="append", way="z", message_bytes=100, messages_per_second=1.0, durability="fsynced"),
    ]
    assert report.comparisons(rows) == [
        "- append of 100 B: 8.0 times the best HTTP peer (A, x); goal 2: met.",
        "- append of 100 B: 2.0 times the best that takes single messages (B, y); goal 4: not met.",
    ]


def test_whole_answers_are_told_from_parts() -> None:
    assert not is_whole_http(bytearray(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab"))
    assert is_whole_http(bytearray(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"))
    with pytest.raises(CannotRunError):
        is_whole_http(bytearray(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"))
    assert not nats._is_whole(bytearray(b"MSG b 1 $JS.ACK.x 3\r\nabc"))
    assert nats._is_whole(bytearray(b"MSG b 1 $JS.ACK.x 3\r\nabc\r\n"))
    assert redis._command(b"XLEN", b"s") == b"*2\r\n$4\r\nXLEN\r\n$1\r\ns\r\n"
    assert kafka._is_whole(bytearray(b"\x00\x00\x00\x02ab"))


def test_a_refused_batch_of_kafka_is_a_reason() -> None:
    answer = bytes(4 + 4 + 4) + b"\x00\x01t" + bytes(8) + b"\x00\x03" + bytes(16)
    with pytest.raises(CannotRunError, match="error 3"):
        kafka._check_produced(answer)


def test_the_reason_of_a_tool_that_fails_names_no_registry(tmp_path: Path) -> None:
    script = "echo '[ERROR] Could not find x (https://registry.example/x)'; exit 1"
    with pytest.raises(CannotRunError, match=r"^x: sh failed: Could not find x\.$"):
        packages.run(["sh", "-c", script], tmp_path, "x")
