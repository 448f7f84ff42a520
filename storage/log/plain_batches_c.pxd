"""The declarations of ``plain_batches_c.pyx`` that compiled appends use."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from storage.producers.next_batches_c cimport ProducerPlace

cdef enum:
    HEADER_BYTES = 61
    # Measured: shorter batches are checked and written before another thread has the interpreter's lock.
    HELD_BYTES_MAX = 16 * 1024
    # What may be given for a batch in place of the producer id of a key.
    NO_ONE = -2
    ITS_OWN = -1

cdef struct Batch:
    int32_t record_count
    int64_t max_timestamp
    ProducerPlace producer
    # The producer is that of a key, and not in the bytes of the batch.
    bint is_keyed


cdef inline void put_big_endian_32(uint8_t* at, uint32_t number) noexcept:
    at[0], at[1], at[2], at[3] = number >> 24, (number >> 16) & 0xFF, (number >> 8) & 0xFF, number & 0xFF


cdef int64_t producer_in(body) except? -1

cdef bint is_plain(Py_buffer* view, limits, int64_t now_ms, int64_t producer, Batch* batch) except -1

cdef int stamp(uint8_t* head, Py_buffer* view, Batch* batch, int64_t base_offset, int64_t epoch) except -1
