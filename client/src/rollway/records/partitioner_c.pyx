# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Keys hashed in C: the compiled twin of ``partitioner_py``. Thread: any; hashes without the interpreter's lock."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint32_t

import numpy as np


cdef uint32_t murmur2_of(const uint8_t* data, int64_t size) noexcept nogil:
    """See ``partitioner.murmur2``."""
    cdef uint32_t digest = 0x9747B28Cu ^ <uint32_t>size
    cdef uint32_t word
    while size >= 4:
        word = data[0] | (<uint32_t>data[1] << 8) | (<uint32_t>data[2] << 16) | (<uint32_t>data[3] << 24)
        word *= 0x5BD1E995u
        digest = (digest * 0x5BD1E995u) ^ ((word ^ (word >> 24)) * 0x5BD1E995u)
        data += 4
        size -= 4
    if size > 0:
        if size == 3:
            digest ^= <uint32_t>data[2] << 16
        if size >= 2:
            digest ^= <uint32_t>data[1] << 8
        digest = (digest ^ data[0]) * 0x5BD1E995u
    digest = (digest ^ (digest >> 13)) * 0x5BD1E995u
    return digest ^ (digest >> 15)


def hash_strings(column):
    """Return the murmur2 hash of each byte string of a column, for a null that of no bytes.

    ``None`` if the offsets of the column leave its data.
    """
    data = np.ascontiguousarray(column.data, dtype=np.uint8)
    offsets = np.ascontiguousarray(column.offsets, dtype=np.int64)
    nulls = np.ascontiguousarray(column.null_flags(), dtype=np.bool_)
    cdef Py_ssize_t count = len(column)
    if nulls.shape != (count,) or offsets.shape != (count + 1,) or data.ndim != 1:
        return None
    digests = np.empty(count, dtype=np.uint32)
    cdef Py_ssize_t data_size = len(data)
    cdef const uint8_t* data_at = <const uint8_t*>address_of(data)
    cdef const int64_t* offsets_at = <const int64_t*>address_of(offsets)
    cdef const uint8_t* nulls_at = <const uint8_t*>address_of(nulls)
    cdef uint32_t* digests_at = <uint32_t*>address_of(digests)
    cdef Py_ssize_t place
    cdef int64_t start, end
    cdef bint is_sound = True
    with nogil:
        for place in range(count):
            start, end = offsets_at[place], offsets_at[place + 1]
            if nulls_at[place]:
                start = end = 0
            elif not 0 <= start <= end <= data_size:
                is_sound = False
                break
            digests_at[place] = murmur2_of(data_at + start, end - start)
    return digests if is_sound else None


cdef void* address_of(array) except? NULL:
    """Return where the elements of a contiguous array lie. They stay there as long as the array is held."""
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, PyBUF_SIMPLE)
    cdef void* address = view.buf
    PyBuffer_Release(&view)
    return address
