"""``rollway log``: what is sound is no damage, what is damaged is found, and a full output is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import run
from log_model.batches.batch_validation import validate_batches
from storage.log.partition_log import AppendRequest
from storage.log_inspection import Severity, read_index_checkpoint, verify_directory
from storage.manager.log_manager import LogManager
from tests.cases.logs import START_MS, batch_of, patched

SECONDS_MAX = 20
_SEQUENCE_AT = 53


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def filled(data: Path, *batches: bytes, segment_bytes: int = 200) -> Path:
    """The directory of a partition with these batches, in a data directory that no service uses."""
    manager = LogManager.open(data)
    topic, _ = manager.create_topic("t", 1, {"segment.bytes": segment_bytes, "retention.ms": -1})
    log = topic.partitions[0]
    for batch in batches:
        log.append([AppendRequest(tuple(validate_batches(bytearray(batch), log.config, START_MS)))])
    manager.close()
    return data / "logs" / "t-0"


def damage_of(data: Path) -> list[str]:
    findings = verify_directory(data).findings
    return [f"{each.path.name}: {each.message}" for each in findings if each.severity is Severity.DAMAGE]


def command(*arguments: str, stdout: int) -> subprocess.CompletedProcess[str]:
    code = "from app.cli import main; main()"
    given = [sys.executable, "-c", code, *arguments]
    return subprocess.run(given, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=SECONDS_MAX, check=False)


def test_a_sequence_without_a_producer_is_no_damage(data: Path) -> None:
    """The service stores such a batch, as a broker does."""
    filled(data, patched(batch_of(3), _SEQUENCE_AT, ">i", 7))
    report = verify_directory(data)
    assert not report.is_damaged
    assert [each.message for each in report.findings] == ["the batch at offset 0 has sequence 7 and no producer"]


def test_the_time_index_of_records_of_1970_is_no_damage(data: Path) -> None:
    """Its one entry, timestamp 0 at the first offset, is twelve zeros."""
    old = batch_of(first_timestamp=0, value=b"v" * 100)
    partition = filled(data, old, old, batch_of())
    index = partition / f"{0:020d}.timeindex"
    assert index.read_bytes() == bytes(12)
    assert (partition / f"{1:020d}.log").exists()
    assert damage_of(data) == []


def test_zeros_behind_the_last_entry_of_a_time_index_are_found(data: Path) -> None:
    old = batch_of(first_timestamp=0, value=b"v" * 100)
    partition = filled(data, old, old, batch_of())
    with (partition / f"{0:020d}.timeindex").open("ab") as index:
        index.write(bytes(12))
    assert damage_of(data) == [f"{0:020d}.timeindex: 24 bytes of zeros follow the last entry: the file was not trimmed"]


@pytest.mark.parametrize("contents", [b"", b"{", b"[]", b'{"version": 1}', b"\xff"])
def test_damaged_files_of_the_service_are_found(data: Path, contents: bytes) -> None:
    """``log verify`` said of them that all is clean."""
    partition = filled(data, batch_of())
    for name in ("log-start-offsets", "producer-ids"):
        (data / "rollway" / name).write_bytes(contents)
    if contents:
        (partition / "transaction-index-checkpoint").write_bytes(contents)
    found = damage_of(data)
    assert len(found) == (3 if contents else 2)
    assert "log-start-offsets: it is no list of log start offsets" in found
    assert "producer-ids: it is no number of the next producer id" in found


@pytest.mark.parametrize(
    "contents",
    [
        b"0\n1\n" + b"9" * 5000 + b" 1 1\n",
        b"0\n" + b"9" * 5000 + b"\n1 1 1\n",
        b"0\n1\n9223372036854775808 1 1\n",
        b"0\n1\n1 1 4294967296\n",
        b"0\n1\n-1 1 1\n",
        b"0\n2\n1 1 1\n1 1 1\n",
    ],
    ids=["digits", "count", "offset", "crc", "negative", "twice"],
)
def test_numbers_that_cannot_be_are_found(data: Path, contents: bytes) -> None:
    """More than 4,300 digits, in any checkpoint, were a traceback."""
    (filled(data, batch_of()) / "transaction-index-checkpoint").write_bytes(contents)
    found = damage_of(data)
    assert len(found) == 1
    assert found[0].startswith("transaction-index-checkpoint: line ")


def test_a_count_of_many_digits_is_no_traceback_in_other_checkpoints(data: Path) -> None:
    partition = filled(data, batch_of())
    contents = b"0\n" + b"9" * 5000 + b"\n0 0\n"
    (partition / "leader-epoch-checkpoint").write_bytes(contents)
    (data / "logs" / "cleaner-offset-checkpoint").write_bytes(contents)
    found = damage_of(data)
    assert "leader-epoch-checkpoint: line 2 should be the number of entries" in found
    assert "cleaner-offset-checkpoint: line 2 should be the number of entries" in found


def test_a_wrong_checksum_is_found(data: Path) -> None:
    filled(data, batch_of())
    path = data / "rollway" / "log-start-offsets"
    stored = json.loads(path.read_bytes())
    assert damage_of(data) == []
    path.write_text(json.dumps({**stored, "crc32c": "00000000"}))
    assert damage_of(data) == ["log-start-offsets: the checksum of the list of log start offsets is wrong"]


def test_a_checkpoint_of_transaction_indexes_is_shown_as_what_it_is(data: Path) -> None:
    """Its base offset was shown as a topic."""
    path = filled(data, batch_of()) / "transaction-index-checkpoint"
    path.write_bytes(b"0\n1\n141 136 653299759\n")
    assert read_index_checkpoint(path.read_bytes()) == {141: (136, 653299759)}
    shown = command("log", "dump", str(path), "--json", stdout=subprocess.PIPE)
    assert json.loads(shown.stdout) == {"file": str(path), "baseOffset": 141, "size": 136, "crc": 653299759}


def test_names_of_files_that_are_not_utf_8_are_shown_in_json(
    data: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """They were a traceback; without ``--json`` they were shown."""
    partition = filled(data, batch_of())
    odd = Path(os.fsdecode(os.fsencode(partition) + b"/\xff.txt"))
    odd.touch()
    assert run(["log", "verify", str(data), "--json"]) == 0
    (note,) = json.loads(capfdbinary.readouterr().out)["findings"]
    assert note["file"] == str(partition / r"\udcff.txt")
    assert run(["log", "dump", str(odd), "--json"]) == 1
    assert r"\udcff.txt" in json.loads(capfdbinary.readouterr().err)["error"]
    moved = Path(os.fsdecode(os.fsencode(data) + b"/\xfe"))
    moved.mkdir()
    (partition / f"{0:020d}.log").rename(moved / f"{0:020d}.log")
    assert run(["log", "dump", str(moved), "--json"]) == 0
    assert json.loads(capfdbinary.readouterr().out.splitlines()[0])["file"].startswith(rf"{data}/\udcfe/")


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_full_output_is_not_a_file_that_cannot_be_read(data: Path, options: list[str]) -> None:
    # More than the output's buffer holds, so that a write in the middle fails.
    filled(data, *[batch_of(value=b"v" * 4000) for _ in range(5)], segment_bytes=1 << 20)
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        ended = command("log", "dump", str(data / "logs"), "--records", *options, stdout=full)
    finally:
        os.close(full)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1
    assert "Standard output: No space left on device." in ended.stderr


def test_a_deletion_without_standard_input_needs_yes() -> None:
    """A traceback, where it looked whether standard input is a terminal."""
    shell = f"exec {sys.executable} -c 'from app.cli import main; main()' topics delete t <&-"
    ended = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert ended.returncode == 2
    assert ended.stderr == "rollway: Deleting t with all its records needs --yes here.\n"
