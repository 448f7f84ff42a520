# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Counts of values and of requests in C: the plain twin is ``distributions_py``.

Thread: counted on the event loop, read in any thread.
"""

from bisect import bisect_left


cdef class Distribution:
    """Counts of values by their upper bounds, and the sum of the values."""

    cdef readonly tuple bounds
    cdef double least
    cdef readonly list counts
    cdef readonly double sum

    def __init__(self, bounds):
        self.bounds = tuple(bounds)
        self.least = bounds[0]
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    cpdef observe(self, double value):
        """Count ``value``."""
        cdef Py_ssize_t place = 0
        if value > self.least:
            # Most values are in the first bucket.
            place = bisect_left(self.bounds, value)
        self.counts[place] = <object>self.counts[place] + 1
        self.sum += value


cdef class RouteCount(Distribution):
    """Answered requests of one method and route by status, and the distribution of their durations in seconds."""

    cdef readonly dict statuses

    def __init__(self, bounds):
        Distribution.__init__(self, bounds)
        self.statuses = {}

    def count(self, status, double seconds):
        """Count a request."""
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.observe(seconds)
