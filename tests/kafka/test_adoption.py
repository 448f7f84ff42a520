"""A broker refuses the directory of a killed service, and reads every record after a clean stop."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest

from bench.peers.peer import CannotRunError
from rollway.records import decode_batch, split_batches
from tests.kafka.adoption import TopicToAdopt, adopt
from tests.kafka.broker import Broker, Programs
from tests.kafka.tools import check_files, files_of
from tests.kafka.wire import LATEST, Wire
from tests.support.servers import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.needs_local("a broker gets its data directory")]

TOPIC = "adopted"
PARTITIONS = 3
COUNT = 20
SUFFIXES = (".log", ".index", ".timeindex")


def values(partition: int) -> list[bytes]:
    return [b"%d: value %d" % (partition, number) for number in range(COUNT)]


def fill(url: str) -> None:
    with httpx.Client(base_url=url) as client:
        client.put(f"/v1/topics/{TOPIC}", json={"partitions": PARTITIONS}).raise_for_status()
        for partition in range(PARTITIONS):
            for value in values(partition):
                path = f"/v1/topics/{TOPIC}/partitions/{partition}/records"
                client.post(path, json={"records": [{"value": value.decode()}]}).raise_for_status()


def lose_tails(data_dir: Path) -> None:
    """Leave nothing of the segments, as a power cut may: only the journal has made their records durable."""
    for segment in (data_dir / "logs").glob(f"{TOPIC}-*/*.log"):
        segment.write_bytes(b"")


def names_and_sizes(directory: Path) -> list[tuple[str, int]]:
    return sorted((path.name, path.stat().st_size) for path in directory.rglob("*") if path.name != ".lock")


def read_all(wire: Wire) -> list[list[bytes | None]]:
    found = []
    for partition in range(PARTITIONS):
        columns = [decode_batch(batch) for batch in split_batches(wire.fetch(TOPIC, partition, 0).records)]
        assert [offset for each in columns for offset in each.offsets.tolist()] == list(range(COUNT))
        assert wire.list_offsets(TOPIC, partition, LATEST).offset == COUNT
        found.append([value for each in columns for value in each.values.to_list()])
    return found


def test_a_broker_takes_the_directory_after_a_clean_stop_alone(tmp_path: Path, programs: Programs) -> None:
    data_dir = tmp_path / "data"
    with ServerProcess(data_dir) as server:
        fill(server.url)
        server.kill()
    lose_tails(data_dir)
    refused = Broker(programs, tmp_path / "refused")
    shutil.copytree(data_dir / "logs", refused.data)
    before = names_and_sizes(refused.data)
    status, said = refused.storage("info")
    assert status == 1
    assert "Unknown meta.properties version number 1000" in said
    with pytest.raises(CannotRunError, match="ended with status 1"):
        refused.start()
    assert names_and_sizes(refused.data) == before

    with ServerProcess(data_dir) as server:
        assert server.stop() == 0
    check_files(programs, files_of(data_dir / "logs", *SUFFIXES))
    whole = Broker(programs, tmp_path / "whole")
    shutil.copytree(data_dir / "logs", whole.data)
    status, said = whole.storage("info")
    assert status == 0, said

    adopted = Broker(programs, tmp_path / "adopted")
    adopt(adopted, data_dir / "logs", {TOPIC: TopicToAdopt(PARTITIONS, {"retention.ms": -1})})
    with adopted.running(), adopted.wire() as wire:
        assert read_all(wire) == [values(partition) for partition in range(PARTITIONS)]
    files = [file for file in files_of(adopted.data, *SUFFIXES) if file.parent.name.startswith(TOPIC)]
    assert len(files) == PARTITIONS * len(SUFFIXES)
    check_files(programs, files)
