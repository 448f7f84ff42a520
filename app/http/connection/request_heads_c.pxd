"""The declarations of ``request_heads_c.pyx`` that the compiled path of plain requests uses."""

from libc.stdint cimport int64_t


cdef struct Span:
    # Bytes of a head, from its beginning on; absent if ``size`` is 0.
    Py_ssize_t start
    Py_ssize_t size


cdef struct Head:
    # A plain head. ``size`` is all of it, the empty line too; ``content_length`` is 0 without a Content-Length.
    Py_ssize_t size
    int64_t content_length
    # The number of ``offset=`` in the query, -1 without one, and its digits.
    int64_t number
    Span digits
    Span method, target
    Span host, content_type, accept, accept_encoding, authorization, client_id, request_id, idempotency_key
    # All of them are there, or none.
    Span producer_id, producer_epoch, base_sequence


cdef bint read_head(
    const char* data, Py_ssize_t size, Py_ssize_t header_bytes_max, Py_ssize_t header_count_max, Head* head
) noexcept nogil

cdef bytes key_of(const char* data, Head* head)

cdef object request_head(const char* data, Head* head)
