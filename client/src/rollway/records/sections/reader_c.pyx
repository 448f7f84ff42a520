# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Record sections read in C: the compiled twin of ``reader_py``. ``reader`` has the layout of a section.

Each function returns a result only for a sound section. For every other section it returns ``None``, and ``reader_py``
finds the words for the error.

The code checks bounds itself; the compiler does not. One rule keeps each access inside: only ``take_number``,
``take_record`` and ``take_header`` read bytes of a section, and each takes the position where it must stop. Code that
reads a byte a second time checks it a second time, so another thread that changes the memory meanwhile can cause a wrong
result, but no access outside.

Thread: any. Large sections are read without the interpreter's lock.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

import numpy as np

cdef enum:
    VARINT_BYTES_MAX = 5
    VARLONG_BYTES_MAX = 10
    # A record without key, value and headers, with and without its length.
    RECORD_BYTES_MIN = 7
    RECORD_BODY_BYTES_MIN = 6
    # A header with an empty name and value.
    HEADER_BYTES_MIN = 2
    # Measured: shorter sections are read before another thread has the lock.
    HELD_BYTES_MAX = 16 * 1024


cdef inline bint take_number(
    const uint8_t* data, Py_ssize_t* at, Py_ssize_t stop, int bytes_max, int64_t* number
) noexcept nogil:
    """Read a zigzag varint of at most ``bytes_max`` bytes that ends at ``stop`` at the latest, and move behind it."""
    cdef Py_ssize_t position = at[0]
    cdef Py_ssize_t last = position + bytes_max
    cdef uint64_t zigzag = 0
    cdef uint64_t byte
    cdef int shift = 0
    # Most numbers take one byte.
    if position < stop and data[position] < 0x80:
        byte = data[position]
        number[0] = <int64_t>(byte >> 1) ^ -<int64_t>(byte & 1)
        at[0] = position + 1
        return True
    if last > stop:
        last = stop
    # Most of the other numbers take two.
    if position + 1 < last and data[position + 1] < 0x80:
        zigzag = (<uint64_t>data[position] & 0x7F) | (<uint64_t>data[position + 1] << 7)
        number[0] = <int64_t>(zigzag >> 1) ^ -<int64_t>(zigzag & 1)
        at[0] = position + 2
        return True
    while position < last:
        byte = data[position]
        position += 1
        if shift == 63 and byte > 1:
            return False
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            if bytes_max == VARINT_BYTES_MAX and zigzag > <uint64_t>0xFFFFFFFF:
                return False
            number[0] = <int64_t>(zigzag >> 1) ^ -<int64_t>(zigzag & 1)
            at[0] = position
            return True
        shift += 7
    return False


cdef struct Span:
    # ``size`` bytes from ``start`` on; -1 for a null.
    Py_ssize_t start
    int64_t size


cdef inline bint take_bytes(const uint8_t* data, Py_ssize_t* at, Py_ssize_t stop, Span* span) noexcept nogil:
    """Read a length, and move behind the bytes that it counts."""
    cdef int64_t size
    if not take_number(data, at, stop, VARINT_BYTES_MAX, &size) or size < -1 or size > stop - at[0]:
        return False
    span.start = at[0]
    span.size = size
    if size > 0:
        at[0] += size
    return True


cdef struct Record:
    int64_t timestamp_delta
    int64_t offset_delta
    Span key
    Span value
    int64_t header_count
    Py_ssize_t headers_at
    Py_ssize_t stop


cdef inline bint take_record(const uint8_t* data, Py_ssize_t* at, Py_ssize_t end, Record* record) noexcept nogil:
    """Read a record up to its headers, and move to where they begin. A record without headers ends there."""
    cdef int64_t size
    if not take_number(data, at, end, VARINT_BYTES_MAX, &size) or size < 1 or size > end - at[0]:
        return False
    record.stop = at[0] + size
    at[0] += 1  # the attributes, which are unused
    if (
        not take_number(data, at, record.stop, VARLONG_BYTES_MAX, &record.timestamp_delta)
        or not take_number(data, at, record.stop, VARINT_BYTES_MAX, &record.offset_delta)
        or not take_bytes(data, at, record.stop, &record.key)
        or not take_bytes(data, at, record.stop, &record.value)
        or not take_number(data, at, record.stop, VARINT_BYTES_MAX, &record.header_count)
        or not 0 <= record.header_count <= (record.stop - at[0]) // HEADER_BYTES_MIN
    ):
        return False
    record.headers_at = at[0]
    return record.header_count > 0 or at[0] == record.stop


cdef inline bint take_header(
    const uint8_t* data, Py_ssize_t* at, Py_ssize_t stop, Span* name, Span* value
) noexcept nogil:
    return (
        take_bytes(data, at, stop, name)
        and name.size >= 0
        and take_bytes(data, at, stop, value)
    )


cdef inline bint take_headers(const uint8_t* data, Py_ssize_t* at, Record* record) noexcept nogil:
    """Move behind the headers of a record, which must end where the record ends."""
    cdef Span name, value
    for _ in range(record.header_count):
        if not take_header(data, at, record.stop, &name, &value):
            return False
    return at[0] == record.stop


cdef struct Facts:
    int64_t least
    int64_t greatest
    bint has_null_key


cdef bint survey(
    const uint8_t* data, Py_ssize_t size, int64_t record_count, int64_t header_count_max, Facts* facts
) noexcept nogil:
    cdef Py_ssize_t at = 0
    cdef Record record
    cdef int64_t place
    facts.least, facts.greatest, facts.has_null_key = INT64_MAX, INT64_MIN, False
    for place in range(record_count):
        if not take_record(data, &at, size, &record) or record.offset_delta != place:
            return False
        if record.header_count:
            header_count_max -= record.header_count
            if header_count_max < 0 or not take_headers(data, &at, &record):
                return False
        if record.timestamp_delta < facts.least:
            facts.least = record.timestamp_delta
        if record.timestamp_delta > facts.greatest:
            facts.greatest = record.timestamp_delta
        if record.key.size < 0:
            facts.has_null_key = True
    return at == size


# For other compiled modules. The number in the name is that of the signature.
survey_capsule = PyCapsule_New(<void*>survey, "rollway.records.survey.1", NULL)


def find_facts(section, int64_t record_count, int64_t header_count_max):
    """Return the least and the greatest timestamp delta, and whether a record has no key; see ``reader``."""
    cdef Facts facts
    cdef Py_buffer bytes_of
    cdef bint is_sound
    if record_count <= 0 or header_count_max < 0:
        return None
    PyObject_GetBuffer(section, &bytes_of, PyBUF_SIMPLE)
    if bytes_of.len <= HELD_BYTES_MAX:
        is_sound = survey(<const uint8_t*>bytes_of.buf, bytes_of.len, record_count, header_count_max, &facts)
    else:
        with nogil:
            is_sound = survey(<const uint8_t*>bytes_of.buf, bytes_of.len, record_count, header_count_max, &facts)
    PyBuffer_Release(&bytes_of)
    return (facts.least, facts.greatest, bool(facts.has_null_key)) if is_sound else None


def find_fault(section, int64_t record_count, int64_t header_count_max):
    """Return the number of the first record that is not sound, where it begins, and the number of headers before it.

    The number is ``record_count`` if that many records are sound and do not fill the section.
    """
    cdef Py_buffer bytes_of
    cdef Py_ssize_t position = 0
    cdef int64_t header_count = 0
    cdef int64_t place
    PyObject_GetBuffer(section, &bytes_of, PyBUF_SIMPLE)
    with nogil:
        place = walk_sound(
            <const uint8_t*>bytes_of.buf, bytes_of.len, record_count, header_count_max, &position, &header_count
        )
    PyBuffer_Release(&bytes_of)
    return place, position, header_count


cdef int64_t walk_sound(
    const uint8_t* data,
    Py_ssize_t size,
    int64_t record_count,
    int64_t header_count_max,
    Py_ssize_t* position,
    int64_t* header_count,
) noexcept nogil:
    """Count sound records; move ``position`` behind them."""
    cdef Py_ssize_t at = 0
    cdef Record record
    cdef int64_t place
    for place in range(record_count):
        if not take_record(data, &at, size, &record):
            return place
        if record.header_count:
            if record.header_count > header_count_max - header_count[0] or not take_headers(data, &at, &record):
                return place
            header_count[0] += record.header_count
        position[0] = at
    return record_count


def fit_records(section, Py_ssize_t start, int64_t record_count, Py_ssize_t bytes_max):
    """Return how many of the next records fit into ``bytes_max``, and where they end; see ``reader``."""
    cdef Py_buffer bytes_of
    cdef Py_ssize_t position = start
    cdef int64_t count
    PyObject_GetBuffer(section, &bytes_of, PyBUF_SIMPLE)
    if not 0 <= start <= bytes_of.len:
        PyBuffer_Release(&bytes_of)
        raise IndexError(start)
    with nogil:
        count = walk_lengths(
            <const uint8_t*>bytes_of.buf, start + min(bytes_max, bytes_of.len - start), record_count, &position
        )
    PyBuffer_Release(&bytes_of)
    return count, position


cdef int64_t walk_lengths(
    const uint8_t* data, Py_ssize_t end, int64_t record_count, Py_ssize_t* position
) noexcept nogil:
    cdef Py_ssize_t at = position[0]
    cdef int64_t size
    cdef int64_t place
    for place in range(record_count):
        if not take_number(data, &at, end, VARINT_BYTES_MAX, &size):
            return place
        if size < RECORD_BODY_BYTES_MIN or size > end - at:
            return place
        at += size
        position[0] = at
    return record_count


cdef struct Places:
    # Where a column's byte strings lie, where they end one after the other, and which are nulls.
    int64_t* starts
    int64_t* ends
    uint8_t* nulls
    bint has_null


cdef inline void note(Places* places, Py_ssize_t place, Span* span) noexcept nogil:
    places.starts[place] = span.start
    places.nulls[place] = span.size < 0
    if span.size < 0:
        places.has_null = True
        places.ends[place + 1] = places.ends[place]
    else:
        places.ends[place + 1] = places.ends[place] + span.size


cdef class Column:
    """A column of byte strings that is read."""

    cdef object ends_array, nulls_array
    # Held for the memory that ``places`` points to.
    cdef int64_t[::1] starts, ends
    cdef uint8_t[::1] nulls
    cdef Places places

    def __cinit__(self, Py_ssize_t count):
        self.ends_array = np.empty(count + 1, dtype=np.int64)
        self.nulls_array = np.empty(count + 1, dtype=np.uint8)
        self.starts = np.empty(count + 1, dtype=np.int64)
        self.ends = self.ends_array
        self.nulls = self.nulls_array
        self.ends[0] = 0
        self.places = Places(&self.starts[0], &self.ends[0], &self.nulls[0], False)

    cdef tuple gathered(self, const uint8_t* data, Py_ssize_t count):
        """The column's data, offsets and nulls, copied out of a section that was walked."""
        array = np.empty(self.ends[count], dtype=np.uint8)
        cdef uint8_t[::1] target = array
        if target.shape[0]:
            with nogil:
                gather(data, &self.places, count, &target[0])
        nulls = self.nulls_array[:count].view(np.bool_) if self.places.has_null else None
        return array, self.ends_array, nulls


cdef void gather(const uint8_t* data, Places* places, Py_ssize_t count, uint8_t* target) noexcept nogil:
    cdef Py_ssize_t place
    for place in range(count):
        memcpy(
            target + places.ends[place], data + places.starts[place], places.ends[place + 1] - places.ends[place]
        )


cdef int64_t walk(
    const uint8_t* data,
    Py_ssize_t size,
    int64_t record_count,
    int64_t header_count_max,
    int64_t* offsets,
    int64_t* timestamps,
    int64_t* header_counts,
    Places* keys,
    Places* values,
) noexcept nogil:
    """Note where each field is. Return the number of headers, or -1 if the section is not sound."""
    cdef Py_ssize_t at = 0
    cdef Record record
    cdef int64_t place
    cdef int64_t header_count = 0
    for place in range(record_count):
        if not take_record(data, &at, size, &record):
            return -1
        offsets[place] = record.offset_delta
        timestamps[place] = record.timestamp_delta
        header_counts[place] = record.header_count
        note(keys, place, &record.key)
        note(values, place, &record.value)
        if record.header_count:
            header_count += record.header_count
            if header_count > header_count_max or not take_headers(data, &at, &record):
                return -1
    return header_count if at == size else -1


cdef bint walk_headers(
    const uint8_t* data, Py_ssize_t size, int64_t record_count, int64_t header_count, Places* names, Places* values
) noexcept nogil:
    """Note where the ``header_count`` headers are. Return whether there are that many."""
    cdef Py_ssize_t at = 0
    cdef Record record
    cdef Span name, value
    cdef int64_t place = 0
    for _ in range(record_count):
        if not take_record(data, &at, size, &record) or record.header_count > header_count - place:
            return False
        for _ in range(record.header_count):
            if not take_header(data, &at, record.stop, &name, &value):
                return False
            note(names, place, &name)
            note(values, place, &value)
            place += 1
    return place == header_count


def read_section(section, int64_t record_count, int64_t header_count_max):
    """Return all columns of a section; see ``reader.CompiledReader``."""
    cdef Py_buffer bytes_of
    PyObject_GetBuffer(section, &bytes_of, PyBUF_SIMPLE)
    try:
        # So the columns are no larger than the section allows.
        if not 0 < record_count <= bytes_of.len // RECORD_BYTES_MIN:
            return None
        return read_columns(<const uint8_t*>bytes_of.buf, bytes_of.len, record_count, header_count_max)
    finally:
        PyBuffer_Release(&bytes_of)


cdef tuple read_columns(const uint8_t* data, Py_ssize_t size, int64_t record_count, int64_t header_count_max):
    offsets_array, timestamps_array = np.empty(record_count, np.int64), np.empty(record_count, np.int64)
    counts_array = np.empty(record_count, np.int64)
    cdef int64_t[::1] offsets = offsets_array
    cdef int64_t[::1] timestamps = timestamps_array
    cdef int64_t[::1] counts = counts_array
    cdef Column keys = Column(record_count)
    cdef Column values = Column(record_count)
    cdef int64_t header_count
    with nogil:
        header_count = walk(
            data, size, record_count, header_count_max, &offsets[0], &timestamps[0], &counts[0], &keys.places, &values.places
        )
    if header_count < 0:
        return None
    headers = None
    if header_count:
        headers = read_headers(data, size, record_count, header_count)
        if headers is None:
            return None
        headers = (counts_array, *headers)
    return (
        offsets_array, timestamps_array, keys.gathered(data, record_count), values.gathered(data, record_count), headers
    )


cdef tuple read_headers(const uint8_t* data, Py_ssize_t size, int64_t record_count, int64_t header_count):
    cdef Column names = Column(header_count)
    cdef Column values = Column(header_count)
    cdef bint is_sound
    with nogil:
        is_sound = walk_headers(data, size, record_count, header_count, &names.places, &values.places)
    return (names.gathered(data, header_count), values.gathered(data, header_count)) if is_sound else None
