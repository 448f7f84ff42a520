"""A data directory from a broker's directory that was written by hand."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from storage.disk.file_names import PARTITION_METADATA
from storage.disk.file_system import LocalFileSystem
from storage.log_import import BrokerDirectoryError, find_topics, import_topics, plan_topics
from storage.log_inspection import verify_directory
from storage.manager.log_manager import LogManager
from tests.support.cluster_metadata import config_record, metadata_batch, partition_record, topic_record
from tests.support.kafka_directory import TOPIC_ID, KafkaDirectory, two_segments

DISK = LocalFileSystem()
ID_BYTES = base64.urlsafe_b64decode(TOPIC_ID + "==")


def broker_directory(
    path: Path, *, partitions: int = 2, metadata: bool = True, settings: dict[str, str] | None = None
) -> Path:
    """A broker's log directory with the topic ``orders``; its cluster knows of two partitions."""
    directory = KafkaDirectory(path)
    for number in range(partitions):
        directory.add_partition(f"orders-{number}", two_segments())
    directory.add_partition("__consumer_offsets-0", two_segments())
    if metadata:
        log = directory.logs / "__cluster_metadata-0"
        log.mkdir()
        records = [config_record("orders", name, value) for name, value in (settings or {}).items()]
        partition_records = [partition_record(number, ID_BYTES) for number in range(2)]
        (log / "00000000000000000000.log").write_bytes(
            metadata_batch(0, topic_record("orders", ID_BYTES), *partition_records, *records)
        )
    return directory.logs


def imported(source: Path, target: Path, settings: dict[str, dict[str, object]] | None = None) -> LogManager:
    found = find_topics(DISK, source)
    import_topics(DISK, found, target, plan_topics(found, settings or {}))
    return LogManager.open(target)


def test_a_topic_has_its_id_its_records_and_its_settings(tmp_path: Path) -> None:
    source = broker_directory(tmp_path / "broker", settings={"segment.ms": "7", "cleanup.policy": "compact"})
    manager = imported(source, tmp_path / "data")
    topic = manager.topics["orders"]
    assert list(manager.topics) == ["orders"]
    assert (topic.topic_id, topic.partition_count) == (TOPIC_ID, 2)
    assert (topic.config.value_of("segment.ms"), topic.config.value_of("cleanup.policy")) == (7, "compact")
    assert [topic.partitions[number].snapshot.log_end_offset for number in range(2)] == [30, 30]
    assert manager.was_clean
    assert manager.close()
    assert verify_directory(tmp_path / "data").findings == ()


def test_a_topic_without_a_retention_keeps_its_records(tmp_path: Path) -> None:
    """A broker's own limits are in a file that is not here: Kafka's default would delete records of 2024 at once."""
    source = broker_directory(tmp_path / "broker", settings={"retention.ms": "5000"})
    found = find_topics(DISK, source)
    (planned,) = plan_topics(found, {})
    assert planned.settings == {"retention.ms": "5000", "retention.bytes": -1}
    (planned,) = plan_topics(found, {"orders": {"retention.ms": 6000}})
    assert planned.settings == {"retention.ms": 6000, "retention.bytes": -1}
    (planned,) = plan_topics(find_topics(DISK, broker_directory(tmp_path / "other")), {})
    assert planned.settings == {"retention.ms": -1, "retention.bytes": -1}


def test_settings_that_rollway_lacks_are_left_out_with_their_reason(tmp_path: Path) -> None:
    settings = {"remote.storage.enable": "true", "min.insync.replicas": "2", "segment.ms": "9"}
    (planned,) = plan_topics(find_topics(DISK, broker_directory(tmp_path, settings=settings)), {})
    assert "segment.ms" in planned.settings
    assert planned.left_out.keys() == {"remote.storage.enable", "min.insync.replicas"}
    assert "not a topic setting" in planned.left_out["remote.storage.enable"]


def test_a_directory_without_metadata_has_topics_without_settings(tmp_path: Path) -> None:
    found = find_topics(DISK, broker_directory(tmp_path, metadata=False))
    assert not found.has_metadata
    assert [(topic.name, topic.partition_count, topic.settings) for topic in found.topics] == [("orders", 2, {})]


def test_ids_of_producers_begin_above_those_of_a_cluster(tmp_path: Path) -> None:
    manager = imported(broker_directory(tmp_path / "broker"), tmp_path / "data")
    assert manager.producer_ids.allocate() >= 2**32
    manager.close()


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("no directory", "is not the log directory of a broker"),
        ("a partition is elsewhere", r"lacks partitions of orders \(1\)"),
        ("a gap", r"lacks partitions of orders \(0\)"),
        ("two ids", "do not agree on the topic's id"),
        ("no id", "do not agree on the topic's id"),
        ("another topic of that name", "that the cluster has deleted"),
    ],
)
def test_what_is_not_whole_is_refused(tmp_path: Path, damage: str, sentence: str) -> None:
    source = broker_directory(tmp_path / "broker", partitions=1 if damage == "a partition is elsewhere" else 2)
    other = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABA"
    if damage == "no directory":
        source = tmp_path
    elif damage == "a gap":
        (source / "orders-0").rename(tmp_path / "away")
    elif damage == "two ids":
        (source / "orders-1" / PARTITION_METADATA).write_text(other)
    elif damage in ("no id", "another topic of that name"):
        for number in range(2):
            path = source / f"orders-{number}" / PARTITION_METADATA
            path.unlink() if damage == "no id" else path.write_text(other)
    with pytest.raises(BrokerDirectoryError, match=sentence):
        find_topics(DISK, source)


def test_a_topic_that_is_not_there_is_refused(tmp_path: Path) -> None:
    source = broker_directory(tmp_path)
    with pytest.raises(BrokerDirectoryError, match="has no topic payments"):
        find_topics(DISK, source, ["orders", "payments"])
    found = find_topics(DISK, source, ["orders"])
    with pytest.raises(BrokerDirectoryError, match="not imported: payments"):
        plan_topics(found, {"payments": {}})
    with pytest.raises(BrokerDirectoryError, match=r"Settings of orders: segment\.ms"):
        plan_topics(found, {"orders": {"segment.ms": "soon"}})


def test_a_directory_that_has_anything_is_not_written_to(tmp_path: Path) -> None:
    found = find_topics(DISK, broker_directory(tmp_path / "broker"))
    target = tmp_path / "data"
    target.mkdir()
    (target / "file").touch()
    with pytest.raises(BrokerDirectoryError, match="is not empty"):
        import_topics(DISK, found, target, plan_topics(found, {}))
    assert [path.name for path in target.iterdir()] == ["file"]
