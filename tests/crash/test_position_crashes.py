"""A crash before every operation of pinning, replacing and forgetting start positions (issue 5).

``CRASH_SCALE`` multiplies the run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import pytest

from app.start_positions import registry
from app.start_positions.records import group_change
from app.start_positions.registry import StartPositions
from app.start_positions.state import PinnedGroup
from tests.crash.ledger import ViolationError
from tests.crash.position_crashes import PositionCrashes

SCALE = float(os.environ.get("CRASH_SCALE", "1"))
CRASH_POINTS = 400
WORKLOADS = 4
IMAGES_PER_POINT = 2


@pytest.fixture(autouse=True)
def _shortened_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SHORTEN_ABOVE_COUNT", 10)
    monkeypatch.setattr(registry, "SHORTEN_ABOVE_RATIO", 1)


@pytest.mark.parametrize("seed", range(max(1, round(WORKLOADS * SCALE))))
def test_a_group_has_what_it_was_told(seed: int, record_property: Callable[[str, object], None]) -> None:
    PositionCrashes(seed, IMAGES_PER_POINT).run_and_record(CRASH_POINTS // WORKLOADS, record_property)


async def _never_written(self: StartPositions, group_id: str, group: PinnedGroup | None) -> None:
    self._table.put(group_id, group)


async def _told_before_it_is_durable(self: StartPositions, group_id: str, group: PinnedGroup | None) -> None:
    self._log._append(await self._log._opened(), [group_change(group_id, group)])
    self._table.put(group_id, group)


@pytest.mark.parametrize("defect", [_never_written, _told_before_it_is_durable])
def test_planted_defects_are_found(monkeypatch: pytest.MonkeyPatch, defect: Callable[..., object]) -> None:
    monkeypatch.setattr(StartPositions, "_write", defect)

    async def find() -> None:
        for seed in range(10):
            await PositionCrashes(seed, IMAGES_PER_POINT).run(CRASH_POINTS // WORKLOADS)

    with pytest.raises(ViolationError):
        asyncio.run(find())
