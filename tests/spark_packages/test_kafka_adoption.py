"""A real broker takes the log directory of a service that was stopped cleanly, and refuses that of a killed one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from bench.peers import packages
from bench.peers.kafka import ARTIFACTS, server_properties
from bench.peers.peer import CannotRunError
from bench.peers.sockets import Started, free_port
from tests.support.servers import ServerProcess

pytestmark = pytest.mark.slow

TOPIC = "adopted"
PARTITIONS = 3
COUNT = 20
TOOL_SECONDS_MAX = 120
SUFFIXES = ("log", "index", "timeindex")
COMPLAINTS = (
    "isvalid: false",
    "Mismatches in",
    "Non-consecutive offsets in",
    "timestamp mismatch in",
    "out of order timestamp in",
    "duplicate timestamp in",
)
"""How DumpLogSegments begins what it has found."""


class Broker:
    """Kafka's programs for one log directory."""

    def __init__(self, cache: Path, data: Path) -> None:
        self.data = data
        self._classes = packages.maven("kafka", ARTIFACTS, cache, may_install=True)
        self._port = free_port()
        self._properties = data.parent / f"{data.name}.properties"
        self._properties.write_text(server_properties(self._port, free_port(), str(data)), "utf-8")

    def tool(self, name: str, *arguments: str) -> tuple[int, str]:
        """Run one of Kafka's tools: its exit status, and what it printed."""
        done = subprocess.run(
            [*self._java, name, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=TOOL_SECONDS_MAX,
        )
        return done.returncode, done.stdout + done.stderr

    def storage(self, command: str, *arguments: str) -> tuple[int, str]:
        return self.tool("kafka.tools.StorageTool", command, *arguments, "-c", str(self._properties))

    @contextmanager
    def running(self) -> Iterator[str]:
        """Run the broker; its address."""
        command = [*self._java, "kafka.Kafka", str(self._properties)]
        cores = frozenset(os.sched_getaffinity(0))
        started = Started("Kafka", command, self._port, self.data.parent, cores)
        try:
            yield f"127.0.0.1:{self._port}"
        finally:
            started.stop()

    @property
    def _java(self) -> list[str]:
        return ["java", "-Xmx512m", "-cp", self._classes]


def values(partition: int) -> list[str]:
    return [f"{partition}: value {number}" for number in range(COUNT)]


def fill(url: str) -> None:
    with httpx.Client(base_url=url) as client:
        client.put(f"/v1/topics/{TOPIC}", json={"partitions": PARTITIONS}).raise_for_status()
        for partition in range(PARTITIONS):
            for value in values(partition):
                path = f"/v1/topics/{TOPIC}/partitions/{partition}/records"
                client.post(path, json={"records": [{"value": value}]}).raise_for_status()


def lose_tails(data_dir: Path) -> None:
    """Leave nothing of the segments, as a power cut may: only the journal has made their records durable."""
    for segment in (data_dir / "logs").glob(f"{TOPIC}-*/*.log"):
        segment.write_bytes(b"")


def cluster_of(logs: Path) -> str:
    lines = (logs / "meta.properties").read_text().splitlines()
    return next(line for line in lines if line.startswith("cluster.id=")).partition("=")[2]


def make_topic(address: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, topic_configs={"retention.ms": "-1"})])
    admin.close()


def read_all(address: str) -> list[list[str]]:
    consumer = KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
    found = []
    for number in range(PARTITIONS):
        partition = TopicPartition(TOPIC, number)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        end = consumer.end_offsets([partition])[partition]
        records = []
        while consumer.position(partition) < end:
            records += consumer.poll(500).get(partition, [])
        assert [record.offset for record in records] == list(range(end))
        found.append([(record.value or b"").decode() for record in records])
    consumer.close()
    return found


def check_files(broker: Broker, logs: Path) -> None:
    """Let Kafka's tool look for faults in segments and indexes."""
    files = sorted(path for name in SUFFIXES for path in logs.glob(f"{TOPIC}-*/*.{name}"))
    assert len(files) == len(SUFFIXES) * PARTITIONS
    status, said = broker.tool("kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(map(str, files)))
    assert status == 0, said
    assert said.count("isvalid: true") >= PARTITIONS
    assert not [complaint for complaint in COMPLAINTS if complaint in said], said


def test_a_broker_takes_the_directory_after_a_clean_stop_alone(tmp_path: Path, cache: Path) -> None:
    data_dir = tmp_path / "data"
    with ServerProcess(data_dir) as server:
        fill(server.url)
        server.kill()
    lose_tails(data_dir)
    refused = Broker(cache, Path(shutil.copytree(data_dir / "logs", tmp_path / "refused")))
    before = sorted((path.name, path.stat().st_size) for path in refused.data.rglob("*"))
    status, said = refused.storage("info")
    assert status == 1
    assert "Unknown meta.properties version number 1000" in said
    with pytest.raises(CannotRunError, match="ended with status 1"), refused.running():
        pass
    after = sorted((path.name, path.stat().st_size) for path in refused.data.rglob("*"))
    assert [each for each in after if each[0] != ".lock"] == [each for each in before if each[0] != ".lock"]

    with ServerProcess(data_dir) as server:
        assert server.stop() == 0
    adopted = Broker(cache, Path(shutil.copytree(data_dir / "logs", tmp_path / "adopted")))
    status, said = adopted.storage("info")
    assert status == 0, said
    check_files(adopted, adopted.data)
    status, said = adopted.storage("format", "--ignore-formatted", "-t", cluster_of(adopted.data))
    assert status == 0, said
    for partition in range(PARTITIONS):
        shutil.rmtree(adopted.data / f"{TOPIC}-{partition}")
    (adopted.data / ".kafka_cleanshutdown").unlink()
    with adopted.running() as address:
        make_topic(address)
    # As docs/how-to/move-to-apache-kafka.md hands the partitions over.
    for partition in range(PARTITIONS):
        directory = adopted.data / f"{TOPIC}-{partition}"
        metadata = (directory / "partition.metadata").read_bytes()
        shutil.rmtree(directory)
        shutil.copytree(data_dir / "logs" / directory.name, directory)
        (directory / "partition.metadata").write_bytes(metadata)
    (adopted.data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    with adopted.running() as address:
        assert read_all(address) == [values(partition) for partition in range(PARTITIONS)]
    check_files(adopted, adopted.data)
