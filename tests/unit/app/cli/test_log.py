"""``rollway log dump`` and ``rollway log verify`` as people and programs see them."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import run
from storage.disk.file_system import LocalFileSystem
from tests.support.kafka_directory import NOON_MS, KafkaDirectory, Segment, batch, snapshot

FIRST = "00000000000000000000"


@pytest.fixture
def directory(tmp_path: Path) -> KafkaDirectory:
    made = KafkaDirectory(tmp_path / "data")
    made.add_partition("orders-0", [Segment([batch(0, 5), batch(5, 5)]), Segment([batch(10, 5)])])
    return made


def test_verify_of_a_clean_directory(directory: KafkaDirectory, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "verify", str(directory.path)]) == 0
    captured = capfd.readouterr()
    assert "orders-0" in captured.out
    assert captured.out.endswith("Clean: 1 partition with 15 records checked.\n")
    assert captured.err == ""


def test_verify_of_a_damaged_directory(directory: KafkaDirectory, capfd: pytest.CaptureFixture[str]) -> None:
    log = directory.logs / "orders-0" / f"{FIRST}.log"
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    assert run(["log", "verify", str(directory.path)]) == 1
    out = capfd.readouterr().out
    assert f"damage: {log}, position 0: the batch at offset 0 does not match its CRC" in out
    assert out.endswith("Damaged: 1 finding in 1 partition with 15 records.\n")
    assert run(["log", "verify", str(directory.path), "--json"]) == 1
    document = json.loads(capfd.readouterr().out)
    assert document["clean"] is False
    (finding,) = document["findings"]
    assert (finding["severity"], finding["file"], finding["position"]) == ("damage", str(log), 0)


def test_verify_quiet_prints_findings_alone(directory: KafkaDirectory, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "verify", "-q", str(directory.path)]) == 0
    assert capfd.readouterr().out == ""


def test_verify_says_that_a_server_runs(directory: KafkaDirectory, capfd: pytest.CaptureFixture[str]) -> None:
    lock = LocalFileSystem().lock(directory.logs / ".lock")
    try:
        assert run(["log", "verify", str(directory.path)]) == 0
    finally:
        lock.release()
    assert "A server is writing to this directory" in capfd.readouterr().out


@pytest.mark.parametrize("command", ["verify", "dump"])
def test_a_path_that_is_not_there_is_one_sentence(
    command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["log", command, str(tmp_path / "missing")]) == 1
    captured = capfd.readouterr()
    assert captured.err.startswith("rollway: ")
    assert captured.err.count("\n") == 1
    assert run(["log", command, str(tmp_path)]) == 1


def test_dump_shows_what_kafkas_tool_shows(directory: KafkaDirectory, capfd: pytest.CaptureFixture[str]) -> None:
    log = directory.logs / "orders-0" / f"{FIRST}.log"
    assert run(["log", "dump", str(log)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == f"Dumping {log}"
    crc = struct.unpack_from(">I", batch(5, 5), 17)[0]
    assert lines[3] == (
        "baseOffset: 5 lastOffset: 9 count: 5 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        "partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: None "
        f"position: {len(batch(0, 5))} CreateTime: {NOON_MS + 9000} size: {len(batch(5, 5))} magic: 2 "
        f"compresscodec: none crc: {crc} isvalid: true"
    )


def test_dump_shows_records_and_invalid_bytes(directory: KafkaDirectory, capfd: pytest.CaptureFixture[str]) -> None:
    log = directory.logs / "orders-0" / f"{FIRST}.log"
    log.write_bytes(log.read_bytes() + b"torn")
    assert run(["log", "dump", str(log), "--records", "--json"]) == 0
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    records = [row for row in rows if row.get("record")]
    assert [row["offset"] for row in records] == list(range(10))
    assert records[7] == {
        "file": str(log), "record": True, "offset": 7, "timestamp": NOON_MS + 7000, "key": "key", "value": "value 7",
    }  # fmt: skip
    assert rows[-1]["invalidBytes"] == 4


def test_dump_of_a_directory_shows_every_file(directory: KafkaDirectory, capfd: pytest.CaptureFixture[str]) -> None:
    partition = directory.logs / "orders-0"
    (partition / "00000000000000000010.snapshot").write_bytes(snapshot((7, 0, 9, 9, 9, NOON_MS, -1, -1)))
    (partition / f"{FIRST}.txnindex").write_bytes(struct.pack(">hqqqq", 0, 7, 0, 4, 5))
    directory.checkpoint("recovery-point-offset-checkpoint", ("orders", 0, 15))
    assert run(["log", "dump", str(directory.path), "--json"]) == 0
    by_name: dict[str, list[dict[str, object]]] = {}
    for line in capfd.readouterr().out.splitlines():
        row = json.loads(line)
        by_name.setdefault(Path(row.pop("file")).name, []).append(row)
    assert by_name[f"{FIRST}.index"] == [{"offset": 9, "position": len(batch(0, 5))}]
    assert by_name[f"{FIRST}.timeindex"] == [{"timestamp": NOON_MS + 9000, "offset": 9}]
    assert by_name[f"{FIRST}.txnindex"][0]["lastStableOffset"] == 5
    assert by_name["00000000000000000010.snapshot"][0]["lastSequence"] == 9
    assert by_name["recovery-point-offset-checkpoint"] == [{"topic": "orders", "partition": 0, "offset": 15}]
    assert by_name["leader-epoch-checkpoint"] == [{"epoch": 0, "startOffset": 0}]
    assert by_name["partition.metadata"][0]["version"] == "0"
    assert by_name["meta.properties"][0]["node.id"] == "1"


def test_dump_of_a_damaged_snapshot_names_file_and_position(
    directory: KafkaDirectory, capfd: pytest.CaptureFixture[str]
) -> None:
    path = directory.logs / "orders-0" / "00000000000000000010.snapshot"
    path.write_bytes(b"\x00\x01" + bytes(8))
    assert run(["log", "dump", str(path)]) == 1
    assert capfd.readouterr().err.startswith(f"rollway: {path}, position 2: the CRC is")


def test_a_reader_that_goes_away_is_no_error(directory: KafkaDirectory) -> None:
    """As in ``rollway log dump ... | head -1``."""
    for number in range(1, 60):
        directory.add_partition(f"orders-{number}", [Segment([batch(base, 1) for base in range(40)])])
    process = subprocess.Popen(
        [sys.executable, "-c", "from app.cli import main; main()", "log", "dump", str(directory.path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


def test_no_colour_and_no_cut_lines_in_a_pipe(directory: KafkaDirectory) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from app.cli import main; main()", "log", "verify", str(directory.path)],
        capture_output=True,
        env={"FORCE_COLOR": "", "COLUMNS": "20", "PATH": ""},
        check=True,
    )
    assert b"\x1b" not in done.stdout
    assert b"INDEX ENTRIES" in done.stdout


def test_verify_does_not_call_a_mistyped_topic_clean(
    directory: KafkaDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["log", "verify", str(directory.path), "--topic", "nope"]) == 1
    assert "has no partition of a topic nope." in capsys.readouterr().err
