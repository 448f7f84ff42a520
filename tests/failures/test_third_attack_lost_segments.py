"""A segment file that is gone from the beginning of a log is a loss until somebody has decided, however many starts
later."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from log_model.reads import Isolation
from rollway.records import split_batches
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager
from tests.support.writers import append_request

SEGMENT_COUNT = 4


def close(manager: LogManager) -> None:
    manager.close()


def kill(manager: LogManager) -> None:
    """As a service does that is killed after its checkpoints were due."""
    manager.checkpoint()
    manager.checkpoint_high_watermarks()
    manager._lock.release()


def write(directory: Path) -> Path:
    """A log of some segments with a record each; where its first file is."""
    manager = LogManager.open(directory)
    topic, _ = manager.create_topic("lost", 1, {"segment.bytes": 90})
    (log,) = topic.partitions
    for number in range(SEGMENT_COUNT):
        log.append([append_request(log, b"value %d" % number)])
    log.flush()
    log.publish()
    assert len(log.snapshot.segments) == SEGMENT_COUNT
    manager.close()
    return log.directory / f"{0:020}.log"


def offsets(log: PartitionLog) -> list[int]:
    shown = log.snapshot
    found = shown.read(shown.log_start_offset, 1 << 20, isolation=Isolation.LOG_END)
    batches = split_batches(b"".join(piece.read() for piece in found.slices))
    return [batch.header.base_offset for batch in batches]


@pytest.mark.parametrize("end", [close, kill])
def test_a_first_segment_that_is_lost_stays_lost_until_it_is_restored(
    tmp_path: Path, end: Callable[[LogManager], None]
) -> None:
    """The next start but one took the loss for a deletion: no damage, appends, and a restored file was removed."""
    first = write(tmp_path)
    content = first.read_bytes()
    first.unlink()
    for _ in range(3):
        manager = LogManager.open(tmp_path)
        log = manager.partition("lost", 0)
        assert log.offline_reason is not None
        assert "offsets 0 to 1 are damaged" in log.offline_reason
        assert offsets(log) == [1, 2, 3]
        end(manager)
    first.write_bytes(content)
    for _ in range(2):
        manager = LogManager.open(tmp_path)
        log = manager.partition("lost", 0)
        assert log.offline_reason is None
        assert offsets(log) == [0, 1, 2, 3]
        end(manager)


@pytest.mark.parametrize("end", [close, kill])
def test_all_segments_that_are_lost_stay_lost_until_they_are_restored(
    tmp_path: Path, end: Callable[[LogManager], None]
) -> None:
    directory = write(tmp_path).parent
    contents = {path: path.read_bytes() for path in directory.glob("*.log")}
    for path in contents:
        path.unlink()
    for _ in range(3):
        manager = LogManager.open(tmp_path)
        assert manager.partition("lost", 0).offline_reason is not None
        end(manager)
    for path, content in contents.items():
        path.write_bytes(content)
    manager = LogManager.open(tmp_path)
    assert offsets(manager.partition("lost", 0)) == [0, 1, 2, 3]
    manager.close()


def test_a_lost_first_segment_is_accepted_by_a_line(tmp_path: Path) -> None:
    """As docs/how-to/repair.md has it."""
    write(tmp_path).unlink()
    gaps = {"version": 1, "truncation_gaps": [["lost", 0, 0, 1]]}
    (tmp_path / "rollway" / "truncation-gaps").write_text(json.dumps(gaps))
    for number in range(2):
        manager = LogManager.open(tmp_path)
        log = manager.partition("lost", 0)
        assert log.offline_reason is None
        assert log.snapshot.log_start_offset == 1
        log.append([append_request(log, b"goes on")])
        log.flush()
        log.publish()
        assert offsets(log) == [1, 2, 3, *range(4, 5 + number)]
        manager.close()
