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

import weakref
from bisect import bisect_left

from app.http.hot import HotAnswer
from storage import batch_search
from storage._plain_append import append
from storage.clock import SystemClock
from storage.errors import StorageError
from storage.log_snapshot import FileSlice

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* time)
    int CLOCK_MONOTONIC, CLOCK_REALTIME

cdef enum:
    DIGITS_MAX = 20
    # The text around the numbers of an answer, and seven of them.
    ANSWER_BYTES_MAX = 512

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


cdef inline char* put_signed(char* at, int64_t number) noexcept:
    """Write a number."""
    if number < 0:
        at[0] = b"-"[0]
        return put_number(at + 1, -number)
    return put_number(at, number)


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


cdef inline double elapsed() noexcept:
    """As ``time.perf_counter``."""
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return <double>time.tv_sec + 1e-9 * <double>time.tv_nsec


cdef int observe(distribution, double value) except -1:
    """As ``plain_metrics.Distribution.observe``."""
    cdef list counts = distribution.counts
    cdef Py_ssize_t place = 0
    if value > <double>distribution._least:
        place = bisect_left(distribution._bounds, value)
    counts[place] = counts[place] + 1
    distribution.sum = <double>distribution.sum + value
    return 0


cdef class QuickProduce:
    """A plain batch to one partition, answered once it is written."""

    cdef object broker, clock, topic_name, topic_id, config, writer, watched_fetches, watched_appends
    cdef object records, bytes, group_requests, append_seconds
    cdef dict topics
    cdef bint is_system_clock
    cdef int64_t partition, bytes_max
    cdef double stall_seconds
    # The head up to the content's length, and what stands around the numbers of the content.
    cdef bytes begun
    cdef list pieces

    def __init__(self, broker, topic, writer, int64_t bytes_max, double stall_seconds, bytes begun, bytes result_format):
        """``result_format`` has partition, base offset, last offset, count, append time, log start, durable offset."""
        metrics = broker.metrics
        self.broker, self.topics, self.clock = broker, broker.manager.topics, broker.manager.clock
        self.is_system_clock = type(self.clock) is SystemClock
        self.topic_name, self.topic_id, self.config = topic.name, topic.topic_id, writer.log.config
        self.partition, self.writer = writer.log.name.partition, weakref.ref(writer)
        self.watched_fetches, self.watched_appends = broker.waiters.watched, broker.produce_waiters.watched
        self.records, self.bytes = metrics.produced_records, metrics.produced_bytes
        self.group_requests = metrics.group_requests.distribution
        self.append_seconds = metrics.append_seconds.distribution
        self.bytes_max, self.stall_seconds = bytes_max, stall_seconds
        self.begun, self.pieces = begun, result_format.split(b"%d")
        assert len(self.pieces) == 8 and len(result_format) + 7 * DIGITS_MAX <= ANSWER_BYTES_MAX

    def __call__(self, number, body):
        cdef int64_t size_bytes = len(body)
        cdef double began, seconds
        broker = self.broker
        topic = self.topics.get(self.topic_name)
        if topic is None or topic.topic_id != self.topic_id or broker.is_released or broker.quotas.table.has_any:
            return None
        writer = self.writer()
        if (
            writer is None
            or writer._task is not None
            or writer._refusal is not None
            or writer._was_slow
            or size_bytes > min(self.bytes_max, <int64_t>writer._inline_bytes_max)
            or (writer._stalled_until and writer._loop.time() < writer._stalled_until)
        ):
            return None
        log = writer._log
        began = elapsed()
        try:
            result = append(log, body, self.config, self.now_ms())
        except StorageError as error:
            writer._failed_here(error)
            raise
        if result is None:
            return None
        seconds = elapsed() - began
        if seconds > self.stall_seconds:
            writer._look_for_stall(seconds, 0)
        observe(self.group_requests, 1)
        observe(self.append_seconds, seconds)
        if self.watched_fetches or self.watched_appends:
            broker.published(log)
        self.records.value += <object>PyTuple_GET_ITEM(result, 2)
        self.bytes.value += size_bytes
        return self.answer(result, log._writer.recovery_point)

    cdef int64_t now_ms(self) except? -1:
        cdef timespec time
        if not self.is_system_clock:
            return self.clock.now_ms()
        clock_gettime(CLOCK_REALTIME, &time)
        return <int64_t>time.tv_sec * 1000 + time.tv_nsec // 1_000_000

    cdef object answer(self, result, int64_t durable_offset):
        """As ``_plain_answer`` in ``produce``."""
        cdef char room[ANSWER_BYTES_MAX]
        cdef int64_t numbers[7]
        cdef char* at = room
        cdef bytes head
        cdef int place, size
        numbers[0], numbers[6] = self.partition, durable_offset
        for place in range(5):
            numbers[place + 1] = <object>PyTuple_GET_ITEM(result, place)
        for place in range(7):
            at = put_signed(put(at, <bytes>self.pieces[place]), numbers[place])
        at = put(at, <bytes>self.pieces[7])
        size = at - room
        head = PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(self.begun) + digits_of(size) + 2)
        at = put_number(put(PyBytes_AS_STRING(head), self.begun), size)
        memcpy(at, b"\r\n", 2)
        return new_tuple(HotAnswer, (head, PyBytes_FromStringAndSize(room, size), (), 200))
