"""A data directory with something of everything that an export must carry, written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from log_model.clock import ManualClock
from rollway.records import Codec, ControlType, encode_control_batch
from storage.disk.file_system import FileSystem, LocalFileSystem
from storage.log_export import ClusterTopic, LogExport, parse_topics
from tests.support.kafka_directory import KafkaDirectory, Segment, snapshot
from tests.unit.storage.log_export.parsed_batches import NOON_MS, batch, linked_lz4

CLUSTER_ID = "Jx3Tj0LzQ8ChRkfWBvMxGA"
COMPACTED_ID = "vbX5CGHpTq2OyL3cZhW1UQ"
KEY = 2**62 + 12_345
EARLIER_KEY = 2**62 + 54_321


def marker(base_offset: int, control_type: ControlType, producer_id: int, leader_epoch: int = 0) -> bytes:
    return encode_control_batch(
        control_type,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=NOON_MS + base_offset,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def mixed_segments() -> list[Segment]:
    """Codecs, epochs, producers, committed and aborted transactions, keys, linked LZ4; offsets 20 to 70."""
    of_producer = {"producer_id": 0, "producer_epoch": 2}
    of_key = {"producer_id": KEY, "producer_epoch": 777}
    return [
        Segment(
            [
                batch(20, 3, base_sequence=0, **of_producer),
                batch(23, 2, codec=Codec.GZIP),
                batch(25, 3, codec=Codec.SNAPPY, base_sequence=3, **of_producer),
                batch(28, 4, codec=Codec.LZ4, leader_epoch=1),
                batch(32, 2, codec=Codec.ZSTD, leader_epoch=1),
                batch(34, 2, leader_epoch=1, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True),
                batch(36, 2, leader_epoch=1, producer_id=6, producer_epoch=0, base_sequence=0, transactional=True),
            ]
        ),
        Segment(
            [
                marker(38, ControlType.ABORT, 5, leader_epoch=4),
                marker(39, ControlType.COMMIT, 6, leader_epoch=4),
                batch(40, 2, leader_epoch=4, base_sequence=0, **of_key),
                batch(42, 3, leader_epoch=4, base_sequence=2, **of_key),
            ]
        ),
        Segment(
            [
                batch(45, 3, leader_epoch=9, base_sequence=5, **of_key),
                linked_lz4(batch(48, 22, value_bytes=8_000, leader_epoch=9)),
            ]
        ),
    ]


MIXED_END = 70


def make_source(path: Path) -> KafkaDirectory:
    """Topics ``orders`` with three partitions (mixed, trimmed to its end, empty), and ``a.b``, compacted, with one."""
    made = KafkaDirectory(path)
    made.configure("orders", {"retention.ms": -1, "cleanup.policy": "delete"}, partitions=3)
    mixed = made.add_partition("orders-0", mixed_segments())
    (mixed / "leader-epoch-checkpoint").write_text("0\n4\n0 20\n1 28\n4 38\n9 45\n")
    keyed = snapshot(
        (0, 2, 5, 27, 2, NOON_MS, -1, -1),
        (KEY, 777, 7, 47, 2, NOON_MS, -1, -1),
        (EARLIER_KEY, 0, 0, 19, 0, 0, -1, -1),
    )
    (mixed / f"{MIXED_END:020d}.snapshot").write_bytes(keyed)
    made.add_partition("orders-1", [Segment([batch(0, 5), batch(5, 5)])])
    made.add_partition("orders-2", [])
    _empty_segment(made.logs / "orders-2", 0)
    made.configure("a.b", {"cleanup.policy": "compact"}, topic_id=COMPACTED_ID)
    compacted = made.add_partition("a.b-0", [Segment([batch(3, 2, leader_epoch=3), batch(8, 1, leader_epoch=3)])])
    (compacted / "partition.metadata").write_text(f"version: 0\ntopic_id: {COMPACTED_ID}")
    (compacted / "leader-epoch-checkpoint").write_text("0\n1\n3 3\n")
    _empty_segment(compacted, 9)
    (made.path / "rollway" / "log-start-offsets").write_text(
        '{"version": 1, "log_start_offsets": [["a.b", 0, 3], ["orders", 0, 24], ["orders", 1, 10]]}'
    )
    return made


def _empty_segment(directory: Path, base_offset: int) -> None:
    for suffix in ("log", "index", "timeindex"):
        (directory / f"{base_offset:020d}.{suffix}").write_bytes(b"")


def described(*partition_counts: tuple[str, int], settings: str = "retention.ms=-1", broker: int = 1) -> str:
    """What ``kafka-topics.sh --describe`` prints."""
    lines = []
    for name, count in partition_counts:
        shown = settings if name == "orders" else "cleanup.policy=compact"
        lines.append(
            f"Topic: {name}\tTopicId: {CLUSTER_ID}\tPartitionCount: {count}\tReplicationFactor: 1\tConfigs: {shown}"
        )
        lines += [
            f"\tTopic: {name}\tPartition: {number}\tLeader: {broker}\tReplicas: {broker}\tIsr: {broker}"
            for number in range(count)
        ]
    return "\n".join(lines) + "\n"


CLUSTERS: dict[str, ClusterTopic] = parse_topics(described(("orders", 3), ("a.b", 1)))


def export_of(source: Path, file_system: FileSystem | None = None, topics: Sequence[str] | None = None) -> LogExport:
    return LogExport(source, topics, file_system=file_system or LocalFileSystem(), clock=ManualClock(NOON_MS))


def files_of(directory: Path) -> dict[str, bytes]:
    """The content of all files below ``directory``, by their paths in it."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }
