"""The pieces of an entry: the compiled module and the plain one take and note the same, in any state of the logs."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from log_model.clock import ManualClock
from log_model.errors import PartitionFailedError
from storage.journal import pieces, pieces_py
from storage.journal.entries import PIECE_OVERHEAD_BYTES
from storage.journal.journal_files import JournalFile
from storage.journal.pieces import PIECE_BYTES_MAX, Answer, TakenPieces
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager
from tests.crash.workload import new_disk
from tests.support.writers import append_request, record_batch

compiled: Any = pieces.compiled
BATCH_OVERHEAD = len(record_batch(b"x" * 60_000)) - 60_000

pytestmark = pytest.mark.skipif(compiled is None, reason="needs the compiled module")


def logs_of(directory: Path, is_local: bool, count: int = 4) -> list[PartitionLog]:
    clock = ManualClock()
    if is_local:
        manager = LogManager.open(directory, clock=clock, ballast_bytes=512)
    else:
        manager = LogManager.open(Path("/data"), file_system=new_disk(clock), clock=clock, ballast_bytes=512)
    return list(manager.create_topic("t", count, {"segment.bytes": 300_000})[0].partitions)


@pytest.fixture(params=[True, False], ids=["local", "simulated"])
def is_local(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@contextmanager
def held_elsewhere(log: PartitionLog) -> Iterator[None]:
    """Hold ``flushing`` of a log in another thread."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with log.writer.flushing:
            held.set()
            assert done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(30)
    try:
        yield
    finally:
        done.set()
        thread.join()


def append(log: PartitionLog, size_bytes: int) -> None:
    log.append((append_request(log, b"x" * size_bytes),))


def disturb(log: PartitionLog, source: random.Random, is_local: bool) -> None:
    """Bring a log into some state in which a flush may find it."""
    for _ in range(source.randrange(4)):
        append(log, source.choice((0, 1, 900, 30_000, 70_000)))
        what = source.randrange(9)
        if what == 0:
            log.flush()
        elif what == 1:
            log.roll()
        elif what == 2:
            append(log, PIECE_BYTES_MAX - BATCH_OVERHEAD - (log.unflushed_bytes if log.unflushed_bytes < 60_000 else 0))
        elif what == 3 and log.offline_reason is None:
            log.truncate_to(log.written_end_offset - 1)
        elif what == 4 and not is_local:
            log.writer.written.active.file.truncate(max(0, log.writer.written.log_end.position - 1))
            return
        elif what == 5:
            log.take_offline("of the test")
            return


def both(logs: list[PartitionLog], bytes_max: int) -> tuple[list[TakenPieces], list[list[Answer]]]:
    """Take the pieces twice, and let go of the logs each time."""
    taken, answers = [], []
    for take in (pieces_py.take_pieces, compiled.take):
        answers.append([False] * len(logs))
        taken.append(take(logs, answers[-1], bytes_max))
        taken[-1].release()
    return taken, answers


@pytest.mark.parametrize("seed", range(60))
def test_both_take_the_same(seed: int, is_local: bool, tmp_path: Path) -> None:
    source = random.Random(seed)
    logs = logs_of(tmp_path, is_local)
    for log in logs:
        disturb(log, source, is_local)
    if source.random() < 0.3:
        logs.append(source.choice(logs))
    (plain, ours), (plain_answers, answers) = both(logs, source.choice((200_000, 200_000, 40_000, 1_100, 0)))
    assert ours == plain
    # A file that was cut is found by the first look, and the log is offline for the next.
    assert [isinstance(each, PartitionFailedError) or each for each in answers] == [
        isinstance(each, PartitionFailedError) or each for each in plain_answers
    ]
    with held_elsewhere(logs[0]):
        pass


def test_a_log_that_is_held_elsewhere_is_left_out(is_local: bool, tmp_path: Path) -> None:
    logs = logs_of(tmp_path, is_local)
    for log in logs:
        append(log, 10)
    with held_elsewhere(logs[1]):
        (plain, ours), answers = both(logs, 200_000)
    assert ours == plain
    assert ours.places == [0, 2, 3]
    assert answers == [[False] * 4] * 2


@pytest.mark.parametrize("missing", [0, 1])
def test_the_limit_counts_every_byte(missing: int, is_local: bool, tmp_path: Path) -> None:
    logs = logs_of(tmp_path, is_local)
    for log in logs:
        append(log, 10)
    size_bytes = sum(log.unflushed_bytes + PIECE_OVERHEAD_BYTES for log in logs)
    (plain, ours), _ = both(logs, size_bytes - missing)
    assert ours == plain
    assert ours.places == [0, 1, 2, 3][: 4 - missing]
    assert len(ours.body) <= size_bytes - missing


def test_a_local_file_that_was_cut_fails_its_log_alone(tmp_path: Path) -> None:
    logs = logs_of(tmp_path, is_local=True)
    for log in logs:
        append(log, 10)
    logs[2].writer.written.active.file.truncate(20)
    answers: list[Answer] = [False] * 4
    taken = pieces.take_pieces(logs, answers, 200_000)
    taken.release()
    assert taken.places == [0, 1, 3]
    assert [type(answer) for answer in answers] == [bool, bool, PartitionFailedError, bool]
    assert [log.offline_reason is None for log in logs] == [True, True, False, True]


def test_an_error_lets_go_of_all_logs(is_local: bool, tmp_path: Path) -> None:
    logs: list[Any] = [*logs_of(tmp_path, is_local), object()]
    for log in logs[:4]:
        append(log, 10)
    for take in (pieces_py.take_pieces, compiled.take):
        with pytest.raises(AttributeError):
            take(logs, [False] * 5, 200_000)
        for log in logs[:4]:
            with held_elsewhere(log):
                pass


class _Journal:
    def forget(self, name: object, topic_id: str) -> None:
        """Never called."""


def noted(log: PartitionLog) -> tuple[object, ...]:
    writer = log.writer
    journaled = writer.journaled
    assert journaled is not None
    return (
        writer.durable_end,
        writer.recovery_point,
        writer.fsynced_end,
        writer.last_flush_ms,
        type(writer.journal),
        journaled.offset,
    )


@pytest.mark.parametrize("seed", range(30))
def test_both_note_the_same(seed: int, tmp_path: Path) -> None:
    source = random.Random(seed)
    stands = [logs_of(tmp_path, is_local=False) for _ in range(2)]
    files: list[Any] = [JournalFile(None, 0) for _ in stands]  # type: ignore[arg-type]
    for _ in range(6):
        what, sizes = source.randrange(6), [source.randrange(900) for _ in range(4)]
        for logs, file, note in zip(stands, files, (pieces_py.note_journaled, compiled.note), strict=True):
            for log, size_bytes in zip(logs, sizes, strict=True):
                append(log, size_bytes)
            answers: list[Answer] = [False] * 4
            taken = pieces.take_pieces(logs, answers, 200_000)
            logs[0].writer.clock.advance(10)  # type: ignore[attr-defined]
            if what == 0:
                # Later bytes became durable meanwhile.
                append(logs[1], 10)
                logs[1].flush()
            elif what == 1:
                logs[2].writer.failed = True
            elif what == 2:
                file.use = object()
                file.logs.clear()
            note(taken, _Journal(), file)
            taken.release()
        assert [noted(log) for log in stands[0]] == [noted(log) for log in stands[1]]
        for logs, file in zip(stands, files, strict=True):
            assert {log: each.offset for log, each in file.logs.items()} == {
                log: taken_end.offset for log, taken_end in zip(logs, taken.ends, strict=True)
            }


def test_a_note_waits_for_another_thread_that_notes(tmp_path: Path) -> None:
    log, *_ = logs_of(tmp_path, is_local=False)
    append(log, 10)
    taken = pieces.take_pieces([log], [False], 200_000)
    file: Any = JournalFile(None, 0)  # type: ignore[arg-type]
    journal: Any = _Journal()
    with log.writer.durable_lock:
        thread = threading.Thread(target=compiled.note, args=(taken, journal, file))
        thread.start()
        assert log.writer.durable_end.offset == 0
    thread.join()
    taken.release()
    assert (log.writer.durable_end.offset, log.writer.journaled.offset) == (1, 1)  # type: ignore[union-attr]
