"""The metadata log of a KRaft cluster, from records written by hand after Kafka's schemas."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from log_model.errors import CorruptionError
from rollway.records import Record, columns_from_records, encode_batch
from storage.disk.file_system import LocalFileSystem
from storage.log_import.cluster_metadata import read_cluster_topics
from tests.support.cluster_metadata import (
    ORDERS_ID,
    config_record,
    metadata_batch,
    other_record,
    partition_record,
    removed_topic_record,
    topic_record,
)

DISK = LocalFileSystem()


def written(directory: Path, *batches: bytes, name: str = "00000000000000000000.log") -> Path:
    directory.mkdir(exist_ok=True)
    (directory / name).write_bytes(b"".join(batches))
    return directory


def text_of(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def test_a_topic_has_its_partitions_and_settings(tmp_path: Path) -> None:
    directory = written(
        tmp_path / "log",
        metadata_batch(0, topic_record("orders"), other_record(), partition_record(0), partition_record(1)),
        metadata_batch(4, config_record("orders", "retention.ms", "5"), config_record("orders", "segment.ms", "7")),
        metadata_batch(6, config_record("orders", "segment.ms", None), config_record("orders", "retention.ms", "6")),
    )
    topics = read_cluster_topics(DISK, directory)
    assert topics is not None
    (orders,) = topics.values()
    assert (orders.name, orders.topic_id, orders.partitions) == ("orders", text_of(ORDERS_ID), {0, 1})
    assert orders.settings == {"retention.ms": "6"}


def test_settings_of_brokers_are_not_those_of_topics(tmp_path: Path) -> None:
    directory = written(
        tmp_path / "log",
        metadata_batch(0, topic_record("1"), config_record("1", "log.retention.ms", "5", resource=4)),
    )
    topics = read_cluster_topics(DISK, directory)
    assert topics is not None
    assert topics["1"].settings == {}


def test_a_topic_that_was_made_again_has_none_of_the_old_settings(tmp_path: Path) -> None:
    again = bytes(range(1, 17))
    directory = written(
        tmp_path / "log",
        metadata_batch(0, topic_record("orders"), partition_record(0), partition_record(1)),
        metadata_batch(3, config_record("orders", "retention.ms", "5"), removed_topic_record()),
        metadata_batch(5, topic_record("orders", again), partition_record(0, again)),
    )
    topics = read_cluster_topics(DISK, directory)
    assert topics is not None
    assert topics["orders"].topic_id == text_of(again)
    assert (topics["orders"].partitions, topics["orders"].settings) == ({0}, {})


def test_a_snapshot_stands_for_the_records_below_its_end(tmp_path: Path) -> None:
    """Also for those that the log still has; the newest snapshot counts, and one that is being written does not."""
    directory = tmp_path / "log"
    snapshot = metadata_batch(0, topic_record("orders"), config_record("orders", "retention.ms", "5"))
    written(directory, metadata_batch(0, topic_record("old")), name=f"{3:020d}-{1:010d}.checkpoint")
    written(directory, snapshot, name=f"{10:020d}-{1:010d}.checkpoint")
    written(directory, metadata_batch(0, topic_record("no")), name=f"{20:020d}-{1:010d}.checkpoint.part")
    written(
        directory,
        metadata_batch(8, config_record("orders", "retention.ms", "1")),
        metadata_batch(10, config_record("orders", "retention.bytes", "9")),
        name=f"{8:020d}.log",
    )
    topics = read_cluster_topics(DISK, directory)
    assert topics is not None
    assert {name: topic.settings for name, topic in topics.items()} == {
        "orders": {"retention.ms": "5", "retention.bytes": "9"}
    }


def test_the_log_may_end_inside_of_a_batch(tmp_path: Path) -> None:
    second = metadata_batch(1, topic_record("payments", bytes(16)))
    for cut in range(1, len(second)):
        directory = written(tmp_path / "log", metadata_batch(0, topic_record("orders")), second[:cut])
        topics = read_cluster_topics(DISK, directory)
        assert topics is not None
        assert list(topics) == ["orders"]


def test_no_log_is_not_an_empty_one(tmp_path: Path) -> None:
    assert read_cluster_topics(DISK, tmp_path / "absent") is None
    (tmp_path / "log").mkdir()
    assert read_cluster_topics(DISK, tmp_path / "log") == {}


@pytest.mark.parametrize("damage", ["crc", "frame version", "cut record", "no record"])
def test_damage_names_the_file(tmp_path: Path, damage: str) -> None:
    good = topic_record("orders")
    record = {"frame version": b"\x02" + good[1:], "cut record": good[:-9], "no record": b""}.get(damage, good)
    batch = bytearray(encode_batch(columns_from_records([Record(0, 0, None, record)])))
    if damage == "crc":
        batch[-1] ^= 1
    directory = written(tmp_path / "log", bytes(batch))
    with pytest.raises(CorruptionError, match=r"0\.log is not a log of cluster metadata"):
        read_cluster_topics(DISK, directory)
