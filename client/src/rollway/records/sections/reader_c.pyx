# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The uncompressed record section of a batch (its layout: ``section_reader``), read and written in C.

Only ever sure of the good, as the ways in Python that it stands in for: whatever is broken, unusual or too large is
``None``, and theirs to judge. There is one verdict, and one wording of it.

Bounds are looked at here and not by the compiler. One rule keeps each access inside: ``take_number``, ``take_record`` and
``take_header`` are the only readers of a section's bytes, and each is told where it must stop; a writer knows before a
record that all of it fits. Nothing that is looked at once is trusted afterwards to be the same, so memory that somebody
changes meanwhile makes a wrong answer, and no access outside.

Thread: any. Large sections are read and written without the interpreter's lock.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

import numpy as np

cdef enum:
    VARINT_BYTES_MAX = 5
    VARLONG_BYTES_MAX = 10
    # A record without key, value and headers, and a header with an empty name and value.
    RECORD_BYTES_MIN = 7
    HEADER_BYTES_MIN = 2
    # Measured: shorter sections are done before another thread has the lock.
    HELD_BYTES_MAX = 16 * 1024


# Reading


cdef inline bint take_number(
    const uint8_t* data, Py_ssize_t* at, Py_ssize_t stop, int bytes_max, int64_t* number
) noexcept nogil:
    """Read a zigzag varint of at most ``bytes_max`` bytes that ends at ``stop`` at the latest, and go behind it."""
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
    # And most others two.
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
    """Read a length and go behind the bytes that it counts."""
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
    """Read a record up to its headers, and go to where they begin; without any the record ends there."""
    cdef int64_t size
    if not take_number(data, at, end, VARINT_BYTES_MAX, &size) or size < 1 or size > end - at[0]:
        return False
    record.stop = at[0] + size
    at[0] += 1  # attributes, which nobody uses
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
    """Go behind the headers of a record, which must end where it does."""
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


# For other compiled modules, which know the name's number as that of these arguments.
survey_capsule = PyCapsule_New(<void*>survey, "rollway.records.survey.1", NULL)


def find_facts(section, int64_t record_count, int64_t header_count_max):
    """The least and the greatest timestamp delta, and whether a record has no key; see ``section_facts``."""
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
    """A column of byte strings that is being read."""

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
    """Note where everything is; the number of headers, or -1 when something is wrong."""
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
    """Note where the headers are, of which there must be as many."""
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
    """All columns of a section, deltas as they are written; see ``section_reader.read_section``.

    Offset deltas, timestamp deltas; data, offsets and nulls of keys; those of values; ``None``, or the number of headers
    of each record with data, offsets and nulls of names, and those of values.
    """
    cdef Py_buffer bytes_of
    PyObject_GetBuffer(section, &bytes_of, PyBUF_SIMPLE)
    try:
        # What is made is no larger than the section allows.
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


# Writing


cdef inline uint64_t zigzag_of(int64_t number) noexcept nogil:
    return (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)


cdef inline int number_size(int64_t number) noexcept nogil:
    cdef uint64_t zigzag = zigzag_of(number)
    cdef int size = 1
    while zigzag > 0x7F:
        zigzag >>= 7
        size += 1
    return size


cdef inline uint8_t* put_number(uint8_t* target, int64_t number) noexcept nogil:
    cdef uint64_t zigzag = zigzag_of(number)
    while zigzag > 0x7F:
        target[0] = <uint8_t>(zigzag & 0x7F | 0x80)
        target += 1
        zigzag >>= 7
    target[0] = <uint8_t>zigzag
    return target + 1


cdef struct Content:
    # A null has no data and the size -1.
    const uint8_t* data
    int64_t size


cdef inline int64_t content_size(Content* content) noexcept nogil:
    return number_size(content.size) + (content.size if content.size > 0 else 0)


cdef inline uint8_t* put_content(uint8_t* target, Content* content) noexcept nogil:
    target = put_number(target, content.size)
    if content.size > 0:
        memcpy(target, content.data, content.size)
        target += content.size
    return target


cdef inline int64_t wrapped_difference(int64_t left, int64_t right) noexcept nogil:
    return <int64_t>(<uint64_t>left - <uint64_t>right)


cdef struct Row:
    int64_t timestamp_delta
    int64_t offset_delta
    Content key
    Content value


cdef inline int64_t row_size(Row* row, int64_t headers_size) noexcept nogil:
    """What the length of a record counts; ``headers_size`` with their number."""
    return (
        1
        + number_size(row.timestamp_delta)
        + number_size(row.offset_delta)
        + content_size(&row.key)
        + content_size(&row.value)
        + headers_size
    )


cdef inline uint8_t* put_row(uint8_t* target, Row* row, int64_t size) noexcept nogil:
    """All but the headers."""
    target = put_number(target, size)
    target[0] = 0
    target = put_number(target + 1, row.timestamp_delta)
    target = put_number(target, row.offset_delta)
    return put_content(put_content(target, &row.key), &row.value)


cdef int64s(array):
    return np.ascontiguousarray(array, dtype=np.int64)


cdef class Strings:
    """A column of byte strings that is being written."""

    cdef const uint8_t[::1] data
    cdef const int64_t[::1] offsets
    cdef const uint8_t[::1] nulls
    cdef bint has_nulls
    cdef Py_ssize_t count

    def __cinit__(self, column):
        self.data = np.ascontiguousarray(column.data, dtype=np.uint8)
        self.offsets = int64s(column.offsets)
        self.count = self.offsets.shape[0] - 1
        self.has_nulls = column.nulls is not None
        if self.has_nulls:
            self.nulls = np.ascontiguousarray(column.nulls).view(np.uint8)
            if self.nulls.shape[0] < self.count:
                raise ValueError("fewer null flags than byte strings")

    cdef inline bint take(self, Py_ssize_t place, Content* content) noexcept nogil:
        """What stands at ``place``, which the column has; false when its offsets leave the data."""
        cdef int64_t start = self.offsets[place]
        cdef int64_t end = self.offsets[place + 1]
        if self.has_nulls and self.nulls[place]:
            content.data, content.size = NULL, -1
            return True
        if not 0 <= start <= end <= self.data.shape[0]:
            return False
        content.data, content.size = NULL, end - start
        if end > start:
            content.data = &self.data[start]
        return True


cdef class Headers:
    """The headers of many records, laid end to end."""

    cdef Strings names, values
    cdef const int64_t[::1] counts

    def __cinit__(self, headers):
        self.names = Strings(headers.names)
        self.values = Strings(headers.values)
        self.counts = int64s(headers.counts)

    cdef inline int64_t size(self, Py_ssize_t place, Py_ssize_t first) noexcept nogil:
        """Bytes of the headers of record ``place``, of which ``first`` is the first, with their number; or -1."""
        cdef Content name, value
        cdef int64_t count = self.counts[place]
        cdef int64_t size = number_size(count)
        cdef Py_ssize_t header
        if not 0 <= count <= self.names.count - first or count > self.values.count - first:
            return -1
        for header in range(first, first + count):
            if not self.names.take(header, &name) or name.size < 0 or not self.values.take(header, &value):
                return -1
            size += content_size(&name) + content_size(&value)
            if size > INT32_MAX:
                return -1
        return size

    cdef inline uint8_t* put(self, uint8_t* target, uint8_t* end, int64_t count, Py_ssize_t first) noexcept nogil:
        cdef Content name, value
        cdef Py_ssize_t header
        target = put_number(target, count)
        for header in range(first, first + count):
            if (
                not self.names.take(header, &name)
                or not self.values.take(header, &value)
                or content_size(&name) + content_size(&value) > end - target
            ):
                return NULL
            target = put_content(put_content(target, &name), &value)
        return target


cdef class _Columns:
    """Records that are being written."""

    cdef const int64_t[::1] timestamps
    cdef Strings keys, values
    cdef Headers headers
    cdef bint has_headers

    def __cinit__(self, columns):
        self.timestamps = int64s(columns.timestamps)
        self.keys = Strings(columns.keys)
        self.values = Strings(columns.values)
        self.has_headers = columns.headers is not None
        if self.has_headers:
            self.headers = Headers(columns.headers)
            if self.headers.counts.shape[0] != self.timestamps.shape[0]:
                raise ValueError("columns of different lengths")
        if self.keys.count != self.timestamps.shape[0] or self.values.count != self.timestamps.shape[0]:
            raise ValueError("columns of different lengths")

    cdef inline bint take(self, Py_ssize_t place, Row* row) noexcept nogil:
        row.timestamp_delta = wrapped_difference(self.timestamps[place], self.timestamps[0])
        row.offset_delta = place
        return self.keys.take(place, &row.key) and self.values.take(place, &row.value)

    cdef int64_t size(self) noexcept nogil:
        """Bytes of all records, or -1 when they are too many or something is wrong."""
        cdef Py_ssize_t place
        cdef Py_ssize_t first = 0
        cdef int64_t total = 0
        cdef int64_t size
        cdef int64_t headers_size = 1
        cdef Row row
        for place in range(self.timestamps.shape[0]):
            if self.has_headers:
                headers_size = self.headers.size(place, first)
                if headers_size < 0:
                    return -1
                first += self.headers.counts[place]
            if not self.take(place, &row):
                return -1
            size = row_size(&row, headers_size)
            total += number_size(size) + size
            if total > INT32_MAX:
                return -1
        return total

    cdef bint put(self, uint8_t* target, uint8_t* end) noexcept nogil:
        """Write all records to ``[target, end)``, which they fill."""
        cdef Py_ssize_t place
        cdef Py_ssize_t first = 0
        cdef int64_t size
        cdef int64_t headers_size = 1
        cdef int64_t header_count
        cdef Row row
        for place in range(self.timestamps.shape[0]):
            if self.has_headers:
                headers_size = self.headers.size(place, first)
                if headers_size < 0:
                    return False
            if not self.take(place, &row):
                return False
            size = row_size(&row, headers_size)
            if number_size(size) + size > end - target:
                return False
            target = put_row(target, &row, size)
            if self.has_headers:
                header_count = self.headers.counts[place]
                if not 0 <= header_count <= self.headers.names.count - first or number_size(header_count) > end - target:
                    return False
                target = self.headers.put(target, end, header_count, first)
                if target == NULL:
                    return False
                first += header_count
            else:
                target[0] = 0
                target += 1
        return target == end


def write_section(columns):
    """The records of these columns, at least one, offset deltas from 0; see ``section_writer.record_section``."""
    cdef _Columns records = _Columns(columns)
    cdef int64_t size
    with nogil:
        size = records.size()
    if size <= 0:
        return None
    section = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* target = <uint8_t*>PyBytes_AS_STRING(section)
    cdef bint is_whole
    with nogil:
        is_whole = records.put(target, target + size)
    return section if is_whole else None


cdef inline bint take_item(object item, Content* content) noexcept:
    if item is None:
        content.data, content.size = NULL, -1
        return True
    if type(item) is not bytes:
        return False
    content.data, content.size = <const uint8_t*>PyBytes_AS_STRING(item), PyBytes_GET_SIZE(item)
    return True


cdef inline bint take_listed(list timestamps, list keys, list values, Py_ssize_t place, Row* row) except -1:
    """The record at ``place``, if the lists have one there; what it points to lives as long as they are held."""
    if place >= len(timestamps) or place >= len(keys) or place >= len(values) or type(timestamps[place]) is not int:
        return False
    row.timestamp_delta = wrapped_difference(timestamps[place], timestamps[0])
    row.offset_delta = place
    return take_item(keys[place], &row.key) and take_item(values[place], &row.value)


def write_lists(list timestamps not None, list keys not None, list values not None, list header_blocks):
    """The records of these lists, at least one; see ``section_lists.join_rows``.

    Raises:
        OverflowError: a timestamp that is no int64.
    """
    cdef Py_ssize_t count = len(values)
    cdef Py_ssize_t place
    cdef int64_t size
    cdef int64_t total = 0
    cdef Row row
    cdef Content block
    # What a record without headers ends with.
    block.data, block.size = <const uint8_t*>b"\x00", 1
    if header_blocks is not None and len(header_blocks) != count:
        return None
    for place in range(count):
        if header_blocks is not None and (not take_item(header_blocks[place], &block) or block.size < 1):
            return None
        if not take_listed(timestamps, keys, values, place, &row):
            return None
        size = row_size(&row, block.size)
        total += number_size(size) + size
        if total > INT32_MAX:
            return None
    if not total:
        return None
    section = PyBytes_FromStringAndSize(NULL, total)
    cdef uint8_t* target = <uint8_t*>PyBytes_AS_STRING(section)
    # The lock is held, and nothing is called that could let anybody change the lists.
    for place in range(count):
        if header_blocks is not None:
            take_item(header_blocks[place], &block)
        take_listed(timestamps, keys, values, place, &row)
        target = put_row(target, &row, row_size(&row, block.size))
        memcpy(target, block.data, block.size)
        target += block.size
    return section


# Hashing


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
    """The murmur2 hash of each byte string of a column, a null's being that of no bytes; see ``partitioner``."""
    cdef Strings strings = Strings(column)
    cdef Content content
    cdef Py_ssize_t place
    cdef bint is_sound = True
    array = np.empty(strings.count, dtype=np.uint32)
    cdef uint32_t[::1] digests = array
    with nogil:
        for place in range(strings.count):
            if not strings.take(place, &content):
                is_sound = False
                break
            digests[place] = murmur2_of(content.data, content.size if content.size > 0 else 0)
    return array if is_sound else None
