"""A judge that knows only what a broker needs finds each remedy that is left out.

The judge reads the exported files with ``struct``. It shares nothing with the export but the names of files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from storage.log_export import batch_rewriter, cluster_topics, export_plan, partition_writer
from storage.log_export.moved_producers import BatchProducer, MovedProducers
from storage.log_export.partition_scan import OpenTransactions
from storage.log_export.target_directory import TargetDirectory
from tests.support.kafka_directory import KafkaDirectory
from tests.unit.storage.log_export.exported_directory import CLUSTERS, KEY, export_of, make_source
from tests.unit.storage.log_export.parsed_batches import batch, has_right_crc, header_of, split

CLUSTER_IDS_MAX = 2**53
"""More producer ids than a cluster can give out."""


def faults_of(target: Path, starts: dict[str, int]) -> set[str]:
    """What would go wrong in a cluster that adopts the directory."""
    faults = set()
    lines = (target / "log-start-offset-checkpoint").read_text().splitlines()[2:]
    found = {f"{topic}-{partition}": int(offset) for topic, partition, offset in map(str.split, lines)}
    if found != starts:
        faults.add("deleted records come back")
    for directory in (path for path in target.iterdir() if path.is_dir()):
        epochs = (directory / "leader-epoch-checkpoint").read_text().splitlines()[2:]
        if any(int(line.split()[0]) for line in epochs):
            faults.add("no second copy")
        if {path.suffix for path in directory.iterdir()} - {".log", ".metadata", ""}:
            faults.add("indexes are believed")
        opened: set[int] = set()
        for log in sorted(directory.glob("*.log")):
            for stored in split(log.read_bytes()):
                faults |= _batch_faults(stored, opened)
        if opened:
            faults.add("readers stand still")
    return faults


def _batch_faults(stored: bytes, opened: set[int]) -> set[str]:
    header = header_of(stored)
    faults = set()
    if not has_right_crc(stored):
        faults.add("damaged")
    if header.leader_epoch:
        faults.add("no second copy")
    if 0 <= header.producer_id < CLUSTER_IDS_MAX:
        faults.add("acknowledged records are lost")
    if header.producer_id >= 2**62 and (header.producer_epoch or header.base_sequence):
        faults.add("repeated requests are written again")
    if header.attributes & 7 == 3 and not stored[65] & 0x20:
        faults.add("Java cannot read it")
    if header.attributes & 0x20:
        opened.discard(header.producer_id)
    elif header.attributes & 0x10:
        opened.add(header.producer_id)
    return faults


STARTS = {"orders-0": 24, "orders-1": 10}

Planted = Callable[[pytest.MonkeyPatch, KafkaDirectory], None]


def _nothing(patch: pytest.MonkeyPatch, made: KafkaDirectory) -> None: ...


def _epochs_stay(patch: pytest.MonkeyPatch, made: KafkaDirectory) -> None:
    class Stays:
        size = 4

        @staticmethod
        def pack_into(buffer: memoryview, at: int, epoch: int) -> None: ...

    patch.setattr(batch_rewriter, "_LEADER_EPOCH", Stays)


def _checkpoint_stays(patch: pytest.MonkeyPatch, made: KafkaDirectory) -> None:
    patch.setattr(partition_writer, "checkpoint_content", lambda _: b"0\n1\n9 20\n")


def _producers_stay(patch: pytest.MonkeyPatch, made: KafkaDirectory) -> None:
    patch.setattr("storage.log_export.moved_producers.moved_id", lambda producer_id, _: producer_id)


def _crcs_stay(patch: pytest.MonkeyPatch, made: KafkaDirectory) -> None:
    patch.setattr(batch_rewriter, "crc32c", lambda _: 0)


def _keys_stay(patch: pytest.MonkeyPatch, made: KafkaDirectory) -> None:
    of = MovedProducers.of

    def stays(self: MovedProducers, header: object) -> BatchProducer:
        producer_id, epoch, sequence = header[9:12]  # type: ignore[index]
        return BatchProducer(producer_id, epoch, sequence) if producer_id == KEY else of(self, header)  # type: ignore[arg-type]

    patch.setattr(MovedProducers, "of", stays)


def _lz4_stays(patch: pytest.MonkeyPatch, made: KafkaDirectory) -> None:
    patch.setattr(batch_rewriter, "find_lz4_obstacle", lambda _: None)


def _starts_stay_behind(patch: pytest.MonkeyPatch, made: KafkaDirectory) -> None:
    merge = TargetDirectory.merge_log_starts
    patch.setattr(TargetDirectory, "merge_log_starts", lambda self, _: merge(self, {}))


def _open_transactions_are_taken(patch: pytest.MonkeyPatch, made: KafkaDirectory) -> None:
    opened = batch(10, 2, producer_id=3, producer_epoch=0, base_sequence=0, transactional=True)
    with (made.logs / "orders-1" / f"{0:020d}.log").open("ab") as log:
        log.write(opened)
    patch.setattr(OpenTransactions, "left", lambda _: ())


def _indexes_are_copied(patch: pytest.MonkeyPatch, made: KafkaDirectory) -> None:
    write = partition_writer.write_new_file

    def and_an_index(file_system: object, path: Path, content: bytes) -> None:
        write(file_system, path, content)  # type: ignore[arg-type]
        if path.name == "partition.metadata":
            path.with_name(f"{0:020d}.index").write_bytes(b"")

    patch.setattr(partition_writer, "write_new_file", and_an_index)


@pytest.mark.parametrize(
    ("plant", "fault"),
    [
        (_nothing, None),
        (_epochs_stay, "no second copy"),
        (_checkpoint_stays, "no second copy"),
        (_producers_stay, "acknowledged records are lost"),
        (_crcs_stay, "damaged"),
        (_keys_stay, "repeated requests are written again"),
        (_lz4_stays, "Java cannot read it"),
        (_starts_stay_behind, "deleted records come back"),
        (_open_transactions_are_taken, "readers stand still"),
        (_indexes_are_copied, "indexes are believed"),
    ],
)
def test_a_remedy_that_is_left_out_is_found(
    plant: Planted, fault: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_source(tmp_path / "data")
    plant(monkeypatch, made)
    export_of(made.path).run(tmp_path / "broker", CLUSTERS)
    assert faults_of(tmp_path / "broker", STARTS) == ({fault} if fault else set())


def test_settings_that_are_left_out_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files cannot show them: the export itself compares the cluster's topic with ours."""
    made = make_source(tmp_path / "data")
    forgotten = {**CLUSTERS, "orders": replace(CLUSTERS["orders"], settings={})}
    assert [refusal.subject for refusal in export_of(made.path).plan(forgotten).refusals] == ["orders"]
    monkeypatch.setattr(export_plan, "DELETING_SETTINGS", ())
    assert export_of(made.path).plan(forgotten).refusals == ()
    assert "retention.ms=-1" in export_of(made.path).script(1, "topics.txt")
    monkeypatch.setattr(cluster_topics, "cluster_settings", lambda _: {})
    assert "retention.ms=-1" not in export_of(made.path).script(1, "topics.txt")
