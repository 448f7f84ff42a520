# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The members of a turn's flush in one pass, in C: they join, they are taken, and they receive the answers.

It has no plain twin module: ``GroupFlushes`` does the same in Python, for one member after the other and for each member that this
module leaves. The state stays in the attributes of its objects, so calls of both can follow each other.

Thread: the event loop's.
"""

from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int64_t

from storage.journal.pieces import PIECE_BYTES_MAX
from storage.log.append_c import publish

cdef int64_t LENGTH_MAX = PIECE_BYTES_MAX

cdef int64_t unflushed_bytes(log) except? -1:
    """As ``PartitionLog.unflushed_bytes``."""
    writer = log.writer
    end, durable = <object>PyTuple_GET_ITEM(writer.written, 3), writer.durable_end
    cdef int64_t start = 0
    if <int64_t><object>PyTuple_GET_ITEM(end, 1) == <int64_t><object>PyTuple_GET_ITEM(durable, 1):
        start = <object>PyTuple_GET_ITEM(durable, 2)
    return <int64_t><object>PyTuple_GET_ITEM(end, 2) - start


def may_join(writer):
    """Return whether ``join`` would take a flush of this writer, or leave it to the one that is under way."""
    flushes = writer.flushes
    turns = flushes.turns
    if turns is None:
        return False
    return flushes.is_busy or (not turns.journal.has_ended and unflushed_bytes(flushes.log) <= LENGTH_MAX)


def join(writer, waiting):
    """Let ``waiting`` wait for the fsync of this turn, as ``PartitionWriter.flush_for``.

    Return false if the flush does not join that of the turn; nothing is changed then.
    """
    flushes = writer.flushes
    if not may_join(writer):
        return False
    flushes.unflushed.append(waiting)
    if flushes.is_busy or flushes.is_paused:
        return True
    flushes.is_busy = True
    turns = flushes.turns
    if turns.is_running:
        turns.waiting.append(flushes)
    else:
        turns.add(flushes)
    return True


def take(list members):
    """Return the appends that the flush of each member covers, their logs, and the sum of the logs' unflushed bytes."""
    cdef list covered = [], logs = []
    cdef int64_t size_bytes = 0
    for member in members:
        log = member.log
        logs.append(log)
        if member.is_open_to_c:
            member.is_asked = False
            covered.append(member.unflushed)
            member.unflushed = []
            size_bytes += unflushed_bytes(log)
        else:
            covered.append(member.take_covered())
            size_bytes += <int64_t>log.unflushed_bytes
    return covered, logs, size_bytes


def end(list members, list covered, list answers):
    """End the turn of each member, as ``GroupFlushes.end_turn``."""
    cdef Py_ssize_t place
    for place in range(len(members)):
        member, answer = members[place], answers[place]
        if answer is not True or not member.is_open_to_c:
            member.end_turn(covered[place], answer)
            continue
        log = member.log
        publish(log)
        member.observer.published(log)
        for pending in covered[place]:
            pending.note_fsynced()
        member.is_busy = False
        if member.unflushed or member.is_asked or member.idle_future is not None:
            member.go_on()
