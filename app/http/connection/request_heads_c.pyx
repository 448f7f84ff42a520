# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Plain heads: a strict subset of HTTP/1.1, read without any state.

A head is *plain* if all of it is there and it has this form. Each rule is narrower than RFC 9110 and 9112, so httptools, which
is given every other head byte for byte, reads a plain one the same way::

    head         = method SP path [ "?" query ] SP "HTTP/1.1" CRLF 1*( field CRLF ) CRLF
    method       = 1*16( "A"-"Z" )
    path         = "/" *( ALPHA / DIGIT / "." / "_" / "~" / "-" / "/" )
    query        = *( ALPHA / DIGIT / "." / "_" / "~" / "-" / "=" / "&" )
    field        = name ":" *SP [ value ]
    name         = one of those below, in any case
    value        = VCHAR [ *( SP / VCHAR ) VCHAR ]          ; a VCHAR is %x21-7E; no tab, no byte above it, no folding

Framing. A field of interest comes at most once and with a value, User-Agent apart, and Host exactly once::

    Host            = 1*( ALPHA / DIGIT / "." / "_" / "-" / ":" / "[" / "]" )
    Content-Length  = "0" / "1"-"9" *9DIGIT                 ; without it the request has no body
    Connection      = "keep-alive"                          ; in any case, as often as it likes
    User-Agent      = any value, or none, but "rollway"     ; the library that is too old, which no plain head is of

Of Producer-Id, Producer-Epoch and Base-Sequence all come or none, and then no Idempotency-Key.

Names. Default deny: a head with any other field is not plain, so a head with Transfer-Encoding, Upgrade, Expect, Range, a
condition, Origin or a transactional id never is. The allowed names are::

    of interest     Host, Content-Length, Connection, Content-Type, Accept, Accept-Encoding, Authorization, Client-Id, X-Request-Id,
                    User-Agent, Idempotency-Key, Producer-Id, Producer-Epoch, Base-Sequence
    without effect  ``WITHOUT_EFFECT``, and every other name that begins with "X-"

The limits on bytes and number of headers count as for any other head.

It has no plain twin: httptools reads the heads that are not plain, and without this module it reads all of them.

Thread: any. Nothing is kept between two calls.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memchr, memcmp, memcpy, memset

WITHOUT_EFFECT = frozenset(
    {
        b"accept-language", b"accept-charset", b"cache-control", b"pragma", b"cookie", b"referer", b"from", b"date",
        b"dnt", b"priority", b"forwarded", b"via", b"keep-alive", b"traceparent", b"tracestate", b"baggage", b"b3",
        b"sentry-trace", b"uber-trace-id", b"newrelic", b"elastic-apm-traceparent", b"cdn-loop", b"true-client-ip", b"cf-ray",
        b"cf-connecting-ip", b"cf-ipcountry", b"cf-visitor", b"amz-sdk-invocation-id", b"amz-sdk-request",
    }
)
"""Request headers of clients, proxies and tracing that no route and no middleware reads."""

cdef enum:
    METHOD_BYTES_MAX = 16
    NUMBER_DIGITS_MAX = 18
    LENGTH_DIGITS_MAX = 10
    NAME_BYTES_MAX = 32
    TABLE_SIZE = 256

    # The parts of a head in which a byte may occur.
    IN_PATH = 1
    IN_QUERY = 2
    IN_NAME = 4
    IN_VALUE = 8
    IN_HOST = 16

cdef enum Kind:
    UNKNOWN
    NO_EFFECT
    HOST
    CONTENT_LENGTH
    CONNECTION
    CONTENT_TYPE
    ACCEPT
    ACCEPT_ENCODING
    AUTHORIZATION
    CLIENT_ID
    REQUEST_ID
    USER_AGENT
    IDEMPOTENCY_KEY
    PRODUCER_ID
    PRODUCER_EPOCH
    BASE_SEQUENCE

OF_INTEREST = {
    b"host": HOST, b"content-length": CONTENT_LENGTH, b"connection": CONNECTION, b"content-type": CONTENT_TYPE,
    b"accept": ACCEPT, b"accept-encoding": ACCEPT_ENCODING, b"authorization": AUTHORIZATION, b"client-id": CLIENT_ID,
    b"x-request-id": REQUEST_ID, b"user-agent": USER_AGENT,
    b"idempotency-key": IDEMPOTENCY_KEY, b"producer-id": PRODUCER_ID, b"producer-epoch": PRODUCER_EPOCH,
    b"base-sequence": BASE_SEQUENCE,
}
"""The headers that have an effect, and the kind of each."""


cdef struct Name:
    # A known name: lower case, its length, and what it is.
    char text[NAME_BYTES_MAX]
    int size
    int kind


cdef unsigned char CLASS[256]
cdef char LOWER[256]
cdef Name NAMES[TABLE_SIZE]


cdef inline unsigned int hash_of(unsigned int before, char letter) noexcept nogil:
    return (before ^ <unsigned char>letter) * 16777619u


cdef void fill_tables():
    cdef unsigned int place
    cdef int each
    memset(CLASS, 0, sizeof(CLASS))
    memset(NAMES, 0, sizeof(NAMES))
    for each in range(256):
        LOWER[each] = <char>each
        if 0x21 <= each <= 0x7E:
            CLASS[each] |= IN_VALUE
    for each in b"ABCDEFGHIJKLMNOPQRSTUVWXYZ":
        LOWER[each] = <char>(each + 32)
    for each in b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~-/":
        CLASS[each] |= IN_PATH
    for each in b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~-=&":
        CLASS[each] |= IN_QUERY
    for each in b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-":
        CLASS[each] |= IN_NAME
    for each in b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:[]":
        CLASS[each] |= IN_HOST
    for name, kind in [*((name, NO_EFFECT) for name in WITHOUT_EFFECT), *OF_INTEREST.items()]:
        place = 2166136261u
        for each in name:
            place = hash_of(place, <char>each)
        place %= TABLE_SIZE
        while NAMES[place].size:
            place = (place + 1) % TABLE_SIZE
        memcpy(NAMES[place].text, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
        NAMES[place].size, NAMES[place].kind = <int>len(name), kind


fill_tables()


cdef int kind_of(const char* name, Py_ssize_t size) noexcept nogil:
    """Return the kind of the header with this name, which has only letters of names."""
    cdef char lower[NAME_BYTES_MAX]
    cdef unsigned int place = 2166136261u
    cdef Py_ssize_t at
    cdef char letter
    cdef bint is_extension = size > 2 and LOWER[<unsigned char>name[0]] == c"x" and name[1] == c"-"
    if size <= NAME_BYTES_MAX:
        for at in range(size):
            letter = LOWER[<unsigned char>name[at]]
            lower[at] = letter
            place = hash_of(place, letter)
        place %= TABLE_SIZE
        while NAMES[place].size:
            if NAMES[place].size == size and memcmp(NAMES[place].text, lower, size) == 0:
                return NAMES[place].kind
            place = (place + 1) % TABLE_SIZE
    return NO_EFFECT if is_extension else UNKNOWN


cdef bint read_number(const char* data, Py_ssize_t start, Py_ssize_t end, int digits_max, int64_t* number) noexcept nogil:
    """Read decimal digits without a leading zero; return false if there is another byte, or too many digits."""
    cdef Py_ssize_t at
    cdef int64_t found = 0
    if not 0 < end - start <= digits_max or (data[start] == c"0" and end - start > 1):
        return False
    for at in range(start, end):
        if not c"0" <= data[at] <= c"9":
            return False
        found = 10 * found + (data[at] - c"0")
    number[0] = found
    return True


cdef inline bint take(Span* span, Py_ssize_t start, Py_ssize_t size) noexcept nogil:
    """Note a field of interest; return false if there was one before, or it has no value."""
    if span.size or not size:
        return False
    span.start, span.size = start, size
    return True


cdef bint is_keep_alive(const char* value, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t at
    cdef const char* wanted = "keep-alive"
    if size != 10:
        return False
    for at in range(10):
        if LOWER[<unsigned char>value[at]] != wanted[at]:
            return False
    return True


cdef bint read_target(const char* data, Py_ssize_t start, Py_ssize_t size, Head* head) noexcept nogil:
    """Read the target from ``start`` to the space behind it."""
    cdef Py_ssize_t at = start, name_at, value_at
    if at >= size or data[at] != c"/":
        return False
    while at < size and CLASS[<unsigned char>data[at]] & IN_PATH:
        at += 1
    if at < size and data[at] == c"?":
        at += 1
        name_at = at
        while at < size and CLASS[<unsigned char>data[at]] & IN_QUERY:
            if data[at] == c"&":
                name_at = at + 1
            elif data[at] == c"=" and head.number < 0 and at - name_at == 6 and memcmp(data + name_at, "offset", 6) == 0:
                value_at = at + 1
                while at + 1 < size and c"0" <= data[at + 1] <= c"9":
                    at += 1
                if at + 1 < size and (data[at + 1] == c"&" or data[at + 1] == c" "):
                    if read_number(data, value_at, at + 1, NUMBER_DIGITS_MAX, &head.number):
                        head.digits.start, head.digits.size = value_at, at + 1 - value_at
            at += 1
    if at >= size or data[at] != c" ":
        return False
    head.target.start, head.target.size = start, at - start
    return True


cdef bint read_field(const char* data, Py_ssize_t name_at, Py_ssize_t name_size, Py_ssize_t at, Py_ssize_t size, Head* head) noexcept nogil:
    """Take the field of this name, whose value lies at ``at``."""
    cdef Py_ssize_t place
    cdef int kind = kind_of(data + name_at, name_size)
    if kind == NO_EFFECT:
        return True
    if kind == HOST:
        for place in range(at, at + size):
            if not CLASS[<unsigned char>data[place]] & IN_HOST:
                return False
        return take(&head.host, at, size)
    if kind == CONTENT_LENGTH:
        return head.content_length < 0 and read_number(data, at, at + size, LENGTH_DIGITS_MAX, &head.content_length)
    if kind == CONNECTION:
        return is_keep_alive(data + at, size)
    if kind == CONTENT_TYPE:
        return take(&head.content_type, at, size)
    if kind == ACCEPT:
        return take(&head.accept, at, size)
    if kind == ACCEPT_ENCODING:
        return take(&head.accept_encoding, at, size)
    if kind == AUTHORIZATION:
        return take(&head.authorization, at, size)
    if kind == CLIENT_ID:
        return take(&head.client_id, at, size)
    if kind == REQUEST_ID:
        return take(&head.request_id, at, size)
    if kind == IDEMPOTENCY_KEY:
        return take(&head.idempotency_key, at, size)
    if kind == PRODUCER_ID:
        return take(&head.producer_id, at, size)
    if kind == PRODUCER_EPOCH:
        return take(&head.producer_epoch, at, size)
    if kind == BASE_SEQUENCE:
        return take(&head.base_sequence, at, size)
    if kind == USER_AGENT:
        # The application refuses the library that is too old: ``dependencies.LIBRARY_OF_BEFORE``.
        return size != 7 or memcmp(data + at, "rollway", 7) != 0
    return False


cdef bint is_whole(Head* head) noexcept nogil:
    """Return whether the headers that belong together are there together."""
    cdef int count = (head.producer_id.size > 0) + (head.producer_epoch.size > 0) + (head.base_sequence.size > 0)
    return head.host.size > 0 and (count == 0 or (count == 3 and not head.idempotency_key.size))


cdef bint read_head(
    const char* data, Py_ssize_t size, Py_ssize_t header_bytes_max, Py_ssize_t header_count_max, Head* head
) noexcept nogil:
    """Read the plain head at the beginning of ``data`` into ``head``; return false if there is none, see the module."""
    cdef Py_ssize_t at = 0, name_at, name_size, value_at, end, counted_bytes, count = 0
    memset(head, 0, sizeof(Head))
    head.content_length = head.number = -1
    while at < size and c"A" <= data[at] <= c"Z":
        at += 1
    if not 0 < at <= METHOD_BYTES_MAX or at >= size or data[at] != c" ":
        return False
    head.method.size = at
    if not read_target(data, at + 1, size, head):
        return False
    at = head.target.start + head.target.size
    if size - at < 11 or memcmp(data + at, " HTTP/1.1\r\n", 11) != 0:
        return False
    at += 11
    counted_bytes = head.target.size
    while size - at >= 2:
        if data[at] == c"\r":
            if data[at + 1] != c"\n" or not is_whole(head):
                return False
            head.size = at + 2
            if head.content_length < 0:
                head.content_length = 0
            return counted_bytes <= header_bytes_max and count <= header_count_max
        name_at = at
        while at < size and CLASS[<unsigned char>data[at]] & IN_NAME:
            at += 1
        name_size = at - name_at
        if not name_size or at >= size or data[at] != c":":
            return False
        at += 1
        while at < size and data[at] == c" ":
            at += 1
        value_at = end = at
        while at < size:
            if CLASS[<unsigned char>data[at]] & IN_VALUE:
                at += 1
                end = at
            elif data[at] == c" ":
                at += 1
            else:
                break
        if end != at or size - at < 2 or data[at] != c"\r" or data[at + 1] != c"\n":
            return False
        if not read_field(data, name_at, name_size, value_at, end - value_at, head):
            return False
        count += 1
        counted_bytes += name_size + end - value_at + 4
        at += 2
    return False


cdef bytes key_of(const char* data, Head* head):
    """Return the key of equal requests: method, target with 0 for its number, media types and codings of the headers.

    A line behind it tells requests with an Idempotency-Key, or with the headers of a producer, from those without.
    """
    cdef Py_ssize_t before = head.method.size + 1 + head.target.size, behind = 0
    cdef Py_ssize_t mark = 2 if head.idempotency_key.size or head.producer_id.size else 0
    cdef bytes key
    cdef char* at
    if head.number >= 0:
        before = head.digits.start
        behind = head.target.start + head.target.size - head.digits.start - head.digits.size
    key = PyBytes_FromStringAndSize(
        NULL,
        before + (1 + behind if head.number >= 0 else 0) + 3 + head.content_type.size + head.accept.size + head.accept_encoding.size
        + mark,
    )
    at = PyBytes_AS_STRING(key)
    memcpy(at, data, before)
    at += before
    if head.number >= 0:
        at[0] = c"0"
        memcpy(at + 1, data + head.digits.start + head.digits.size, behind)
        at += 1 + behind
    at[0] = c"\n"
    memcpy(at + 1, data + head.content_type.start, head.content_type.size)
    at += 1 + head.content_type.size
    at[0] = c"\n"
    memcpy(at + 1, data + head.accept.start, head.accept.size)
    at += 1 + head.accept.size
    at[0] = c"\n"
    memcpy(at + 1, data + head.accept_encoding.start, head.accept_encoding.size)
    if mark:
        at += 1 + head.accept_encoding.size
        at[0], at[1] = c"\n", c"k" if head.idempotency_key.size else c"p"
    return key


cdef class RequestHead:
    """A plain head as objects: see ``app.http.connection.fast_path_interface.RequestHead``."""

    cdef readonly bytes raw, key, method, target, content_type, accept, accept_encoding, client_id, request_id, host
    cdef readonly bytes idempotency_key
    cdef readonly object authorization, number, producer
    cdef readonly Py_ssize_t size
    cdef readonly int64_t content_length


cdef inline bytes text_of(const char* data, Span span):
    return PyBytes_FromStringAndSize(data + span.start, span.size)


cdef object request_head(const char* data, Head* head):
    """Return the ``RequestHead`` of a head that was read from ``data``."""
    cdef RequestHead made = RequestHead.__new__(RequestHead)
    made.raw = PyBytes_FromStringAndSize(data, head.size)
    made.key = key_of(data, head)
    made.size, made.content_length = head.size, head.content_length
    made.method, made.target, made.host = text_of(data, head.method), text_of(data, head.target), text_of(data, head.host)
    made.content_type, made.accept = text_of(data, head.content_type), text_of(data, head.accept)
    made.accept_encoding = text_of(data, head.accept_encoding)
    made.client_id, made.request_id = text_of(data, head.client_id), text_of(data, head.request_id)
    made.authorization = text_of(data, head.authorization) if head.authorization.size else None
    made.number = head.number if head.number >= 0 else None
    made.idempotency_key = text_of(data, head.idempotency_key)
    if head.producer_id.size:
        made.producer = (text_of(data, head.producer_id), text_of(data, head.producer_epoch), text_of(data, head.base_sequence))
    return made


def read(bytes data, Py_ssize_t start, Py_ssize_t header_bytes_max, Py_ssize_t header_count_max):
    """Return the plain head at ``start``; ``None`` if there is none, or if it is incomplete."""
    cdef Head head
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    if not 0 <= start <= size:
        return None
    if not read_head(PyBytes_AS_STRING(data) + start, size - start, header_bytes_max, header_count_max, &head):
        return None
    return request_head(PyBytes_AS_STRING(data) + start, &head)
