"""The clock of compiled code on the loop. A declaration alone: it is compiled into whatever uses it."""

from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec


cdef inline double elapsed() noexcept:
    """As ``time.perf_counter``."""
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return <double>time.tv_sec + 1e-9 * <double>time.tv_nsec
