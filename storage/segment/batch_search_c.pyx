# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The search of ``batch_search_py`` in C, for batches that are in memory: the same batches, or ``None``.

Each byte that is read lies between ``piece`` and ``piece_bytes`` behind it, which ``step`` checks. The search never waits for
the disk, so it keeps the interpreter's lock.
"""

from cpython.array cimport array
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from storage.disk.file_system import LocalFile

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    ssize_t preadv2(int descriptor, const iovec* parts, int count, long long position, int flags)
    int RWF_NOWAIT

cdef extern from "<unistd.h>" nogil:
    long sysconf(int name)
    int _SC_PAGESIZE

cdef extern from "<errno.h>" nogil:
    int errno, EAGAIN, ENOSYS, EPERM

cdef extern from *:
    """
    #include <stdint.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    /* Linux 6.5; the same number on every architecture, and newer than many C libraries. */
    struct rollway_stretch { uint64_t position, length; };
    struct rollway_cached { uint64_t cached, dirty, written, evicted, evicted_lately; };
    static long rollway_cachestat(int descriptor, struct rollway_stretch *of, struct rollway_cached *found) {
        return syscall(451, descriptor, of, found, 0);
    }
    """
    struct Stretch "rollway_stretch":
        uint64_t position
        uint64_t length
    struct Cached "rollway_cached":
        uint64_t cached
    long cachestat "rollway_cachestat"(int descriptor, Stretch* stretch, Cached* found) nogil

cdef enum:
    # As in ``batch_search_py`` and ``rollway.records``.
    HEAD_BYTES = 27
    HEADER_BYTES = 61
    OVERHEAD_BYTES = 12
    MAGIC = 2
    PIECE_BYTES = 4096
    SHORT_BYTES = 1024
    STEPS_MAX = 512
    THIN_STEPS = 64
    UNINDEXED_BYTES_MAX = 64 * 1024
    # The kernel reads ahead, so this many bytes behind a head in memory are in memory as well.
    READ_AHEAD_BYTES = 128 * 1024
    CACHED_BYTES_MAX = 1024 * 1024
    # All batches between two entries of an index are read at once, up to this size.
    WINDOW_BYTES_MAX = 8192
    PLACES_MAX = 64
    # As in ``log_snapshot``.
    SLICE_CACHED_BYTES_MAX = 128 * 1024

cdef int64_t RELATIVE_OFFSET_MAX = 2**31 - 1


cdef struct Walk:
    int descriptor
    bint has_gaps
    int steps
    int64_t segment_base
    int64_t limit
    # The loaded bytes, and how many may be loaded.
    uint8_t* piece
    int64_t room_bytes
    int64_t piece_at
    int64_t piece_bytes
    # The batch that it stands on.
    int64_t position
    int64_t end
    int64_t base_offset
    int64_t last_offset


cdef inline uint32_t big_endian_32(const uint8_t* at) noexcept:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline int64_t big_endian_64(const uint8_t* at) noexcept:
    return <int64_t>((<uint64_t>big_endian_32(at) << 32) | big_endian_32(at + 4))


cdef bint load(Walk* walk, int64_t position, int64_t length) noexcept:
    """Load ``length`` bytes from ``position`` on, fewer at the limit. Return false if they are not in memory."""
    cdef iovec part
    if not 0 <= position < walk.limit:
        return False
    length = min(length, walk.limit - position)
    if length > walk.room_bytes:
        return False
    part.iov_base, part.iov_len = walk.piece, <size_t>length
    walk.piece_at, walk.piece_bytes = position, 0
    if preadv2(walk.descriptor, &part, 1, position, RWF_NOWAIT) != length:
        return False
    walk.piece_bytes = length
    return True


cdef inline bint is_at_hand(Walk* walk, int64_t position, int64_t length) noexcept:
    return walk.piece_at <= position and position + length <= walk.piece_at + walk.piece_bytes


cdef bint step(Walk* walk, bint may_skip) noexcept:
    """Stand on the batch at ``walk.end``. Return false if the case is not plain."""
    cdef int64_t position = walk.end
    cdef int64_t at = position - walk.piece_at
    cdef int64_t base_offset, length, delta, end, last_offset, expected
    cdef const uint8_t* head
    if not 0 <= at <= walk.piece_bytes - HEAD_BYTES:
        length = PIECE_BYTES if walk.steps and position - walk.position < SHORT_BYTES else HEAD_BYTES
        if walk.limit - position < HEADER_BYTES or not load(walk, position, length):
            return False
        at = 0
    head = walk.piece + at
    base_offset = big_endian_64(head)
    length = <int32_t>big_endian_32(head + 8)
    delta = <int32_t>big_endian_32(head + 23)
    expected = walk.last_offset + 1
    end = position + length + OVERHEAD_BYTES
    walk.steps += 1
    if (
        head[16] != MAGIC
        or length < HEADER_BYTES - OVERHEAD_BYTES
        or end > walk.limit
        or delta < 0
        or not (base_offset == expected or (may_skip and base_offset > expected))
        # Not written as a sum, which might overflow: garbled bytes may be any number.
        or base_offset - walk.segment_base > RELATIVE_OFFSET_MAX - delta
        or walk.steps > STEPS_MAX
    ):
        return False
    last_offset = base_offset + delta
    walk.position, walk.end, walk.base_offset, walk.last_offset = position, end, base_offset, last_offset
    return True


cdef bint begin(Walk* walk, int64_t position) noexcept:
    """Stand on the batch at ``position``, whatever lies before it."""
    walk.end, walk.last_offset = position, walk.segment_base - 1
    return step(walk, position > 0)


cdef struct Entries:
    # The index in two columns, and a bit for each entry that the log has confirmed: its batch begins with the offset after
    # the entry before it, and ends where the next entry begins.
    const int32_t* offsets
    const int32_t* positions
    Py_ssize_t count
    uint8_t* confirmed
    Py_ssize_t confirmed_bits


cdef Entries entries_of(array offsets, array positions, bytearray confirmed):
    cdef Entries entries
    entries.offsets, entries.positions = <const int32_t*>offsets.data.as_ints, <const int32_t*>positions.data.as_ints
    entries.count = min(len(offsets), len(positions))
    entries.confirmed = <uint8_t*>PyByteArray_AS_STRING(confirmed)
    entries.confirmed_bits = min(8 * PyByteArray_GET_SIZE(confirmed), entries.count)
    return entries


cdef inline bint is_confirmed(Entries* entries, Py_ssize_t slot) noexcept:
    return slot + 1 < entries.confirmed_bits and entries.confirmed[slot >> 3] >> (slot & 7) & 1


cdef inline void confirm(Entries* entries, Py_ssize_t slot, Walk* walk) noexcept:
    """Note that the batch on which ``walk`` stands confirms the entry, if it does."""
    if not 0 <= slot < entries.confirmed_bits - 1:
        return
    if (
        walk.position == entries.positions[slot]
        and walk.end == entries.positions[slot + 1]
        and walk.base_offset == walk.segment_base + (entries.offsets[slot - 1] + 1 if slot else 0)
        and walk.last_offset == walk.segment_base + entries.offsets[slot]
    ):
        entries.confirmed[slot >> 3] |= <uint8_t>(1 << (slot & 7))


cdef Py_ssize_t slot_of(const int32_t* entries, Py_ssize_t low, Py_ssize_t count, int64_t value) noexcept:
    """Return the slot of the greatest entry not above ``value``, or the one before ``low``."""
    cdef Py_ssize_t high = count, middle
    while low < high:
        middle = (low + high) >> 1
        if entries[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low - 1


cdef bint go_to_first(Walk* walk, Entries* entries, int64_t offset, int64_t load_bytes, int64_t interval_bytes) noexcept:
    """Stand on the first batch that ends at or above ``offset``, with ``load_bytes`` of it loaded where that is cheap."""
    cdef const int32_t* offsets = entries.offsets
    cdef const int32_t* positions = entries.positions
    cdef Py_ssize_t count = entries.count
    cdef Py_ssize_t slot = slot_of(offsets, 0, count, offset - walk.segment_base)
    cdef int64_t entry_offset = walk.segment_base, position = 0, next_position, next_offset
    cdef int steps = 0
    if slot >= 0:
        entry_offset, position = walk.segment_base + offsets[slot], positions[slot]
    if slot + 1 < count and positions[slot + 1] < walk.limit:
        next_offset, next_position = walk.segment_base + offsets[slot + 1], positions[slot + 1]
        if next_position <= position:
            return False
        if next_position - position <= WINDOW_BYTES_MAX - HEAD_BYTES:
            if not load(walk, position, next_position - position + load_bytes):
                return False
        elif (
            next_position - position > 2 * interval_bytes + HEADER_BYTES
            or 2 * (offset - entry_offset) > next_offset - entry_offset
        ):
            # Most often the batch of the next entry is the right one, as its head tells. Or it is the first of two.
            if not load(walk, next_position, load_bytes) or not begin(walk, next_position):
                return False
            if walk.last_offset != next_offset:
                return False
            confirm(entries, slot + 1, walk)
            if walk.base_offset <= offset <= next_offset:
                return True
    # An index carries no checksum: the log must confirm what it says.
    if not begin(walk, position) or (position and walk.last_offset != entry_offset):
        return False
    confirm(entries, slot, walk)
    while walk.last_offset < offset:
        steps += 1
        if walk.end >= walk.limit or (steps == THIN_STEPS and slot + 1 == count):
            return False
        if walk.last_offset + 1 == offset and not is_at_hand(walk, walk.end, load_bytes):
            # The next batch is the right one.
            if walk.limit - walk.end < HEADER_BYTES or not load(walk, walk.end, load_bytes):
                return False
        if not step(walk, walk.has_gaps):
            return False
    return True


cdef bint go_near_end(Walk* walk, Entries* entries, Py_ssize_t slot, int64_t stop, int64_t end_max) noexcept:
    """Stand near the last batch that ends at or below ``end_max``. All batches up to ``walk.end`` fit then.

    ``slot`` is that of the last entry before ``stop``, or -1.
    """
    cdef int64_t end = walk.end, next_offset = walk.last_offset + 1
    cdef int64_t entry_offset = walk.segment_base, position = 0
    if slot >= 0:
        entry_offset, position = walk.segment_base + entries.offsets[slot], entries.positions[slot]
    if slot + 1 == entries.count and stop - max(position, end) > UNINDEXED_BYTES_MAX:
        return False
    if position <= end:
        return True
    if not begin(walk, position) or walk.last_offset != entry_offset or walk.base_offset < next_offset:
        return False
    confirm(entries, slot, walk)
    if walk.end > end_max:
        # This batch reaches beyond. All batches before it fit.
        walk.end, walk.last_offset = position, walk.base_offset - 1
    return True


cdef struct Found:
    # The fields of a ``SegmentRead``.
    int64_t position
    int64_t size_bytes
    int64_t next_offset
    bint is_cached


cdef struct Question:
    int descriptor
    bint has_gaps
    int64_t interval_bytes
    int64_t segment_base
    # The position of the batch with ``offset``, -1 if unknown; and the slot of its entry, if it has one.
    int64_t place
    Py_ssize_t slot
    int64_t offset
    int64_t limit
    int64_t max_bytes
    bint min_one
    int64_t content_bytes_max


cdef bint has_cachestat = True
cdef int64_t PAGE_BYTES = sysconf(_SC_PAGESIZE)


cdef bint is_all_cached(int descriptor, int64_t position, int64_t length) noexcept:
    """Return whether each page of a stretch is in memory; false if the kernel cannot or may not tell."""
    global has_cachestat
    cdef Stretch stretch = Stretch(position, length)
    cdef Cached found
    if not has_cachestat or length <= 0:
        return False
    if cachestat(descriptor, &stretch, &found):
        # An older kernel, or a sandbox without this call.
        has_cachestat = errno != ENOSYS and errno != EPERM
        return False
    return <int64_t>found.cached == (position + length - 1) // PAGE_BYTES - position // PAGE_BYTES + 1


cdef bint look_at_confirmed(Question* asked, Entries* entries, Found* found) noexcept:
    """Fill ``found`` from the index alone, if the log has confirmed it and all is in memory. Return whether that worked."""
    cdef Py_ssize_t first, last, farthest, apart = 1
    cdef int64_t end_max, end, next_offset, position
    if asked.max_bytes <= asked.content_bytes_max:
        return False
    # The first batch that ends at or above the offset.
    first = asked.slot = slot_of(entries.offsets, 0, entries.count, asked.offset - asked.segment_base - 1) + 1
    if not is_confirmed(entries, first):
        return False
    position = entries.positions[first]
    end, next_offset = entries.positions[first + 1], entries.offsets[first] + 1
    end_max = position + asked.max_bytes
    if end <= end_max:
        # The last batch is near: double the distance each time.
        last = farthest = first
        while farthest < entries.count and entries.positions[farthest] < end_max:
            last, farthest, apart = farthest, farthest + apart, 2 * apart
        last = slot_of(entries.positions, last, min(farthest, entries.count), end_max - 1)
        if not is_confirmed(entries, last):
            return False
        end, next_offset = entries.positions[last + 1], entries.offsets[last] + 1
        if end > end_max:
            end, next_offset = entries.positions[last], entries.offsets[last - 1] + 1
    elif not asked.min_one:
        return False
    # Reads up to the log end, or up to the visible end of it, are left to ``look``.
    if end >= asked.limit or end - position > CACHED_BYTES_MAX or end_max >= asked.limit:
        return False
    if not is_all_cached(asked.descriptor, position, end - position):
        return False
    found.position, found.size_bytes, found.next_offset = position, end - position, asked.segment_base + next_offset
    found.is_cached = True
    return True


cdef object look(Question* asked, Entries* entries, Found* found):
    """Fill ``found``. Return the content, ``None`` if it was not read, or False if the general search must decide."""
    cdef uint8_t window[WINDOW_BYTES_MAX]
    cdef Py_ssize_t slot = -1
    cdef int64_t content_bytes_max = asked.content_bytes_max, limit = asked.limit
    cdef int64_t load_bytes = max(HEAD_BYTES, asked.max_bytes) if asked.max_bytes <= content_bytes_max else HEAD_BYTES
    cdef int64_t first, last, end, next_offset, end_max, stop
    cdef Walk walk
    cdef bytes room = None
    walk.descriptor, walk.has_gaps, walk.steps = asked.descriptor, asked.has_gaps, 0
    walk.segment_base, walk.limit = asked.segment_base, limit
    walk.piece, walk.room_bytes, walk.piece_at, walk.piece_bytes = window, WINDOW_BYTES_MAX, 0, 0
    walk.position = walk.end = walk.base_offset = walk.last_offset = 0
    if asked.max_bytes <= content_bytes_max:
        room = PyBytes_FromStringAndSize(NULL, WINDOW_BYTES_MAX + load_bytes)
        walk.piece, walk.room_bytes = <uint8_t*>PyBytes_AS_STRING(room), WINDOW_BYTES_MAX + load_bytes
    if 0 <= asked.place < limit:
        if not load(&walk, asked.place, load_bytes) or not begin(&walk, asked.place):
            return False
        if walk.base_offset < asked.offset or (walk.base_offset > asked.offset and not asked.has_gaps):
            return False  # a remembered place is where the batch with ``offset`` begins, unless the log has gaps
        confirm(entries, asked.slot, &walk)
    elif not go_to_first(&walk, entries, asked.offset, load_bytes, asked.interval_bytes):
        return False
    first, end, next_offset = walk.position, walk.end, walk.last_offset + 1
    end_max = first + asked.max_bytes
    if end > end_max:
        found.position, found.size_bytes, found.next_offset, found.is_cached = first, 0, asked.offset, False
        if asked.min_one:
            found.size_bytes, found.next_offset = end - first, next_offset
            found.is_cached = end - first <= READ_AHEAD_BYTES
        return None
    stop = min(end_max, limit)
    if stop - first <= content_bytes_max:
        if room is None:
            room = PyBytes_FromStringAndSize(NULL, stop - first)
            walk.piece, walk.room_bytes, walk.piece_bytes = <uint8_t*>PyBytes_AS_STRING(room), stop - first, 0
        if not is_at_hand(&walk, first, stop - first):
            if not load(&walk, first, stop - first):
                return False
    elif stop - first > 2 * asked.interval_bytes:
        slot = slot_of(entries.positions, 0, entries.count, stop - 1)
        if not go_near_end(&walk, entries, slot, stop, end_max):
            return False
        end, next_offset = walk.end, walk.last_offset + 1
    last = walk.position
    while end < stop and (stop == limit or stop - end >= HEADER_BYTES):
        if not step(&walk, asked.has_gaps):
            return False
        confirm(entries, slot, &walk)
        if walk.end > end_max:
            break
        last, end, next_offset = walk.position, walk.end, walk.last_offset + 1
    found.position, found.size_bytes, found.next_offset = first, end - first, next_offset
    if stop - first > content_bytes_max:
        found.is_cached = end - first <= CACHED_BYTES_MAX and end - last <= READ_AHEAD_BYTES
        return None
    found.is_cached = True
    return PyMemoryView_FromObject(room)[first - walk.piece_at : end - walk.piece_at]


cdef array NO_ENTRIES = array("i")
cdef bytearray NONE_CONFIRMED = bytearray()


def find(
    int descriptor,
    array offsets,
    array positions,
    int64_t segment_base,
    bint has_gaps,
    int64_t interval_bytes,
    int64_t place,
    int64_t offset,
    int64_t limit,
    int64_t max_bytes,
    bint min_one,
    int64_t content_bytes_max,
):
    """Return position, length, next offset, content and whether both ends are in memory, as a ``SegmentRead``; or ``None``.

    ``offsets`` and ``positions`` are the entries of the index, native int32, of one length. ``place`` is the position of the
    batch with ``offset`` if it is known, else -1. ``descriptor`` is that of the log file.
    """
    cdef Question asked = Question(
        descriptor, has_gaps, interval_bytes, segment_base, place, -1, offset, limit, max_bytes, min_one, content_bytes_max
    )
    cdef Entries entries = entries_of(offsets, positions, NONE_CONFIRMED)
    cdef Found found
    content = look(&asked, &entries, &found)
    if content is False:
        return None
    return found.position, found.size_bytes, found.next_offset, content, bool(found.is_cached)


cdef class SnapshotFacts:
    """The fields of a ``LogSnapshot`` that every read needs, as C values. From ``clean_from`` on nothing was aborted."""

    # ``bounds``: the high watermark and the last stable offset, each as a ``LogOffsetMetadata``.
    cdef int64_t log_start_offset, bounds[2][3], clean_from
    cdef bint is_damaged
    cdef tuple bases, segments, limits

    def __cinit__(self, snapshot):
        self.bases, self.segments, self.is_damaged = snapshot.base_offsets, snapshot.segments, bool(snapshot.damage)
        self.log_start_offset, self.clean_from = snapshot.log_start_offset, INT64_MAX
        for is_stable, bound in enumerate((snapshot.high_watermark_metadata, snapshot.last_stable_metadata)):
            self.bounds[is_stable][0], self.bounds[is_stable][1], self.bounds[is_stable][2] = bound
        self.limits = (snapshot.log_start_offset, self.bounds[0][0], self.bounds[1][0])


cdef class SegmentFacts:
    """The fields of a ``BatchSearch`` that never change."""

    cdef object log, key
    cdef dict copies, places
    cdef bint has_gaps
    cdef int64_t interval_bytes

    def __cinit__(self, way):
        self.log, self.key, self.copies, self.places = way.log, way.key, way.copies, way.places
        self.has_gaps, self.interval_bytes = way.has_gaps, way.interval_bytes


def read(snapshot, int64_t offset, int64_t max_bytes, int64_t content_bytes_max, bint is_stable=False):
    """Return ``LogSnapshot.read_cached`` if it is one slice of one segment, with a batch or more, and nothing was aborted.

    It ends at the high watermark, or with ``is_stable`` at the last stable offset.
    The result has file, position, length, next offset, content, whether it is in memory, and the limits of the log: its start,
    high watermark and last stable offset, the same tuple each time. ``None`` leaves the read to that method.
    """
    cdef SnapshotFacts facts = snapshot.facts
    cdef int64_t* bound
    cdef SegmentFacts segment
    cdef Py_ssize_t low = 0, place, middle
    cdef Entries entries
    cdef Question asked
    cdef Found found
    if facts is None:
        facts = snapshot.facts = SnapshotFacts(snapshot)
    bound, place = facts.bounds[is_stable], len(facts.bases) - 1
    if facts.is_damaged or max_bytes < 0 or not facts.log_start_offset <= offset < bound[0] or bound[1] < 0 or (
        is_stable and offset < facts.clean_from and not snapshot.has_none_aborted(offset)
    ):
        return None
    facts.clean_from = min(facts.clean_from, offset) if is_stable else facts.clean_from
    # Most often the offset is in the last segment.
    if offset < <int64_t>facts.bases[place]:
        while low < place:
            middle = (low + place) >> 1
            if <int64_t>facts.bases[middle] <= offset:
                low = middle + 1
            else:
                place = middle
        place = low - 1
        if place < 0:
            return None
    way = facts.segments[place].search
    if way is None:
        return None
    segment = way.facts
    if segment is None:
        segment = way.facts = SegmentFacts(way)
    log = segment.log
    file = log.opened
    if type(file) is not LocalFile or log.holes:
        return None
    table = segment.copies.get(segment.key)
    asked.segment_base = facts.bases[place]
    cdef bint is_on_bound = asked.segment_base == bound[1]
    asked.limit = bound[2] if is_on_bound else <int64_t>log.size_bytes
    asked.descriptor, asked.has_gaps, asked.interval_bytes = file.descriptor, segment.has_gaps, segment.interval_bytes
    asked.slot, asked.offset, asked.max_bytes, asked.min_one = -1, offset, max_bytes, True
    asked.content_bytes_max = content_bytes_max
    if table is None:
        entries = entries_of(NO_ENTRIES, NO_ENTRIES, NONE_CONFIRMED)
    else:
        entries = entries_of(table.offsets, table.positions, table.confirmed)
        if look_at_confirmed(&asked, &entries, &found):
            return file, found.position, found.size_bytes, found.next_offset, None, True, facts.limits
    asked.place = 0
    if offset != asked.segment_base:
        known = segment.places.get(offset)
        asked.place = -1 if known is None else <int64_t>known
        if known is None and table is None:
            return None
    content = look(&asked, &entries, &found)
    if content is False or (not is_on_bound and found.position + found.size_bytes >= asked.limit):
        # The batches behind the end of a segment lie in the next segment.
        return None
    if len(segment.places) >= PLACES_MAX:
        segment.places.clear()
    segment.places[found.next_offset] = found.position + found.size_bytes
    found.is_cached = found.is_cached or found.size_bytes <= SLICE_CACHED_BYTES_MAX
    return file, found.position, found.size_bytes, found.next_offset, content, bool(found.is_cached), facts.limits


def seems_cached(int descriptor, int64_t position, int64_t length, int64_t apart):
    """Return whether a stretch is in memory at both ends and at places ``apart`` bytes apart; true if the kernel cannot tell."""
    cdef int64_t end = position + length - 1
    cdef uint8_t byte
    cdef iovec part
    part.iov_base, part.iov_len = &byte, 1
    while True:
        if preadv2(descriptor, &part, 1, position, RWF_NOWAIT) < 0 and errno == EAGAIN:
            return False
        if position >= end:
            return True
        position = min(position + apart, end)
