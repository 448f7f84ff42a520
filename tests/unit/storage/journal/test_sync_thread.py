"""The thread that needs no interpreter: each fsync has one outcome, errors are told, and the end waits for nothing."""

from __future__ import annotations

import errno
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollway.records.compiled import load

compiled = load("storage.journal.sync_thread_c")

pytestmark = pytest.mark.skipif(compiled is None, reason="needs the compiled module")


@pytest.fixture
def thread() -> Iterator[Any]:
    assert compiled is not None
    made = compiled.SyncThread()
    yield made
    made.close()


def outcome(thread: Any) -> tuple[OSError | None, float]:
    assert select.select([thread.done_descriptor], [], [], 30)[0]
    taken: tuple[OSError | None, float] = thread.take()
    return taken


def test_each_sync_has_one_outcome(thread: Any, tmp_path: Path) -> None:
    with (tmp_path / "f").open("wb") as file:
        for number in range(100):
            assert thread.take() is None
            file.write(b"%d" % number)
            file.flush()
            thread.begin(file.fileno())
            error, seconds = outcome(thread)
            assert error is None
            assert seconds >= 0
    assert thread.take() is None


def test_an_error_is_told_and_the_next_sync_has_its_own_outcome(thread: Any, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with (tmp_path / "f").open("wb") as file:
        thread.begin(writing)
        error, _ = outcome(thread)
        assert isinstance(error, OSError)
        assert error.errno == errno.EINVAL
        thread.begin(file.fileno())
        assert outcome(thread)[0] is None
    os.close(reading)
    os.close(writing)
    thread.begin(writing)
    error, _ = outcome(thread)
    assert error is not None
    assert error.errno == errno.EBADF
    assert error.strerror == os.strerror(errno.EBADF)


def test_a_thread_that_was_closed_leaves_no_descriptor() -> None:
    assert compiled is not None
    before = sorted(Path("/proc/self/fd").iterdir())
    threads = [compiled.SyncThread() for _ in range(20)]
    for thread in threads[:10]:
        thread.close()
        thread.close()
    with pytest.raises(OSError, match=r"."):
        threads[0].begin(0)
    thread = None
    del threads
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_it_takes_no_signals(thread: Any, tmp_path: Path) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number))
    try:
        with (tmp_path / "f").open("wb") as file:
            for _ in range(50):
                thread.begin(file.fileno())
                os.kill(os.getpid(), signal.SIGUSR1)
                assert outcome(thread)[0] is None
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [signal.SIGUSR1] * 50
