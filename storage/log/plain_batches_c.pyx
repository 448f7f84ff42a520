# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Plain batches of produce bodies: whether one is, and the header that it is written with.

It has no plain twin: ``validate_batches`` and ``ValidBatch`` do the same for every batch.

Thread: any.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from crc32c import crc32c

from log_model.producers import KEYED_PRODUCER_ID_MIN
from rollway.records.sections import reader

cdef extern from "Python.h":
    int PyBUF_READ

cdef enum:
    # As in ``rollway.records`` and ``log_model.batches.batch_validation``.
    OVERHEAD_BYTES = 12
    CRC_AT = 17
    CHECKED_FROM = 21
    PRODUCER_AT = 43
    MAGIC = 2
    EPOCH_MAX = 0x7FFF

NO_PRODUCER, OWN_PRODUCER = NO_ONE, ITS_OWN
"""Values in place of the producer id of a key: the batch must have no producer, or may have one of its own."""

cdef int64_t KEYED_MIN = KEYED_PRODUCER_ID_MIN
# So that sums of times do not wrap around. Python code judges later times.
cdef int64_t TIME_MAX = <int64_t>1 << 60

cdef struct Facts:
    int64_t least
    int64_t greatest
    bint has_null_key

# ``survey`` of ``rollway.records.sections.reader_c``.
ctypedef bint (*Survey)(const uint8_t*, Py_ssize_t, int64_t, int64_t, Facts*) noexcept nogil

cdef const char* SURVEY_NAME = "rollway.records.survey.1"
cdef Survey survey = NULL

capsule = getattr(reader.compiled, "survey_capsule", None)
if capsule is not None and PyCapsule_IsValid(capsule, SURVEY_NAME):
    survey = <Survey>PyCapsule_GetPointer(capsule, SURVEY_NAME)
is_usable = survey != NULL
"""Whether the library's sections are compiled, and offer ``survey``."""


cdef inline uint32_t big_endian_32(const uint8_t* at) noexcept:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline int64_t big_endian_64(const uint8_t* at) noexcept:
    return <int64_t>((<uint64_t>big_endian_32(at) << 32) | big_endian_32(at + 4))


cdef int64_t producer_in(body) except? -1:
    """Return the producer id in the header of a batch, or another number if there is no whole header."""
    cdef Py_buffer view
    cdef int64_t found = -1
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    if view.len >= HEADER_BYTES:
        found = big_endian_64(<const uint8_t*>view.buf + PRODUCER_AT)
    PyBuffer_Release(&view)
    return found


cdef bint takes_producer(const uint8_t* data, int64_t producer, Batch* batch) noexcept:
    """Set the producer of a batch; return whether it may have that one: see ``append``."""
    batch.producer.producer_id = big_endian_64(data + PRODUCER_AT)
    batch.is_keyed = producer >= KEYED_MIN
    if batch.producer.producer_id < 0:
        batch.producer.producer_id = producer if batch.is_keyed else -1
        batch.producer.epoch = batch.producer.sequence = 0
        return True
    batch.producer.epoch = (data[PRODUCER_AT + 8] << 8) | data[PRODUCER_AT + 9]
    batch.producer.sequence = <int32_t>big_endian_32(data + PRODUCER_AT + 10)
    return (
        producer == ITS_OWN
        and batch.producer.producer_id < KEYED_MIN
        and batch.producer.epoch <= EPOCH_MAX
        and batch.producer.sequence >= 0
    )


cdef bint is_plain(Py_buffer* view, limits, int64_t now_ms, int64_t producer, Batch* batch) except -1:
    """Return whether the bytes are one sound batch that is not compressed, and may have its producer."""
    cdef const uint8_t* data = <const uint8_t*>view.buf
    cdef Py_ssize_t size = view.len
    cdef int64_t base_time, max_time, oldest, newest
    cdef int32_t count
    cdef Facts facts
    cdef bint is_sound
    if not HEADER_BYTES < size <= <int64_t>limits.batch_bytes_max or not limits.takes_any:
        return False
    count = <int32_t>big_endian_32(data + 57)
    base_time, max_time = big_endian_64(data + 27), big_endian_64(data + 35)
    if (
        big_endian_64(data) != 0
        or <int32_t>big_endian_32(data + 8) != size - OVERHEAD_BYTES
        or data[16] != MAGIC
        or data[21] != 0
        or data[22] != 0
        or count <= 0
        or <int64_t><int32_t>big_endian_32(data + 23) + 1 != count
        or not takes_producer(data, producer, batch)
        or not -TIME_MAX < base_time < TIME_MAX
    ):
        return False
    checked = PyMemoryView_FromMemory(<char*>data + CHECKED_FROM, size - CHECKED_FROM, PyBUF_READ)
    if <int64_t>crc32c(checked) != <int64_t>big_endian_32(data + 17):
        return False
    if size <= HELD_BYTES_MAX:
        is_sound = survey(data + HEADER_BYTES, size - HEADER_BYTES, count, INT64_MAX, &facts)
    else:
        with nogil:
            is_sound = survey(data + HEADER_BYTES, size - HEADER_BYTES, count, INT64_MAX, &facts)
    if not is_sound or not (-TIME_MAX < facts.least and facts.greatest < TIME_MAX):
        return False
    oldest, newest = base_time + facts.least, base_time + facts.greatest
    if newest != max_time or oldest < 0 or now_ms - oldest > <int64_t>limits.before_ms:
        return False
    if newest - now_ms > <int64_t>limits.after_ms or (facts.has_null_key and limits.needs_keys):
        return False
    batch.record_count, batch.max_timestamp = count, newest
    return True


cdef int stamp(uint8_t* head, Py_buffer* view, Batch* batch, int64_t base_offset, int64_t epoch) except -1:
    """Write the header of a batch to ``head``, as ``ValidBatch.stamp`` leaves it; for a key after ``set_producer``."""
    memcpy(head, view.buf, HEADER_BYTES)
    if batch.is_keyed:
        put_big_endian_32(head + PRODUCER_AT, <uint32_t>(batch.producer.producer_id >> 32))
        put_big_endian_32(head + PRODUCER_AT + 4, <uint32_t>(batch.producer.producer_id & 0xFFFFFFFF))
        # Epoch and sequence.
        memset(head + PRODUCER_AT + 8, 0, 6)
        begun = crc32c(PyMemoryView_FromMemory(<char*>head + CHECKED_FROM, HEADER_BYTES - CHECKED_FROM, PyBUF_READ))
        records = PyMemoryView_FromMemory(<char*>view.buf + HEADER_BYTES, view.len - HEADER_BYTES, PyBUF_READ)
        put_big_endian_32(head + CRC_AT, <uint32_t>crc32c(records, begun))
    put_big_endian_32(head, <uint32_t>(base_offset >> 32))
    put_big_endian_32(head + 4, <uint32_t>(base_offset & 0xFFFFFFFF))
    put_big_endian_32(head + 12, <uint32_t>epoch)
    return 0
