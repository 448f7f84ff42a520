# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""What answers known requests in C: the ``quick`` of their heads (see ``app.http.hot``).

Each does what its handler in Python does for most requests of a head, and leaves the others to that, as if nobody had seen
them. None of them holds a log or a snapshot: a connection keeps what is known of its heads for as long as it lives.

Thread: the event loop's.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from app.http.hot import HotAnswer
from storage import batch_search
from storage.log_snapshot import FileSlice

cdef enum:
    DIGITS_MAX = 20

# As the tuples make themselves, without a function of theirs for each.
cdef object new_tuple = tuple.__new__


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


cdef class QuickFetch:
    """Batches of one partition from an offset on, up to the high watermark."""

    cdef object broker, topic_name, topic_id, read, head_of
    cdef dict topics, fetched_bytes
    cdef Py_ssize_t partition
    cdef int64_t offset, max_bytes, content_bytes_max
    # What the head of an answer begins with while the log has these limits, and what stands around its own numbers.
    cdef int64_t log_start_offset, high_watermark, last_stable_offset
    cdef bytes begun, before_next, before_size, behind

    def __init__(
        self,
        broker,
        topic,
        Py_ssize_t partition,
        int64_t offset,
        int64_t max_bytes,
        int64_t content_bytes_max,
        head_of,
        bytes range_format,
    ):
        """``head_of`` makes what heads begin with of a log's limits; ``range_format`` has next offset and length."""
        self.broker, self.topics, self.read = broker, broker.manager.topics, batch_search.search.read
        self.topic_name, self.topic_id, self.partition = topic.name, topic.topic_id, partition
        self.offset, self.max_bytes, self.content_bytes_max = offset, max_bytes, content_bytes_max
        self.head_of = head_of
        self.before_next, self.before_size, self.behind = range_format.split(b"%d")
        self.log_start_offset = self.high_watermark = self.last_stable_offset = -1
        self.fetched_bytes = broker.metrics.fetched_bytes.values

    def __call__(self, number, body):
        broker = self.broker
        topic = self.topics.get(self.topic_name)
        if topic is None or topic.topic_id != self.topic_id or broker.is_released or broker.quotas.table.has_any:
            return None
        snapshot = (<tuple>topic.partitions)[self.partition].snapshot
        found = self.read(snapshot, self.offset if number is None else number, self.max_bytes, self.content_bytes_max)
        if found is None:
            return None
        size_bytes = <object>PyTuple_GET_ITEM(found, 2)
        head = self.head(snapshot, <object>PyTuple_GET_ITEM(found, 3), size_bytes)
        self.fetched_bytes["raw"] = self.fetched_bytes.get("raw", 0) + size_bytes
        content = <object>PyTuple_GET_ITEM(found, 4)
        if content is not None:
            return new_tuple(HotAnswer, (head, content, (), 200))
        file, position, is_cached = <object>PyTuple_GET_ITEM(found, 0), <object>PyTuple_GET_ITEM(found, 1), found[5]
        return new_tuple(
            HotAnswer, (head, b"", (new_tuple(FileSlice, (file, position, size_bytes, None, is_cached)),), 200)
        )

    cdef bytes head(self, snapshot, int64_t next_offset, int64_t size_bytes):
        cdef int64_t start = snapshot.log_start_offset, high = snapshot.high_watermark
        cdef int64_t stable = snapshot.last_stable_offset
        cdef bytes room
        cdef char* at
        if start != self.log_start_offset or high != self.high_watermark or stable != self.last_stable_offset:
            self.begun = self.head_of((start, high, stable))
            self.log_start_offset, self.high_watermark, self.last_stable_offset = start, high, stable
        room = PyBytes_FromStringAndSize(
            NULL,
            PyBytes_GET_SIZE(self.begun)
            + PyBytes_GET_SIZE(self.before_next)
            + PyBytes_GET_SIZE(self.before_size)
            + PyBytes_GET_SIZE(self.behind)
            + digits_of(next_offset)
            + digits_of(size_bytes),
        )
        at = put(put(PyBytes_AS_STRING(room), self.begun), self.before_next)
        at = put(put_number(at, next_offset), self.before_size)
        put(put_number(at, size_bytes), self.behind)
        return room
