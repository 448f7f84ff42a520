"""One writer, many readers, real files: appends, rolls and retention never show a reader anything but the truth."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from log_model.batches.batch_validation import validate_batches
from storage.log.partition_log import AppendRequest, PartitionLog
from tests.model.plain_log import client_batch
from tests.model.race import READER_COUNT, READS_PER_READER, TIMEOUT_S, open_shared_log, run_race


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    manager, log = open_shared_log(tmp_path)
    yield log
    manager.close()


def test_readers_see_only_the_truth_under_rolls_and_retention(log: PartitionLog) -> None:
    """Spec A17, B11, RT-11: whole, right batches or OffsetOutOfRangeError; no torn read, no I/O error."""
    race = run_race(log)
    assert len(race.read_counts) == READER_COUNT
    assert min(race.read_counts) >= READS_PER_READER
    assert race.out_of_range_count > 0, "retention must have overtaken some readers"
    assert race.aborted_seen_count > 0, "readers must have met aborted transactions"
    snapshot = log.snapshot
    assert snapshot.log_end_offset == race.plain.end_offset
    content = b"".join(piece.read() for piece in snapshot.read(snapshot.log_start_offset, 1 << 30).slices)
    assert content == race.plain.read(snapshot.log_start_offset, 1 << 30, race.plain.end_offset)


@pytest.mark.parametrize(("step", "request_count"), [("append_one", 1), ("append", 2)])
def test_a_second_writer_is_refused(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch, step: str, request_count: int
) -> None:
    """Invariant 1: it is a bug, and said so, not a wait; whether the first writes one batch or more."""
    entered, leave = threading.Event(), threading.Event()
    segment = log.snapshot.segments[-1]
    write = getattr(segment, step)

    def slow_write(*batches: object) -> object:
        entered.set()
        assert leave.wait(TIMEOUT_S)
        return write(*batches)

    monkeypatch.setattr(segment, step, slow_write)
    request = AppendRequest(tuple(validate_batches(client_batch((1,), 10).sent, log.config, 1_700_000_000_000)))
    first = threading.Thread(target=log.append, args=([request] * request_count,), daemon=True)
    first.start()
    assert entered.wait(TIMEOUT_S)
    second = AppendRequest(tuple(validate_batches(client_batch((1,), 10).sent, log.config, 1_700_000_000_000)))
    with pytest.raises(RuntimeError, match="second writer"):
        log.append([second])
    leave.set()
    first.join(TIMEOUT_S)
    assert log.publish().log_end_offset == request_count
