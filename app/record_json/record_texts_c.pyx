# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Records as JSON text, written in C: the same bytes as ``record_texts_py``, its plain twin, makes with msgspec.

Each access to a column goes through ``Strings.take``, which checks its bounds. Each byte of the text goes through ``Text``,
which makes room first. A text has a limit: a record is measured before it is written, and one that does not fit is not written.

Thread: any. Long texts are written without the interpreter's lock.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

import numpy as np

cdef enum:
    # A byte of text takes at most six bytes of JSON, as \u001f.
    ESCAPED_BYTES_MAX = 6
    NUMBER_BYTES_MAX = 20
    # The end of a member's name for base64: _base64
    SUFFIX_BYTES = 7
    # The most bytes of a record beside its content and the parts that are equal for all records: the names of its
    # members, with SUFFIX_BYTES for two of them, its numbers, and nulls or quotes.
    FRAME_BYTES_MAX = 120
    # Measured: shorter texts are written before another thread has the lock.
    HELD_BYTES_MAX = 16 * 1024

cdef Py_ssize_t LONGEST = <Py_ssize_t>(<size_t>-1 >> 1)

# 00, 01, ... 99: one division gives two digits.
cdef bytes pairs_of_digits = b"".join([b"%02d" % number for number in range(100)])
cdef const char* PAIRS = PyBytes_AS_STRING(pairs_of_digits)
cdef const uint8_t* HEX_DIGITS = b"0123456789abcdef"
cdef const uint8_t* BASE64_DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


cdef class Text:
    """A text that grows at its end."""

    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity

    def __dealloc__(self):
        free(self.data)

    cdef int make_room(self, Py_ssize_t more) except -1 nogil:
        cdef Py_ssize_t capacity
        cdef void* data
        if more <= self.capacity - self.size:
            return 0
        capacity = 2 * self.capacity + more + 4096
        data = realloc(self.data, capacity)
        if data == NULL:
            with gil:
                raise MemoryError
        self.data, self.capacity = <uint8_t*>data, capacity
        return 0

    cdef inline int put(self, const char* text, Py_ssize_t size) except -1 nogil:
        self.make_room(size)
        memcpy(self.data + self.size, text, size)
        self.size += size
        return 0

    cdef int put_number(self, int64_t number) except -1 nogil:
        cdef uint8_t digits[NUMBER_BYTES_MAX]
        cdef int first = NUMBER_BYTES_MAX
        cdef uint64_t left = <uint64_t>number
        self.make_room(NUMBER_BYTES_MAX)
        if number < 0:
            left = 0 - left
            self.data[self.size] = c"-"
            self.size += 1
        while left > 9:
            first -= 2
            memcpy(&digits[first], PAIRS + 2 * (left % 100), 2)
            left //= 100
        if left or first == NUMBER_BYTES_MAX:
            first -= 1
            digits[first] = <uint8_t>(c"0" + left)
        memcpy(self.data + self.size, &digits[first], NUMBER_BYTES_MAX - first)
        self.size += NUMBER_BYTES_MAX - first
        return 0

    cdef int put_string(self, const uint8_t* data, Py_ssize_t size, bint is_plain) except -1 nogil:
        """Write a string of JSON, of UTF-8. ``is_plain``: no byte of it needs an escape."""
        cdef Py_ssize_t place
        self.make_room((size if is_plain else ESCAPED_BYTES_MAX * size) + 2)
        self.put_quote()
        if not is_plain:
            for place in range(size):
                self.put_escaped(data[place])
        elif size:  # an empty string may have no address
            memcpy(self.data + self.size, data, size)
            self.size += size
        self.put_quote()
        return 0

    cdef inline void put_quote(self) noexcept nogil:
        self.data[self.size] = c'"'
        self.size += 1

    cdef inline void put_escaped(self, uint8_t byte) noexcept nogil:
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

    cdef int put_base64(self, const uint8_t* data, Py_ssize_t size) except -1 nogil:
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
    """A column of byte strings that is read."""

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

    cdef inline int take(self, Py_ssize_t place, Content* content) except -1 nogil:
        cdef int64_t start, end
        if not 0 <= place < self.offsets.shape[0] - 1 or (self.has_nulls and place >= self.nulls.shape[0]):
            with gil:
                raise IndexError(place)
        content.data, content.size = NULL, -1
        if self.has_nulls and self.nulls[place]:
            return 0
        start, end = self.offsets[place], self.offsets[place + 1]
        if not 0 <= start <= end <= self.data.shape[0]:
            with gil:
                raise IndexError(place)
        content.size = end - start
        if end > start:
            content.data = &self.data[start]
        return 0


cdef inline void look(Content* content, bint* is_ascii, bint* is_plain) noexcept nogil:
    # The loop has no early exit, so that the compiler can vectorise it.
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


cdef bint is_text(Content* content) noexcept nogil:
    """Return whether it is UTF-8, as strictly as Python checks it."""
    cdef Py_ssize_t at = 0
    cdef int more
    cdef uint8_t byte, least, most
    while at < content.size:
        byte = content.data[at]
        at += 1
        if byte < 0x80:
            continue
        least, most = 0x80, 0xBF
        if 0xC2 <= byte <= 0xDF:
            more = 1
        elif 0xE0 <= byte <= 0xEF:
            more = 2
            if byte == 0xE0:
                least = 0xA0
            elif byte == 0xED:
                most = 0x9F
        elif 0xF0 <= byte <= 0xF4:
            more = 3
            if byte == 0xF0:
                least = 0x90
            elif byte == 0xF4:
                most = 0x8F
        else:
            return False
        if more > content.size - at:
            return False
        for _ in range(more):
            if not least <= content.data[at] <= most:
                return False
            least, most = 0x80, 0xBF
            at += 1
    return True


cdef enum Shape:
    NULL_SHAPE
    # A null in the member for base64.
    BASE64_NULL
    # Text without, and with, a character that needs an escape.
    PLAIN
    ESCAPED
    BASE64


cdef Shape shape_of(Content* content, bint as_base64) noexcept nogil:
    cdef bint is_ascii, is_plain
    if content.size < 0:
        return BASE64_NULL if as_base64 else NULL_SHAPE
    if as_base64:
        return BASE64
    look(content, &is_ascii, &is_plain)
    if is_ascii or is_text(content):
        return PLAIN if is_plain else ESCAPED
    return BASE64


cdef Py_ssize_t content_bytes(Content* content, bint as_base64) noexcept nogil:
    """Return the length of the text of ``put_member``, without the name and the punctuation around it."""
    cdef Py_ssize_t place, size
    cdef uint8_t byte
    cdef Shape shape = shape_of(content, as_base64)
    if shape == NULL_SHAPE:
        return 4
    if shape == BASE64_NULL:
        return 4 + SUFFIX_BYTES
    if shape == BASE64:
        return (content.size + 2) // 3 * 4 + 2 + SUFFIX_BYTES
    size = content.size + 2
    if shape == ESCAPED:
        for place in range(content.size):
            byte = content.data[place]
            if byte == c'"' or byte == c"\\":
                size += 1
            elif byte < 0x20:
                size += 1 if byte == 8 or byte == 9 or byte == 10 or byte == 12 or byte == 13 else 5
    return size


cdef inline int put_member(
    Text text, const char* name, Py_ssize_t name_bytes, Content* content, bint as_base64
) except -1 nogil:
    """Write a content behind ``name``, which ends with a colon and has the suffix for base64 if ``as_base64``."""
    cdef Shape shape = shape_of(content, as_base64)
    text.put(name, name_bytes)
    if shape == PLAIN or shape == ESCAPED:
        return text.put_string(content.data, content.size, shape == PLAIN)
    if shape != BASE64:
        return text.put(b"null", 4)
    if not as_base64:
        # Overwrite the quote and the colon.
        text.size -= 2
        text.put(b'_base64":', 2 + SUFFIX_BYTES)
    return text.put_base64(content.data, content.size)


cdef inline int put_value(Text text, Content* content, bint as_base64) except -1 nogil:
    """Write the value of a record or a header behind its name."""
    if as_base64:
        return put_member(text, b',"value_base64":', 16, content, True)
    return put_member(text, b',"value":', 9, content, False)


cdef struct Words:
    # The text between the fields of a record, beside the names of their own.
    const char* between
    Py_ssize_t between_bytes
    const char* after_time
    Py_ssize_t after_time_bytes
    const char* end
    Py_ssize_t end_bytes
    bint as_base64


cdef class Rows:
    """Records that become text, from the first on."""

    cdef const int64_t[::1] offsets, timestamps, counts
    cdef Strings keys, values, names, header_values
    cdef bint has_headers
    # The index of the first header of the next record.
    cdef Py_ssize_t first

    def __cinit__(self, columns):
        self.offsets = np.ascontiguousarray(columns.offsets, dtype=np.int64)
        self.timestamps = np.ascontiguousarray(columns.timestamps, dtype=np.int64)
        self.keys, self.values = Strings(columns.keys), Strings(columns.values)
        if self.timestamps.shape[0] != self.offsets.shape[0]:
            raise ValueError("columns of different lengths")
        self.has_headers = columns.headers is not None
        if self.has_headers:
            self.names, self.header_values = Strings(columns.headers.names), Strings(columns.headers.values)
            self.counts = np.ascontiguousarray(columns.headers.counts, dtype=np.int64)
            if self.counts.shape[0] != self.offsets.shape[0]:
                raise ValueError("columns of different lengths")

    cdef Py_ssize_t least(self, Py_ssize_t place, Words* words, Py_ssize_t* most) except -1 nogil:
        """Return the least length of a record's text, and set ``most`` to the greatest, from lengths alone."""
        cdef Content key, value
        cdef Py_ssize_t size = words.after_time_bytes + words.end_bytes
        cdef Py_ssize_t content
        self.keys.take(place, &key)
        self.values.take(place, &value)
        content = (key.size if key.size > 0 else 0) + (value.size if value.size > 0 else 0)
        most[0] = size + FRAME_BYTES_MAX + ESCAPED_BYTES_MAX * content
        if self.has_headers and self.counts[place]:
            # The contents of headers are not read here: ``measure`` reads them.
            most[0] = LONGEST
            # {"name":"","value":""}, with a comma
            return size + content + 22 * self.counts[place]
        return content

    cdef Py_ssize_t measure(self, Py_ssize_t place, Words* words) except -1 nogil:
        """Return how long a record's text is, up to the digits of its numbers."""
        cdef Content content
        cdef Py_ssize_t size = words.after_time_bytes + words.end_bytes + 100
        cdef Py_ssize_t header
        self.keys.take(place, &content)
        size += content_bytes(&content, words.as_base64)
        self.values.take(place, &content)
        size += content_bytes(&content, words.as_base64)
        if self.has_headers:
            for header in range(self.first, self.first + self.counts[place]):
                self.names.take(header, &content)
                size += 20 + content_bytes(&content, False)
                self.header_values.take(header, &content)
                size += content_bytes(&content, words.as_base64)
        return size

    cdef int put(self, Text text, Py_ssize_t place, Words* words) except -1 nogil:
        cdef Content content
        text.put(b'{"offset":', 10)
        text.put_number(self.offsets[place])
        text.put(b',"timestamp":', 13)
        text.put_number(self.timestamps[place])
        self.keys.take(place, &content)
        # ``after_time`` ends with the name of the key.
        put_member(text, words.after_time, words.after_time_bytes, &content, words.as_base64)
        self.values.take(place, &content)
        put_value(text, &content, words.as_base64)
        text.put(b',"headers":[', 12)
        if self.has_headers:
            self.put_headers(text, self.counts[place], words.as_base64)
        text.put(b"]", 1)
        return text.put(words.end, words.end_bytes)

    cdef int put_headers(self, Text text, int64_t count, bint as_base64) except -1 nogil:
        cdef Content content
        cdef Py_ssize_t header
        for header in range(self.first, self.first + count):
            self.names.take(header, &content)
            if header == self.first:
                put_member(text, b'{"name":', 8, &content, False)
            else:
                put_member(text, b',{"name":', 9, &content, False)
            self.header_values.take(header, &content)
            put_value(text, &content, as_base64)
            text.put(b"}", 1)
        self.first += count
        return 0

    cdef Py_ssize_t write(
        self, Text text, Words* words, Py_ssize_t bytes_max, Py_ssize_t* missing_bytes
    ) except -1 nogil:
        """Write the records that fit. Return how many; set ``missing_bytes`` to the size of the next record, or to 0."""
        cdef Py_ssize_t place, most, size
        missing_bytes[0] = 0
        for place in range(self.offsets.shape[0]):
            size = self.least(place, words, &most)
            if most > bytes_max - text.size:
                if size <= bytes_max - text.size:
                    size = self.measure(place, words)
                if size > bytes_max - text.size:
                    missing_bytes[0] = size
                    return place
                text.make_room(size)
            if place:
                text.put(words.between, words.between_bytes)
            self.put(text, place, words)
        return self.offsets.shape[0]


def write_texts(
    columns,
    bytes timestamp_type not None,
    int64_t partition,
    bytes between not None,
    bint as_base64,
    Py_ssize_t bytes_max,
):
    """Write one JSON object for each record, with ``between`` each two. ``as_base64`` is for keys, values and header values.

    ``timestamp_type`` is the name without quotes. Return the text of as many records as ``bytes_max`` allows, how many they
    are, and about how many bytes the next one takes, at least those of its content; 0 if there is none.
    """
    cdef Text text = Text()
    cdef Rows rows = Rows(columns)
    cdef bytes key = b'","key_base64":' if as_base64 else b'","key":'
    cdef bytes after_time = b',"timestamp_type":"' + timestamp_type + key
    cdef bytes end = b',"partition":%d}' % partition
    cdef Words words
    cdef Py_ssize_t count, missing_bytes
    words.between, words.between_bytes = PyBytes_AS_STRING(between), PyBytes_GET_SIZE(between)
    words.after_time, words.after_time_bytes = PyBytes_AS_STRING(after_time), PyBytes_GET_SIZE(after_time)
    words.end, words.end_bytes = PyBytes_AS_STRING(end), PyBytes_GET_SIZE(end)
    words.as_base64 = as_base64
    if rows.values.data.shape[0] + rows.keys.data.shape[0] <= HELD_BYTES_MAX and not rows.has_headers:
        count = rows.write(text, &words, bytes_max, &missing_bytes)
    else:
        with nogil:
            count = rows.write(text, &words, bytes_max, &missing_bytes)
    return PyBytes_FromStringAndSize(<const char*>text.data, text.size), count, missing_bytes
