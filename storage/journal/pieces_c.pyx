# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The pieces of an entry of the journal in one pass, in C.

``pieces_py`` does the same in Python. This module reads and
changes only public attributes of logs, and holds the interpreter's lock from beginning to end of a log, so that no other
thread interferes. It reads the bytes of a local file from its descriptor, where they have just been written.

Thread: any.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from storage.log.plain_batches_c cimport put_big_endian_32

from storage.disk.file_system import LocalFile
from storage.journal import entries, pieces_py
from storage.log.written_log import JournaledEnd

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int descriptor, void* room, size_t length, long long position)

cdef enum:
    # As in ``entries``: the id with its zeros, partition, base offset, position, end offset, length.
    PIECE_OVERHEAD = 56
    ID_BYTES = 22

assert PIECE_OVERHEAD == entries.PIECE_OVERHEAD_BYTES and ID_BYTES == entries.ID_LENGTH

cdef int64_t LENGTH_MAX = pieces_py.PIECE_BYTES_MAX
cdef object new_tuple = tuple.__new__
cdef object TakenPieces = pieces_py.TakenPieces


cdef struct Place:
    # Where the bytes of a piece lie in the segment, and what its descriptor says.
    int64_t base_offset
    int64_t position
    int64_t end_offset
    int64_t length
    # The descriptor of the segment's file; -1 for a file of another kind, such as that of a simulated disk.
    int descriptor


cdef inline void put_big_endian_64(uint8_t* at, int64_t value) noexcept:
    put_big_endian_32(at, <uint32_t>(value >> 32))
    put_big_endian_32(at + 4, <uint32_t>(value & 0xFFFFFFFF))


cdef inline int64_t item(object values, int place) except? -1:
    return <int64_t><object>PyTuple_GET_ITEM(values, place)


def take(logs, list answers, int64_t bytes_max):
    """Take the pieces as ``pieces_py.take_pieces``; ``None`` leaves it to that function, with no lock held."""
    cdef Py_ssize_t place = 0, count = len(logs)
    cdef int64_t size_bytes = 0
    cdef Place* found = <Place*>PyMem_Malloc(max(count, 1) * sizeof(Place))
    cdef list places = [], taken = [], ends = [], contents = []
    cdef bytes body
    cdef bint is_whole = False
    if found == NULL:
        raise MemoryError
    try:
        for log in logs:
            writer = log.writer
            flushing = writer.flushing
            if flushing.acquire(False):
                # From here on it is released with those of ``taken``, unless nothing of the log is taken.
                taken.append(log)
                answer = look(log, writer, &found[len(taken) - 1], contents)
                if answer is None and size_bytes + found[len(taken) - 1].length + PIECE_OVERHEAD <= bytes_max:
                    size_bytes += found[len(taken) - 1].length + PIECE_OVERHEAD
                    places.append(place)
                    ends.append(<object>PyTuple_GET_ITEM(writer.written, 3))
                else:
                    if answer is not None:
                        answers[place] = answer
                    elif found[len(taken) - 1].descriptor < 0:
                        contents.pop()
                    taken.pop()
                    flushing.release()
            place += 1
        body = body_of(taken, found, size_bytes, contents)
        is_whole = body is not None
    finally:
        PyMem_Free(found)
        if not is_whole:
            release(taken)
    # What could not be read is met again there, and reported.
    return new_tuple(TakenPieces, (places, taken, ends, body)) if is_whole else None


cdef int release(list logs) except -1:
    for log in logs:
        log.writer.flushing.release()
    return 0


cdef object look(log, writer, Place* found, list contents):
    """Find the piece of a log; or return the answer of ``pieces_py.take_piece`` where there is none."""
    written, start = writer.written, writer.durable_end
    end, segments = <object>PyTuple_GET_ITEM(written, 3), <object>PyTuple_GET_ITEM(written, 0)
    found.end_offset, found.base_offset = item(end, 0), item(end, 1)
    found.position = item(start, 2)
    found.length = item(end, 2) - found.position
    if found.end_offset <= item(start, 0):
        return True
    if found.base_offset != item(start, 1) or found.length > LENGTH_MAX:
        return False
    file = (<tuple>segments)[len(<tuple>segments) - 1].log.opened
    if log.offline_reason is None and type(file) is LocalFile:
        found.descriptor = file.descriptor
        return None
    answer = pieces_py.take_piece(log)
    if type(answer) is not tuple:
        return answer
    found.descriptor = -1
    contents.append(answer[1].content)
    return None


cdef bytes body_of(list logs, Place* found, int64_t size_bytes, list contents):
    """Return the body of an entry with these pieces; ``None`` if some could not be read.

    ``contents`` has the bytes of those that come from no local file.
    """
    cdef bytes body = PyBytes_FromStringAndSize(NULL, size_bytes), content
    cdef uint8_t* descriptor = <uint8_t*>PyBytes_AS_STRING(body)
    cdef uint8_t* at = descriptor + len(logs) * PIECE_OVERHEAD
    cdef const char* topic_id
    cdef Py_ssize_t id_bytes, read_count = 0
    cdef Place* piece = found
    for log in logs:
        text = log.topic_id
        topic_id = PyUnicode_AsUTF8AndSize(text, &id_bytes)
        if id_bytes > ID_BYTES:
            return None
        memset(descriptor, 0, ID_BYTES + 2)
        memcpy(descriptor, topic_id, id_bytes)
        put_big_endian_32(descriptor + 24, <uint32_t>item(log.name, 1))
        put_big_endian_64(descriptor + 28, piece.base_offset)
        put_big_endian_64(descriptor + 36, piece.position)
        put_big_endian_64(descriptor + 44, piece.end_offset)
        put_big_endian_32(descriptor + 52, <uint32_t>piece.length)
        if piece.descriptor >= 0:
            if pread(piece.descriptor, at, piece.length, piece.position) != piece.length:
                return None
        else:
            content = contents[read_count]
            read_count += 1
            memcpy(at, PyBytes_AS_STRING(content), piece.length)
        descriptor += PIECE_OVERHEAD
        at += piece.length
        piece += 1
    return body


def note(taken, journal, file):
    """Note that the pieces are durable, as ``pieces_py.note_journaled``."""
    cdef list logs = taken.logs, ends = taken.ends
    cdef Py_ssize_t place
    known, use = file.logs, file.use
    clock = elapsed_ms = None
    for place in range(len(logs)):
        log, end = logs[place], ends[place]
        writer = log.writer
        if writer.durable_lock.locked():
            writer.note_journaled(end, journal)
        else:
            # No other thread can take the lock meanwhile: the interpreter's is held.
            offset = <object>PyTuple_GET_ITEM(end, 0)
            writer.journal = journal
            if not writer.failed:
                if <int64_t>offset >= item(writer.durable_end, 0):
                    writer.durable_end = end
                if <int64_t>offset > <int64_t>writer.recovery_point:
                    writer.recovery_point = offset
            if writer.clock is not clock:
                clock = writer.clock
                elapsed_ms = clock.elapsed_ms()
            writer.last_flush_ms = elapsed_ms
        journaled = writer.journaled
        if journaled is None or journaled.use is not use:
            journaled = writer.journaled = known[log] = JournaledEnd(use)
        journaled.offset = <object>PyTuple_GET_ITEM(end, 0)
