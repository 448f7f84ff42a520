"""What an export refuses, and the command that mends it. A refused export writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rollway.records import ControlType
from storage.log_export import ExportRefusedError, parse_topics
from tests.support.kafka_directory import KafkaDirectory, Segment
from tests.unit.storage.log_export.exported_directory import described, export_of, files_of, make_source, marker
from tests.unit.storage.log_export.parsed_batches import batch

ALL = described(("orders", 3), ("a.b", 1))

Damage = Callable[[KafkaDirectory], str]
"""Changes the directory; returns the list of the cluster's topics."""


def _open_transaction(made: KafkaDirectory) -> str:
    of_one = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    of_other = {**of_one, "producer_id": 8}
    log = made.logs / "orders-2" / f"{0:020d}.log"
    log.write_bytes(
        b"".join(
            [
                batch(0, 2, base_sequence=0, **of_one),
                batch(2, 2, base_sequence=0, **of_other),
                marker(4, ControlType.COMMIT, 8),
                batch(5, 2, base_sequence=2, **of_one),
            ]
        )
    )
    return ALL


def _flipped_bit(made: KafkaDirectory) -> str:
    log = made.logs / "orders-1" / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[90] ^= 1
    log.write_bytes(content)
    return ALL


def _cut_batch(made: KafkaDirectory) -> str:
    log = made.logs / "orders-1" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1])
    return ALL


def _lost_partition(made: KafkaDirectory) -> str:
    (made.logs / "orders-2" / f"{0:020d}.log").unlink()
    return ALL


def _falling_offsets(made: KafkaDirectory) -> str:
    Segment([batch(30, 2)]).write(made.logs / "orders-0", is_last=True)
    return ALL


def _missing_offsets(made: KafkaDirectory) -> str:
    first = made.logs / "orders-1" / f"{0:020d}.log"
    first.write_bytes(first.read_bytes() + batch(12, 2))
    return ALL


def _missing_segment(made: KafkaDirectory) -> str:
    for path in (made.logs / "orders-0").glob(f"{20:020d}.*"):
        path.unlink()
    return ALL


def _end_below_the_start(made: KafkaDirectory) -> str:
    first = made.logs / "orders-1" / f"{0:020d}.log"
    first.write_bytes(batch(0, 5))
    return ALL


def _retention_policy(made: KafkaDirectory) -> str:
    made.configure("orders", {"retention.ms": -1, "retention.policy": "ours"}, partitions=3)
    return ALL


def _no_topic(made: KafkaDirectory) -> str:
    return described(("a.b", 1))


def _fewer_partitions(made: KafkaDirectory) -> str:
    return described(("orders", 2), ("a.b", 1))


def _more_partitions(made: KafkaDirectory) -> str:
    return described(("orders", 4), ("a.b", 1))


def _forgotten_retention(made: KafkaDirectory) -> str:
    return described(("orders", 3), ("a.b", 1), settings="")


def _other_policy(made: KafkaDirectory) -> str:
    return described(("orders", 3), ("a.b", 1), settings="retention.ms=-1,cleanup.policy=compact,delete")


def _no_brokers(made: KafkaDirectory) -> str:
    return "".join(line for line in ALL.splitlines(keepends=True) if "orders\tPartition: 2" not in line)


def _two_copies(made: KafkaDirectory) -> str:
    return ALL.replace("Partition: 1\tLeader: 1\tReplicas: 1", "Partition: 1\tLeader: 1\tReplicas: 1,2")


@pytest.mark.parametrize(
    ("change", "subject", "why", "mend"),
    [
        (_open_transaction, "orders-2", "producer 7 is open since offset 0", "partitions/2/transactions/abort"),
        (_flipped_bit, "orders-1", "the batch at offset 0 does not match its CRC", "rollway log verify"),
        (_cut_batch, "orders-1", "the last batch is cut off", "rollway log verify"),
        (_lost_partition, "orders-2", "has no segment", "rollway log verify"),
        (_falling_offsets, "orders-0", "begins at offset 30, but the log before it ends at 38", "rollway log verify"),
        (_missing_offsets, "orders-1", "begins at offset 12: offsets from 10 on are missing", "rollway log verify"),
        (_missing_segment, "orders-0", "starts at 24, but its first segment begins at 38", "rollway log verify"),
        (_end_below_the_start, "orders-1", "the log ends at 5, below its start 10", "rollway log verify"),
        (_retention_policy, "orders", "retention.policy=ours", "rollway topics alter orders -c retention.policy="),
        (_no_topic, "orders", "the list of the cluster's topics does not have it", "--script"),
        (_fewer_partitions, "orders", "3 partitions, and 2 in the cluster", "--alter --topic orders --partitions 3"),
        (_more_partitions, "orders", "3 partitions, and 4 in the cluster", "--delete --topic orders"),
        (_forgotten_retention, "orders", "retention.ms is -1, and 604800000 in", "--add-config retention.ms=-1"),
        (_other_policy, "orders", "cleanup.policy is delete, and compact,delete", "--add-config cleanup.policy=delete"),
        (_no_brokers, "orders", "does not show the brokers of all its partitions", "save the whole output"),
        (_two_copies, "orders", "must have one copy", "--delete --topic orders"),
    ],
)  # fmt: skip
def test_refusal(change: Damage, subject: str, why: str, mend: str, tmp_path: Path) -> None:
    made = make_source(tmp_path / "data")
    clusters = parse_topics(change(made))
    target = tmp_path / "broker"
    with pytest.raises(ExportRefusedError) as refused:
        export_of(made.path).run(target, clusters)
    (refusal,) = refused.value.refusals
    assert refusal.subject == subject
    assert why in refusal.why
    assert mend in refusal.mend
    assert set(files_of(target)) == {".lock"}
    assert export_of(made.path).plan(clusters, target).refusals == refused.value.refusals


def test_policies_in_another_order_are_the_same(tmp_path: Path) -> None:
    made = make_source(tmp_path / "data")
    made.configure("orders", {"retention.ms": -1, "cleanup.policy": "delete,compact"}, partitions=3)
    clusters = parse_topics(
        described(("orders", 3), ("a.b", 1), settings="cleanup.policy=compact,delete,retention.ms=-1")
    )
    assert export_of(made.path).plan(clusters).refusals == ()


def test_other_settings_that_differ_are_told(tmp_path: Path) -> None:
    made = make_source(tmp_path / "data")
    made.configure("orders", {"retention.ms": -1, "max.message.bytes": 5_000_000}, partitions=3)
    plan = export_of(made.path).plan(parse_topics(ALL))
    (orders,) = [topic for topic in plan.topics if topic.topic.name == "orders"]
    assert orders.notes == ("max.message.bytes is 5000000, and 1048588 in the cluster.",)
