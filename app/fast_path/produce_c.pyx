# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Compiled handlers of raw produces to one partition: ``compiled_handler`` and ``enqueue`` of their targets.

They have no plain twin: ``app.fast_path.produce`` handles the requests that these leave, with nothing changed, and all requests
without a compiler. None of them holds a log: targets outlive their topics. See ``app.http.connection.fast_path_interface``.

Thread: the event loop's.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memchr, memcpy
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from app.event_loop.elapsed_c cimport elapsed
from app.event_loop.turn_ends_c cimport TurnEnds, turn_ends
from app.fast_path.answer_bytes_c cimport DIGITS_MAX, digits_of, new_answer, put, put_number, put_signed
from storage.log.plain_batches_c cimport producer_in

import weakref
from collections import deque

from app.engine_local.turn_members_c import join, may_join
from app.fast_path.connection_c import QueuedAppend
from storage.log.append_c import NO_PRODUCER, OWN_PRODUCER, append
from log_model.clock import SystemClock
from log_model.errors import StorageError, let_go_of_frames
from log_model.producers import KEYED_PRODUCER_ID_MIN

cdef enum:
    # The text around the numbers of an answer, and seven of them.
    ANSWER_BYTES_MAX = 512
    # What one write takes, at most (as in ``append_c``).
    GROUP_MAX = 64
    GROUP_BYTES_MAX = 1024 * 1024
    # One of this many batches that are written as they come looks whether others come with it.
    LOOKS_APART = 32
    # A longer wait for an fsync becomes a deferred answer.
    DEFERRED_AFTER_SECONDS = 1
    # After this many iterations with one batch each the next batches are written as they come.
    LONELY_MAX = 16
    # As ``app.produce.idempotence``.
    KEY_BYTES_MAX = 255

cdef int64_t KEYED_MIN = KEYED_PRODUCER_ID_MIN


cdef class AppendBatcher:
    """The plain batches that came to one partition in a turn of the loop: written at its end, with one write.

    That costs a call of the loop, so where batches come alone they are written as they come. It holds no log and no
    writer except while requests wait. ``put_off_seconds_max`` is that of ``TurnEnds``.
    """

    cdef object parts, clock, loop, wait_on, watched_fetches, watched_appends
    cdef object records, bytes, observe_group, observe_seconds
    cdef object writer
    cdef TurnEnds turn
    cdef list queue
    # Less than the fsync of a quick disk takes.
    cdef public double put_off_seconds_max
    # ``is_late``: some of this turn are answered before an fsync that others wait for.
    cdef bint is_system_clock, is_crowded, is_late
    cdef int64_t partition, lonely_count, asked_count, asked_before
    cdef double stall_seconds
    # The head up to the content's length, and what stands around the numbers of the content.
    cdef bytes begun
    cdef list pieces

    def __init__(self, parts, writer, double stall_seconds, bytes begun, bytes result_format, wait_on):
        """``result_format`` has partition, base offset, last offset, count, append time, log start, durable offset.

        ``wait_on`` makes the ``AnswerWait`` of a written append, of its request's options and of the milliseconds waited.
        """
        metrics = parts.metrics
        self.parts, self.clock, self.loop = parts, parts.engine.manager.clock, writer.loop
        self.is_system_clock = type(self.clock) is SystemClock
        self.partition = writer.log.name.partition
        self.watched_fetches, self.watched_appends = parts.engine.partitions.waiters.watched, parts.engine.partitions.produce_waiters.watched
        self.records, self.bytes = metrics.produced_records, metrics.produced_bytes
        self.observe_group, self.observe_seconds = metrics.group_requests.observe, metrics.append_seconds.observe
        self.stall_seconds, self.wait_on = stall_seconds, wait_on
        self.begun, self.pieces = begun, result_format.split(b"%d")
        assert len(self.pieces) == 8 and len(result_format) + 7 * DIGITS_MAX <= ANSWER_BYTES_MAX
        self.queue, self.turn = [], turn_ends(self.loop)
        self.put_off_seconds_max = 0.0002

    cdef list append(self, writer, log, list bodies, int64_t size_bytes, config, list producers, list places):
        """Write and publish batches here and now, if the writer is idle; ``None``, and nothing is changed, otherwise."""
        cdef double began, seconds
        cdef list results
        if (
            writer.task is not None
            or writer.refusal is not None
            or writer.was_slow
            or size_bytes > <int64_t>writer.inline_bytes_max
            or (writer.stalled_until and self.loop.time() < writer.stalled_until)
        ):
            return None
        began = elapsed()
        try:
            results = append(log, bodies, config, self.now_ms(), producers, places)
        except StorageError as error:
            writer.failed_here(error)
            raise
        except Exception as error:
            raise writer.failed_here(error) from error
        if results is None:
            return None
        seconds = elapsed() - began
        if seconds > self.stall_seconds:
            writer.look_for_stall(seconds, 0)
        self.observe_group(len(results) - results.count(None))
        self.observe_seconds(seconds)
        if self.watched_fetches or self.watched_appends:
            self.parts.engine.partitions.published(log)
        return results

    cdef int64_t now_ms(self) except? -1:
        cdef timespec time
        if not self.is_system_clock:
            return self.clock.now_ms()
        clock_gettime(CLOCK_REALTIME, &time)
        return <int64_t>time.tv_sec * 1000 + time.tv_nsec // 1_000_000

    cdef int count(self, result, int64_t size_bytes) except -1:
        """Count an append that is done, as ``LocalAppends`` does."""
        self.records.value += <object>PyTuple_GET_ITEM(result, 2)
        self.bytes.value += size_bytes
        return 0

    cdef object answer(self, result, int64_t size_bytes, int64_t durable_offset):
        """As ``produce`` makes it of a ``ProduceResultDocument``."""
        cdef char room[ANSWER_BYTES_MAX]
        cdef int64_t numbers[7]
        cdef char* at = room
        cdef bytes head
        cdef int place, size
        self.count(result, size_bytes)
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
        return new_answer(head, PyBytes_FromStringAndSize(room, size), ())

    cdef object append_now(self, writer, body, int64_t size_bytes, config, producer):
        """Write a batch as it comes; its answer, or ``None``."""
        log = writer.log
        results = self.append(writer, log, [body], size_bytes, config, [producer], None)
        if results is None or results[0] is None:
            return None
        if config.flush_policy == "group":
            flush_late(writer)
        self.asked_count += 1
        if self.asked_count - self.asked_before >= LOOKS_APART:
            self.asked_before = self.asked_count
            self.loop.call_soon(self.look)
        return self.answer(results[0], size_bytes, log.writer.recovery_point)

    def look(self):
        """See whether a turn in which a batch came has brought another one."""
        self.is_crowded = self.asked_count > self.asked_before
        self.lonely_count = 0

    cdef object enqueue(self, writer, body, config, options, producer):
        """Let a batch wait for the end of the turn."""
        queued = QueuedAppend(self, body, config, options, producer)
        if not self.queue:
            self.writer = writer
            self.turn.add(self, options is not None, self.put_off_seconds_max)
        self.queue.append(queued)
        self.turn.come_count += 1
        return queued

    def end(self):
        """Write what has come, with as few writes as can take it, and answer: after an fsync for all, where it is waited for.

        What is behind the requests that are answered joins the next turn.
        """
        cdef list queue = self.queue, waiting = [], group = []
        cdef int64_t group_bytes = 0, size_bytes
        if not queue:
            return
        writer, self.writer = self.writer, None
        self.queue = []
        self.is_late = False
        self.lonely_count = self.lonely_count + 1 if len(queue) == 1 else 0
        if self.lonely_count > LONELY_MAX:
            self.is_crowded = False
        for queued in queue:
            size_bytes = len(queued.body)
            if len(group) == GROUP_MAX or group_bytes + size_bytes > GROUP_BYTES_MAX:
                self.write(writer, group, group_bytes, waiting)
                group, group_bytes = [], 0
            group.append(queued)
            group_bytes += size_bytes
        self.write(writer, group, group_bytes, waiting)
        try:
            if waiting:
                self.flush(writer, waiting)
            elif self.is_late:
                flush_late(writer)
        finally:
            settle(self.loop, [queued for queued in queue if queued.awaited is self])

    cdef int write(self, writer, list queue, int64_t size_bytes, list waiting) except -1:
        """Give each queued its answer, or add it to those ``waiting``; those without one are left to the general way."""
        cdef list results, places = []
        cdef Py_ssize_t place
        log = writer.log
        config = log.config
        for queued in queue:
            if queued.config is not config:
                return 0
        try:
            results = self.append(
                writer, log, [queued.body for queued in queue], size_bytes, config, [queued.producer for queued in queue], places
            )
            if results is None:
                return 0
            for place in range(len(results)):
                queued, result = queue[place], results[place]
                if result is None:
                    continue
                if queued.options is None:
                    self.is_late = config.flush_policy == "group"
                    queued.answer = self.answer(result, len(queued.body), log.writer.recovery_point)
                else:
                    waiting.append((queued, result))
        except Exception as error:
            # The others have never been on their way.
            for place in places:
                queued = queue[place]
                if queued.answer is None:
                    queued.answer = error
        return 0

    cdef int flush(self, writer, list waiting) except -1:
        """Answer those ``waiting`` for an fsync: here where the disk is quick enough, else once it is done."""
        log = writer.log
        try:
            if not may_join(writer) and writer.flush_here():
                for queued, result in waiting:
                    queued.answer = self.answer(result, len(queued.body), log.writer.recovery_point)
                return 0
            FsyncWait(self, waiting).begin(writer)
        except Exception as error:
            for queued, _ in waiting:
                if queued.answer is None:
                    queued.answer = error
        return 0


cdef class Patience:
    """The waits of a loop for fsyncs, in the order in which they began: one timer for all, as each may take as long."""

    cdef object loop, waits
    cdef bint is_set

    def __init__(self, loop):
        self.loop, self.waits = loop, deque()

    cdef int add(self, FsyncWait wait) except -1:
        self.waits.append(wait)
        if not self.is_set:
            self.is_set = True
            self.loop.call_later(DEFERRED_AFTER_SECONDS, self.look)
        return 0

    cdef int let_go(self) except -1:
        """Forget the first waits, as far as they are over. Thousands come in a second, and the collector looks at what it finds."""
        waits = self.waits
        while waits and not (<FsyncWait>waits[0]).waiting:
            waits.popleft()
        return 0

    def look(self):
        """End the patience with the waits that have taken as long, and look again when the next one has."""
        cdef FsyncWait wait
        cdef double now = elapsed()
        waits = self.waits
        while waits:
            wait = waits[0]
            if wait.waiting and now - wait.began < DEFERRED_AFTER_SECONDS:
                self.loop.call_later(wait.began + DEFERRED_AFTER_SECONDS - now, self.look)
                return
            waits.popleft()
            if wait.waiting:
                wait.end()
        self.is_set = False


cdef Patience patience = None


cdef Patience patience_of(loop):
    """The waits of the loop: a process has one loop, and tests have one after the other."""
    global patience
    if patience is None or patience.loop is not loop:
        patience = Patience(loop)
    return patience


cdef class FsyncWait:
    """Batches of one turn that are written and wait for an fsync in a thread: one for all of them.

    Requests that cannot wait, for example at a stop, get a deferred answer; so do all when it takes long.
    """

    cdef AppendBatcher batcher
    cdef list waiting, deferred
    cdef object writer
    cdef double began

    def __init__(self, AppendBatcher batcher, list waiting):
        """``waiting`` are queue with what became of their batches."""
        self.batcher, self.waiting, self.deferred = batcher, waiting, []
        self.began = elapsed()

    cdef int begin(self, writer) except -1:
        cdef bint is_patient = True
        self.writer = writer
        for queued, _ in self.waiting:
            is_patient = is_patient and <int64_t>queued.options.timeout_ms > 2000 * DEFERRED_AFTER_SECONDS
        if not join(writer, self):
            writer.flush_for(self)
        patience_of(self.batcher.loop).add(self)
        for queued, _ in self.waiting:
            queued.awaited = self
        if not is_patient:
            self.end()
        return 0

    def note_fsynced(self):
        """Answer all: the fsync is done."""
        self.over(None)

    def fail(self, error):
        """Answer all: the fsync has failed."""
        let_go_of_frames(error)
        self.over(error)

    cdef int over(self, error) except -1:
        cdef list waiting = self.waiting
        cdef int64_t durable_offset = self.writer.log.writer.recovery_point
        self.waiting, self.writer = [], None
        for queued, result in waiting:
            if error is None:
                queued.answer = self.batcher.answer(result, len(queued.body), durable_offset)
            else:
                queued.answer = error
        patience_of(self.batcher.loop).let_go()
        settle(self.batcher.loop, [queued for queued, _ in waiting])
        for each in self.deferred:
            if error is None:
                self.batcher.count(each.result, each.size_bytes)
                each.note_fsynced()
            else:
                each.fail(error)
        return 0

    def end(self):
        """Let deferred answers wait for the same fsync."""
        cdef list waiting = self.waiting
        self.waiting = []
        waited_ms = int(1000 * (elapsed() - self.began))
        for queued, result in waiting:
            pending = self.writer.written_append(len(queued.body), result)
            self.deferred.append(pending)
            queued.answer = self.batcher.wait_on(pending, queued.options, waited_ms)
        settle(self.batcher.loop, [queued for queued, _ in waiting])


cdef int flush_late(writer) except -1:
    """Show batches whose answers wait for no fsync, and begin the fsync that readers wait for."""
    writer.publish()
    writer.ask_flush()
    return 0


cdef int settle(loop, list queue) except -1:
    """Answer those whose connections are still there."""
    for queued in queue:
        connection = queued.connection
        if connection is None:
            continue
        try:
            connection.settle(queued)
        except Exception as error:
            # A defect of ours must not leave the others waiting for ever.
            loop.call_exception_handler({"message": "a request could not be answered", "exception": error})
            connection.cut()
    return 0


cdef class CompiledProduce:
    """A plain batch to one partition, with what its requests wait for: its write alone, or an fsync too (``options``)."""

    cdef object parts, quotas, jobs, config, writer, options, begun_digest
    cdef AppendBatcher batcher
    cdef int64_t bytes_max
    cdef bint takes_producers

    def __init__(
        self, parts, writer, AppendBatcher batcher, options, int64_t bytes_max, bint takes_producers, begun_digest=None
    ):
        """With ``takes_producers`` batches may have a producer.

        ``begun_digest`` is that of requests with an ``Idempotency-Key``, up to the key.
        """
        self.parts, self.quotas, self.config = parts, parts.quotas, writer.log.config
        self.jobs, self.takes_producers, self.begun_digest = parts.producing.jobs, takes_producers, begun_digest
        # The writer of a topic that was deleted refuses whatever comes.
        self.writer, self.batcher, self.options = weakref.ref(writer), batcher, options
        self.bytes_max = bytes_max

    def answer(self, varying, body):
        """Answer as a ``compiled_handler``, where no fsync is waited for."""
        cdef int64_t size_bytes = len(body)
        writer, producer = self.usable_writer(size_bytes), self.producer_of(varying, body)
        if writer is None or producer is None:
            return None
        return self.batcher.append_now(writer, body, size_bytes, self.config, producer)

    def enqueue(self, varying, body):
        """Append now or at the end of this iteration of the loop, as ``ResolvedTarget.enqueue``."""
        cdef int64_t size_bytes = len(body)
        writer, producer = self.usable_writer(size_bytes), self.producer_of(varying, body)
        if writer is None or producer is None:
            return None
        if self.options is None and not self.batcher.is_crowded:
            return self.batcher.append_now(writer, body, size_bytes, self.config, producer)
        return self.batcher.enqueue(writer, body, self.config, self.options, producer)

    cdef object usable_writer(self, int64_t size_bytes):
        """Return the writer for a body of this size; ``None`` leaves the request to the handler in Python."""
        if size_bytes > self.bytes_max or self.parts.is_released or self.quotas.table.has_any:
            return None
        return self.writer()

    cdef object producer_of(self, key, body):
        """Return the producer of a batch for ``append_c``; ``None`` leaves the request to the handler in Python."""
        cdef int64_t producer_id
        if self.begun_digest is not None:
            return producer_of_key(self.begun_digest, key)
        if not self.takes_producers:
            return NO_PRODUCER
        producer_id = producer_in(body)
        if 0 <= producer_id and self.jobs.application_of(producer_id) is not None:
            # Its appends are signs of life of a load job.
            return None
        return OWN_PRODUCER


cdef object producer_of_key(begun_digest, bytes key):
    """Return the producer id of ``RequestKey.stamp_for``; ``None`` for a key that is quoted, or none."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(key), place
    cdef const char* text = PyBytes_AS_STRING(key)
    cdef bytes digest
    cdef uint64_t found = 0
    if not 0 < size <= KEY_BYTES_MAX or text[0] == b'"'[0] or memchr(text, b" "[0], size) != NULL:
        return None
    made = begun_digest.copy()
    made.update(b"\0\0\0" + bytes((size,)) + key)
    digest = made.digest()
    for place in range(8):
        found = (found << 8) | <unsigned char>PyBytes_AS_STRING(digest)[place]
    return KEYED_MIN + <int64_t>(found % <uint64_t>KEYED_MIN)
