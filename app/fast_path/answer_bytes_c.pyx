# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The bytes of compiled answers: texts and numbers one behind the other, the ``PlainAnswer`` around them, and the whole of one.

It has no plain twin: ``app.fast_path.fetch`` and ``app.fast_path.produce`` format their answers themselves. The writers are in
``answer_bytes_c.pxd``, so that they become part of the functions that use them.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize

from app.fast_path.plain_requests import common_lines
from app.http.connection.fast_path_interface import PlainAnswer

cdef object lines_of_headers = None
cdef bytes lines = b""


cdef object new_answer(head, content, parts):
    """A ``PlainAnswer`` of status 200, as it is made without a function of its own."""
    answer = (<PyTypeObject*>PlainAnswer).tp_alloc(<PyTypeObject*>PlainAnswer, 4)
    put_item(answer, 0, head)
    put_item(answer, 1, content)
    put_item(answer, 2, parts)
    put_item(answer, 3, 200)
    return answer


cdef bytes compose(bytes begun, const char* request_id, Py_ssize_t id_bytes, default_headers, content):
    """The whole head, and the content behind it."""
    global lines_of_headers, lines
    cdef Py_ssize_t begun_bytes = PyBytes_GET_SIZE(begun), line_bytes
    cdef Py_buffer view
    cdef bytes whole
    cdef char* at
    if default_headers is not lines_of_headers:
        # uvicorn makes a new list each second, for the date.
        lines, lines_of_headers = common_lines(default_headers), default_headers
    line_bytes = PyBytes_GET_SIZE(lines)
    PyObject_GetBuffer(content, &view, PyBUF_SIMPLE)
    whole = PyBytes_FromStringAndSize(NULL, begun_bytes + 14 + id_bytes + 2 + line_bytes + 2 + view.len)
    at = PyBytes_AS_STRING(whole)
    memcpy(at, PyBytes_AS_STRING(begun), begun_bytes)
    at += begun_bytes
    memcpy(at, b"x-request-id: ", 14)
    memcpy(at + 14, request_id, id_bytes)
    at += 14 + id_bytes
    memcpy(at, b"\r\n", 2)
    memcpy(at + 2, PyBytes_AS_STRING(lines), line_bytes)
    at += 2 + line_bytes
    memcpy(at, b"\r\n", 2)
    memcpy(at + 2, view.buf, view.len)
    PyBuffer_Release(&view)
    return whole
