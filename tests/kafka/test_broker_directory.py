"""``rollway log import`` of a broker's log directory: Rollway then serves what Kafka's consumer printed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cases.logs import batch_of
from tests.kafka.broker import Broker, Programs
from tests.kafka.broker_records import BROKER_SETTINGS, TOPICS, fill
from tests.kafka.cases import SEED
from tests.kafka.service_records import served_records
from tests.kafka.tools import ConsoleRecord, printed_records
from tests.kafka.wire import EARLIEST, LATEST
from tests.support.servers import ServerProcess, http_client

pytestmark = [pytest.mark.slow, pytest.mark.needs_local("it gets a broker's directory")]

ROLLWAY = (sys.executable, "-c", "from app.cli import main; main()")
OF_THE_CLEANER = {"delete.retention.ms", "min.cleanable.dirty.ratio"}
"""Settings that Rollway lacks, as it does not compact."""
NEVER = {"ROLLWAY_RETENTION_CHECK_INTERVAL_MS": "86400000"}


class Written(NamedTuple):
    """What a broker left: its directory after SIGKILL and after a clean stop, and what Kafka's consumer printed."""

    directories: dict[str, Path]
    printed: dict[tuple[str, bool], list[ConsoleRecord]]
    """By topic, and whether only committed records were asked for."""
    limits: dict[tuple[str, int], tuple[int, int]]
    """Log start and log end, by topic and partition."""
    ids: dict[str, str]


@pytest.fixture(scope="module")
def written(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Written:
    directory = tmp_path_factory.mktemp(f"written-{programs.version}")
    broker = Broker(programs, directory / "broker", BROKER_SETTINGS)
    with broker.running():
        with broker.wire() as wire:
            fill(wire, SEED)
            limits = {
                (name, partition): (
                    wire.list_offsets(name, partition, EARLIEST).offset,
                    wire.list_offsets(name, partition, LATEST).offset,
                )
                for name, topic in TOPICS.items()
                for partition in range(topic.partition_count)
            }
            ids = {name: wire.describe_topic(name)[0] for name in TOPICS}
        printed = printed_records(broker, TOPICS)
        broker.kill()
    shutil.copytree(broker.data, directory / "killed")
    with broker.running():
        pass
    return Written({"killed": directory / "killed", "stopped": broker.data}, printed, limits, ids)


def rollway(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*ROLLWAY, *arguments], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_an_imported_directory_serves_what_the_broker_had(written: Written, how: str, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    before = names_and_sizes(written.directories[how])
    done = rollway("log", "import", str(written.directories[how]), str(data_dir), "--json")
    assert done.returncode == 0, done.stderr
    assert names_and_sizes(written.directories[how]) == before
    imported = {each["topic"]: each for each in json.loads(done.stdout)["topics"]}
    assert {name: each["topic_id"] for name, each in imported.items()} == written.ids
    for name, topic in TOPICS.items():
        assert imported[name]["partitions"] == topic.partition_count
        assert imported[name]["left_out"].keys() == topic.settings.keys() & OF_THE_CLEANER
        wanted = {key: str(value) for key, value in topic.settings.items() if key not in OF_THE_CLEANER}
        assert wanted.items() <= {key: str(value) for key, value in imported[name]["config"].items()}.items()

    with ServerProcess(data_dir, environment=NEVER) as server:
        assert server.stop() == 0
    checked = rollway("log", "verify", str(data_dir), "--json")
    assert checked.returncode == 0, checked.stdout
    findings = json.loads(checked.stdout)["findings"]
    assert {each["severity"] for each in findings} == {"note"}, findings
    assert {Path(each["file"]).parent.name for each in findings} == {"odd-0"}, findings

    with ServerProcess(data_dir, environment=NEVER) as server, http_client(server.url) as client:
        for (name, committed), printed in written.printed.items():
            served = served_records(client, name, TOPICS[name].partition_count, committed=committed)
            if name == "odd":
                # Java replaces what is no UTF-8 when it reads a header's name; we show the bytes.
                served, printed = ([each._replace(headers="") for each in records] for records in (served, printed))
            differing = [pair for pair in zip(served, printed, strict=False) if pair[0] != pair[1]]
            assert not differing, f"{name}, committed {committed}: served, and printed by Kafka: {differing[:3]}"
            assert len(served) == len(printed), name
        for (name, partition), (start, end) in written.limits.items():
            path = f"/v1/topics/{name}/partitions/{partition}"
            shown = client.get(path).json()
            assert (shown["log_start_offset"], shown["log_end_offset"]) == (start, end), (name, partition)
            appended = client.post(
                f"{path}/record-batches", content=batch_of(), headers={"Content-Type": "application/octet-stream"}
            )
            assert appended.json()["base_offset"] == end, (name, partition)


def names_and_sizes(directory: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_size) for path in directory.rglob("*"))


def test_the_directory_of_a_running_broker_is_refused(programs: Programs, tmp_path: Path) -> None:
    broker = Broker(programs, tmp_path / "broker")
    with broker.running():
        done = rollway("log", "import", str(broker.data), str(tmp_path / "data"))
    assert done.returncode != 0
    assert "Stop it first" in done.stderr
    assert not (tmp_path / "data").exists()
