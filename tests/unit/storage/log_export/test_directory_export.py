"""The export of a whole directory: every batch before and after, what stands beside the files, and going on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from log_model.errors import DirectoryLockedError, InvalidTopicError, UnknownTopicOrPartitionError
from log_model.producers import keyed_batch_id
from storage.disk.file_system import LocalFileSystem
from storage.log_export import ExportProgress, ExportRefusedError, WrittenPartition, moved_id, producer_shift
from storage.log_export.cluster_topics import parse_topics
from storage.log_export.target_directory import TargetDirectoryError
from tests.unit.storage.log_export.exported_directory import (
    CLUSTER_ID,
    CLUSTERS,
    KEY,
    MIXED_END,
    described,
    export_of,
    files_of,
    make_source,
    mixed_segments,
)
from tests.unit.storage.log_export.parsed_batches import (
    Header,
    batch,
    has_right_crc,
    header_of,
    kafka_python_with_snappy,  # noqa: F401 - a fixture
    rows_of,
    split,
)

SHIFT = producer_shift("abcdefghijklmnopqrstuv/1")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "data").path


def wanted_producer(header: Header) -> tuple[int, int, int]:
    if header.producer_id == KEY:
        number = {0: 0, 2: 1, 5: 2}[header.base_sequence]
        return keyed_batch_id(KEY, number), 0, 0
    return moved_id(header.producer_id, SHIFT), header.producer_epoch, header.base_sequence


def test_every_batch_of_every_codec(source: Path, tmp_path: Path) -> None:
    export_of(source).run(tmp_path / "broker", CLUSTERS)
    for segment in mixed_segments():
        name = f"{segment.base_offset:020d}.log"
        after = split((tmp_path / "broker" / "orders-0" / name).read_bytes())
        assert len(after) == len(segment.batches)
        for old, new in zip(map(header_of, segment.batches), after, strict=True):
            found = header_of(new)
            producer_id, producer_epoch, base_sequence = wanted_producer(old)
            assert found == old._replace(
                leader_epoch=0,
                crc=found.crc,
                batch_length=len(new) - 12,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
            )
            assert has_right_crc(new)
        assert rows_of(b"".join(after)) == rows_of(b"".join(segment.batches))


def test_what_stands_beside_the_segments(source: Path, tmp_path: Path) -> None:
    export_of(source).run(tmp_path / "broker", CLUSTERS)
    files = files_of(tmp_path / "broker")
    metadata = f"version: 0\ntopic_id: {CLUSTER_ID}".encode()
    for partition, starts in {"orders-0": "0 24", "orders-1": "", "orders-2": "", "a.b-0": "0 3"}.items():
        inside = {Path(path).name for path in files if path.startswith(f"{partition}/")}
        logs = {path.name for path in (source / "logs" / partition).glob("*.log")}
        assert inside == logs | {"partition.metadata", "leader-epoch-checkpoint"}, "no indexes and no snapshots"
        assert files[f"{partition}/partition.metadata"] == metadata
        lines = f"0\n1\n{starts}\n" if starts else "0\n0\n"
        assert files[f"{partition}/leader-epoch-checkpoint"].decode() == lines
    assert files["a.b-0/00000000000000000009.log"] == b"", "the log ends at offset 9"
    assert files["log-start-offset-checkpoint"].decode() == "0\n2\norders 0 24\norders 1 10\n"
    ends = f"0\n4\na.b 0 9\norders 0 {MIXED_END}\norders 1 10\norders 2 0\n"
    assert files["recovery-point-offset-checkpoint"].decode() == ends
    assert not [path for path in files if "-delete" in path]


def test_segments_wholly_below_the_log_start_stay_behind(source: Path, tmp_path: Path) -> None:
    starts = source / "rollway" / "log-start-offsets"
    starts.write_text('{"version": 1, "log_start_offsets": [["orders", 0, 46]]}')
    export_of(source).run(tmp_path / "broker", CLUSTERS)
    logs = [path.name for path in sorted((tmp_path / "broker" / "orders-0").glob("*.log"))]
    assert logs == ["00000000000000000045.log"]
    content = (tmp_path / "broker" / "orders-0" / logs[0]).read_bytes()
    assert header_of(content)[9:12] == (-1, -1, -1), "the first batch of the keyed request is gone"
    assert "orders 0 46\n" in (tmp_path / "broker" / "log-start-offset-checkpoint").read_text()


def test_a_broker_keeps_its_other_partitions_and_lines(source: Path, tmp_path: Path) -> None:
    broker = tmp_path / "broker"
    _make_broker(broker)
    export_of(source).run(broker, CLUSTERS)
    assert (broker / "others-0" / "00000000000000000000.log").read_bytes() == b"records"
    assert (broker / "log-start-offset-checkpoint").read_text() == "0\n3\norders 0 24\norders 1 10\nothers 0 4\n"
    assert "others 0 9\n" in (broker / "recovery-point-offset-checkpoint").read_text()
    assert not (broker / "orders-1" / "00000000000000000000.index").exists(), "of the empty partition"


def _make_broker(path: Path) -> None:
    """A broker's directory with the empty partitions of the new topics, and one topic of its own."""
    path.mkdir()
    (path / "meta.properties").write_text("version=1\ncluster.id=other\nnode.id=1\ndirectory.id=another\n")
    for name in ("orders-0", "orders-1", "orders-2", "a.b-0", "others-0"):
        (path / name).mkdir()
        for suffix in ("log", "index", "timeindex"):
            (path / name / f"{0:020d}.{suffix}").write_bytes(b"")
    (path / "others-0" / f"{0:020d}.log").write_bytes(b"records")
    (path / "log-start-offset-checkpoint").write_text("0\n2\norders 2 7\nothers 0 4\n")
    (path / "recovery-point-offset-checkpoint").write_text("0\n2\norders 0 0\nothers 0 9\n")


def test_one_topic(source: Path, tmp_path: Path) -> None:
    export_of(source, topics=["a.b"]).run(tmp_path / "broker", CLUSTERS)
    assert [path.name for path in sorted((tmp_path / "broker").iterdir()) if path.is_dir()] == ["a.b-0"]
    export_of(source, topics=["orders"]).run(tmp_path / "broker", CLUSTERS)
    together = files_of(tmp_path / "broker")
    export_of(source).run(tmp_path / "at-once", CLUSTERS)
    record = next(name for name in together if name.startswith("rollway-export-"))
    at_once = files_of(tmp_path / "at-once")
    assert sorted(together.pop(record).splitlines()) == sorted(at_once.pop(record).splitlines())
    assert together == at_once


@pytest.mark.parametrize(
    ("topics", "error"), [(["none"], UnknownTopicOrPartitionError), (["__load_jobs"], InvalidTopicError)]
)
def test_topics_that_cannot_be_named(source: Path, topics: Sequence[str], error: type[Exception]) -> None:
    with pytest.raises(error):
        export_of(source, topics=topics).plan()


def test_the_plan_counts_what_will_change_and_changes_nothing(source: Path, tmp_path: Path) -> None:
    before = files_of(source)
    plan = export_of(source).plan(CLUSTERS, tmp_path / "broker")
    assert files_of(source) == {**before, "logs/.lock": b""}
    assert not (tmp_path / "broker").exists()
    assert plan.refusals == ()
    (orders,) = [topic for topic in plan.topics if topic.topic.name == "orders"]
    mixed = orders.scans[0]
    assert (mixed.log_start_offset, mixed.log_end_offset, mixed.batch_count) == (24, MIXED_END, 13)
    counts = mixed.rewritten
    assert (counts.epochs, counts.producers, counts.keys, counts.forgotten_keys, counts.lz4) == (10, 6, 3, 0, 1)
    assert mixed.remembered_key_count == 2
    (forgotten,) = mixed.forgotten_keys
    assert "producer.id.expiration.ms" in forgotten.why
    assert (plan.is_clean, plan.shift) == (True, SHIFT)


def test_an_export_that_is_repeated_leaves_what_is_in_place(source: Path, tmp_path: Path) -> None:
    broker = tmp_path / "broker"
    export_of(source).run(broker, CLUSTERS)
    before = {path: path.stat().st_mtime_ns for path in broker.rglob("*.log")}
    news: list[bool] = []

    def note(_written: WrittenPartition, is_new: bool) -> None:
        news.append(is_new)

    report = export_of(source).run(broker, CLUSTERS, ExportProgress(on_partition=note))
    assert news == [False] * 4
    assert {path: path.stat().st_mtime_ns for path in broker.rglob("*.log")} == before
    assert all(len(topic.finished) == len(topic.partitions) for topic in report.plan.topics)


def test_an_export_after_more_records_replaces_the_partition(source: Path, tmp_path: Path) -> None:
    broker = tmp_path / "broker"
    export_of(source).run(broker, CLUSTERS)
    first = source / "logs" / "orders-1" / f"{0:020d}.log"
    first.write_bytes(first.read_bytes() + batch(10, 15))
    export_of(source).run(broker, CLUSTERS)
    assert len(split((broker / "orders-1" / first.name).read_bytes())) == 3
    assert "orders 1 25\n" in (broker / "recovery-point-offset-checkpoint").read_text()


def test_records_that_another_program_wrote_are_never_replaced(source: Path, tmp_path: Path) -> None:
    broker = tmp_path / "broker"
    export_of(source).run(broker, CLUSTERS)
    log = broker / "orders-1" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes() + b"of the broker")
    kept = files_of(broker)
    with pytest.raises(ExportRefusedError) as refused:
        export_of(source).run(broker, CLUSTERS)
    (refusal,) = refused.value.refusals
    assert refusal.subject == "orders-1"
    assert "records that this export did not write" in refusal.why
    assert files_of(broker) == kept


def test_a_damaged_record_of_the_export_is_one_sentence(source: Path, tmp_path: Path) -> None:
    broker = tmp_path / "broker"
    export_of(source).run(broker, CLUSTERS)
    (record,) = broker.glob("rollway-export-*")
    content = record.read_bytes()
    record.write_bytes(content[:20] + b"?" + content[21:])
    with pytest.raises(Exception, match=r"line 1: its checksum is wrong\. Remove the file"):
        export_of(source).run(broker, CLUSTERS)
    head, *lines = content.split(b"\n")
    assert json.loads(head[9:])["producer_shift"] == SHIFT
    record.write_bytes(b"\n".join([head, *lines[:-2], lines[-2][:30]]))
    export_of(source).run(broker, CLUSTERS)
    assert sorted(record.read_bytes().splitlines()) == sorted(content.splitlines())


def test_directories_in_use(source: Path, tmp_path: Path) -> None:
    disk = LocalFileSystem()
    (tmp_path / "broker").mkdir()
    for path, error in ((source / "logs", DirectoryLockedError), (tmp_path / "broker", TargetDirectoryError)):
        lock = disk.lock(path / ".lock")
        try:
            with pytest.raises(error):
                export_of(source).run(tmp_path / "broker", CLUSTERS)
        finally:
            lock.release()


def test_a_target_inside_the_source_is_refused(source: Path) -> None:
    for path in (source, source / "logs", source / "export"):
        with pytest.raises(TargetDirectoryError):
            export_of(source).run(path, CLUSTERS)


def test_a_directory_that_was_not_stopped_cleanly_is_recovered_first(source: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(source, whole)
    (source / "logs" / ".kafka_cleanshutdown").unlink()
    with (source / "logs" / "orders-1" / f"{0:020d}.log").open("ab") as log:
        log.write(b"torn")
    plan = export_of(source).plan(CLUSTERS)
    assert (plan.is_clean, plan.refusals) == (False, ())
    assert all(topic.scans == () for topic in plan.topics)
    assert (source / "logs" / "orders-1" / f"{0:020d}.log").read_bytes().endswith(b"torn")
    report = export_of(source).run(tmp_path / "broker", CLUSTERS)
    assert report.plan.was_recovered
    export_of(whole).run(tmp_path / "of-whole", CLUSTERS)
    found, wanted = files_of(tmp_path / "broker"), files_of(tmp_path / "of-whole")
    assert {name for name in found if "rollway-export" not in name} == {
        name for name in wanted if "rollway-export" not in name
    }
    for name in (name for name in wanted if name.endswith((".log", "checkpoint"))):
        assert found[name] == wanted[name]


def test_a_cluster_on_another_broker_is_refused(source: Path, tmp_path: Path) -> None:
    _make_broker(tmp_path / "broker")
    clusters = parse_topics(described(("orders", 3), ("a.b", 1), broker=2))
    plan = export_of(source).plan(clusters, tmp_path / "broker")
    assert {refusal.subject for refusal in plan.refusals} == {"orders", "a.b"}
    assert all("on broker 1" in refusal.why for refusal in plan.refusals)
