"""In the last quarter of a segment the disk is asked to write what gathers, in pieces, one after the other."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from storage.disk.file_system import LocalFile, LocalFileSystem
from storage.segment import writeback
from tests.crash.simulated_disk import SimulatedFile
from tests.support.servers import ThreadedServer, http_client
from tests.support.writers import WriterStand, append_request, eventually, on_stand, record_batch

SEGMENT_BYTES = 40_000
GATHERED_BYTES = 1000
ASKED_BYTES_MAX = 8 * GATHERED_BYTES
JOURNALED_BYTES = 2000
VALUE = b"x" * 400
BATCH = record_batch(VALUE)
BATCHES_OF_A_SEGMENT = SEGMENT_BYTES // len(BATCH)


class Asked(NamedTuple):
    name: str
    position: int
    length: int

    @property
    def end(self) -> int:
        return self.position + self.length


class Disk:
    """Notes what a disk was asked for, and can be slow."""

    def __init__(self, kind: type[LocalFile | SimulatedFile], monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[Asked] = []
        self.goes_on = threading.Event()
        self.goes_on.set()
        begin = kind.begin_writeback

        def noted(file: LocalFile | SimulatedFile, position: int, length: int) -> None:
            self.asked.append(Asked(file.path.name, position, length))
            begin(file, position, length)  # type: ignore[arg-type]
            assert self.goes_on.wait(30)

        monkeypatch.setattr(kind, "begin_writeback", noted)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writeback, "GATHERED_BYTES", GATHERED_BYTES)
    monkeypatch.setattr(writeback, "ASKED_BYTES_MAX", ASKED_BYTES_MAX)
    monkeypatch.setattr(writeback, "JOURNALED_BYTES", JOURNALED_BYTES)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(SimulatedFile, monkeypatch)


async def append_one(stand: WriterStand) -> None:
    await stand.writer.append(append_request(stand.log, VALUE), size_bytes=len(BATCH)).written


async def append(stand: WriterStand, count: int) -> None:
    for _ in range(count):
        await append_one(stand)
        # What is asked for here is asked for before the next append.
        if stand.writer.flushes.writeback is not None:
            await stand.writer.flushes.writeback


async def append_to_journal(stand: WriterStand) -> None:
    """Not through the writer: its own fsync could come before the journal's."""
    await eventually(lambda: stand.writer.is_idle)
    stand.log.append([append_request(stand.log, VALUE)])
    assert stand.manager.journal.flush([stand.log]) == [True]
    assert stand.log.writer.journal is stand.manager.journal


def check_pieces(asked: list[Asked]) -> None:
    """Of each file pieces that follow each other, none of them large."""
    for _, pieces in itertools.groupby(asked, key=lambda each: each.name):
        end = 0
        for piece in pieces:
            assert piece.position == end
            assert 0 < piece.length <= ASKED_BYTES_MAX
            end = piece.end


def test_nothing_is_asked_for_in_most_of_a_segment(disk: Disk) -> None:
    async def main(stand: WriterStand) -> None:
        await append(stand, BATCHES_OF_A_SEGMENT * 3 // 4 - 1)
        assert disk.asked == []
        await append(stand, 2)
        assert disk.asked == [Asked("00000000000000000000.log", 0, ASKED_BYTES_MAX)]

    on_stand(main, flush_policy="interval", segment_bytes=SEGMENT_BYTES)


def test_all_but_the_last_is_asked_for_before_the_roll_and_each_segment_begins_anew(disk: Disk) -> None:
    async def main(stand: WriterStand) -> None:
        await append(stand, BATCHES_OF_A_SEGMENT * 3)
        check_pieces(disk.asked)
        segments = stand.log.snapshot.segments[:-1]
        assert len(segments) == 2
        for segment in segments:
            ends = [each.end for each in disk.asked if each.name == segment.file.path.name]
            assert segment.size_bytes - GATHERED_BYTES - len(BATCH) < ends[-1] <= segment.size_bytes

    on_stand(main, flush_policy="interval", segment_bytes=SEGMENT_BYTES)


def test_a_disk_that_is_slow_to_begin_is_not_asked_twice_at_a_time(disk: Disk) -> None:
    async def main(stand: WriterStand) -> None:
        await append(stand, BATCHES_OF_A_SEGMENT * 3 // 4 - 1)
        disk.goes_on.clear()
        for _ in range(12):
            await append_one(stand)
        await eventually(lambda: len(disk.asked) == 1)
        disk.goes_on.set()
        await append(stand, 6)
        assert len(disk.asked) > 1
        check_pieces(disk.asked)

    on_stand(main, flush_policy="interval", segment_bytes=SEGMENT_BYTES)


@pytest.mark.parametrize(
    "config", [{"flush_policy": "group"}, {"flush_policy": "interval", "segment_bytes": 4 * GATHERED_BYTES - 1}]
)
def test_topics_that_are_left_alone(disk: Disk, config: dict[str, object]) -> None:
    async def main(stand: WriterStand) -> None:
        await append(stand, BATCHES_OF_A_SEGMENT)
        assert disk.asked == []

    on_stand(main, **{"segment_bytes": SEGMENT_BYTES, **config})


def test_what_the_journal_makes_durable_is_asked_for_from_the_beginning_to_the_roll(disk: Disk) -> None:
    async def main(stand: WriterStand) -> None:
        await append_to_journal(stand)
        await append(stand, 2 * BATCHES_OF_A_SEGMENT)
        check_pieces(disk.asked)
        for segment in stand.log.snapshot.segments[:-1]:
            asked = [each for each in disk.asked if each.name == segment.file.path.name]
            assert JOURNALED_BYTES <= asked[0].length < JOURNALED_BYTES + len(BATCH)
            assert segment.size_bytes - JOURNALED_BYTES - len(BATCH) < asked[-1].end <= segment.size_bytes

    on_stand(main, flush_policy="group", segment_bytes=SEGMENT_BYTES)


def test_what_was_fsynced_before_there_was_a_journal_is_not_asked_for(disk: Disk) -> None:
    async def main(stand: WriterStand) -> None:
        await append(stand, BATCHES_OF_A_SEGMENT // 2)
        durable = stand.log.snapshot.segments[-1].size_bytes
        await append_to_journal(stand)
        await append(stand, BATCHES_OF_A_SEGMENT // 4)
        assert disk.asked
        assert disk.asked[0].position > durable - JOURNALED_BYTES - len(BATCH)

    on_stand(main, flush_policy="group", segment_bytes=SEGMENT_BYTES)


def test_small_segments_of_a_journal_are_left_alone(disk: Disk) -> None:
    async def main(stand: WriterStand) -> None:
        await append_to_journal(stand)
        await append(stand, 3 * JOURNALED_BYTES * 4 // len(BATCH))
        assert disk.asked == []

    on_stand(main, flush_policy="group", segment_bytes=4 * JOURNALED_BYTES - 1)


def test_a_log_that_is_cut_is_asked_for_from_where_it_ends(disk: Disk) -> None:
    async def main(stand: WriterStand) -> None:
        await append(stand, BATCHES_OF_A_SEGMENT - 2)
        asked = list(disk.asked)
        end = stand.log.snapshot.log_end_offset
        await stand.writer.run(lambda: stand.log.truncate_to(end - BATCHES_OF_A_SEGMENT // 8))
        await append(stand, BATCHES_OF_A_SEGMENT // 8)
        assert disk.asked[: len(asked)] == asked
        assert all(each.length > 0 for each in disk.asked)
        assert max(each.end for each in disk.asked) <= stand.log.snapshot.segments[-1].size_bytes

    on_stand(main, flush_policy="interval", segment_bytes=SEGMENT_BYTES)


def test_a_file_promises_nothing_and_a_closed_one_does_not_mind(tmp_path: Path) -> None:
    file = LocalFileSystem().open(tmp_path / "a", create=True)
    file.write(0, [b"x" * 10_000])
    file.begin_writeback(0, 10_000)
    file.begin_writeback(5000, 10**9)
    file.sync()
    assert file.read(0, 10_000) == b"x" * 10_000
    file.close()
    file.begin_writeback(0, 10_000)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with ThreadedServer(tmp_path / "data") as server, http_client(server.url) as client:
        yield client


@pytest.mark.parametrize("value_bytes", [400, 2000])
def test_batches_that_take_a_short_way_are_counted_as_well(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, value_bytes: int
) -> None:
    disk = Disk(LocalFile, monkeypatch)
    client.put("/v1/topics/t", json={"config": {"flush.policy": "interval", "segment.bytes": str(SEGMENT_BYTES)}})
    batch, headers = record_batch(b"x" * value_bytes), {"Content-Type": "application/vnd.kafka.record-batch.v2"}

    def send(count: int) -> None:
        for _ in range(count):
            assert client.post("/v1/topics/t/partitions/0/records", content=batch, headers=headers).status_code == 200

    send(SEGMENT_BYTES * 3 // 4 // len(batch) - 1)
    assert disk.asked == []
    # While a thread is not known to have ended nobody asks again; but of one segment in two somebody has.
    send(5 * SEGMENT_BYTES // len(batch))
    assert len({each.name for each in disk.asked}) > 1
    check_pieces(disk.asked)
