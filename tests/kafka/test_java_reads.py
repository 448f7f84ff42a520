"""Kafka's Java clients and tools read what Rollway stores, after a broker of each version took the directories over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cases.logs import batch_of
from tests.kafka.adoption import adopt
from tests.kafka.broker import Broker, Programs
from tests.kafka.cases import SEED
from tests.kafka.service_records import TOPICS, fill, served_records
from tests.kafka.tools import ConsoleRecord, check_files, end_offsets, files_of, printed_records
from tests.kafka.wire import EARLIEST, LATEST
from tests.support.servers import ServerProcess, http_client

pytestmark = [pytest.mark.slow, pytest.mark.needs_local("a broker gets its data directory")]

SUFFIXES = (".log", ".index", ".timeindex")


class Stored(NamedTuple):
    """What a service left that stopped cleanly."""

    logs: Path
    served: dict[tuple[str, bool], list[ConsoleRecord]]
    """What it served, by topic, and whether only committed records were asked for."""
    limits: dict[tuple[str, int], tuple[int, int]]
    """Log start and log end, by topic and partition."""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    data_dir = tmp_path_factory.mktemp("stored") / "data"
    with ServerProcess(data_dir) as server, http_client(server.url) as client:
        fill(client, SEED)
        served = {
            (name, committed): served_records(client, name, topic.partition_count, committed=committed)
            for name, topic in TOPICS.items()
            for committed in (False, True)
        }
        limits = {}
        for name, topic in TOPICS.items():
            for partition in range(topic.partition_count):
                shown = client.get(f"/v1/topics/{name}/partitions/{partition}").json()
                limits[name, partition] = shown["log_start_offset"], shown["log_end_offset"]
        assert server.stop() == 0
    return Stored(data_dir / "logs", served, limits)


@pytest.fixture(scope="module")
def adopted(programs: Programs, stored: Stored, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(programs, tmp_path_factory.mktemp(f"adopted-{programs.version}"))
    adopt(broker, stored.logs, TOPICS)
    with broker.running():
        yield broker


@pytest.fixture(scope="module")
def printed(adopted: Broker) -> dict[tuple[str, bool], list[ConsoleRecord]]:
    return printed_records(adopted, TOPICS)


def test_dump_log_finds_no_fault_in_the_files(programs: Programs, stored: Stored) -> None:
    files = files_of(stored.logs, *SUFFIXES)
    assert len({file.parent for file in files}) == sum(topic.partition_count for topic in TOPICS.values())
    assert sum(file.parent.name == "trimmed-0" and file.suffix == ".log" for file in files) > 1
    check_files(programs, files)
    for file in files_of(stored.logs, ".snapshot", ".txnindex"):
        programs.answer("kafka.tools.DumpLogSegments", "--files", str(file))


def test_limits_are_kept(adopted: Broker, stored: Stored) -> None:
    with adopted.wire() as wire:
        found = {
            (name, partition): (
                wire.list_offsets(name, partition, EARLIEST).offset,
                wire.list_offsets(name, partition, LATEST).offset,
            )
            for name, partition in stored.limits
        }
    assert found == stored.limits
    for name, topic in TOPICS.items():
        assert end_offsets(adopted, name) == {
            number: stored.limits[name, number][1] for number in range(topic.partition_count)
        }


@pytest.mark.parametrize("committed", [False, True], ids=["uncommitted", "committed"])
@pytest.mark.parametrize("topic", sorted(TOPICS))
def test_the_console_consumer_prints_what_was_served(
    printed: dict[tuple[str, bool], list[ConsoleRecord]], stored: Stored, topic: str, committed: bool
) -> None:
    ours, theirs = stored.served[topic, committed], printed[topic, committed]
    assert ours
    differing = [pair for pair in zip(ours, theirs, strict=False) if pair[0] != pair[1]]
    assert not differing, f"served, and printed by Kafka's consumer: {differing[:3]}"
    assert len(ours) == len(theirs)


def test_a_new_producer_of_the_cluster_is_stored(adopted: Broker, stored: Stored) -> None:
    """Its id is none that Rollway gave: otherwise its first batch would count as repeated, and be lost."""
    with adopted.wire() as wire:
        producer, epoch = wire.init_producer()
        body = batch_of(producer_id=producer, producer_epoch=epoch, base_sequence=0)
        for name, partition in stored.limits:
            end = wire.list_offsets(name, partition, LATEST).offset
            answer = wire.produce(name, partition, body)
            assert (answer.code, answer.base_offset) == (0, end), f"{name}-{partition}: {answer}"
