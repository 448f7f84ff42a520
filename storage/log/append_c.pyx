# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Plain batches: checked, written and published in one pass, in C.

``validate_batches``, ``PartitionLog.append`` and ``PartitionLog.publish`` in one, for a log with no other copies: the same
files, the same snapshot. Several batches are one write. For anything that is less plain the module returns ``None``, and the
caller uses those functions. Only bytes behind the log end may have changed by then, and the next append writes over them.

It has no plain twin: ``PartitionLog.append`` takes every batch that this module leaves, and all without a compiler. The state
of a log stays in its objects, so calls of both can follow each other. This module reads and changes only their public
attributes.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from storage.log.plain_batches_c cimport Batch, HEADER_BYTES, HELD_BYTES_MAX, NO_ONE, is_plain, put_big_endian_32, stamp
from storage.producers.next_batches_c cimport ProducerPlace, follows, note

from log_model.batches.append_request import AppendResult
from storage.disk.file_system import LocalFile
from storage.index.index_file import POSITION_MAX, RELATIVE_OFFSET_MAX
from storage.log.log_snapshot import LogSnapshot
from storage.log.plain_batches_c import NO_PRODUCER, OWN_PRODUCER, is_usable
from storage.index.offset_index import OffsetIndex
from log_model.offsets import NO_TIMESTAMP, LogOffsetMetadata, OffsetPosition, TimestampOffset
from storage.index.time_index import TimeIndex
from log_model.transactions import NOTHING_UNSTABLE
from storage.log.written_log import WrittenState

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    ssize_t pwritev(int descriptor, const iovec* parts, int count, long long position)

cdef extern from "<unistd.h>" nogil:
    ssize_t pwrite(int descriptor, const void* piece, size_t length, long long position)
    long long lseek(int descriptor, long long position, int whence)
    int SEEK_END

cdef enum:
    GROUP_MAX = 64
    # As in ``offset_index`` and ``time_index``.
    OFFSET_ENTRY_BYTES = 8
    TIME_ENTRY_BYTES = 12

cdef int64_t NO_TIME = NO_TIMESTAMP
cdef int64_t FARTHEST_OFFSET = RELATIVE_OFFSET_MAX, FARTHEST_POSITION = POSITION_MAX
# Tuples as their classes make them, without a call of a Python function for each.
cdef object new_tuple = tuple.__new__
cdef object new_snapshot = LogSnapshot.__new__


def is_plain_batch(body, config, int64_t now_ms, int64_t producer=NO_ONE):
    """Return whether ``append`` takes ``body``, apart from conditions of the log."""
    cdef Py_buffer view
    cdef Batch batch
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        return bool(is_plain(&view, config.plain, now_ms, producer, &batch))
    finally:
        PyBuffer_Release(&view)


cdef struct Group:
    # The plain ones of the bodies in their order, and the sum of their bytes.
    int count
    int64_t size_bytes
    int64_t record_count
    int64_t max_timestamp
    bint has_producers
    Py_buffer* views[GROUP_MAX]
    Batch batches[GROUP_MAX]


def append(log, list bodies, config, int64_t now_ms, list producers=None, list places=None):
    """Append the batch of each body, at most ``GROUP_MAX`` of them, if the log still has this ``config``.

    ``producers`` has for each body the producer id of its key, or ``OWN_PRODUCER`` if it may have a producer itself;
    ``NO_PRODUCER``, which is also the default, leaves such a batch out. A batch of a producer is plain if its sequence comes
    next. Return one ``AppendResult`` for each, ``None`` for one that is not plain; or ``None`` if no batch was appended. They are
    published, unless ``flush.policy=group`` waits for an fsync first. The places of the batches that are written, also if that
    fails, are added to ``places``, an empty list. Thread: the writer. Durable: no.

    Raises:
        DiskFullError, PartitionFailedError: as ``PartitionLog.append``; none of the batches is in the log.
    """
    cdef Py_buffer views[GROUP_MAX]
    cdef Group group
    cdef int place, taken = 0, count = len(bodies)
    cdef int64_t producer = NO_ONE
    cdef list results
    if count > GROUP_MAX:
        return None
    group.count = 0
    group.has_producers = False
    results = [None] * count
    if places is None:
        places = []
    limits = config.plain
    try:
        for place in range(count):
            PyObject_GetBuffer(bodies[place], &views[place], PyBUF_SIMPLE)
            taken = place + 1
            if producers is not None:
                producer = producers[place]
            if is_plain(&views[place], limits, now_ms, producer, &group.batches[group.count]):
                group.views[group.count] = &views[place]
                group.has_producers |= group.batches[group.count].producer.producer_id >= 0
                group.count += 1
                places.append(place)
        if not group.count:
            return None
        add_up(&group)
        if group.size_bytes <= HELD_BYTES_MAX:
            # The interpreter's lock is held until the end, so no other thread interferes.
            return None if log.writing.locked() else write(log, config, &group, results, places)
        if not log.writing.acquire(False):
            return None
        try:
            return write(log, config, &group, results, places)
        finally:
            log.writing.release()
    finally:
        for place in range(taken):
            PyBuffer_Release(&views[place])


cdef void add_up(Group* group) noexcept:
    """Set the sums over the batches of the group."""
    cdef int place
    group.size_bytes = group.record_count = 0
    group.max_timestamp = NO_TIME
    for place in range(group.count):
        group.size_bytes += group.views[place].len
        group.record_count += group.batches[place].record_count
        group.max_timestamp = max(group.max_timestamp, group.batches[place].max_timestamp)


cdef int leave_out(Group* group, list places, known) except -1:
    """Leave out the batches of producers that do not come next, or that have a batch before it in the group."""
    cdef int place, kept = 0, other
    cdef ProducerPlace* producer
    cdef bint is_next
    for place in range(group.count):
        producer = &group.batches[place].producer
        is_next = producer.producer_id < 0 or follows(known, producer)
        if producer.producer_id >= 0:
            for other in range(kept):
                is_next = is_next and group.batches[other].producer.producer_id != producer.producer_id
        if is_next:
            group.views[kept], group.batches[kept], places[kept] = group.views[place], group.batches[place], places[place]
            kept += 1
    if kept < group.count:
        group.count = kept
        del places[kept:]
        add_up(group)
    return 0


cdef bint put_all(Group* group, int descriptor, int64_t position, int64_t base_offset, int64_t epoch) except -1:
    """Write all batches, stamped, to the file of a descriptor. Return whether the disk took them."""
    cdef uint8_t heads[GROUP_MAX * HEADER_BYTES]
    cdef iovec parts[2 * GROUP_MAX]
    cdef int place
    cdef ssize_t written_bytes
    cdef Py_buffer* view
    for place in range(group.count):
        view = group.views[place]
        stamp(heads + place * HEADER_BYTES, view, &group.batches[place], base_offset, epoch)
        parts[2 * place].iov_base, parts[2 * place].iov_len = heads + place * HEADER_BYTES, HEADER_BYTES
        parts[2 * place + 1].iov_base = <uint8_t*>view.buf + HEADER_BYTES
        parts[2 * place + 1].iov_len = <size_t>(view.len - HEADER_BYTES)
        base_offset += group.batches[place].record_count
    if group.size_bytes <= HELD_BYTES_MAX:
        written_bytes = pwritev(descriptor, parts, 2 * group.count, position)
    else:
        with nogil:
            written_bytes = pwritev(descriptor, parts, 2 * group.count, position)
    return written_bytes == group.size_bytes


cdef int put_through(file, Group* group, position, int64_t base_offset, int64_t epoch) except -1:
    """Write as ``put_all``, to a file of any kind, such as that of a simulated disk."""
    cdef uint8_t head[HEADER_BYTES]
    cdef int place
    cdef Py_buffer* view
    parts = []
    for place in range(group.count):
        view = group.views[place]
        stamp(head, view, &group.batches[place], base_offset, epoch)
        parts.append(PyBytes_FromStringAndSize(<char*>head, HEADER_BYTES))
        parts.append(PyBytes_FromStringAndSize(<char*>view.buf + HEADER_BYTES, view.len - HEADER_BYTES))
        base_offset += group.batches[place].record_count
    file.write(position, parts)
    return 0


cdef list write(log, config, Group* group, list results, list places):
    """Write all batches as ``LogWriter.append``, ``Segment.append`` and ``PartitionLog.publish``, one after the other."""
    cdef int64_t position, base_offset, end_offset, size
    cdef bint is_empty
    writer = log.writer
    written = writer.written
    segments, bases = <object>PyTuple_GET_ITEM(written, 0), <object>PyTuple_GET_ITEM(written, 1)
    start, unstable = <object>PyTuple_GET_ITEM(written, 2), <object>PyTuple_GET_ITEM(written, 4)
    segment = (<tuple>segments)[len(<tuple>segments) - 1]
    records = segment.log
    file = records.opened
    if (
        log.offline_reason is not None
        or writer.config is not config
        or file is None
        or segment.indexer is None
        or segment.offset_index.opened is None
        or segment.time_index.opened is None
        or unstable is not NOTHING_UNSTABLE
        or log.replicas.members.followers
    ):
        return None
    if group.has_producers:
        leave_out(group, places, writer.producers.known)
        if not group.count:
            return None
    room = writer.room
    if room is None or room.segment is not segment or room.config is not config:
        if segment.first_batch_timestamp is None and records.size_bytes:
            # The timestamp must be read from the log. ``LogWriter`` may wait for that.
            return None
        room = writer.find_room(segment)
        if room is None:
            return None
    base_offset, position = <object>PyTuple_GET_ITEM(<object>PyTuple_GET_ITEM(written, 3), 0), records.size_bytes
    end_offset = base_offset + group.record_count
    is_empty = position == 0
    if (
        room.stamps_time
        or position + group.size_bytes > <int64_t>room.size_bytes_max
        or end_offset > <int64_t>room.end_offset_max
        or group.max_timestamp > <int64_t>room.timestamp_max
        or <int64_t>room.entries_left < group.count
        # The timestamp of its first batch decides how much more it has room for.
        or (is_empty and group.count > 1)
        or end_offset - <int64_t><object>PyTuple_GET_ITEM(writer.durable_end, 0) >= <int64_t>config.flush_messages
    ):
        return None
    epochs = writer.epochs.entries
    epoch = epochs[len(epochs) - 1][0] if epochs else 0
    if type(file) is LocalFile:
        if position >= <int64_t>file.reserve_at:
            file.reserve(position)
        if lseek(file.descriptor, 0, SEEK_END) < position:
            # Another process has cut the file. ``PartitionLog.append`` reports it.
            return None
        if not put_all(group, file.descriptor, position, base_offset, epoch):
            # ``PartitionLog.append`` gets the same error from the disk, and reports it.
            return None
    else:
        try:
            records.check_size(position)
            put_through(file, group, position, base_offset, epoch)
        except OSError as error:
            undo(log, writer, error, position, segment.indexer.max_timestamp)
    note_written(log, writer, room, segment, group, base_offset, position, results, places, start)
    if group.has_producers:
        note_producers(writer.producers, group, results, places)
    end, end_position = end_offset, position + group.size_bytes
    records.size_bytes = end_position
    if is_empty:
        segment.first_batch_timestamp = group.max_timestamp
        writer.room = None
    log_end = new_tuple(LogOffsetMetadata, (end, segment.base_offset, end_position))
    writer.written = new_tuple(WrittenState, (segments, bases, start, log_end, unstable))
    if config.flush_policy != "group":
        show(log, segments, bases, start, log_end, end)
        writer.high_watermark = end
    return results


cdef int note_written(
    log, writer, room, segment, Group* group, int64_t base_offset, int64_t position, list results, list places, start
) except -1:
    """Note the batches in the indexes, and set their ``results``."""
    cdef int64_t begun_at = position, last, greatest, since, interval
    cdef int place
    builder = segment.indexer
    maximum_before = builder.max_timestamp
    greatest, since = <object>PyTuple_GET_ITEM(maximum_before, 0), builder.bytes_since_entry
    interval = builder.interval_bytes
    for place in range(group.count):
        last = base_offset + group.batches[place].record_count - 1
        last_offset = last
        if group.batches[place].max_timestamp > greatest:
            greatest = group.batches[place].max_timestamp
            builder.max_timestamp = new_tuple(TimestampOffset, (greatest, last_offset))
        if since > interval:
            since = 0
            try:
                add_index_entries(segment, last, position, greatest, builder.max_timestamp)
            except OSError as error:
                undo(log, writer, error, begun_at, maximum_before)
            room.entries_left -= 1
        since += group.views[place].len
        results[places[place]] = new_tuple(
            AppendResult, (base_offset, last_offset, group.batches[place].record_count, NO_TIMESTAMP, start, False)
        )
        position += group.views[place].len
        base_offset = last + 1
    builder.bytes_since_entry = since
    return 0


cdef int note_producers(producers, Group* group, list results, list places) except -1:
    """Note the producers of all batches, as ``ProducerState.accept``."""
    cdef int place
    cdef int64_t now_ms = producers.elapsed_ms()
    known = producers.known
    for place in range(group.count):
        if group.batches[place].producer.producer_id >= 0:
            result = results[places[place]]
            base_offset, last_offset = <object>PyTuple_GET_ITEM(result, 0), <object>PyTuple_GET_ITEM(result, 1)
            note(
                known, &group.batches[place].producer, group.batches[place].record_count, base_offset, last_offset,
                group.batches[place].max_timestamp, now_ms,
            )
    if len(known.by_id) > <int64_t>producers.producer_count_max:
        producers.forget_above_limit()
    return 0


cdef int add_index_entries(segment, int64_t offset, int64_t position, int64_t greatest, max_timestamp) except -1:
    """Add entries as ``Segment.add_index_entries``, which takes unusual cases and raises every error."""
    cdef uint8_t entry[TIME_ENTRY_BYTES]
    times = segment.time_index.opened
    if (
        type(times) is not TimeIndex
        or <int64_t>times.file.entry_count >= <int64_t>times.file.max_entry_count - 1
        or not put_offset_entry(segment.offset_index.opened, offset, position)
    ):
        segment.add_index_entries(offset, position)
        return 0
    last = times.last_entry
    if greatest == <int64_t><object>PyTuple_GET_ITEM(last, 0):
        return 0
    place = <object>PyTuple_GET_ITEM(max_timestamp, 1)
    if greatest > <int64_t><object>PyTuple_GET_ITEM(last, 0) and (
        <int64_t>segment.base_offset <= <int64_t>place and <int64_t><object>PyTuple_GET_ITEM(last, 1) <= <int64_t>place
    ):
        put_big_endian_32(entry, <uint32_t>(greatest >> 32))
        put_big_endian_32(entry + 4, <uint32_t>(greatest & 0xFFFFFFFF))
        put_big_endian_32(entry + 8, <uint32_t>(<int64_t>place - <int64_t>segment.base_offset))
        if put_entry(times, entry, TIME_ENTRY_BYTES, max_timestamp):
            return 0
    times.maybe_append(greatest, place)
    return 0


cdef bint put_offset_entry(index, int64_t offset, int64_t position) except -1:
    """Append an entry as ``OffsetIndex.append``, if it is plain and the disk takes it. Return whether that was done."""
    cdef uint8_t entry[OFFSET_ENTRY_BYTES]
    cdef int64_t relative
    if type(index) is not OffsetIndex:
        return False
    last, relative = index.last_entry, offset - <int64_t>index.base_offset
    if not 0 <= relative <= FARTHEST_OFFSET or not 0 <= position <= FARTHEST_POSITION:
        return False
    if last is not None and (
        offset <= <int64_t><object>PyTuple_GET_ITEM(last, 0) or position <= <int64_t><object>PyTuple_GET_ITEM(last, 1)
    ):
        return False
    put_big_endian_32(entry, <uint32_t>relative)
    put_big_endian_32(entry + 4, <uint32_t>position)
    return put_entry(index, entry, OFFSET_ENTRY_BYTES, new_tuple(OffsetPosition, (offset, position)))


cdef bint put_entry(index, const uint8_t* entry, int size, last_entry) except -1:
    """Append an entry as ``IndexFile.append``, if the disk takes it, and note it in ``index``. Return whether that was done."""
    entries = index.file
    cdef int64_t count = entries.entry_count
    file, memory = entries.opened, entries.memory
    if type(file) is not LocalFile or entries.is_closed or count >= <int64_t>entries.max_entry_count:
        return False
    if type(memory) is not bytearray or PyByteArray_GET_SIZE(memory) < (count + 1) * size:
        return False
    if count * size >= <int64_t>file.reserve_at or pwrite(file.descriptor, entry, size, count * size) != size:
        return False
    memcpy(PyByteArray_AS_STRING(memory) + count * size, entry, size)
    # Readers may read entries up to the count, so it is set last.
    index.last_entry, entries.entry_count = last_entry, count + 1
    return True


cdef object undo(log, writer, error, position, maximum_before):
    """Undo the append, as ``PartitionLog.append`` after an error of the disk. Always raises."""
    try:
        writer.undo_append(error, position, maximum_before)
    except OSError as failure:
        raise log.fail(failure, "appending") from failure


def publish(log):
    """Publish as ``PartitionLog.publish``."""
    writer = log.writer
    written = writer.written
    end = <object>PyTuple_GET_ITEM(written, 3)
    if (
        <object>PyTuple_GET_ITEM(written, 4) is not NOTHING_UNSTABLE
        or log.replicas.members.followers
        or (writer.config.flush_policy == "group" and writer.durable_end is not end)
        or <int64_t>log.snapshot.high_watermark > <int64_t><object>PyTuple_GET_ITEM(end, 0)
    ):
        log.publish()
        return
    segments, bases = <object>PyTuple_GET_ITEM(written, 0), <object>PyTuple_GET_ITEM(written, 1)
    show(log, segments, bases, <object>PyTuple_GET_ITEM(written, 2), end, <object>PyTuple_GET_ITEM(end, 0))
    writer.high_watermark = <object>PyTuple_GET_ITEM(end, 0)


cdef int show(log, segments, bases, start, log_end, end) except -1:
    """Publish a snapshot as ``LogSnapshot`` makes it, with limits that are known to be in order: readers may see all batches."""
    snapshot = new_snapshot(LogSnapshot)
    snapshot.segments, snapshot.base_offsets, snapshot.log_start_offset = segments, bases, start
    snapshot.last_stable_metadata = snapshot.high_watermark_metadata = snapshot.log_end_metadata = log_end
    snapshot.last_stable_offset = snapshot.high_watermark = snapshot.log_end_offset = end
    snapshot.damage, snapshot.facts = log.damage, None
    log.snapshot = snapshot
    return 0
