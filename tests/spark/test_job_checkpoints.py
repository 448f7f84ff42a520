"""Export's checkpoint: what a killed run leaves, and files where Spark's are."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rollway.spark.jobs.errors import JobError
from rollway.spark.jobs.exporting.checkpoints import CheckpointFolder, ExportCheckpoint, RunIntent
from rollway.spark.jobs.files.hadoop_files import HadoopFiles

CHECKPOINT = ExportCheckpoint(topic="orders", topic_id="t1", run=3, offsets={0: 10, 11: 0}, rows=7)
INTENT = RunIntent(run=4, topic_id="t1", starts={0: 10, 11: 0}, ends={0: 15, 11: 2}, run_id="r4")


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(HadoopFiles(spark), str(tmp_path), "orders")


def test_nothing_was_exported_yet(folder: CheckpointFolder) -> None:
    assert folder.read() is None
    assert folder.read_intent() is None


def test_a_run_is_announced_staged_and_finished(folder: CheckpointFolder, tmp_path: Path) -> None:
    folder.begin(INTENT)
    assert folder.read_intent() == INTENT
    complete = folder.staged(INTENT, 6, ["date=2013-07-04/a.parquet"])
    assert folder.read_intent() == complete
    assert (complete.staged, complete.rows, complete.files) == (True, 6, ("date=2013-07-04/a.parquet",))
    folder.finish(CHECKPOINT)
    assert folder.read() == CHECKPOINT
    assert folder.read_intent() is None
    left = sorted(path.name for path in (tmp_path / "_rollway/orders").iterdir() if not path.name.startswith("."))
    assert left == ["checkpoint.json"]


def test_what_a_run_left_in_staging_is_gone_when_the_next_begins(folder: CheckpointFolder) -> None:
    Path(folder.staging).mkdir(parents=True)
    (Path(folder.staging) / "part-0.parquet").write_bytes(b"half")
    folder.begin(INTENT)
    assert not Path(folder.staging).exists()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 2}', '{"version": 1}', '{"version": 1, "run": 1, "offsets": 3}']
)
def test_another_file_is_not_taken_for_a_checkpoint(folder: CheckpointFolder, tmp_path: Path, text: str) -> None:
    (tmp_path / "_rollway/orders").mkdir(parents=True)
    (tmp_path / "_rollway/orders/checkpoint.json").write_text(text)
    (tmp_path / "_rollway/orders/run.json").write_text(text)
    with pytest.raises(JobError, match=r"checkpoint\.json is not of an export of orders") as raised:
        folder.read()
    assert "restore it from a backup" in str(raised.value)
    assert "remove" not in str(raised.value)
    with pytest.raises(JobError, match=r"run\.json is not of an export of orders"):
        folder.read_intent()


def test_a_file_is_replaced_as_a_whole_and_moved_once(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(spark)
    old, new = str(tmp_path / "a/old.json"), str(tmp_path / "b/c/new.json")
    files.replace_text(old, "one")
    files.replace_text(old, "two")
    assert files.read_text(old) == "two"
    files.move(old, new)
    files.move(old, new)
    assert files.read_text(new) == "two"
    assert not files.exists(old)
    assert files.create_text(old, "first")
    assert not files.create_text(old, "second")
    assert files.read_text(old) == "first"
    assert files.files_below(str(tmp_path / "b")) == [("c/new.json", 3)]
    files.delete(new)
    files.delete(new)
    assert files.read_text(new) is None


def test_a_folder_that_cannot_be_written_is_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JobError, match=r"cannot be written: \w+"):
        HadoopFiles(spark).replace_text(str(tmp_path / "file/in/checkpoint.json"), "x")


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_local_file_is_on_the_disk_when_it_is_replaced(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """Contents, then the name, then the folder; and no checksum of older contents is left beside it."""
    files, path = HadoopFiles(spark), tmp_path / "a/checkpoint.json"
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(number: int) -> None:
        steps.append(f"fsync {Path(f'/proc/self/fd/{number}').readlink().name}")
        fsync(number)

    def noted_replace(source: Path, target: Path) -> None:
        steps.append("replace")
        replace(source, target)

    path.parent.mkdir()
    (path.parent / ".checkpoint.json.crc").write_bytes(b"crc of another text")
    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    files.replace_text(f"{scheme}{path}", "new")
    assert steps == ["fsync checkpoint.json.unfinished", "replace", "fsync a"]
    assert [each.name for each in path.parent.iterdir()] == ["checkpoint.json"]
    assert [row[0] for row in spark.read.text(str(path)).collect()] == ["new"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_run_that_ends_while_it_replaces_a_file_leaves_the_old_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    files, path = HadoopFiles(spark), str(tmp_path / "checkpoint.json")
    files.replace_text(path, "old")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, step, killed)
        with pytest.raises(KeyboardInterrupt):
            files.replace_text(path, "new and longer")
    assert files.read_text(path) == "old"
    files.replace_text(path, "new")
    assert files.read_text(path) == "new"


def test_a_file_that_an_older_version_left_with_another_checksum_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop's local file system was killed between renaming the one and the other."""
    path = tmp_path / "checkpoint.json"
    spark.range(1).selectExpr("'old'").coalesce(1).write.text(str(tmp_path / "text"))
    checksum = next((tmp_path / "text").glob(".part*.crc"))
    checksum.rename(tmp_path / ".checkpoint.json.crc")
    path.write_text("new\n")
    assert HadoopFiles(spark).read_text(str(path)) == "new\n"


@pytest.mark.parametrize("has_links", [True, False])
def test_of_many_who_make_a_file_one_does_and_all_see_it_whole(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    """Who comes between the look and the making has it, too."""
    files, path = HadoopFiles(spark), tmp_path / "a/lock.json"
    link = os.link

    def meanwhile(source: Path, target: Path) -> None:
        assert Path(source).read_text() == "ours"
        assert not path.exists()
        if not has_links:
            raise PermissionError(errno.EPERM, "no links here")
        link(source, target)

    monkeypatch.setattr(os, "link", meanwhile)
    assert files.create_text(str(path), "ours")
    assert path.read_text() == "ours"
    monkeypatch.undo()
    assert not files.create_text(str(path), "theirs")
    assert path.read_text() == "ours"
    assert [each.name for each in path.parent.iterdir()] == ["lock.json"]
