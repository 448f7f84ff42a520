cdef class TurnEnds:
    cdef object loop
    # What ends with this turn, and what may be put off.
    cdef list ending, waiting
    # How much has come for what waits, how much there was when the end was put off, and since when it is.
    cdef Py_ssize_t come_count, seen_count
    cdef double put_off_at, put_off_seconds_max
    cdef bint is_set

    cdef int add(self, member, bint may_wait, double put_off_seconds_max) except -1


cdef TurnEnds turn_ends(loop)
