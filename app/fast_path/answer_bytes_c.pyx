# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The bytes of compiled handlers' answers: texts and numbers one behind the other, and the ``PlainAnswer`` around them.

It has no plain twin: ``app.fast_path.fetch`` and ``app.fast_path.produce`` format their answers themselves. The writers are in
``answer_bytes_c.pxd``, so that they become part of the functions that use them.
"""

from app.http.connection.fast_path_interface import PlainAnswer


cdef object new_answer(head, content, parts):
    """A ``PlainAnswer`` of status 200, as it is made without a function of its own."""
    answer = (<PyTypeObject*>PlainAnswer).tp_alloc(<PyTypeObject*>PlainAnswer, 4)
    put_item(answer, 0, head)
    put_item(answer, 1, content)
    put_item(answer, 2, parts)
    put_item(answer, 3, 200)
    return answer
