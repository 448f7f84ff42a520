"""``log verify`` and a start judge the same of journals and segments whose damage is drawn."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from storage.log_inspection import DirectoryReport, verify_directory
from tests.unit.storage.log_inspection.test_log_inspection_journal import (
    BLOCK,
    Killed,
    change,
    damage,
    flip,
    is_accepted,
)

JOURNAL_SEEDS = int(os.environ.get("JOURNAL_SEEDS", "12"))


def draw_segments(killed: Killed, source: random.Random) -> None:
    """Change what a power cut may: anything above what the segments' own fsyncs covered."""
    for number, (fsynced, length) in enumerate(zip(killed.fsynced_bytes, killed.lengths, strict=True)):
        path = killed.segment(number)
        content = bytearray(path.read_bytes()[:length])
        for _ in range(source.randint(0, 3)):
            start = source.randint(fsynced, length)
            end = min(length, start + source.randint(1, 200))
            content[start:end] = source.choice([bytes(end - start), source.randbytes(end - start)])
        path.write_bytes(content[: source.randint(fsynced, length)] if source.random() < 0.5 else content)


def draw_journal(killed: Killed, source: random.Random) -> None:
    """Flip bytes, cut, lose or mix up files."""
    path = source.choice(sorted(killed.journal.iterdir()))
    size_bytes = path.stat().st_size
    match source.randrange(6):
        case 0:
            os.truncate(path, source.randint(0, size_bytes))
        case 1:
            path.unlink()
        case 2:
            change(path, source.randrange(size_bytes // BLOCK) * BLOCK, bytes(BLOCK))
        case 3:
            start, target = (source.randrange(size_bytes // BLOCK) * BLOCK for _ in range(2))
            change(path, target, path.read_bytes()[start : start + BLOCK])
        case _:
            for _ in range(source.randint(1, 2)):
                flip(path, source.randrange(size_bytes // BLOCK) * BLOCK + source.randrange(400))


def of_the_journal(report: DirectoryReport) -> list[str]:
    return [sentence for sentence in damage(report) if "journal" in sentence]


@pytest.mark.parametrize("seed", range(JOURNAL_SEEDS))
def test_the_check_refuses_what_a_start_refuses(tmp_path: Path, seed: int) -> None:
    source = random.Random(seed)
    killed = Killed(tmp_path / "data", rounds=source.randint(1, 25), frees=lambda: source.random() < 0.3)
    draw_segments(killed, source)
    report = verify_directory(killed.path)
    if of_the_journal(report):
        # The drawn bytes have left a whole batch, but for its offset or epoch, which no CRC covers.
        assert all("another batch" in sentence for sentence in of_the_journal(report))
        assert not is_accepted(killed.path)
        return
    assert damage(report) == []
    if source.random() < 0.3:
        assert is_accepted(killed.path)
        after = verify_directory(killed.path)
        assert after.findings == ()
        ends = [(partition.record_count, partition.log_end_offset) for partition in report.partitions]
        assert [(partition.record_count, partition.log_end_offset) for partition in after.partitions] == ends
        return
    draw_journal(killed, source)
    found = of_the_journal(verify_directory(killed.path))
    is_given_up = not any(killed.journal.iterdir())
    assert is_accepted(killed.path) == (found == [] or is_given_up), found
