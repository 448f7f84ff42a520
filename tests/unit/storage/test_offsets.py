"""Pairs of numbers."""

from __future__ import annotations

import pytest

from log_model.offsets import LogOffsetMetadata, Offset, Position


def place(offset: int, base: int = -1, position: int = -1) -> LogOffsetMetadata:
    return LogOffsetMetadata(Offset(offset), Offset(base), Position(position))


def test_a_place_on_an_older_segment():
    """A16: the documented example."""
    earlier, later = place(10, 0, 500), place(20, 15, 0)
    assert earlier.on_older_segment(later)
    assert not later.on_older_segment(earlier)
    assert not earlier.on_same_segment(later)
    with pytest.raises(ValueError, match="not on the same segment"):
        later.position_difference(earlier)


def test_two_places_on_one_segment():
    """A16."""
    earlier, later = place(10, 5, 500), place(20, 5, 1700)
    assert later.on_same_segment(earlier)
    assert not earlier.on_older_segment(later)
    assert later.position_difference(earlier) == 1200
    assert later.position_difference(later) == 0
    with pytest.raises(ValueError, match="lies before"):
        earlier.position_difference(later)


def test_an_offset_alone_compares_with_nothing():
    """A16: (offset, -1, -1) is unknown, also beside another one of its kind."""
    alone, known = place(10), place(20, 15, 0)
    assert alone.is_offset_only
    assert not known.is_offset_only
    assert LogOffsetMetadata(Offset(10)) == alone
    for one, other in ((alone, known), (known, alone), (alone, alone)):
        assert not one.on_older_segment(other)
        assert not one.on_same_segment(other)
        with pytest.raises(ValueError, match="not on the same segment"):
            one.position_difference(other)


def test_segment_zero_is_known():
    assert not place(0, 0, 0).is_offset_only
    assert place(0, 0, 0).on_same_segment(place(9, 0, 80))
