"""Handing partition directories to a new broker, as docs/how-to/move-to-apache-kafka.md does it by hand."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.kafka.broker import Broker

_LOG_STARTS = "log-start-offset-checkpoint"


class TopicToAdopt(NamedTuple):
    """What a topic has in Rollway."""

    partition_count: int
    settings: Mapping[str, object]


def adopt(broker: Broker, logs: Path, topics: Mapping[str, TopicToAdopt]) -> None:
    """Give a broker that does not run the topics in ``logs``, the log directory of a service that stopped cleanly.

    The broker starts and stops once, to make the topics. Its next start takes the directories over.
    """
    with broker.running(), broker.wire() as wire:
        ids = {name: wire.create_topic(name, *topic) for name, topic in topics.items()}
    for name, topic in topics.items():
        for partition in range(topic.partition_count):
            directory = broker.data / f"{name}-{partition}"
            shutil.rmtree(directory)
            shutil.copytree(logs / directory.name, directory)
            (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {ids[name]}")
    _add_log_starts(broker.data / _LOG_STARTS, logs / _LOG_STARTS, set(topics))
    (broker.data / ".kafka_cleanshutdown").unlink()


def _add_log_starts(theirs: Path, ours: Path, topics: set[str]) -> None:
    """Add our lines to the broker's checkpoint: ``topic partition offset``, below a version and their number."""
    kept = [line for line in _lines(theirs) if line.split()[0] not in topics]
    added = [line for line in _lines(ours) if line.split()[0] in topics]
    theirs.write_text("".join(f"{line}\n" for line in ("0", str(len(kept + added)), *kept, *added)))


def _lines(checkpoint: Path) -> list[str]:
    return checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
