"""Latencies by percentile, with three digits over nine orders of magnitude and constant memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

_PER_DECADE = 512
"""Buckets a factor of ten: neighbours differ by 0.45 %."""
PERCENTILES = (50.0, 90.0, 99.0, 99.9, 100.0)
FINE_PERCENTILES = (10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.8, 99.9, 99.95, 99.98, 99.99, 100.0)
"""Those of a plot of the tail."""


class Histogram:
    """Counts durations in buckets whose width grows with them, as HdrHistogram does."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.longest = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration; those below a microsecond count as one."""
        bucket = math.ceil(math.log10(max(seconds, 1e-6)) * _PER_DECADE)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self.count += 1
        self.longest = max(self.longest, seconds)

    def percentile(self, percent: float) -> float:
        """The shortest time within which ``percent`` of all were done, in seconds; 0 of none."""
        wanted = max(1, math.ceil(self.count * percent / 100))
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= wanted:
                return min(10 ** (bucket / _PER_DECADE), self.longest)
        return 0.0

    def table(self, percents: Sequence[float] = PERCENTILES) -> dict[str, float]:
        """Milliseconds by the name of the percentile, such as ``p99_ms``."""
        return {f"p{percent:g}_ms": self.percentile(percent) * 1000 for percent in percents}

    @classmethod
    def together(cls, histograms: Iterable[Histogram]) -> Histogram:
        """All durations of several, as if they had been counted in one."""
        whole = cls()
        for each in histograms:
            for bucket, count in each._counts.items():  # noqa: SLF001 - of this class
                whole._counts[bucket] = whole._counts.get(bucket, 0) + count
            whole.count += each.count
            whole.longest = max(whole.longest, each.longest)
        return whole


def histogram_of(durations: Sequence[float]) -> Histogram:
    """A histogram of what was measured already."""
    histogram = Histogram()
    for seconds in durations:
        histogram.add(seconds)
    return histogram
