# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The ``compiled_handler`` of raw fetches from one partition (see ``app.http.connection.fast_path_interface``).

It has no plain twin: ``app.fast_path.fetch`` handles the requests that it leaves, with nothing changed, and all requests without
a compiler. It holds no log and no snapshot: targets outlive their topics.

Thread: the event loop's.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int64_t

from app.fast_path.answer_bytes_c cimport PyTypeObject, digits_of, new_answer, put, put_item, put_number

from log_model.reads import FileSlice
from storage.segment import batch_search


cdef inline object new_slice(file, position, size_bytes, is_cached):
    """A ``FileSlice`` without content."""
    part = (<PyTypeObject*>FileSlice).tp_alloc(<PyTypeObject*>FileSlice, 5)
    put_item(part, 0, file)
    put_item(part, 1, position)
    put_item(part, 2, size_bytes)
    put_item(part, 3, None)
    put_item(part, 4, is_cached)
    return part


cdef class CompiledFetch:
    """Batches of one partition from a place on, as far as their readers may see; none, if there are none and no wait."""

    cdef object parts, topic_name, topic_id, read, head_of
    cdef dict topics, fetched_bytes
    cdef Py_ssize_t partition
    cdef object place
    cdef bint waits, is_stable, sends_files
    cdef int64_t max_bytes, content_bytes_max
    # What the head of an answer begins with while the log has these limits, and what stands around its own numbers.
    cdef object limits
    cdef bytes begun, before_next, before_size, behind

    def __init__(
        self,
        parts,
        topic,
        Py_ssize_t partition,
        place,
        bint waits, bint is_stable,
        int64_t max_bytes,
        int64_t content_bytes_max,
        bint sends_files,
        head_of,
        bytes range_format,
    ):
        """``place`` is an offset, earliest or latest; another offset may come with each request.

        Reads end at the high watermark, or with ``is_stable`` at the last stable offset. Without ``sends_files`` only bytes in
        memory are answered.
        ``head_of`` makes what heads begin with of a log's limits; ``range_format`` has next offset and length.
        """
        self.parts, self.topics, self.read = parts, parts.engine.manager.topics, batch_search.compiled.read
        self.topic_name, self.topic_id, self.partition = topic.name, topic.topic_id, partition
        self.place, self.waits, self.max_bytes, self.content_bytes_max = place, waits, max_bytes, content_bytes_max
        self.is_stable, self.sends_files, self.head_of = is_stable, sends_files, head_of
        self.before_next, self.before_size, self.behind = range_format.split(b"%d")
        self.fetched_bytes = parts.metrics.fetched_bytes.values

    def answer(self, number, body):
        """Answer as a ``compiled_handler``."""
        parts = self.parts
        topic = self.topics.get(self.topic_name)
        if topic is None or topic.topic_id != self.topic_id or parts.is_released or parts.quotas.table.has_any:
            return None
        logs = <list?>topic.partitions.logs
        log = logs[self.partition] if self.partition < len(logs) else None
        if log is None:
            return None
        snapshot = log.snapshot
        start = self.place if number is None else number
        end = snapshot.last_stable_offset if self.is_stable else snapshot.high_watermark
        if type(start) is str:
            start = end if start == "latest" else snapshot.log_start_offset
        found = self.read(snapshot, start, self.max_bytes, self.content_bytes_max, self.is_stable)
        if found is None:
            if self.waits or start != end:
                return None
            self.fetched_bytes["raw"] = self.fetched_bytes.get("raw", 0)
            limits = (snapshot.log_start_offset, snapshot.high_watermark, snapshot.last_stable_offset)
            return new_answer(self.head(limits, start, 0), b"", ())
        content, size_bytes = <object>PyTuple_GET_ITEM(found, 4), <object>PyTuple_GET_ITEM(found, 2)
        if content is None and not self.sends_files:
            return None
        head = self.head(<object>PyTuple_GET_ITEM(found, 6), <object>PyTuple_GET_ITEM(found, 3), size_bytes)
        self.fetched_bytes["raw"] = self.fetched_bytes.get("raw", 0) + size_bytes
        if content is not None:
            return new_answer(head, content, ())
        file, position, is_cached = (
            <object>PyTuple_GET_ITEM(found, 0),
            <object>PyTuple_GET_ITEM(found, 1),
            <object>PyTuple_GET_ITEM(found, 5),
        )
        return new_answer(head, b"", (new_slice(file, position, size_bytes, is_cached),))

    cdef bytes head(self, limits, int64_t next_offset, int64_t size_bytes):
        cdef bytes room
        cdef char* at
        if limits is not self.limits:
            if limits != self.limits:
                self.begun = self.head_of(limits)
            self.limits = limits
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
