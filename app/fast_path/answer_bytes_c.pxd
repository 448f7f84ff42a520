from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport int64_t
from libc.string cimport memcpy

cdef enum:
    DIGITS_MAX = 20

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        object (*tp_alloc)(PyTypeObject* type, Py_ssize_t count)


cdef inline void put_item(object new, Py_ssize_t place, object item) noexcept:
    Py_INCREF(item)
    PyTuple_SET_ITEM(new, place, item)


cdef inline char* put(char* at, bytes piece) noexcept:
    memcpy(at, PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))
    return at + PyBytes_GET_SIZE(piece)


cdef inline char* put_number(char* at, int64_t number) noexcept:
    """Write a number that is not negative."""
    cdef char digits[DIGITS_MAX]
    cdef int count = 0
    while True:
        digits[count] = b"0"[0] + number % 10
        count += 1
        number //= 10
        if not number:
            break
    while count:
        count -= 1
        at[0] = digits[count]
        at += 1
    return at


cdef inline int digits_of(int64_t number) noexcept:
    """How many digits a number has that is not negative."""
    cdef int count = 1
    while number > 9:
        number //= 10
        count += 1
    return count


cdef inline char* put_signed(char* at, int64_t number) noexcept:
    """Write a number."""
    if number < 0:
        at[0] = b"-"[0]
        return put_number(at + 1, -number)
    return put_number(at, number)


cdef object new_answer(head, content, parts)


cdef bytes compose(bytes begun, const char* request_id, Py_ssize_t id_bytes, default_headers, content)
