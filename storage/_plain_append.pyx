# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""A plain batch checked, written and shown to readers in one go, in C.

``find_plain_batch``, then ``PartitionLog.append_alone`` and what that calls, for a log on the machine's own disk with no other
copies: the same files, the same snapshot. Whatever is not as plain as that it leaves to them, with nothing changed but
bytes behind the log end, which they write over.

What is looked at belongs to the classes of this package; their state stays in them, so that both ways can take turns.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from crc32c import crc32c

from rollway.records import compiled
from storage.append_request import AppendResult
from storage.file_system import LocalFile
from storage.log_snapshot import LogSnapshot
from storage.offsets import NO_TIMESTAMP, LogOffsetMetadata, TimestampOffset
from storage.transactions import NOTHING_UNSTABLE
from storage.written_log import WrittenState

cdef extern from "Python.h":
    int PyBUF_READ

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    ssize_t pwritev(int descriptor, const iovec* parts, int count, long long position)

cdef enum:
    # As in ``rollway.records`` and ``batch_validation``.
    HEADER_BYTES = 61
    OVERHEAD_BYTES = 12
    CHECKED_FROM = 21
    MAGIC = 2
    # Measured: shorter batches are checked and written before another thread has the interpreter's lock.
    HELD_BYTES_MAX = 16 * 1024

# So that sums of times do not wrap around; what is not below is judged in Python.
cdef int64_t TIME_MAX = <int64_t>1 << 60

cdef struct Facts:
    int64_t least
    int64_t greatest
    bint has_null_key

# ``survey`` of ``rollway.records._sections``.
ctypedef bint (*Survey)(const uint8_t*, Py_ssize_t, int64_t, int64_t, Facts*) noexcept nogil

cdef const char* SURVEY_NAME = "rollway.records.survey.1"
cdef Survey survey = NULL

capsule = getattr(compiled.sections, "survey_capsule", None)
if capsule is not None and PyCapsule_IsValid(capsule, SURVEY_NAME):
    survey = <Survey>PyCapsule_GetPointer(capsule, SURVEY_NAME)
is_usable = survey != NULL
"""Whether the library's sections are compiled, and have what is needed of them here."""

# As the tuples make themselves, without a function of theirs for each.
cdef object new_tuple = tuple.__new__
cdef object new_snapshot = LogSnapshot.__new__


cdef inline uint32_t big_endian_32(const uint8_t* at) noexcept:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline int64_t big_endian_64(const uint8_t* at) noexcept:
    return <int64_t>((<uint64_t>big_endian_32(at) << 32) | big_endian_32(at + 4))


cdef inline void put_big_endian_32(uint8_t* at, uint32_t number) noexcept:
    at[0], at[1], at[2], at[3] = number >> 24, (number >> 16) & 0xFF, (number >> 8) & 0xFF, number & 0xFF


cdef struct Batch:
    int32_t record_count
    int64_t max_timestamp


cdef bint is_plain(const uint8_t* data, Py_ssize_t size, limits, int64_t now_ms, Batch* batch) except -1:
    """As ``find_plain_batch``."""
    cdef int64_t base_time, max_time, oldest, newest
    cdef int32_t count
    cdef Facts facts
    cdef bint is_sound
    if not HEADER_BYTES < size <= <int64_t>limits.batch_bytes_max or not limits.takes_any:
        return False
    count = <int32_t>big_endian_32(data + 57)
    base_time, max_time = big_endian_64(data + 27), big_endian_64(data + 35)
    if (
        big_endian_64(data) != 0
        or <int32_t>big_endian_32(data + 8) != size - OVERHEAD_BYTES
        or data[16] != MAGIC
        or data[21] != 0
        or data[22] != 0
        or count <= 0
        or <int64_t><int32_t>big_endian_32(data + 23) + 1 != count
        or big_endian_64(data + 43) >= 0
        or not -TIME_MAX < base_time < TIME_MAX
    ):
        return False
    checked = PyMemoryView_FromMemory(<char*>data + CHECKED_FROM, size - CHECKED_FROM, PyBUF_READ)
    if <int64_t>crc32c(checked) != <int64_t>big_endian_32(data + 17):
        return False
    if size <= HELD_BYTES_MAX:
        is_sound = survey(data + HEADER_BYTES, size - HEADER_BYTES, count, INT64_MAX, &facts)
    else:
        with nogil:
            is_sound = survey(data + HEADER_BYTES, size - HEADER_BYTES, count, INT64_MAX, &facts)
    if not is_sound or not (-TIME_MAX < facts.least and facts.greatest < TIME_MAX):
        return False
    oldest, newest = base_time + facts.least, base_time + facts.greatest
    if newest != max_time or oldest < 0 or now_ms - oldest > <int64_t>limits.before_ms:
        return False
    if newest - now_ms > <int64_t>limits.after_ms or (facts.has_null_key and limits.needs_keys):
        return False
    batch.record_count, batch.max_timestamp = count, newest
    return True


def append(log, body, config, int64_t now_ms):
    """Append and publish the batch that ``body`` is, if the log still has this ``config``: its ``AppendResult``.

    ``None``: it is left as if nobody had asked. Thread: the writer. Durable: no.

    Raises:
        DiskFullError, PartitionFailedError: as ``PartitionLog.append_alone``.
    """
    cdef Py_buffer view
    cdef Batch batch
    writer = log._writer
    room = writer.room
    if room is None or room.config is not config:
        return None
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        if not is_plain(<const uint8_t*>view.buf, view.len, config.plain, now_ms, &batch):
            return None
        if view.len <= HELD_BYTES_MAX:
            # The interpreter's lock is held all the way: nobody comes between.
            return None if log._writing.locked() else write(log, writer, room, config, &view, &batch)
        if not log._writing.acquire(False):
            return None
        try:
            return write(log, writer, room, config, &view, &batch)
        finally:
            log._writing.release()
    finally:
        PyBuffer_Release(&view)


cdef object write(log, writer, room, config, Py_buffer* view, Batch* batch):
    """As ``LogWriter.append_alone``, ``Segment.append_one`` and ``PartitionLog.publish``."""
    cdef int64_t size = view.len, position, base_offset, end_offset, epoch, since
    cdef uint8_t head[HEADER_BYTES]
    cdef iovec parts[2]
    cdef ssize_t written_bytes
    cdef int descriptor
    cdef bint is_due
    written = writer.written
    segments, bases = <object>PyTuple_GET_ITEM(written, 0), <object>PyTuple_GET_ITEM(written, 1)
    start, unstable = <object>PyTuple_GET_ITEM(written, 2), <object>PyTuple_GET_ITEM(written, 4)
    segment = (<tuple>segments)[len(<tuple>segments) - 1]
    records, builder = segment._log, segment._builder
    file = records._file
    if (
        log.offline_reason is not None
        or writer.config is not config
        or writer.room is not room
        or room.segment is not segment
        or room.stamps_time
        or builder is None
        or type(file) is not LocalFile
        or segment.offset_index._index is None
        or segment.time_index._index is None
        or unstable is not NOTHING_UNSTABLE
        or config.flush_policy == "group"
        or not log.replicas.is_alone
    ):
        return None
    base = <object>PyTuple_GET_ITEM(<object>PyTuple_GET_ITEM(written, 3), 0)
    base_offset, position = base, records.size_bytes
    end_offset = base_offset + batch.record_count
    if (
        position + size > <int64_t>room.size_bytes_max
        or end_offset > <int64_t>room.end_offset_max
        or batch.max_timestamp > <int64_t>room.timestamp_max
        or <int64_t>room.entries_left <= 0
        or end_offset - <int64_t><object>PyTuple_GET_ITEM(writer.durable_end, 0) >= <int64_t>config.flush_messages
    ):
        return None
    if position >= <int64_t>file._reserve_at:
        file._reserve(position)
    epoch, descriptor = writer.epochs.current, file._descriptor
    memcpy(head, view.buf, HEADER_BYTES)
    put_big_endian_32(head, <uint32_t>(base_offset >> 32))
    put_big_endian_32(head + 4, <uint32_t>(base_offset & 0xFFFFFFFF))
    put_big_endian_32(head + 12, <uint32_t>epoch)
    parts[0].iov_base, parts[0].iov_len = head, HEADER_BYTES
    parts[1].iov_base, parts[1].iov_len = <uint8_t*>view.buf + HEADER_BYTES, <size_t>(size - HEADER_BYTES)
    if size <= HELD_BYTES_MAX:
        written_bytes = pwritev(descriptor, parts, 2, position)
    else:
        with nogil:
            written_bytes = pwritev(descriptor, parts, 2, position)
    if written_bytes != size:
        # Whatever the disk has against it, it says again.
        return None
    last_offset, end, end_position = end_offset - 1, end_offset, position + size
    maximum_before = builder.max_timestamp
    if position == 0:
        segment._first_timestamp = batch.max_timestamp
    if batch.max_timestamp > <int64_t><object>PyTuple_GET_ITEM(maximum_before, 0):
        builder.max_timestamp = new_tuple(TimestampOffset, (batch.max_timestamp, last_offset))
    since = builder._bytes_since_entry
    is_due = since > <int64_t>builder._interval_bytes
    builder._bytes_since_entry = size if is_due else since + size
    if is_due:
        try:
            segment._add_index_entries(last_offset, position)
        except OSError as error:
            undo(log, writer, error, position, maximum_before)
        room.entries_left -= 1
    records.size_bytes = end_position
    if position == 0:
        writer.room = None
    log_end = new_tuple(LogOffsetMetadata, (end, segment.base_offset, end_position))
    writer.written = new_tuple(WrittenState, (segments, bases, start, log_end, unstable))
    show(log, segments, bases, start, log_end, end)
    writer.high_watermark = end
    return new_tuple(AppendResult, (base, last_offset, batch.record_count, NO_TIMESTAMP, start, False))


cdef object undo(log, writer, error, position, maximum_before):
    """As ``PartitionLog.append_alone`` where the disk refuses; always raises."""
    try:
        writer._undo_append(error, position, maximum_before)
    except OSError as failure:
        raise log._fail(failure, "appending") from failure


cdef int show(log, segments, bases, start, log_end, end) except -1:
    """As ``LogSnapshot`` makes itself, of numbers that are in order: everything that is written is seen."""
    snapshot = new_snapshot(LogSnapshot)
    snapshot.segments, snapshot.base_offsets, snapshot.log_start_offset = segments, bases, start
    snapshot.last_stable_metadata = snapshot.high_watermark_metadata = snapshot.log_end_metadata = log_end
    snapshot.last_stable_offset = snapshot.high_watermark = snapshot.log_end_offset = end
    snapshot.damage = log.damage
    log.snapshot = snapshot
    return 0
