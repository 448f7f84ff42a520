# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Record sections written in C: the compiled twin of ``writer_py``. ``reader`` has the layout of a section.

Each function returns ``None`` for records that it cannot write: too large, offsets that leave their data, an object of
another type. ``writer_py`` then writes them, or raises.

The code checks bounds itself; the compiler does not. A first pass finds the size of the section. The second pass checks
again that each record fits, because another thread may change the memory between the two.

Thread: any. Columns are written without the interpreter's lock, lists with it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

import numpy as np

cdef enum:
    # As in ``writer_py``.
    SECTION_BYTES_MAX = 2147483647 - 49


# As in the service's ``record_batches_c``: an isolated build of the service has no sources of the library to share a .pxd with.
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
    """Return the bytes that the length of a record counts. ``headers_size`` includes the number of headers."""
    return (
        1
        + number_size(row.timestamp_delta)
        + number_size(row.offset_delta)
        + content_size(&row.key)
        + content_size(&row.value)
        + headers_size
    )


cdef inline uint8_t* put_row(uint8_t* target, Row* row, int64_t size) noexcept nogil:
    """Write a record up to its headers."""
    target = put_number(target, size)
    target[0] = 0
    target = put_number(target + 1, row.timestamp_delta)
    target = put_number(target, row.offset_delta)
    return put_content(put_content(target, &row.key), &row.value)


cdef int64s(array):
    return np.ascontiguousarray(array, dtype=np.int64)


cdef class Strings:
    """A column of byte strings that is written."""

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
        """Find the byte string at ``place``. Return false if its offsets leave the data."""
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
        """Return the bytes of the headers of record ``place``, of which ``first`` is the first, with their number.

        -1 if something is wrong with them.
        """
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
            if size > SECTION_BYTES_MAX:
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
    """Records that are written."""

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

    cdef int64_t size(self, int64_t bytes_max, Py_ssize_t* count) noexcept nogil:
        """Return the bytes of the first records, of all that fit into ``bytes_max``, and set their ``count``.

        -1 if something is wrong with them.
        """
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
            size += number_size(size)
            if size > bytes_max - total:
                count[0] = place
                return total
            total += size
        count[0] = self.timestamps.shape[0]
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
    """Write the records of these columns, at least one; see ``writer``."""
    cdef _Columns records = _Columns(columns)
    cdef Py_ssize_t count = 0
    cdef int64_t size
    with nogil:
        size = records.size(SECTION_BYTES_MAX, &count)
    if size <= 0 or count < records.timestamps.shape[0]:
        return None
    section = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* target = <uint8_t*>PyBytes_AS_STRING(section)
    cdef bint is_whole
    with nogil:
        is_whole = records.put(target, target + size)
    return section if is_whole else None


def fit_records(columns, int64_t bytes_max):
    """Return how many of the records fit into a section of ``bytes_max``; see ``writer``."""
    cdef _Columns records = _Columns(columns)
    cdef Py_ssize_t count = 0
    cdef int64_t size
    with nogil:
        size = records.size(bytes_max, &count)
    return count if size >= 0 else None


cdef inline bint take_item(object item, Content* content) noexcept:
    if item is None:
        content.data, content.size = NULL, -1
        return True
    if type(item) is not bytes:
        return False
    content.data, content.size = <const uint8_t*>PyBytes_AS_STRING(item), PyBytes_GET_SIZE(item)
    return True


cdef inline bint take_listed(list timestamps, list keys, list values, Py_ssize_t place, Row* row) except -1:
    """Find the record at ``place``, if the lists have one there. It points to memory of the objects in the lists."""
    if place >= len(timestamps) or place >= len(keys) or place >= len(values) or type(timestamps[place]) is not int:
        return False
    row.timestamp_delta = wrapped_difference(timestamps[place], timestamps[0])
    row.offset_delta = place
    return take_item(keys[place], &row.key) and take_item(values[place], &row.value)


def write_lists(list timestamps not None, list keys not None, list values not None, list header_blocks):
    """Write the records of these lists, at least one; see ``writer``.

    Raises:
        OverflowError: a timestamp is no int64.
    """
    cdef Py_ssize_t count = len(values)
    cdef Py_ssize_t place
    cdef int64_t size
    cdef int64_t total = 0
    cdef Row row
    cdef Content block
    # A record without headers ends with their number.
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
        if total > SECTION_BYTES_MAX:
            return None
    if not total:
        return None
    section = PyBytes_FromStringAndSize(NULL, total)
    cdef uint8_t* target = <uint8_t*>PyBytes_AS_STRING(section)
    # The lock is held, and no call below releases it, so the lists are still the same.
    for place in range(count):
        if header_blocks is not None:
            take_item(header_blocks[place], &block)
        take_listed(timestamps, keys, values, place, &row)
        target = put_row(target, &row, row_size(&row, block.size))
        memcpy(target, block.data, block.size)
        target += block.size
    return section
