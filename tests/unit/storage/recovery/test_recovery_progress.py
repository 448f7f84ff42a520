"""How far a start has come, in numbers."""

from __future__ import annotations

from log_model.clock import ManualClock
from storage.recovery.recovery_progress import RecoveryMeter


def test_nothing_is_told_before_it_is_known_what_there_is_to_do() -> None:
    meter = RecoveryMeter(ManualClock())
    assert meter.progress() is None
    meter.expect(0, 0)
    assert meter.progress() is None


def test_bytes_tell_the_time_left() -> None:
    clock = ManualClock()
    meter = RecoveryMeter(clock)
    clock.advance(10_000)  # not part of it
    meter.expect(4, 1000)
    progress = meter.progress()
    assert progress is not None
    assert (progress.bytes_per_second, progress.remaining_ms) == (0, None)
    clock.advance(500)
    meter.opened()
    meter.scanned(250)
    progress = meter.progress()
    assert progress is not None
    assert progress == (1, 4, 250, 1000, 500, 500, 1500)


def test_without_bytes_partitions_tell_the_time_left() -> None:
    clock = ManualClock()
    meter = RecoveryMeter(clock)
    meter.expect(10, 0)
    clock.advance(40)
    for _ in range(8):
        meter.opened()
    progress = meter.progress()
    assert progress is not None
    assert (progress.remaining_ms, progress.bytes_per_second) == (10, 0)


def test_more_bytes_than_were_expected_are_no_negative_time() -> None:
    clock = ManualClock()
    meter = RecoveryMeter(clock)
    meter.expect(1, 100)
    clock.advance(10)
    meter.scanned(150)
    progress = meter.progress()
    assert progress is not None
    assert (progress.scanned_bytes, progress.byte_count, progress.remaining_ms) == (150, 150, 0)
