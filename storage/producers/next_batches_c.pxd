"""The declarations of ``next_batches_c.pyx`` that compiled appends use."""

from libc.stdint cimport int32_t, int64_t

cdef struct ProducerPlace:
    # The producer of a batch, or -1 without one, and the sequence of its first record.
    int64_t producer_id
    int32_t epoch
    int32_t sequence

cdef bint follows(known, ProducerPlace* place) except -1

cdef int note(known, ProducerPlace* place, int64_t record_count, base_offset, last_offset, timestamp, int64_t now_ms) except -1
