# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Counting the values of a JSON document in C. The plain twin is ``json_values_py``.

Thread: any. Documents are counted without the interpreter's lock.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t

cdef enum:
    # As in ``json_values_py``.
    SPACES_OF_VALUE = 16
    ESCAPES_OF_VALUE = 8


cdef int64_t values_in(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Count the ``[{,:`` outside of texts, and spaces and escapes as ``json_values`` says."""
    cdef Py_ssize_t at = 0
    cdef int64_t count = 0
    cdef int64_t spaces = 0
    cdef int64_t escapes = 0
    cdef uint8_t byte
    cdef bint is_text = False
    while at < size:
        byte = data[at]
        at += 1
        if is_text:
            if byte == c"\\":
                at += 1
                escapes += 1
            elif byte == c'"':
                is_text = False
        elif byte == c'"':
            is_text = True
        elif byte == c"," or byte == c":" or byte == c"[" or byte == c"{":
            count += 1
        elif byte <= c" ":
            spaces += 1
    return count + spaces // SPACES_OF_VALUE + escapes // ESCAPES_OF_VALUE


def count_values(data):
    """Return how many values a JSON document has, spaces and escapes included; see ``json_values.count_values``."""
    cdef Py_buffer bytes_of
    cdef int64_t count
    PyObject_GetBuffer(data, &bytes_of, PyBUF_SIMPLE)
    try:
        with nogil:
            count = values_in(<const uint8_t*>bytes_of.buf, bytes_of.len)
    finally:
        PyBuffer_Release(&bytes_of)
    return count
