"""Compiled reads of committed records: whatever was read of a snapshot before, aborted records are not among them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from log_model.clock import ManualClock
from log_model.reads import Isolation
from storage.segment import batch_search
from tests.unit.storage.log.test_append_lanes import NOW_MS
from tests.unit.storage.log.test_append_producers_c import NONE, Item, Sent, Stand, batch

pytestmark = pytest.mark.skipif(batch_search.compiled is None, reason="not compiled here")


def _read(snapshot: Any, offset: int, *, is_stable: bool = True) -> Any:
    assert batch_search.compiled is not None
    found = batch_search.compiled.read(snapshot, offset, 1, 16 * 1024, is_stable)
    return None if found is None else found[1:4]


@pytest.mark.parametrize("seed", range(4))
def test_reads_in_any_order_leave_aborted_records_to_the_general_way(tmp_path: Path, seed: int) -> None:
    stand = Stand(tmp_path / "logs", {"flush.policy": "interval"}, ManualClock(NOW_MS))
    draw, snapshots = random.Random(seed), []
    for number in range(30):
        stand.general(Sent(batch(1), NONE))
        if number % 10 == 5:
            stand.general(Item(number, "next", 0, 1, True, 0).sent(stand.log))
            snapshots.append(stand.log.snapshot)
            # Each has records that are read now, and an end that is not shown yet.
            _read(stand.log.snapshot, stand.log.snapshot.log_start_offset)
            stand.end(number, 0, is_commit=number == 15)
        if number % 7 == 3:
            stand.log.roll()
            stand.log.publish()
        snapshots.append(stand.log.snapshot)
    stand.log.roll()
    stand.general(Sent(batch(1), NONE))
    snapshots.append(stand.log.snapshot)
    for snapshot in snapshots:
        offsets = list(range(snapshot.log_start_offset, snapshot.log_end_offset)) * 2
        draw.shuffle(offsets)
        for offset in offsets:
            found = _read(snapshot, offset)
            data = snapshot.read(offset, 1, isolation=Isolation.LAST_STABLE)
            if found is not None:
                assert offset < snapshot.last_stable_offset
                (piece,) = data.slices
                assert found == (piece.position, piece.size_bytes, data.next_offset)
                assert data.aborted == ()
    assert any(_read(snapshots[-1], offset) is None for offset in range(snapshots[-1].last_stable_offset))
    assert _read(snapshots[-1], snapshots[-1].last_stable_offset - 1) is not None
    stand.manager.close()
