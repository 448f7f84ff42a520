"""Entries of an index that the log has confirmed are not looked up in the log again."""

from __future__ import annotations

import ctypes
import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from log_model.offsets import Offset
from log_model.reads import FileSlice
from storage.log.log_snapshot import LogSnapshot
from storage.segment import batch_search
from storage.segment.index_copies import IndexCopy
from tests.cases.logs import CaseLog, sized_batch
from tests.unit.storage.segment.test_batch_search import general, make_copies

BATCHES = 200
SIZES = (150, 400, 9000)
TRIES = 200


def kernel_can_tell(path: Path) -> bool:
    """Whether it has ``cachestat``, Linux 6.5, and lets us call it."""
    stretch, found = (ctypes.c_uint64 * 2)(0, 1), (ctypes.c_uint64 * 5)()
    with path.open("rb") as file:
        answer = ctypes.CDLL(None, use_errno=True).syscall(451, file.fileno(), stretch, found, 0)
    return answer == 0 or ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CaseLog]:
    """Every batch but the first of each segment has an entry."""
    if batch_search.compiled is None:
        pytest.skip("the service was installed without a compiler")
    case = CaseLog(tmp_path, {"segment.bytes": 400_000, "index.interval.bytes": 0})
    source = random.Random(1)
    case.send_group(*(sized_batch(source.choice(SIZES)) for _ in range(BATCHES)))
    if not kernel_can_tell(case.file(Offset(0), ".log")):
        case.kill()
        pytest.skip("this kernel cannot tell")
    yield case
    case.kill()


def read(snapshot: LogSnapshot, offset: Offset, max_bytes: int) -> FileSlice | None:
    """One slice without its content, or ``None``."""
    found = snapshot.read_cached(offset, max_bytes, content_bytes_max=0)
    return found.slices[0] if found is not None and len(found.slices) == 1 else None


def questions(snapshot: LogSnapshot) -> list[tuple[Offset, int]]:
    """What is answered by one slice that ends before its segment does, and begins behind the second batch of it."""
    source = random.Random(2)
    asked = []
    ends = [*snapshot.base_offsets[1:], snapshot.high_watermark]
    for segment, end in zip(snapshot.segments, ends, strict=True):
        for _ in range(100):
            offset = Offset(source.randrange(segment.base_offset + 2, end))
            max_bytes = source.choice((1, 700, 5000, 20_000, 100_000))
            expected = general(snapshot, offset, max_bytes, min_one=True).slices[0]
            if expected.position + max(expected.size_bytes, max_bytes) < segment.size_bytes - max(SIZES):
                asked.append((offset, max_bytes))
    assert len(asked) > 100
    return asked


def spoil(log: CaseLog, snapshot: LogSnapshot) -> None:
    """Write noise over the whole log, which so confirms nothing any more."""
    for segment in snapshot.segments:
        with log.file(segment.base_offset, ".log").open("r+b") as file:
            file.write(random.Random(3).randbytes(segment.size_bytes))


@pytest.mark.parametrize("from_where_one_ended", [False, True])
def test_what_was_confirmed_is_found_without_the_log(log: CaseLog, from_where_one_ended: bool) -> None:
    snapshot = log.snapshot
    assert len(snapshot.segments) > 1
    make_copies(snapshot)
    asked = questions(snapshot)
    if from_where_one_ended:
        # The slices of one reader, who goes on where the one before ended.
        asked, offset = [], Offset(snapshot.segments[0].base_offset + 2)
        while len(asked) < 20:
            asked.append((offset, 9500))
            offset = general(snapshot, offset, 9500, min_one=True).next_offset
    expected = [general(snapshot, *each, min_one=True).slices[0][:3] for each in asked]
    first = [read(snapshot, *each) for each in asked]
    assert [found[:3] for found in first if found is not None] == expected
    spoil(log, snapshot)
    again = [read(snapshot, *each) for each in asked]
    assert [found[:3] for found in again if found is not None] == expected
    assert all(found is not None and found.is_cached for found in again)


def test_what_was_not_confirmed_is_looked_up(log: CaseLog) -> None:
    snapshot = log.snapshot
    make_copies(snapshot)
    asked = questions(snapshot)
    for segment in snapshot.segments:
        segment.batch_search.places.clear()
    spoil(log, snapshot)
    assert sum(read(snapshot, *each) is not None for each in asked) < len(asked) // 10


def test_what_was_confirmed_goes_with_what_is_cut_off(log: CaseLog) -> None:
    make_copies(log.snapshot)
    for each in questions(log.snapshot):
        read(log.snapshot, *each)
    last = log.snapshot.segments[-1]
    log.truncate(last.base_offset + 5)
    source = random.Random(4)
    log.send_group(*(sized_batch(source.choice((333, 222, 444))) for _ in range(BATCHES // 2)))
    snapshot = log.snapshot
    make_copies(snapshot)
    for offset in range(last.base_offset, log.end_offset):
        for max_bytes in (1, 1000, 9000):
            expected = general(snapshot, Offset(offset), max_bytes, min_one=True).slices[0][:3]
            found = read(snapshot, Offset(offset), max_bytes)
            assert found is None or found[:3] == expected


def test_what_was_confirmed_stays_when_the_copy_grows() -> None:
    entry = bytes(8)
    before = IndexCopy(Offset(0), entry * 9)
    before.confirmed[1] = 1
    after = IndexCopy(Offset(0), entry * 16, before)
    assert after.confirmed == bytes((0, 1, 0, 0))
    assert IndexCopy(Offset(0), b"").confirmed == b""


def test_what_is_not_in_memory_any_more_is_not_said_to_be(log: CaseLog) -> None:
    snapshot = log.snapshot
    make_copies(snapshot)
    asked = [each for each in questions(snapshot) if each[1] == 100_000]
    assert asked
    assert all(read(snapshot, *each) is not None for each in asked)
    files = [segment.file.fileno() for segment in snapshot.segments]
    for file in files:
        os.fsync(file)

    def looks_cold(offset: Offset, max_bytes: int) -> bool:
        for _ in range(TRIES):
            for file in files:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            found = read(snapshot, offset, max_bytes)
            if found is None:
                return True
        return False

    if not looks_cold(*asked[0]):
        pytest.skip("this file system keeps what it is told to drop")
    assert all(looks_cold(*each) for each in asked)
