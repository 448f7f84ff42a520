# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The search of a run of keys between two samples, in C.

It has no plain twin module: the plain search is one line of ``key_samples``.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef inline uint32_t big_endian_32(const uint8_t* at) noexcept:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline int64_t big_endian_64(const uint8_t* at) noexcept:
    return <int64_t>((<uint64_t>big_endian_32(at) << 32) | big_endian_32(at + 4))


def place_in_run(mapping, Py_ssize_t position, Py_ssize_t length, Py_ssize_t entry_bytes, int64_t target):
    """Count the keys not above ``target`` in ``length`` entries from a position on; a key is the first 8 bytes of an entry.

    Raises:
        ValueError: the mapping was released, or ends before.
    """
    cdef Py_ssize_t low = 0, high = length, middle
    cdef Py_buffer view
    PyObject_GetBuffer(mapping, &view, PyBUF_SIMPLE)
    try:
        if position < 0 or length <= 0 or position + (length - 1) * entry_bytes + 8 > view.len:
            raise ValueError("the run ends behind the mapping")
        while low < high:
            middle = (low + high) >> 1
            if big_endian_64(<const uint8_t*>view.buf + position + middle * entry_bytes) <= target:
                low = middle + 1
            else:
                high = middle
    finally:
        PyBuffer_Release(&view)
    return low
