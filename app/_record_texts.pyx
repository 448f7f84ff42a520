# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Records as JSON text, written in C: the very bytes that msgspec makes of ``translate.RecordDocument``.

Each access to a column goes through ``Strings.take``, which looks at its bounds; each byte of the text goes through ``Text``,
which makes room first. The interpreter's lock is held.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

import numpy as np

cdef enum:
    # A byte of text takes six at most, as \u001f.
    ESCAPED_BYTES_MAX = 6
    NUMBER_BYTES_MAX = 20

cdef const uint8_t* HEX_DIGITS = b"0123456789abcdef"
cdef const uint8_t* BASE64_DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


cdef class Text:
    """A text that grows."""

    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity

    def __dealloc__(self):
        free(self.data)

    cdef int make_room(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t capacity
        cdef void* data
        if more <= self.capacity - self.size:
            return 0
        capacity = 2 * self.capacity + more + 4096
        data = realloc(self.data, capacity)
        if data == NULL:
            raise MemoryError
        self.data, self.capacity = <uint8_t*>data, capacity
        return 0

    cdef inline int put(self, bytes text) except -1:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(text)
        self.make_room(size)
        memcpy(self.data + self.size, PyBytes_AS_STRING(text), size)
        self.size += size
        return 0

    cdef int put_number(self, int64_t number) except -1:
        cdef uint8_t digits[NUMBER_BYTES_MAX]
        cdef int first = NUMBER_BYTES_MAX
        cdef uint64_t left = <uint64_t>number
        self.make_room(NUMBER_BYTES_MAX)
        if number < 0:
            left = 0 - left
            self.data[self.size] = c"-"
            self.size += 1
        while True:
            first -= 1
            digits[first] = <uint8_t>(c"0" + left % 10)
            left //= 10
            if left == 0:
                break
        memcpy(self.data + self.size, &digits[first], NUMBER_BYTES_MAX - first)
        self.size += NUMBER_BYTES_MAX - first
        return 0

    cdef int put_string(self, const uint8_t* data, Py_ssize_t size, bint is_plain) except -1:
        """A string of JSON, of UTF-8; ``is_plain`` when nothing of it needs to be escaped."""
        cdef Py_ssize_t place
        self.make_room((size if is_plain else ESCAPED_BYTES_MAX * size) + 2)
        self.put_quote()
        if not is_plain:
            for place in range(size):
                self.put_escaped(data[place])
        elif size:  # nothing may have no address
            memcpy(self.data + self.size, data, size)
            self.size += size
        self.put_quote()
        return 0

    cdef inline void put_quote(self) noexcept:
        self.data[self.size] = c'"'
        self.size += 1

    cdef inline void put_escaped(self, uint8_t byte) noexcept:
        cdef uint8_t* target = self.data + self.size
        cdef uint8_t short_form = 0
        if byte == c'"' or byte == c"\\":
            short_form = byte
        elif byte >= 0x20:
            target[0] = byte
            self.size += 1
            return
        elif byte == c"\b":
            short_form = c"b"
        elif byte == c"\t":
            short_form = c"t"
        elif byte == c"\n":
            short_form = c"n"
        elif byte == c"\f":
            short_form = c"f"
        elif byte == c"\r":
            short_form = c"r"
        target[0] = c"\\"
        if short_form:
            target[1] = short_form
            self.size += 2
            return
        memcpy(target + 1, <const char*>b"u00", 3)
        target[4] = HEX_DIGITS[byte >> 4]
        target[5] = HEX_DIGITS[byte & 0x0F]
        self.size += 6

    cdef int put_base64(self, const uint8_t* data, Py_ssize_t size) except -1:
        cdef Py_ssize_t place = 0
        cdef uint8_t* target
        cdef uint64_t word
        self.make_room((size // 3 + 1) * 4 + 2)
        self.put_quote()
        target = self.data + self.size
        while size - place >= 3:
            word = <uint64_t>data[place] << 16 | <uint64_t>data[place + 1] << 8 | data[place + 2]
            target[0] = BASE64_DIGITS[word >> 18]
            target[1] = BASE64_DIGITS[word >> 12 & 0x3F]
            target[2] = BASE64_DIGITS[word >> 6 & 0x3F]
            target[3] = BASE64_DIGITS[word & 0x3F]
            target += 4
            place += 3
        if size > place:
            word = <uint64_t>data[place] << 16
            if size - place == 2:
                word |= <uint64_t>data[place + 1] << 8
            target[0] = BASE64_DIGITS[word >> 18]
            target[1] = BASE64_DIGITS[word >> 12 & 0x3F]
            target[2] = BASE64_DIGITS[word >> 6 & 0x3F] if size - place == 2 else c"="
            target[3] = c"="
            target += 4
        self.size = target - self.data
        self.put_quote()
        return 0


cdef struct Content:
    # A null has the size -1.
    const uint8_t* data
    Py_ssize_t size


cdef class Strings:
    """A column of byte strings."""

    cdef const uint8_t[::1] data
    cdef const int64_t[::1] offsets
    cdef const uint8_t[::1] nulls
    cdef bint has_nulls

    def __cinit__(self, column):
        self.data = np.ascontiguousarray(column.data, dtype=np.uint8)
        self.offsets = np.ascontiguousarray(column.offsets, dtype=np.int64)
        self.has_nulls = column.nulls is not None
        if self.has_nulls:
            self.nulls = np.ascontiguousarray(column.nulls).view(np.uint8)

    cdef inline int take(self, Py_ssize_t place, Content* content) except -1:
        cdef int64_t start, end
        if not 0 <= place < self.offsets.shape[0] - 1 or (self.has_nulls and place >= self.nulls.shape[0]):
            raise IndexError(place)
        content.data, content.size = NULL, -1
        if self.has_nulls and self.nulls[place]:
            return 0
        start, end = self.offsets[place], self.offsets[place + 1]
        if not 0 <= start <= end <= self.data.shape[0]:
            raise IndexError(place)
        content.size = end - start
        if end > start:
            content.data = &self.data[start]
        return 0


cdef inline void look(Content* content, bint* is_ascii, bint* is_plain) noexcept:
    # Without a way out before its end, so that the compiler looks at many bytes at once.
    cdef uint8_t high = 0
    cdef uint8_t special = 0
    cdef uint8_t byte
    cdef Py_ssize_t place
    for place in range(content.size):
        byte = content.data[place]
        high |= byte
        special |= (byte < 0x20) | (byte == c'"') | (byte == c"\\")
    is_ascii[0] = high < 0x80
    is_plain[0] = not special


cdef bint is_text(Content* content):
    """Whether it is UTF-8, as Python judges."""
    try:
        PyUnicode_DecodeUTF8(<const char*>content.data, content.size, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef int put_content(Text text, Content* content, bint as_base64) except -1:
    cdef bint is_ascii, is_plain
    if content.size < 0:
        return text.put(b"null")
    if as_base64:
        return text.put_base64(content.data, content.size)
    look(content, &is_ascii, &is_plain)
    if is_ascii or is_text(content):
        return text.put_string(content.data, content.size, is_plain)
    text.put(b'{"base64":')
    text.put_base64(content.data, content.size)
    return text.put(b"}")


cdef int put_headers(Text text, Strings names, Strings values, Py_ssize_t first, int64_t count) except -1:
    cdef Content content
    cdef Py_ssize_t place
    text.put(b"[")
    for place in range(first, first + count):
        names.take(place, &content)
        text.put(b'{"name":' if place == first else b',{"name":')
        put_content(text, &content, False)
        values.take(place, &content)
        text.put(b',"value":')
        put_content(text, &content, False)
        text.put(b"}")
    return text.put(b"]")


def write_texts(columns, bytes timestamp_type not None, int64_t partition, bytes between not None, bint as_base64):
    """One JSON object for each record, with ``between`` each two; keys and values as base64 text on demand.

    ``timestamp_type`` is the name without quotes.
    """
    cdef Text text = Text()
    cdef const int64_t[::1] offsets = np.ascontiguousarray(columns.offsets, dtype=np.int64)
    cdef const int64_t[::1] timestamps = np.ascontiguousarray(columns.timestamps, dtype=np.int64)
    cdef Strings keys = Strings(columns.keys)
    cdef Strings values = Strings(columns.values)
    cdef Strings names, header_values
    cdef const int64_t[::1] counts
    cdef bint has_headers = columns.headers is not None
    cdef Py_ssize_t first = 0
    cdef Py_ssize_t place
    cdef Content content
    cdef bytes after_time = b',"timestamp_type":"' + timestamp_type + b'","key":'
    cdef bytes end = b',"partition":%d}' % partition
    if timestamps.shape[0] != offsets.shape[0]:
        raise ValueError("columns of different lengths")
    if has_headers:
        names, header_values = Strings(columns.headers.names), Strings(columns.headers.values)
        counts = np.ascontiguousarray(columns.headers.counts, dtype=np.int64)
        if counts.shape[0] != offsets.shape[0]:
            raise ValueError("columns of different lengths")
    for place in range(offsets.shape[0]):
        if place:
            text.put(between)
        text.put(b'{"offset":')
        text.put_number(offsets[place])
        text.put(b',"timestamp":')
        text.put_number(timestamps[place])
        text.put(after_time)
        keys.take(place, &content)
        put_content(text, &content, as_base64)
        text.put(b',"value":')
        values.take(place, &content)
        put_content(text, &content, as_base64)
        text.put(b',"headers":')
        if has_headers:
            put_headers(text, names, header_values, first, counts[place])
            first += counts[place]
        else:
            text.put(b"[]")
        text.put(end)
    return PyBytes_FromStringAndSize(<const char*>text.data, text.size)
