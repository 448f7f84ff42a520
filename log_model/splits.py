"""Splits of ranges of offsets, and how many each of several ranges gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from log_model.offsets import Offset


class Split(NamedTuple):
    """The offsets ``[start, end)``, and the bytes of the batches that hold them."""

    start: Offset
    end: Offset
    size_bytes: int


class TooManySplitsError(ValueError):
    """The limits require more splits than are allowed."""


def split_counts(sizes: Sequence[int], count: int) -> list[int]:
    """Divide ``count`` splits among ranges by their bytes: none for 0 bytes, at least one for any other.

    The largest remainders are rounded up. The sum exceeds ``count`` only if there are more ranges. Example: 4 splits of
    100, 300 and 0 bytes: 1, 3 and 0.
    """
    total = sum(sizes)
    if total == 0:
        return [0] * len(sizes)
    shares = [count * size / total for size in sizes]
    counts = [max(int(share), 1 if size else 0) for share, size in zip(shares, sizes, strict=True)]
    by_need = sorted(range(len(sizes)), key=lambda place: shares[place] - counts[place], reverse=True)
    for place in by_need[: max(0, count - sum(counts))]:
        counts[place] += 1
    while sum(counts) > count and max(counts) > 1:
        place = max((place for place in range(len(sizes)) if counts[place] > 1), key=lambda p: counts[p] - shares[p])
        counts[place] -= 1
    return counts
