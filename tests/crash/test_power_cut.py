"""The power goes before every operation of the disk; what comes back is what was promised.

See docs/explanation/durability.md#promises-under-faults.

``CRASH_SCALE`` multiplies the run: 1 is what `make test` does, and CI does a quarter of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.crash.power_cut import PowerCutRun

SCALE = float(os.environ.get("CRASH_SCALE", "1"))
CRASH_POINTS = 10_000
IMAGES = 50_000
WORKLOADS = 40
SECOND_CRASH_SHARE = 0.1


@pytest.mark.parametrize("seed", range(max(1, round(WORKLOADS * SCALE))))
def test_power_cut_before_every_operation(seed: int, record_property: Callable[[str, object], None]) -> None:
    """An exact prefix with every acknowledged record, at every crash point of this seed's workload."""
    run = PowerCutRun(seed)
    run.run(CRASH_POINTS // WORKLOADS)
    record_property("crash points", run.crash_points)
    record_property("crash images", run.images)
    record_property("known images", run.known_images)
    record_property("second crashes", run.second_crashes)
    assert run.crash_points >= CRASH_POINTS // WORKLOADS
    assert run.images >= IMAGES // WORKLOADS
    assert run.second_crashes >= SECOND_CRASH_SHARE * run.images
    print(f"seed {seed}: {run.crash_points} crash points, {run.images} images, {run.second_crashes} second crashes")
