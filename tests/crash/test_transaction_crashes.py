"""A crash before every operation of commit, abort, fencing, timeout, topic deletion and producer snapshots (issue 3).

``CRASH_SCALE`` multiplies the run: 5 is ten thousand crash points.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.crash.transaction_crashes import TransactionCrashes

SCALE = float(os.environ.get("CRASH_SCALE", "1"))
CRASH_POINTS = 2_000
WORKLOADS = 8
IMAGES_PER_POINT = 2


@pytest.mark.parametrize("seed", range(max(1, round(WORKLOADS * SCALE))))
def test_every_transaction_is_wholly_there_or_not_at_all(
    seed: int, record_property: Callable[[str, object], None]
) -> None:
    TransactionCrashes(seed, IMAGES_PER_POINT).run_and_record(CRASH_POINTS // WORKLOADS, record_property)
