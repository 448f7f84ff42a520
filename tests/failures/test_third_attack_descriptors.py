"""No descriptor to be had: an append that needs one is refused, and the partition goes on once there is one."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from log_model.clock import ManualClock
from log_model.errors import TooManyOpenFilesError
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager
from tests.support.writers import append_request

OPENS_MAX = 10
"""More than an append opens."""


class Descriptors:
    """Stands for ``os.open``: opens this many files more; without a number, any."""

    def __init__(self, error: int) -> None:
        self.left: int | None = None
        self._error = error
        self._open = os.open

    def __call__(self, path: Any, *arguments: Any, **options: Any) -> int:
        if self.left is not None:
            if not self.left:
                raise OSError(self._error, os.strerror(self._error), str(path))
            self.left -= 1
        return self._open(path, *arguments, **options)


def opened(directory: Path, segment_bytes: int) -> tuple[LogManager, list[PartitionLog]]:
    manager = LogManager.open(directory, clock=ManualClock(1_700_000_000_000))
    topic, _ = manager.create_topic("t", OPENS_MAX, {"segment.bytes": segment_bytes})
    return manager, list(topic.partitions)


def append(log: PartitionLog, *values: bytes) -> None:
    """One request for each value, in one group."""
    for answer in log.append([append_request(log, value) for value in values]):
        if isinstance(answer, Exception):
            raise answer
    log.publish()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize(
    ("segment_bytes", "values"),
    [(200, [b"y" * 100]), (10_000, [b"y" * 100]), (10_000, [b"y", b"y"])],
    ids=["an append that rolls", "the first append after a start", "the first group after a start"],
)
def test_an_append_that_may_open_no_file_is_refused_and_works_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment_bytes: int, values: list[bytes], error: int
) -> None:
    """The partition went offline until the next restart, of a service that said it was ready."""
    descriptors = Descriptors(error)
    monkeypatch.setattr(os, "open", descriptors)
    manager, logs = opened(tmp_path, segment_bytes)
    for log in logs:
        append(log, b"x" * 100)
    if segment_bytes > 200:
        assert manager.close()
        manager, logs = opened(tmp_path, segment_bytes)
    refused: list[int] = []
    ends: list[int] = []
    for left, log in enumerate(logs):
        descriptors.left = left
        try:
            append(log, *values)
        except TooManyOpenFilesError:
            refused.append(left)
        descriptors.left = None
        assert log.offline_reason is None
        append(log, b"z" * 100)
        ends.append(log.snapshot.log_end_offset)
        assert ends[-1] == 2 + (0 if left in refused else len(values))
    # Refused as long as one of its files could not be opened: at least a log and its indexes.
    assert refused == list(range(len(refused)))
    assert 3 <= len(refused) < OPENS_MAX
    assert manager.close()
    manager, logs = opened(tmp_path, segment_bytes)
    assert [log.snapshot.log_end_offset for log in logs] == ends
    assert manager.close()
