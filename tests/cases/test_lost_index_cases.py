"""Case RC-6: index files that are lost, cut or garbled never make an answer wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from log_model.offsets import Offset
from tests.cases.logs import START_MS, CaseLog, batch_of

NewLog = Callable[..., CaseLog]


def indexed(new_log: NewLog, clean: bool) -> tuple[CaseLog, list[tuple[int, int]]]:
    """A stopped log of several segments, timestamps out of order, and (offset, timestamp) of every record."""
    log = new_log({"segment.bytes": 3000, "index.interval.bytes": 150})
    source = random.Random(6)
    for number in range(120):
        log.send(batch_of(timestamps=[START_MS + number * 10 + source.randint(-300, 300)]))
    written = [(record.offset, record.timestamp) for record in log.records()]
    assert len(log.base_offsets) > 2
    if clean:
        log.stop()
    else:
        log.kill()
    return log, written


def assert_every_lookup_right(log: CaseLog, written: list[tuple[int, int]]) -> None:
    """Every offset, every stored timestamp and those beside it, and the largest, against looking at all."""
    assert [(record.offset, record.timestamp) for record in log.records()] == written
    for offset, timestamp in written:
        assert log.snapshot.read(Offset(offset), 1).next_offset == offset + 1
        for wanted in (timestamp - 1, timestamp, timestamp + 1):
            found = log.snapshot.offset_for_timestamp(wanted)
            expected = next(((place, own) for place, own in written if own >= wanted), None)
            assert (found and (found.offset, found.timestamp)) == expected
    largest = max(timestamp for _, timestamp in written)
    found = log.snapshot.max_timestamp()
    assert (found.offset, found.timestamp) == next(pair for pair in written if pair[1] == largest)


def _spoil(path: Path, way: str, source: random.Random) -> None:
    content = path.read_bytes().rstrip(b"\0")
    entry_bytes = 12 if path.suffix == ".timeindex" else 8
    content += b"\0" * (-len(content) % entry_bytes)
    match way:
        case "deleted":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "random":
            path.write_bytes(source.randbytes(len(content) or entry_bytes))
        case "one byte":
            damaged = bytearray(content or b"\0" * entry_bytes)
            damaged[source.randrange(len(damaged))] ^= 1 << source.randrange(8)
            path.write_bytes(damaged)
        case "its first half":
            path.write_bytes(content[: len(content) // entry_bytes // 2 * entry_bytes])
        case "its last half":
            path.write_bytes(content[len(content) // entry_bytes // 2 * entry_bytes :])
        case "one entry less":
            path.write_bytes(content[:-entry_bytes])


WAYS = ("deleted", "empty", "random", "one byte", "its first half", "its last half", "one entry less")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("suffixes", [(".index",), (".timeindex",), (".index", ".timeindex")], ids="+".join)
@pytest.mark.parametrize("clean", [True, False])
def test_rc_6_indexes_deleted_or_garbled(new_log: NewLog, suffixes: tuple[str, ...], way: str, clean: bool) -> None:
    """Never a wrong answer, whatever became of the index files; Kafka trusts what passes its file-level check and
    makes an empty time index of a missing one."""
    log, written = indexed(new_log, clean)
    logs = log.log_files()
    source = random.Random(f"{way} {suffixes}")
    for name in log.file_names(*suffixes):
        if name.endswith(suffixes):
            _spoil(log.directory / name, way, source)
    log.start()
    assert log.recovery.damage == []
    assert_every_lookup_right(log, written)
    assert log.log_files() == logs
    log.fill(3)
    log.restart(clean=True)
    assert log.offsets() == list(range(123))


def test_rc_6_missing_indexes_are_made_again(new_log: NewLog) -> None:
    """A whole segment is indexed again, with the same entries as before."""
    log, _ = indexed(new_log, clean=True)
    sealed = log.base_offsets[:-1]
    before = {
        (base, suffix): log.file(base, suffix).read_bytes() for base in sealed for suffix in (".index", ".timeindex")
    }
    for base, suffix in before:
        log.file(base, suffix).unlink()
    log.start()
    log.snapshot.segment_infos()
    for (base, suffix), content in before.items():
        assert log.file(base, suffix).read_bytes() == content


@pytest.mark.parametrize("clean", [True, False])
def test_rc_6_orphan_index_files_go(new_log: NewLog, clean: bool) -> None:
    """Spec E20: an index without its log is deleted."""
    log = new_log()
    log.fill(3)
    log.restart(clean=True)
    orphans = [log.file(77, suffix) for suffix in (".index", ".timeindex", ".txnindex")]
    for orphan in orphans:
        orphan.write_bytes(b"\0" * 24)
    log.restart(clean=clean)
    assert log.offsets() == [0, 1, 2]
    assert not any(orphan.exists() for orphan in orphans)


def test_rc_6_an_index_of_no_bytes_is_legal(new_log: NewLog) -> None:
    """On-disk: a short segment has no offset entry; its index stays as it is."""
    log = new_log()
    log.fill(3)
    log.roll()
    assert log.file(0, ".index").stat().st_size == 0
    log.restart(clean=True)
    assert log.offsets(1) == [1, 2]
    assert log.file(0, ".index").stat().st_size == 0
