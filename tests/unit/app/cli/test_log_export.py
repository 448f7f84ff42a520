"""``rollway log export`` as people and programs see it: the four steps, and what each refuses."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.cli import run
from rollway.records import Record, columns_from_records, encode_batch
from storage.disk.file_system import LocalFileSystem
from tests.support.adopted_broker import AdoptedBroker
from tests.support.kafka_directory import KafkaDirectory
from tests.unit.storage.log_export.exported_directory import CLUSTERS, described, export_of, make_source
from tests.unit.storage.log_export.parsed_batches import batch, rows_of, with_crc

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def made(tmp_path: Path) -> KafkaDirectory:
    return make_source(tmp_path / "data")


@pytest.fixture
def topic_ids(tmp_path: Path) -> Path:
    path = tmp_path / "topic-ids.txt"
    path.write_text(described(("orders", 3), ("a.b", 1)))
    return path


def test_the_script_is_written_and_is_a_script(made: KafkaDirectory, tmp_path: Path, capfd: Capture) -> None:
    script = tmp_path / "create.sh"
    assert run(["log", "export", str(made.path), "--script", str(script), "--broker", "3"]) == 0
    assert capfd.readouterr().out.startswith(f"{script} creates the topics")
    assert "--replica-assignment 3,3,3" in script.read_text()
    subprocess.run(["sh", "-n", str(script)], check=True)
    assert run(["log", "export", str(made.path), "--script", str(script), "--topic", "a.b", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"script": str(script), "topic_ids": "topic-ids.txt"}
    assert "orders" not in script.read_text()


def test_the_plan_for_people(made: KafkaDirectory, topic_ids: Path, tmp_path: Path, capfd: Capture) -> None:
    command = ["log", "export", str(made.path), "--to", str(tmp_path / "kafka"), "--topic-ids", str(topic_ids)]
    assert run([*command, "--dry-run"]) == 0
    captured = capfd.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].split() == ["PARTITION", "OFFSETS", "BATCHES", "SIZE", "EPOCHS", "PRODUCERS", "KEYS", "LZ4"]
    assert [line.split()[0] for line in lines[1:5]] == ["a.b-0", "orders-0", "orders-1", "orders-2"]
    assert lines[2].split()[1:3] == ["[24,", "70)"]
    assert "loses its memory: a broker forgets by the timestamps of records" in captured.out
    assert lines[-1].startswith("2 topics with 4 partitions and ")
    assert lines[-1].endswith("Nothing stands in the way.")
    assert captured.err == ""
    assert not (tmp_path / "kafka").exists()


def test_the_plan_needs_no_cluster(made: KafkaDirectory, capfd: Capture) -> None:
    assert run(["log", "export", str(made.path), "--dry-run", "--topic", "orders", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    (topic,) = document["topics"]
    assert (topic["topic"], topic["cluster_topic_id"], topic["settings"]["retention.ms"]) == ("orders", None, "-1")
    assert [each["log_end_offset"] for each in topic["partitions"]] == [70, 10, 0]
    assert topic["partitions"][0]["rewritten"]["lz4"] == 1
    assert document["refusals"] == []


def test_an_export_and_its_repetition(made: KafkaDirectory, topic_ids: Path, tmp_path: Path, capfd: Capture) -> None:
    command = ["log", "export", str(made.path), "--to", str(tmp_path / "kafka"), "--topic-ids", str(topic_ids)]
    assert run(command) == 0
    captured = capfd.readouterr()
    assert captured.out.startswith("Exported 4 partitions with ")
    assert captured.err == "", "progress is for terminals"
    assert run([*command, "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert [each["log_end_offset"] for each in document["written"]] == [9, 70, 10, 0]
    assert [topic["in_place"] for topic in document["topics"]] == [[0], [0, 1, 2]]


def test_what_is_refused_comes_with_its_command(
    made: KafkaDirectory, topic_ids: Path, tmp_path: Path, capfd: Capture
) -> None:
    opened = batch(0, 2, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    (made.logs / "orders-2" / f"{0:020d}.log").write_bytes(opened)
    command = ["log", "export", str(made.path), "--to", str(tmp_path / "kafka"), "--topic-ids", str(topic_ids)]
    for words in (command, [*command, "--dry-run"]):
        assert run(words) == 1
        out = capfd.readouterr().out
        assert "refused: orders-2: the transaction of producer 9 is open since offset 0" in out
        assert "to mend it: start Rollway; curl -X POST" in out
    assert run([*command, "--json"]) == 1
    (refusal,) = json.loads(capfd.readouterr().out)["refusals"]
    assert refusal["subject"] == "orders-2"


def test_a_transaction_with_a_name_is_ended_by_its_name(made: KafkaDirectory, capfd: Capture) -> None:
    opened = batch(0, 2, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    (made.logs / "orders-2" / f"{0:020d}.log").write_bytes(opened)
    state = made.logs / "__transaction_state-0"
    state.mkdir()
    key = struct.pack(">hh", 0, 6) + b"loader"
    ongoing = (
        struct.pack(">hqhib", 0, 9, 0, 60_000, 1)
        + struct.pack(">ih", 1, 6)
        + b"orders"
        + struct.pack(">iiqq", 1, 2, 5, 5)
    )
    record = encode_batch(columns_from_records([Record(0, 5, key, ongoing)]))
    (state / f"{0:020d}.log").write_bytes(record)
    assert run(["log", "export", str(made.path), "--dry-run", "--json"]) == 1
    (refusal,) = json.loads(capfd.readouterr().out)["refusals"]
    assert refusal["mend"] == "start Rollway; rollway transactions abort loader; stop Rollway"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--dry-run", "--script", "FILE"],
        ["--to", "DIR"],
        ["--to", "DIR", "--topic-ids", "FILE", "--verify", "kafka://h:1"],
        ["--verify", "broker:9092"],
        ["--verify", "http://broker:9092"],
        ["--verify", "kafka://broker"],
    ],
)
def test_wrong_command_lines(words: list[str], made: KafkaDirectory, capfd: Capture) -> None:
    assert run(["log", "export", str(made.path), *words]) == 2
    assert capfd.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("text", ["", "orders\n"])
def test_a_list_of_topics_that_is_none(text: str, made: KafkaDirectory, tmp_path: Path, capfd: Capture) -> None:
    (tmp_path / "ids").write_text(text)
    command = ["log", "export", str(made.path), "--to", str(tmp_path / "kafka"), "--topic-ids", str(tmp_path / "ids")]
    assert run(command) == 1
    assert "describes no topic" in capfd.readouterr().err


def test_paths_that_lead_nowhere(made: KafkaDirectory, tmp_path: Path, capfd: Capture) -> None:
    assert run(["log", "export", str(tmp_path / "none"), "--dry-run"]) == 1
    assert "is no data directory" in capfd.readouterr().err
    command = ["log", "export", str(made.path), "--to", str(tmp_path), "--topic-ids", str(tmp_path / "none")]
    assert run(command) == 1
    assert "No such file" in capfd.readouterr().err
    assert run(["log", "export", str(made.path), "--dry-run", "--topic", "none"]) == 1
    assert "there is no topic 'none'" in capfd.readouterr().err


def test_a_running_service_is_refused(made: KafkaDirectory, capfd: Capture) -> None:
    lock = LocalFileSystem().lock(made.logs / ".lock")
    try:
        assert run(["log", "export", str(made.path), "--dry-run"]) == 1
    finally:
        lock.release()
    assert "in use by another process" in capfd.readouterr().err


def test_an_unclean_directory_is_told_and_left_alone(made: KafkaDirectory, capfd: Capture) -> None:
    made.stop_uncleanly()
    assert run(["log", "export", str(made.path), "--dry-run"]) == 0
    assert "The directory was not stopped cleanly: the export recovers it first" in capfd.readouterr().out
    assert not (made.logs / ".kafka_cleanshutdown").exists()


# The comparison with a cluster


@pytest.fixture
def adopted(made: KafkaDirectory, tmp_path: Path) -> Path:
    export_of(made.path).run(tmp_path / "kafka", CLUSTERS)
    return tmp_path / "kafka"


@pytest.mark.parametrize("bytes_max", [1, 500, 1 << 20])
def test_an_adopted_directory_is_equal(bytes_max: int, made: KafkaDirectory, adopted: Path, capfd: Capture) -> None:
    with AdoptedBroker(adopted, bytes_max) as broker:
        assert run(["log", "export", str(made.path), "--verify", broker.address]) == 0
        assert capfd.readouterr().out == "Equal: 4 partitions compared, record for record.\n"
        assert run(["log", "export", str(made.path), "--verify", broker.address, "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["equal"]
    assert [each["difference"] for each in document["partitions"]] == [None] * 4


Change = Callable[[Any], None]


def _start(partition: Any) -> None:
    partition.log_start_offset = 20


def _end(partition: Any) -> None:
    partition.high_watermark = partition.last_stable_offset = 75


def _stopped_readers(partition: Any) -> None:
    partition.last_stable_offset = 34


def _lost_batch(partition: Any) -> None:
    del partition.batches[4]


def _producer(partition: Any) -> None:
    first = partition.batches[2].content
    partition.batches[2] = partition.batches[2]._replace(
        content=with_crc(first[:43] + struct.pack(">q", 0) + first[51:])
    )


def _record(partition: Any) -> None:
    stored = partition.batches[-1].content
    partition.batches[-1] = partition.batches[-1]._replace(
        content=with_crc(stored[:21] + struct.pack(">h", 0) + stored[23:61] + batch(48, 22, value_bytes=8_001)[61:])
    )


def _forgotten_abort(partition: Any) -> None:
    partition.aborted = []


def _false_abort(partition: Any) -> None:
    (producer_id, _, marker) = partition.aborted[0]
    partition.aborted.append((producer_id + 1, 36, marker + 1))


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (_start, "orders-0: the log starts at 24, and at 20 in the cluster."),
        (_end, "orders-0: the log ends at 70, and at 75 in the cluster."),
        (_stopped_readers, "orders-0: readers of committed records stop at 34 in the cluster, before its end."),
        (_lost_batch, "orders-0: offset 32: base offset of the batch is 32, and 34 in the cluster."),
        (_producer, "orders-0: offset 25: producer id of the batch is "),
        (_record, "orders-0: offset 48: attributes of the batch is 3, and 0 in the cluster."),
        (_forgotten_abort, "that begins at offset 34 was aborted, and the cluster does not tell"),
        (_false_abort, "that begins at offset 36 was committed, and the cluster tells"),
    ],
)
def test_a_difference_is_found(
    change: Change, difference: str, made: KafkaDirectory, adopted: Path, capfd: Capture
) -> None:
    def plant(name: str, partition: Any) -> None:
        if name == "orders-0":
            change(partition)

    with AdoptedBroker(adopted, change=plant) as broker:
        assert run(["log", "export", str(made.path), "--verify", broker.address]) == 1
    out = capfd.readouterr().out
    assert difference in out
    assert out.endswith("Different: 1 of 4 partitions.\n")


@pytest.mark.parametrize("field", ["key", "value", "headers", "timestamp"])
def test_the_first_different_record_is_named(field: str, made: KafkaDirectory, adopted: Path, capfd: Capture) -> None:
    def plant(name: str, partition: Any) -> None:
        if name != "orders-1":
            return
        records = [Record(*row) for row in rows_of(partition.batches[1].content)]
        changed = {
            "key": replace(records[2], key=None),
            "value": replace(records[2], value=b"other"),
            "headers": replace(records[2], headers=(("new", b""),)),
            "timestamp": replace(records[2], timestamp=records[2].timestamp + 1),
        }
        records[2] = changed[field]
        other = encode_batch(columns_from_records(records), base_offset=5)
        partition.batches[1] = partition.batches[1]._replace(content=other)
        partition.log_start_offset = 5

    starts = made.path / "rollway" / "log-start-offsets"
    starts.write_text('{"version": 1, "log_start_offsets": [["orders", 0, 24], ["orders", 1, 5]]}')
    with AdoptedBroker(adopted, change=plant) as broker:
        assert run(["log", "export", str(made.path), "--topic", "orders", "--verify", broker.address]) == 1
    assert f"orders-1: offset 5: {field} of the record at 7 is " in capfd.readouterr().out


def test_a_broker_that_cannot_be_reached(made: KafkaDirectory, adopted: Path, capfd: Capture) -> None:
    with AdoptedBroker(adopted) as broker:
        del broker.partitions["a.b-0"]
        assert run(["log", "export", str(made.path), "--verify", broker.address]) == 1
        assert "topic a.b: the cluster answers UNKNOWN_TOPIC_OR_PARTITION." in capfd.readouterr().err
    assert run(["log", "export", str(made.path), "--verify", broker.address]) == 1
    assert "cannot be reached" in capfd.readouterr().err


def test_without_the_library_one_sentence_says_what_to_install(made: KafkaDirectory) -> None:
    program = (
        "import sys; sys.modules['kio'] = None; from app.cli import run; "
        f"sys.exit(run(['log', 'export', {str(made.path)!r}, '--verify', 'kafka://127.0.0.1:1']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'rollway-server[kafka]'" in done.stderr
