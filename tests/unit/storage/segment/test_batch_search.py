"""The quick way of reading a segment: from memory alone where it can, and never another answer than the general way."""

from __future__ import annotations

import os
import random
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from log_model.offsets import LogOffsetMetadata, Offset
from log_model.reads import FetchData, Isolation
from storage.disk.file_system import LocalFile, LocalFileSystem
from storage.log.log_snapshot import LogSnapshot
from storage.segment import batch_search, index_copies
from storage.segment.segment import Segment
from tests.cases.logs import START_MS, CaseLog, batch_of, sized_batch
from tests.cases.transactional import Producer

pytestmark = pytest.mark.usefixtures("twin")

BATCHES = 300
# Small beside the index interval, and large.
SIZES = (150, 400, 9000)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CaseLog]:
    case = CaseLog(tmp_path, {"segment.bytes": 400_000, "index.interval.bytes": 4096})
    source = random.Random(1)
    case.send_group(*(sized_batch(source.choice(SIZES)) for _ in range(BATCHES)))
    yield case
    case.kill()


def make_copies(snapshot: LogSnapshot) -> None:
    """Miss every index twice, so that a thread's read makes its copy."""
    for segment in snapshot.segments:
        offset, limit = Offset(segment.base_offset + 20), segment.size_bytes
        for _ in range(3):
            if segment.batch_search.find_cached(offset, limit, 1, min_one=True, content_bytes_max=0) is None:
                segment.read(offset, limit, 1, min_one=True)
        assert segment.batch_search.find_cached(offset, limit, 1, min_one=True, content_bytes_max=0) is not None


def general(snapshot: LogSnapshot, offset: Offset, max_bytes: int, *, min_one: bool) -> FetchData:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_search.BatchSearch, "find", lambda *_, **__: None)
        return snapshot.read(offset, max_bytes, min_one=min_one)


class CountedSearch:
    """The compiled way, and how often it gave an answer."""

    def __init__(self, search: batch_search.CompiledSearch) -> None:
        self._search = search
        self.asked = self.answered = self.read_count = 0

    def find(self, *arguments: Any) -> Any:
        found = self._search.find(*arguments)
        self.asked += 1
        self.answered += found is not None
        return found

    def read(self, *arguments: Any) -> Any:
        found = self._search.read(*arguments)
        self.read_count += found is not None
        return found


def test_all_ways_give_the_same_batches(log: CaseLog, monkeypatch: pytest.MonkeyPatch) -> None:
    search = batch_search.compiled
    counted = None if search is None else CountedSearch(search)
    monkeypatch.setattr(batch_search, "compiled", counted)
    snapshot = log.snapshot
    assert len(snapshot.segments) > 1
    make_copies(snapshot)
    source = random.Random(2)
    for _ in range(2000):
        offset = Offset(source.randrange(BATCHES + 1))
        max_bytes = source.choice((0, 1, 150, 700, 5000, 20_000, 100_000, 1 << 30))
        min_one, contents = source.random() < 0.7, source.choice((0, 1000, 16_384))
        expected = general(snapshot, offset, max_bytes, min_one=min_one)
        places = [(piece.position, piece.size_bytes) for piece in expected.slices]
        quick = snapshot.read(offset, max_bytes, min_one=min_one, content_bytes_max=contents)
        cached = snapshot.read_cached(offset, max_bytes, min_one=min_one, content_bytes_max=contents)
        assert cached is not None
        for found in (quick, cached):
            assert found.next_offset == expected.next_offset
            assert [(piece.position, piece.size_bytes) for piece in found.slices] == places
            assert [piece.read() for piece in found.slices] == [piece.read() for piece in expected.slices]
            for piece in found.slices:
                assert piece.content is None or piece.size_bytes <= contents
                assert piece.content is None or piece.content == piece.file.read(piece.position, piece.size_bytes)
    # The compiled ways leave nothing of all that to the one in Python; and the quickest is taken where it may be.
    assert counted is None or (counted.answered == counted.asked > 1000 and counted.read_count > 100)


@pytest.mark.parametrize("value_bytes", [450, 990, 1005, 1025, 2100])
def test_each_offset_between_two_entries_is_found(tmp_path: Path, value_bytes: int) -> None:
    """Whether the batch of the next entry is the one, or one before it."""
    log = CaseLog(tmp_path, {"index.interval.bytes": 4096})
    batch = batch_of(timestamps=[START_MS] * 4, value=b"v" * value_bytes)
    size = len(batch)
    log.send_group(*[batch] * 40)
    make_copies(log.snapshot)
    offsets = list(range(160))
    random.Random(3).shuffle(offsets)
    for offset in offsets:
        expected = general(log.snapshot, Offset(offset), size, min_one=True)
        found = log.snapshot.read_cached(Offset(offset), size, content_bytes_max=16_384)
        assert found is not None
        assert found.next_offset == expected.next_offset == offset // 4 * 4 + 4
        assert [piece.position for piece in found.slices] == [offset // 4 * size]
        assert [piece.read() for piece in found.slices] == [piece.read() for piece in expected.slices]
    log.kill()


def test_who_goes_on_where_a_read_ended_needs_no_index(log: CaseLog) -> None:
    snapshot = log.snapshot
    for segment in snapshot.segments:
        segment.offset_index.get().close()
    offset, end = Offset(0), snapshot.high_watermark
    seen = 0
    while offset < end:
        found = snapshot.read_cached(offset, 9000, content_bytes_max=9000)
        assert found is not None
        seen += found.size_bytes
        offset = found.next_offset
    assert seen == snapshot.size_bytes


def test_cold_bytes_are_left_to_a_thread(log: CaseLog, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = log.snapshot
    make_copies(snapshot)
    with monkeypatch.context() as patch, Path(os.devnull).open("rb") as nothing:
        # Nothing to read for the compiled way, no answer for the other.
        for segment in snapshot.segments:
            patch.setattr(segment.file, "descriptor", nothing.fileno())
        patch.setattr(LocalFile, "read_cached", lambda *_: None)
        assert snapshot.read_cached(Offset(5), 9000) is None
    assert snapshot.read(Offset(5), 9000).slices
    # Nothing to read, nothing to wait for.
    end = snapshot.high_watermark
    assert snapshot.read_cached(end, 9000) == FetchData((), end)


def test_a_garbled_entry_is_left_to_the_general_way(log: CaseLog) -> None:
    snapshot = log.snapshot
    segment = snapshot.segments[0]
    path = log.file(segment.base_offset, ".index")
    content = bytearray(path.read_bytes())
    source = random.Random(3)
    entries = log.offset_entries(segment.base_offset)
    for place in range(0, 8 * len(entries), 8):
        content[place + source.randrange(8)] ^= 1 << source.randrange(8)
    path.write_bytes(content)
    for _ in range(3):
        segment.batch_search.find_cached(Offset(40), segment.size_bytes, 5000, min_one=True, content_bytes_max=0)
        segment.read(Offset(40), segment.size_bytes, 5000, min_one=True)
    for offset in range(1, 60):
        expected = general(snapshot, Offset(offset), 5000, min_one=True)
        assert snapshot.read(Offset(offset), 5000).slices[0].read() == expected.slices[0].read()
        cached = snapshot.read_cached(Offset(offset), 5000)
        assert cached is None or cached.slices[0].read() == expected.slices[0].read()


def test_spoiled_bytes_are_never_taken_for_others(log: CaseLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where both ways find something in a log or an index that is garbled, they find the same; mostly they do not."""
    search = batch_search.compiled
    snapshot = log.snapshot
    make_copies(snapshot)
    segment = snapshot.segments[0]
    copy = index_copies.COPIES.get(segment.batch_search.key)
    assert copy is not None
    path = log.file(segment.base_offset, ".log")
    content = path.read_bytes()
    heads = [batch.position for batch in segment.walk(0, segment.size_bytes)]
    source = random.Random(4)
    found_count = 0
    for _ in range(1500):
        spoiled = bytearray(content)
        for _ in range(source.randrange(3)):
            spoiled[source.choice(heads) + source.randrange(27)] ^= 1 << source.randrange(8)
        path.write_bytes(spoiled)
        entries = [array("i", copy.offsets), array("i", copy.positions)]
        for _ in range(source.randrange(3)):
            source.choice(entries)[source.randrange(copy.entry_count)] ^= 1 << source.randrange(31)
        garbled = index_copies.IndexCopy(segment.base_offset, b"")
        garbled.offsets, garbled.positions = entries
        monkeypatch.setattr(index_copies.IndexCopies, "get", lambda *_, garbled=garbled: garbled)
        arguments = (
            Offset(source.randrange(120)),
            source.choice((segment.size_bytes, source.randrange(1, segment.size_bytes))),
            source.choice((0, 1, 300, 5000, 20_000, 1 << 40)),
        )
        min_one, contents = source.random() < 0.7, source.choice((0, 1000, 16_384))
        answers = []
        for each in (search, None):
            monkeypatch.setattr(batch_search, "compiled", each)
            segment.batch_search.places.clear()
            answers.append(segment.batch_search.find_cached(*arguments, min_one=min_one, content_bytes_max=contents))
        if (compiled := answers[0]) is not None and (plain := answers[1]) is not None:
            found_count += 1
            # All but whether both ends are in memory, which the way in Python does not say.
            assert compiled[:4] == plain[:4]
    assert found_count > 100


def test_remembered_places_go_with_what_is_cut_off(log: CaseLog) -> None:
    """Other batches may lie at a place after a truncation; what looks like a batch may be inside one of them."""
    snapshot = log.snapshot
    make_copies(snapshot)
    end = snapshot.high_watermark
    last = snapshot.segments[-1]
    assert snapshot.read_cached(Offset(end - 3), 1 << 20) is not None
    before = last.batch_search
    log.truncate(end - 5)
    assert last.batch_search is not before
    for size in (333, 222, 444):
        log.send(sized_batch(size))
    for offset in range(end - 8, log.end_offset):
        expected = general(log.snapshot, Offset(offset), 1000, min_one=True)
        cached = log.snapshot.read_cached(Offset(offset), 1000)
        assert cached is None or cached.slices[0].read() == expected.slices[0].read()
        assert log.snapshot.read(Offset(offset), 1000).slices[0].read() == expected.slices[0].read()


def test_copies_of_indexes_have_a_limit(log: CaseLog) -> None:
    segment = log.snapshot.segments[0]
    count = len(log.offset_entries(segment.base_offset))
    copies = index_copies.IndexCopies(3 * 8 * count)
    content = log.file(segment.base_offset, ".index").read_bytes()[: 8 * count]
    copy = index_copies.IndexCopy(segment.base_offset, content)
    assert [copy.entry(slot) for slot in range(count)] == log.offset_entries(segment.base_offset)
    keys = [object() for _ in range(5)]
    for key in keys:
        copies.put(key, copy)
        copies.put(key, copy)
    assert [copies.get(key) is not None for key in keys] == [False, False, True, True, True]


def test_only_what_is_in_memory_is_read_cached(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    file = LocalFileSystem().open(path)
    assert file.read_cached(2, 3) in (b"234", None)
    # Fewer than asked for may mean anything.
    assert file.read_cached(8, 3) is None
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.read_cached(0, 1)


def test_a_segment_without_an_open_file_is_left_to_a_thread(log: CaseLog) -> None:
    segment = log.snapshot.segments[0]
    assert isinstance(segment, Segment)
    segment.log.close()
    assert (
        segment.batch_search.find_cached(Offset(0), segment.size_bytes, 1000, min_one=True, content_bytes_max=0) is None
    )


def test_a_transaction_that_was_aborted_in_a_later_segment_is_listed(log: CaseLog) -> None:
    """Its records lie before the roll, its marker behind it: who reads the first segment alone has to be told."""
    producer = Producer(log, 1)
    first = producer.send()
    log.send(sized_batch(150))
    log.roll()
    other = Producer(log, 2)
    other.send()
    other.commit()
    snapshot = log.snapshot
    for segment in snapshot.segments:
        segment.transactions.index.get()
    # Nothing was aborted: that is known without the disk.
    assert snapshot.read_cached(Offset(0), 500, isolation=Isolation.LAST_STABLE) == FetchData(
        snapshot.read_cached(Offset(0), 500).slices, Offset(1), ()
    )
    producer.abort()
    snapshot = log.snapshot
    before = Offset(first - 1)
    # It ends where the transaction begins, which is remembered.
    snapshot.read(before, snapshot.read(before, 1).size_bytes)
    expected = snapshot.read(Offset(first), 1, isolation=Isolation.LAST_STABLE)
    assert expected.aborted
    assert snapshot.read_cached(Offset(first), 1) is not None
    cached = snapshot.read_cached(Offset(first), 1, isolation=Isolation.LAST_STABLE)
    assert cached is None or cached.aborted == expected.aborted


def test_a_bound_whose_place_is_not_known_is_left_to_the_general_way(log: CaseLog) -> None:
    """Where the log cannot tell where the first open transaction begins, its offset alone ends what may be read."""
    for segment in log.snapshot.segments:
        segment.transactions.index.get()
    snapshot = replace(log.snapshot, last_stable_metadata=LogOffsetMetadata(Offset(10)))
    make_copies(snapshot)
    assert snapshot.read(Offset(0), 1 << 20, isolation=Isolation.LAST_STABLE).slices == ()
    assert snapshot.read_cached(Offset(0), 1 << 20, isolation=Isolation.LAST_STABLE) is None
    assert snapshot.read_cached(Offset(10), 1 << 20, isolation=Isolation.LAST_STABLE) == FetchData((), Offset(10), ())
    assert snapshot.read_cached(Offset(0), 1 << 20) is not None
