# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Records of a JSON body, written as a record section while they are read. No object is made for a record.

It takes plain records only: keys and values that are text or null, headers, a time in milliseconds, the partition of the
request. For a body that is broken, unusual or too large it returns ``None``, and ``translate`` judges it.

It has no plain twin: without it, or where it returns ``None``, ``translate`` reads the body and ``record_batches`` encodes it.

One rule keeps each access inside: code checks ``end`` before it reads a byte, and makes room before it writes. A byte that is
read twice is checked twice, so memory that changes meanwhile can cause a wrong result, but no access outside.

Thread: any. Large bodies are read without the interpreter's lock.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

cdef enum:
    VARINT_BYTES_MAX = 5
    VARLONG_BYTES_MAX = 10
    # The numbers of a record, beside its key, value and headers: the length, the attributes, two deltas, three counts.
    FRAME_BYTES_MAX = VARINT_BYTES_MAX + 1 + 2 * VARLONG_BYTES_MAX + 3 * VARINT_BYTES_MAX
    # Of a time or a partition. A longer number is invalid.
    DIGITS_MAX = 18
    # Shorter bodies are read before another thread has the lock.
    HELD_BYTES_MAX = 16 * 1024

cdef enum Field:
    UNKNOWN = 0
    VALUE = 1
    KEY = 2
    HEADERS = 4
    TIMESTAMP = 8
    PARTITION = 16
    NAME = 32


# Writing


cdef struct Buffer:
    # Bytes that grow at the end.
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t capacity


cdef bint make_room(Buffer* buffer, Py_ssize_t more) noexcept nogil:
    """Make room for ``more`` bytes. Return false if there is no memory for them."""
    cdef Py_ssize_t capacity
    cdef void* data
    if more <= buffer.capacity - buffer.size:
        return True
    capacity = 2 * buffer.capacity + more
    data = PyMem_RawRealloc(buffer.data, capacity)
    if data == NULL:
        return False
    buffer.data, buffer.capacity = <uint8_t*>data, capacity
    return True


# As in the library's ``writer_c``: an isolated build of the service has no sources of the library to share a .pxd with.
cdef inline uint64_t zigzag_of(int64_t number) noexcept nogil:
    return (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)


cdef inline int number_size(int64_t number) noexcept nogil:
    cdef uint64_t zigzag = zigzag_of(number)
    cdef int size = 1
    while zigzag > 0x7F:
        zigzag >>= 7
        size += 1
    return size


cdef inline void put_number(Buffer* buffer, int64_t number) noexcept nogil:
    cdef uint64_t zigzag = zigzag_of(number)
    while zigzag > 0x7F:
        buffer.data[buffer.size] = <uint8_t>(zigzag & 0x7F | 0x80)
        buffer.size += 1
        zigzag >>= 7
    buffer.data[buffer.size] = <uint8_t>zigzag
    buffer.size += 1


# Reading


cdef struct Body:
    const uint8_t* at
    const uint8_t* end
    # Each record ends with its line, so no line break may stand inside of it.
    bint is_lines


cdef struct Text:
    # The bytes between two quotes, and the size of their UTF-8 without escapes; -1 for a null.
    const uint8_t* data
    Py_ssize_t written_size
    Py_ssize_t size


cdef inline void skip_space(Body* body) noexcept nogil:
    while body.at < body.end:
        if body.at[0] > c" ":
            return
        if body.at[0] != c" " and body.at[0] != c"\t" and (body.is_lines or (body.at[0] != c"\n" and body.at[0] != c"\r")):
            return
        body.at += 1


cdef inline bint take(Body* body, uint8_t byte) noexcept nogil:
    """Go past this byte and the space before it. Return whether it is next."""
    skip_space(body)
    if body.at < body.end and body.at[0] == byte:
        body.at += 1
        return True
    return False


cdef inline bint take_null(Body* body) noexcept nogil:
    if body.end - body.at < 4 or memcmp(body.at, b"null", 4) != 0:
        return False
    body.at += 4
    return True


cdef bint take_number(Body* body, int64_t* number) noexcept nogil:
    """Read an integer of at least -1, written in digits alone. The caller must check the byte behind it."""
    cdef int digits = 0
    cdef int64_t found = 0
    cdef bint is_negative = body.at < body.end and body.at[0] == c"-"
    body.at += is_negative
    while body.at < body.end and c"0" <= body.at[0] <= c"9":
        if digits == DIGITS_MAX or (digits == 1 and found == 0):
            return False
        found = 10 * found + (body.at[0] - c"0")
        digits += 1
        body.at += 1
    if not digits or (is_negative and found != 1):
        return False
    number[0] = -found if is_negative else found
    return True


cdef inline int hex_digit(uint8_t byte) noexcept nogil:
    if c"0" <= byte <= c"9":
        return byte - c"0"
    byte |= 0x20
    return byte - c"a" + 10 if c"a" <= byte <= c"f" else -1


cdef inline int code_unit(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """Return the number of ``\\uXXXX``, whose backslash is at ``at``, or -1."""
    cdef int number = 0
    cdef int digit, place
    if end - at < 6 or at[0] != c"\\" or at[1] != c"u":
        return -1
    for place in range(2, 6):
        digit = hex_digit(at[place])
        if digit < 0:
            return -1
        number = number << 4 | digit
    return number


cdef inline int put_utf8(uint8_t* target, int point) noexcept nogil:
    """Write a code point. Return how many bytes it takes."""
    if point < 0x80:
        target[0] = <uint8_t>point
        return 1
    if point < 0x800:
        target[0] = <uint8_t>(0xC0 | point >> 6)
        target[1] = <uint8_t>(0x80 | point & 0x3F)
        return 2
    if point < 0x10000:
        target[0] = <uint8_t>(0xE0 | point >> 12)
        target[1] = <uint8_t>(0x80 | point >> 6 & 0x3F)
        target[2] = <uint8_t>(0x80 | point & 0x3F)
        return 3
    target[0] = <uint8_t>(0xF0 | point >> 18)
    target[1] = <uint8_t>(0x80 | point >> 12 & 0x3F)
    target[2] = <uint8_t>(0x80 | point >> 6 & 0x3F)
    target[3] = <uint8_t>(0x80 | point & 0x3F)
    return 4


cdef int take_escape(const uint8_t** at, const uint8_t* end, uint8_t* target) noexcept nogil:
    """Go past one escape. Write its UTF-8, which is no longer than the escape. Return the size, 1 to 4, or 0 if broken."""
    cdef int point = code_unit(at[0], end)
    cdef int second
    if point >= 0:
        at[0] += 6
        if 0xD800 <= point < 0xE000:
            # Two surrogates are one code point. A single surrogate is none.
            second = code_unit(at[0], end)
            if point >= 0xDC00 or not 0xDC00 <= second < 0xE000:
                return 0
            at[0] += 6
            point = 0x10000 + ((point - 0xD800) << 10) + (second - 0xDC00)
        return put_utf8(target, point)
    if end - at[0] < 2:
        return 0
    cdef uint8_t letter = at[0][1]
    at[0] += 2
    if letter == c'"' or letter == c"\\" or letter == c"/":
        target[0] = letter
    elif letter == c"n":
        target[0] = c"\n"
    elif letter == c"t":
        target[0] = c"\t"
    elif letter == c"r":
        target[0] = c"\r"
    elif letter == c"b":
        target[0] = c"\b"
    elif letter == c"f":
        target[0] = c"\f"
    else:
        return 0
    return 1


cdef bint is_utf8(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """Return whether these bytes are UTF-8 as Unicode defines it: shortest forms, no surrogates, nothing above U+10FFFF."""
    cdef uint64_t eight
    cdef uint8_t first, least, most
    cdef int more, place
    while at < end:
        if end - at >= 8:
            memcpy(&eight, at, 8)
            if not eight & <uint64_t>0x8080808080808080:
                at += 8
                continue
        first = at[0]
        least, most = 0x80, 0xBF
        if first < 0x80:
            at += 1
            continue
        if 0xC2 <= first <= 0xDF:
            more = 1
        elif first & 0xF0 == 0xE0:
            more = 2
            if first == 0xE0:
                least = 0xA0
            elif first == 0xED:
                most = 0x9F
        elif 0xF0 <= first <= 0xF4:
            more = 3
            if first == 0xF0:
                least = 0x90
            elif first == 0xF4:
                most = 0x8F
        else:
            return False
        if end - at <= more or not least <= at[1] <= most:
            return False
        for place in range(2, more + 1):
            if at[place] & 0xC0 != 0x80:
                return False
        at += more + 1
    return True


cdef bint measure_escaped(Body* body, const uint8_t* start, Text* text) noexcept nogil:
    """Go past a text with escapes, as ``take_text``."""
    cdef const uint8_t* at = start
    cdef uint8_t character[4]
    cdef uint8_t bits = 0
    cdef int size
    text.data, text.size = start, 0
    while at < body.end:
        if at[0] == c'"':
            text.written_size = at - start
            body.at = at + 1
            return bits < 0x80 or is_utf8(start, at)
        if at[0] == c"\\":
            size = take_escape(&at, body.end, character)
            if not size:
                return False
            text.size += size
            continue
        if at[0] < 0x20:
            return False
        bits |= at[0]
        text.size += 1
        at += 1
    return False


cdef bint take_text(Body* body, Text* text) noexcept nogil:
    """Go past a text, which begins here."""
    cdef const uint8_t* start
    cdef const uint8_t* stop
    cdef Py_ssize_t place, size
    cdef uint8_t bits = 0
    cdef uint8_t is_special = 0
    if body.at >= body.end or body.at[0] != c'"':
        return False
    start = body.at + 1
    stop = <const uint8_t*>memchr(start, c'"', body.end - start)
    if stop == NULL:
        return False
    size = stop - start
    for place in range(size):
        bits |= start[place]
        is_special |= (start[place] < 0x20) | (start[place] == c"\\")
    if is_special:
        return measure_escaped(body, start, text)
    if bits >= 0x80 and not is_utf8(start, stop):
        return False
    text.data, text.written_size, text.size = start, size, size
    body.at = stop + 1
    return True


cdef inline bint take_content(Body* body, Text* text) noexcept nogil:
    """Go past a text or null, and the space before it."""
    skip_space(body)
    if take_text(body, text):
        return True
    text.data, text.written_size, text.size = NULL, 0, -1
    return take_null(body)


cdef bint put_content(Buffer* buffer, Text* text) noexcept nogil:
    """Write the length of a text, and the text without escapes. The caller has made room for both."""
    cdef const uint8_t* at = text.data
    cdef const uint8_t* end = text.data + text.written_size
    cdef uint8_t* target
    cdef int size
    put_number(buffer, text.size)
    target = buffer.data + buffer.size
    if text.size == text.written_size:
        if text.size:  # an empty text may have no address
            memcpy(target, at, text.size)
        buffer.size += text.size
        return True
    while at < end:
        if at[0] == c"\\":
            size = take_escape(&at, end, target)
            if not size:
                return False
            target += size
        else:
            target[0] = at[0]
            target += 1
            at += 1
    if text.size > 0:
        buffer.size += text.size
    return target == buffer.data + buffer.size


cdef inline Field field_of(Text* name) noexcept nogil:
    cdef const uint8_t* data = name.data
    cdef Py_ssize_t size = name.written_size
    if size == 3 and memcmp(data, b"key", 3) == 0:
        return KEY
    if size == 4 and memcmp(data, b"name", 4) == 0:
        return NAME
    if size == 5 and memcmp(data, b"value", 5) == 0:
        return VALUE
    if size == 7 and memcmp(data, b"headers", 7) == 0:
        return HEADERS
    if size == 9 and memcmp(data, b"timestamp", 9) == 0:
        return TIMESTAMP
    if size == 9 and memcmp(data, b"partition", 9) == 0:
        return PARTITION
    return UNKNOWN


cdef int take_field(Body* body, int seen, int known) noexcept nogil:
    """Go to the value of an object's next member, if it is one of the ``known`` and the first of its name."""
    cdef Text name
    cdef int field
    skip_space(body)
    if not take_text(body, &name):
        return UNKNOWN
    field = field_of(&name)
    return field if field & known & ~seen and take(body, c":") else UNKNOWN


cdef bint take_header(Body* body, Buffer* headers) noexcept nogil:
    """Read one header, and write it at the end of ``headers``."""
    cdef Text name, value
    cdef int field
    cdef int seen = 0
    if not take(body, c"{"):
        return False
    while True:
        field = take_field(body, seen, NAME | VALUE)
        if field == UNKNOWN or not take_content(body, &name if field == NAME else &value):
            return False
        seen |= field
        if take(body, c"}"):
            break
        if not take(body, c","):
            return False
    if seen != NAME | VALUE or name.size < 0:
        return False
    if not make_room(headers, name.written_size + value.written_size + 2 * VARINT_BYTES_MAX):
        return False
    return put_content(headers, &name) and put_content(headers, &value)


cdef bint take_headers(Body* body, Buffer* headers, int64_t* count) noexcept nogil:
    """Read a list of headers, write them at the end of ``headers``, and count them."""
    if not take(body, c"["):
        return False
    if take(body, c"]"):
        return True
    while True:
        if not take_header(body, headers):
            return False
        count[0] += 1
        if take(body, c"]"):
            return True
        if not take(body, c","):
            return False


cdef struct Request:
    # Facts of all records: their partition, the time of the request, and the largest size of a section.
    int64_t partition
    int64_t now_ms
    Py_ssize_t bytes_max


cdef struct Section:
    # Its range in the bytes of all records, and facts of the records in it.
    Py_ssize_t start
    Py_ssize_t stop
    int64_t count
    int64_t base_timestamp
    int64_t oldest
    int64_t newest
    bint has_null_key


cdef struct Sections:
    Buffer records
    # The headers of the record that is read now.
    Buffer headers
    # Each a Section. The next records go into the last one.
    Buffer all


cdef bint begin_section(Sections* sections) noexcept nogil:
    cdef Section section
    if not make_room(&sections.all, sizeof(Section)):
        return False
    section.start = section.stop = sections.records.size
    section.count = section.base_timestamp = section.oldest = section.newest = 0
    section.has_null_key = False
    memcpy(sections.all.data + sections.all.size, &section, sizeof(Section))
    sections.all.size += sizeof(Section)
    return True


cdef inline Section* last_section(Sections* sections) noexcept nogil:
    return <Section*>(sections.all.data + sections.all.size - sizeof(Section))


cdef bint take_optional(Body* body, int64_t* number) noexcept nogil:
    """Read a number, or a null, which leaves ``number`` as it was."""
    skip_space(body)
    return take_null(body) or take_number(body, number)


cdef struct Record:
    Text key
    Text value
    int64_t timestamp
    int64_t header_count


cdef bint put_record(Section* section, Record* record, Buffer* headers, Buffer* records) noexcept nogil:
    """Write one record at the end of ``records``."""
    cdef Text* key = &record.key
    cdef Text* value = &record.value
    cdef Py_ssize_t content = key.written_size + value.written_size + headers.size
    cdef int64_t timestamp_delta, size
    if content > INT32_MAX or not make_room(records, content + FRAME_BYTES_MAX):
        return False
    if not section.count:
        section.base_timestamp = section.oldest = section.newest = record.timestamp
    timestamp_delta = record.timestamp - section.base_timestamp
    size = 1 + number_size(timestamp_delta) + number_size(section.count)
    size += number_size(key.size) + max(key.size, 0) + number_size(value.size) + max(value.size, 0)
    size += number_size(record.header_count) + headers.size
    put_number(records, size)
    records.data[records.size] = 0
    records.size += 1
    put_number(records, timestamp_delta)
    put_number(records, section.count)
    if not put_content(records, key) or not put_content(records, value):
        return False
    put_number(records, record.header_count)
    if headers.size:
        memcpy(records.data + records.size, headers.data, headers.size)
        records.size += headers.size
    return True


cdef bint add_record(Sections* sections, Record* record, Py_ssize_t bytes_max) noexcept nogil:
    """Write one record to the last section, or to a new one if the last one has no room for it."""
    cdef Section* section = last_section(sections)
    cdef Py_ssize_t before = sections.records.size
    if not put_record(section, record, &sections.headers, &sections.records):
        return False
    if sections.records.size - section.start > bytes_max:
        if not section.count:
            return False
        sections.records.size = before
        return begin_section(sections) and add_record(sections, record, bytes_max)
    section.oldest = min(section.oldest, record.timestamp)
    section.newest = max(section.newest, record.timestamp)
    section.has_null_key |= record.key.size < 0
    section.count += 1
    section.stop = sections.records.size
    return True


cdef bint take_record(Body* body, Request* request, Sections* sections) noexcept nogil:
    cdef Record record
    cdef int64_t partition = request.partition
    cdef int seen = 0
    cdef int field
    cdef bint is_taken
    record.key.data, record.key.written_size, record.key.size = NULL, 0, -1
    record.timestamp, record.header_count = request.now_ms, 0
    sections.headers.size = 0
    if not take(body, c"{"):
        return False
    while True:
        field = take_field(body, seen, VALUE | KEY | HEADERS | TIMESTAMP | PARTITION)
        if field == VALUE:
            is_taken = take_content(body, &record.value)
        elif field == KEY:
            is_taken = take_content(body, &record.key)
        elif field == TIMESTAMP:
            is_taken = take_optional(body, &record.timestamp)
        elif field == PARTITION:
            is_taken = take_optional(body, &partition)
        else:
            is_taken = field == HEADERS and take_headers(body, &sections.headers, &record.header_count)
        if not is_taken:
            return False
        seen |= field
        if take(body, c"}"):
            break
        if not take(body, c","):
            return False
    return seen & VALUE and partition == request.partition and add_record(sections, &record, request.bytes_max)


cdef bint take_list(Body* body, Request* request, Sections* sections) noexcept nogil:
    """Read ``{"records": [...]}`` and nothing else."""
    cdef Text name
    if not take(body, c"{"):
        return False
    skip_space(body)
    if not take_text(body, &name) or name.written_size != 7 or memcmp(name.data, b"records", 7) != 0:
        return False
    if not take(body, c":") or not take(body, c"["):
        return False
    while True:
        if not take_record(body, request, sections):
            return False
        if take(body, c"]"):
            break
        if not take(body, c","):
            return False
    if not take(body, c"}"):
        return False
    skip_space(body)
    return body.at == body.end


cdef bint take_lines(Body* body, Request* request, Sections* sections) noexcept nogil:
    """Read a record from each line. Blank lines are skipped."""
    while True:
        skip_space(body)
        if body.at < body.end and body.at[0] == c"{":
            if not take_record(body, request, sections):
                return False
            skip_space(body)
        if body.at < body.end and body.at[0] == c"\r":
            body.at += 1
        if body.at == body.end:
            return True
        if body.at[0] != c"\n":
            return False
        body.at += 1


cdef bint take_all(Body* body, Request* request, Sections* sections) noexcept nogil:
    # More than most sections need: the JSON of a record has more bytes around its texts.
    if not make_room(&sections.records, body.end - body.at + FRAME_BYTES_MAX) or not begin_section(sections):
        return False
    return take_lines(body, request, sections) if body.is_lines else take_list(body, request, sections)


cdef class Written:
    """The bytes of all sections, which are not copied again."""

    cdef Buffer records

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.records.data, self.records.size, 1, flags)

    def __dealloc__(self):
        PyMem_RawFree(self.records.data)


cdef list listed(Sections* sections):
    cdef Section* section
    cdef Py_ssize_t at
    cdef void* shrunk
    cdef Written written = Written()
    # ``Written`` frees the bytes now. Bytes that were never written to are given back.
    written.records, sections.records.data = sections.records, NULL
    shrunk = PyMem_RawRealloc(written.records.data, max(written.records.size, 1))
    if shrunk != NULL:
        written.records.data = <uint8_t*>shrunk
    whole = memoryview(written)
    found = []
    for at in range(0, sections.all.size, sizeof(Section)):
        section = <Section*>(sections.all.data + at)
        if section.count:
            times = (section.base_timestamp, section.oldest, section.newest)
            found.append((whole[section.start : section.stop], section.count, *times, bool(section.has_null_key)))
    return found


def write_sections(data, bint is_lines, int64_t partition, int64_t now_ms, Py_ssize_t bytes_max):
    """Return record sections of at most ``bytes_max`` each, with their facts; see ``record_batches``."""
    cdef Py_buffer bytes_of
    cdef Body body
    cdef Request request
    cdef Sections sections
    cdef bint is_sound
    memset(&sections, 0, sizeof(Sections))
    request.partition, request.now_ms, request.bytes_max = partition, now_ms, bytes_max
    PyObject_GetBuffer(data, &bytes_of, PyBUF_SIMPLE)
    try:
        body.at, body.is_lines = <const uint8_t*>bytes_of.buf, is_lines
        body.end = body.at + bytes_of.len
        if bytes_of.len <= HELD_BYTES_MAX:
            is_sound = take_all(&body, &request, &sections)
        else:
            with nogil:
                is_sound = take_all(&body, &request, &sections)
        return listed(&sections) if is_sound else None
    finally:
        PyBuffer_Release(&bytes_of)
        PyMem_RawFree(sections.records.data)
        PyMem_RawFree(sections.headers.data)
        PyMem_RawFree(sections.all.data)
