# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The end of a turn of the loop for many members: one call of the loop ends it for all, and may put it off.

A call of the loop costs about as much as a small write, so members that come one by one share it. It has no plain twin: only
compiled handlers have members.

Thread: the event loop's.
"""

from app.event_loop.elapsed_c cimport elapsed

cdef enum:
    # When this much has come, the end is put off no more.
    COME_MAX = 64


cdef class TurnEnds:
    """Calls ``end`` of each member at the end of the turn in which it was added.

    Members that may wait are put off while each look at the sockets brings more for them, for at most their
    ``put_off_seconds_max``. ``come_count`` counts what comes for them.
    """

    def __init__(self, loop):
        self.loop = loop
        self.ending, self.waiting = [], []

    cdef int add(self, member, bint may_wait, double put_off_seconds_max) except -1:
        """Add a member, which may be ended before by itself."""
        if not self.is_set:
            self.is_set = True
            self.loop.call_soon(self.end_unless_more_come)
        if may_wait:
            if not self.waiting:
                self.come_count = self.seen_count = 0
                self.put_off_seconds_max = 0
            self.waiting.append(member)
            self.put_off_seconds_max = max(self.put_off_seconds_max, put_off_seconds_max)
        else:
            self.ending.append(member)
        return 0

    def end_unless_more_come(self):
        """End the turn of the members, or of those that may not wait while more comes for the others.

        Those whose fsync was the last one are about to ask again, and would wait for another one of their own.
        """
        cdef list members = self.ending
        cdef double at
        self.ending = []
        self.is_set = False
        if self.waiting:
            if self.seen_count < self.come_count < COME_MAX:
                at = elapsed()
                if not self.seen_count:
                    self.put_off_at = at
                if at - self.put_off_at < self.put_off_seconds_max:
                    self.seen_count = self.come_count
                    self.is_set = True
                    self.loop.call_soon(self.end_unless_more_come)
            if not self.is_set:
                members += self.waiting
                self.waiting = []
        for member in members:
            try:
                member.end()
            except Exception as error:
                # A defect of ours must not leave the others waiting for ever.
                self.loop.call_exception_handler({"message": "a turn could not be ended", "exception": error})


cdef TurnEnds ends = None


cdef TurnEnds turn_ends(loop):
    """The one of the loop: a process has one loop, and tests have one after the other."""
    global ends
    if ends is None or ends.loop is not loop:
        ends = TurnEnds(loop)
    return ends
