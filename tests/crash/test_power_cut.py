"""The power goes before every operation of the disk; what comes back is what was promised.

See docs/explanation/durability.md#promises-under-faults.

``CRASH_SCALE`` multiplies the workloads: 1 is what `make test` does. CI, with a quarter, crashes at as many points, but
looks at half of the disks that each crash may leave.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.crash.power_cut import IMAGES_PER_POINT, PowerCutRun

SCALE = float(os.environ.get("CRASH_SCALE", "1"))
FIRST_SEED = int(os.environ.get("CRASH_SEED", "0"))
WORKLOADS = 40
POINTS = 500
"""Crash points of one workload: 20,000 of all."""
IMAGES = IMAGES_PER_POINT if SCALE >= 1 else IMAGES_PER_POINT // 2
SECOND_CRASH_SHARE = 0.1


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + max(WORKLOADS, round(WORKLOADS * SCALE))))
def test_power_cut_before_every_operation(seed: int, record_property: Callable[[str, object], None]) -> None:
    """An exact prefix with every acknowledged record, at every crash point of this seed's workload."""
    run = PowerCutRun(seed, IMAGES)
    run.run(POINTS)
    record_property("crash points", run.crash_points)
    record_property("crash images", run.images)
    record_property("known images", run.known_images)
    record_property("second crashes", run.second_crashes)
    assert run.crash_points >= POINTS
    assert run.images >= 1.25 * IMAGES * POINTS
    assert run.second_crashes >= SECOND_CRASH_SHARE * run.images
    print(f"seed {seed}: {run.crash_points} crash points, {run.images} images, {run.second_crashes} second crashes")
