"""Case RC-7: what an interrupted compaction or split leaves, and what the next start makes of it."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from storage.disk import leftover_files
from storage.log_inspection import verify_directory
from tests.cases.logs import START_MS, CaseLog, batch_of

NewLog = Callable[..., CaseLog]
KEPT = [0, 8, 14]
BASES = [0, 5, 10, 15]


def stored(offset: int, value: bytes = b"old") -> bytes:
    return batch_of(value=value, base_offset=offset, leader_epoch=0, first_timestamp=START_MS + offset)


def interrupted(new_log: NewLog, *, kept: list[int] = KEPT, clean: bool = False, bases: list[int] = BASES) -> CaseLog:
    """Segments of five records, and a ``0.log.swap`` of the records that compaction kept of the first three."""
    log = new_log({"cleanup.policy": "compact"})
    for offset in range(18):
        if offset in bases[1:]:
            log.roll()
        log.send(batch_of(value=b"old", first_timestamp=START_MS + offset))
    log.flush()
    log.manager.checkpoint()
    if clean:
        log.stop()
    else:
        log.kill()
    log.file(0, ".log.swap").write_bytes(b"".join(stored(offset, b"kept") for offset in kept))
    return log


def assert_completed(log: CaseLog, kept: list[int] = KEPT) -> None:
    """The swap is in its place, what it replaces is gone, and nothing is damaged."""
    assert log.recovery.damage == []
    assert log.base_offsets == [0, 15]
    assert log.offsets() == [*kept, 15, 16, 17]
    assert [record.value for record in log.records()] == [b"kept"] * len(kept) + [b"old"] * 3
    for offset in (5, 10):
        assert not [name for name in log.file_names() if name.startswith(f"{offset:020d}")]
    assert not [name for name in log.file_names() if name.endswith((".swap", ".cleaned", ".deleted"))]


@pytest.mark.parametrize("clean", [True, False])
def test_rc_7_a_complete_swap_replaces_its_range(new_log: NewLog, clean: bool) -> None:
    """Segments 0, 5 and 10 lie in the range of the swap, which ends at 15; segment 15 does not."""
    log = interrupted(new_log, clean=clean)
    log.start()
    assert_completed(log)
    assert any("segments 5, 10 are removed" in note for note in log.recovery.notes)
    for again in (True, False):
        log.send(batch_of())
        log.restart(clean=again)
        assert log.recovery.notes == []
        assert log.base_offsets == [0, 15]
    assert log.snapshot.offset_for_timestamp(START_MS + 9).offset == 14
    log.stop()
    assert not verify_directory(log.path).is_damaged


@pytest.mark.parametrize("gone", [[0], [0, 5], [0, 5, 10], [5], [10], [5, 10]])
@pytest.mark.parametrize("suffixes", [(".log", ".index", ".timeindex"), (".index",), (".log",)])
def test_rc_7_interrupted_between_two_files(new_log: NewLog, gone: list[int], suffixes: tuple[str, ...]) -> None:
    """Some of what it replaces is gone already, or marked as deleted."""
    log = interrupted(new_log)
    for offset in gone:
        for suffix in suffixes:
            log.file(offset, suffix).rename(log.file(offset, suffix + ".deleted"))
    log.start()
    assert_completed(log)


@pytest.mark.parametrize("renamed", [(".log",), (".log", ".index"), (".log", ".index", ".timeindex")])
def test_rc_7_interrupted_while_renaming(new_log: NewLog, renamed: tuple[str, ...]) -> None:
    """A broker renames the log first, after what it replaces is gone: its indexes wait for it."""
    log = interrupted(new_log, clean=True)
    for offset in (0, 5, 10):
        for suffix in (".log", ".index", ".timeindex"):
            log.file(offset, suffix).unlink()
    kept = b"".join(stored(offset, b"kept") for offset in KEPT)
    log.file(0, ".log.swap").unlink()
    entry = struct.pack(">ii", 14, len(kept) // 3 * 2)
    for suffix, content in ((".log", kept), (".index", entry), (".timeindex", struct.pack(">qi", START_MS + 14, 14))):
        log.file(0, suffix + ("" if suffix in renamed else ".swap")).write_bytes(content)
    log.start()
    assert_completed(log)
    assert log.offset_entries(0) == [(14, len(kept) // 3 * 2)]


def test_rc_7_an_index_that_waits_without_a_log_goes(new_log: NewLog) -> None:
    log = interrupted(new_log)
    log.file(0, ".log.swap").unlink()
    log.file(7, ".index.swap").write_bytes(b"of nothing")
    log.start()
    assert log.offsets() == list(range(18))
    assert not log.file_names(".swap", "7.index")


@pytest.mark.parametrize("cleaned", [0, 3])
def test_rc_7_not_all_is_ready(new_log: NewLog, cleaned: int) -> None:
    """A ``.cleaned`` at or below it: the change was not finished, so nothing of it counts."""
    log = interrupted(new_log)
    log.file(0, ".log.swap").rename(log.file(3, ".log.swap"))
    log.file(3, ".index.swap").write_bytes(b"")
    log.file(cleaned, ".log.cleaned").write_bytes(b"half")
    log.start()
    assert log.base_offsets == BASES
    assert log.offsets() == list(range(18))
    assert not log.file_names(".swap", ".cleaned")


@pytest.mark.parametrize("damage", ["a bit", "cut", "empty", "behind"])
def test_rc_7_a_damaged_swap_never_replaces_what_is_there(new_log: NewLog, damage: str) -> None:
    """Its originals have every record that it has: they stay, and compaction may try again."""
    log = interrupted(new_log)
    content = bytearray(log.file(0, ".log.swap").read_bytes())
    if damage == "a bit":
        content[-1] ^= 1
    changed = {"a bit": content, "cut": content[:-1], "empty": b"", "behind": content + bytes(9)}
    log.file(0, ".log.swap").write_bytes(changed[damage])
    log.start()
    assert log.recovery.damage == []
    assert log.base_offsets == BASES
    assert log.offsets() == list(range(18))
    assert any("the replacement of segment 0 is damaged and dropped" in note for note in log.recovery.notes)


def test_rc_7_a_damaged_swap_is_all_that_there_is(new_log: NewLog) -> None:
    """Without its originals it is put in its place, and its damage is reported like any other."""
    log = interrupted(new_log)
    for offset in (0, 5, 10):
        for suffix in (".log", ".index", ".timeindex"):
            log.file(offset, suffix).unlink()
    log.file(0, ".log.swap").write_bytes(log.file(0, ".log.swap").read_bytes()[:-1])
    log.start()
    assert [(lost.start, lost.end) for lost in log.recovery.damage] == [(9, 15)]
    assert log.offsets() == [0, 8]


def test_rc_7_what_ends_below_its_originals_leaves_the_rest(new_log: NewLog) -> None:
    """The last records of the range were all superseded: the segment above the swap's end stays, as in Kafka."""
    log = interrupted(new_log, kept=[0, 8])
    log.start()
    assert log.base_offsets == [0, 10, 15]
    assert log.recovery.damage == []
    assert log.offsets() == [0, 8, *range(10, 18)]


@pytest.mark.parametrize("stop", ["clean", "killed"])
@pytest.mark.parametrize("has_index", [True, False])
def test_rc_7_aborted_transactions_stay_aborted(new_log: NewLog, stop: str, has_index: bool) -> None:
    """The swap's own transaction index counts, and what was in that of its originals goes with them."""
    log = new_log({"cleanup.policy": "compact"})
    fields = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    log.send(batch_of(2, value=b"aborted", base_sequence=0, **fields))
    log.roll()
    log.send(batch_of(2, value=b"aborted", base_sequence=2, **fields))
    log.end_transaction(7, commit=False)
    log.roll()
    log.send(batch_of(value=b"kept"))
    log.flush()
    log.manager.checkpoint()
    content = log.file(0).read_bytes() + log.file(2).read_bytes()
    index = log.file(2, ".txnindex").read_bytes()
    if stop == "clean":
        log.stop()
    else:
        log.kill()
    log.file(0, ".log.swap").write_bytes(content)
    if has_index:
        log.file(0, ".txnindex.swap").write_bytes(index)
        (log.directory / "transaction-index-checkpoint").unlink()
    log.start()
    assert log.base_offsets == [0, 5]
    assert [entry.producer_id for entry in log.aborted()] == [7]
    assert log.file(0, ".txnindex").read_bytes() == index


def test_rc_7_the_check_finds_the_old_behaviour(new_log: NewLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a swap is only renamed, and what lies in its range stays, as it was."""
    log = interrupted(new_log)
    monkeypatch.setattr(leftover_files, "_complete_swaps", lambda file_system, directory: (False, []))
    log.start()
    assert log.recovery.damage != []
    with pytest.raises(AssertionError):
        assert_completed(log)
