"""The quick way over good batches says what the careful one says, whatever is wrong with the file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from log_model.config import TopicConfig
from log_model.offsets import LeaderEpoch, Offset, Position
from rollway.records import split_batches, stamp
from storage.disk.file_system import LocalFileSystem
from storage.index.index_builder import IndexSettings
from storage.log.leader_epochs import LeaderEpochs
from storage.recovery.segment_scan import SegmentScan, SegmentScanner
from storage.segment.segment import Segment
from tests.cases.logs import batch_of

BATCH_COUNT = 9


def written_log(directory: Path, **fields: int) -> bytes:
    log = bytearray()
    for number in range(BATCH_COUNT):
        batch = bytearray(batch_of(2, value=b"v" * (number * 7), **fields))
        stamp(batch, 0, 2 * number, int(number >= 5))
        log += batch
    (directory / "00000000000000000000.log").write_bytes(log)
    return bytes(log)


def scan(directory: Path, recovery_point: int = 0, told: list[int] | None = None) -> SegmentScan:
    path = directory / "00000000000000000000.log"
    file_system = LocalFileSystem()
    epochs = LeaderEpochs(file_system, directory / "epochs")
    epochs.assign(LeaderEpoch(0), Offset(0))
    epochs.assign(LeaderEpoch(1), Offset(10))
    segment = Segment(
        file_system,
        directory,
        Offset(0),
        IndexSettings.of(TopicConfig.parse({})),
        size_bytes=path.stat().st_size,
        created_ms=0,
        sealed=False,
    )
    scanner = SegmentScanner(
        segment,
        epochs,
        has_gaps=False,
        durable_end=Offset(4),
        following=None,
        recovery_point=Offset(recovery_point),
        tell=(told if told is not None else []).append,
    )
    return scanner.scan()


@pytest.mark.parametrize("piece_bytes", [61, 200, 4096])
def test_both_ways_agree_on_damaged_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    good = written_log(tmp_path)
    choice = random.Random(4)
    path = tmp_path / "00000000000000000000.log"
    for _ in range(150):
        damaged = bytearray(good[: choice.choice([len(good), choice.randrange(len(good))])])
        for _ in range(choice.randrange(3)):
            if damaged:
                damaged[choice.randrange(len(damaged))] ^= 1 << choice.randrange(8)
        path.write_bytes(damaged)
        with monkeypatch.context() as careful:
            careful.setattr(SegmentScanner, "_pass_good", lambda _, position, offset: (position, offset))
            expected = scan(tmp_path)
        monkeypatch.setattr("storage.recovery.segment_scan._PASS_BYTES", piece_bytes)
        found = scan(tmp_path)
        assert (found.valid_bytes, found.end_offset, found.problem, found.holes, found.is_old_format) == (
            expected.valid_bytes,
            expected.end_offset,
            expected.problem,
            expected.holes,
            expected.is_old_format,
        )


def test_a_scan_tells_all_bytes_once_and_whether_there_are_producers(tmp_path: Path) -> None:
    good = written_log(tmp_path)
    told: list[int] = []
    assert not scan(tmp_path, told=told).has_producers
    assert sum(told) == len(good)
    written_log(tmp_path, producer_id=7, producer_epoch=0, base_sequence=0)
    assert scan(tmp_path).has_producers


def test_what_is_below_the_recovery_point_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = written_log(tmp_path)
    ends = [0]
    for batch in split_batches(good):
        ends.append(ends[-1] + batch.header.size_bytes)
    monkeypatch.setattr("storage.recovery.segment_scan._PASS_BYTES", 400)
    for recovery_point in range(2 * BATCH_COUNT + 1):
        result = scan(tmp_path, recovery_point)
        assert result.durable_bytes in ends
        assert result.durable_bytes <= ends[recovery_point // 2]
        assert [tuple(run) for run in result.runs(result.durable_bytes)] == [(result.durable_bytes, len(good))]
    assert scan(tmp_path, 2 * BATCH_COUNT).durable_bytes > Position(0)
