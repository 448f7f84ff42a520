# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Plain requests on a connection, in C: from the received bytes to the response in the kernel, or in the transport if
that speaks TLS.

It has no plain twin: its base class ``plain_requests.PlainRequests`` handles what this class leaves, and everything without a
compiler. ``data_received`` handles requests that came whole, whose heads are plain (``request_heads_c.pyx``), and whose target was
resolved before. A target without a ``compiled_handler`` answer has a handler in Python, which is called as the base class calls it.
Everything else is left to the base class as it came. Nothing is kept from one request to the next.

Thread: the event loop's.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.tuple cimport PyTuple_GET_ITEM

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8(object text) except NULL
    Py_ssize_t PyUnicode_GET_LENGTH(object text)

from libc.stdint cimport int64_t
from libc.string cimport memcmp, memcpy

from app.event_loop.elapsed_c cimport elapsed
from app.fast_path.answer_bytes_c cimport compose
from app.http.connection.request_heads_c cimport Head, Span, key_of, read_head, request_head

from app.http.transfer.file_transfer import CORKED_BYTES_MIN, UNSENT_TIMES_MAX, UNSENT_TIMES_TOTAL
from app.http.connection.fast_path_interface import PlainAnswer
from app.fast_path import plain_requests
from app.fast_path.plain_requests import SLICED_BYTES_MIN, PlainRequests
from app.problems.request_context import given_request_id
from app.http.connection.protocol import Stage, Waits
from app.http.transfer.transfer_turns import LEAST_PIECE_BYTES, PIECE_BYTES, TURN_BYTES
from storage.disk.file_system import LocalFile
from log_model.reads import FileSlice

cdef extern from "<sys/types.h>" nogil:
    ctypedef long long off_t

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int descriptor, void* room, size_t length, int flags)
    ssize_t send(int descriptor, const void* piece, size_t length, int flags)
    int setsockopt(int descriptor, int level, int option, const void* value, unsigned int length)
    int MSG_DONTWAIT, MSG_NOSIGNAL, MSG_MORE

cdef extern from "<netinet/in.h>" nogil:
    int IPPROTO_TCP

cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_CORK

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t sendfile(int target, int source, off_t* position, size_t length)

cdef enum:
    # Larger requests have a sink for what is missing.
    WHOLE_BYTES_MAX = 128 * 1024

    # As ``request_context.given_request_id``.
    REQUEST_ID_BYTES_MAX = 128

cdef object NEXT_REQUEST = Waits.NEXT_REQUEST
cdef object FIRST_HEAD = Waits.HEAD
cdef object NOTHING = Waits.NOTHING
cdef object IDLE = Stage.IDLE
cdef object plain_data_received = PlainRequests.data_received
cdef object begin = PlainRequests.connection_made
cdef Py_ssize_t SLICED_MIN = SLICED_BYTES_MIN
cdef int64_t CORKED_MIN = CORKED_BYTES_MIN
cdef int64_t TIMES_MAX = UNSENT_TIMES_MAX, TIMES_TOTAL = UNSENT_TIMES_TOTAL
cdef int64_t LEAST_PIECE = LEAST_PIECE_BYTES
cdef int64_t PIECE = PIECE_BYTES
cdef int64_t TURN = TURN_BYTES


cdef inline bint is_request_id(const char* data, Span id) noexcept:
    """As ``request_context.given_request_id``: a plain value has nothing but spaces that it does not take."""
    cdef Py_ssize_t at
    if not 0 < id.size <= REQUEST_ID_BYTES_MAX:
        return False
    for at in range(id.start, id.start + id.size):
        if data[at] == c" ":
            return False
    return True


cdef class QueuedAppend:
    """A request that waits for the end of its turn of the loop; what gave it out calls ``settle`` of its connection.

    ``answer`` is a ``PlainAnswer`` or what ``PlainDispatcher.serve`` may give instead; ``None`` leaves the request to that.
    """

    cdef public object connection, answer, awaited
    cdef readonly object body, config, options, producer
    cdef object target
    # Its head, and what that says.
    cdef bytes raw
    cdef Head head
    cdef double began

    def __init__(self, awaited, body, config, options, producer=None):
        """``awaited.end()`` settles it before its time, or lets it wait for something else."""
        self.awaited, self.body, self.config, self.options, self.producer = awaited, body, config, options, producer

    cdef object request_head(self):
        return request_head(PyBytes_AS_STRING(self.raw), &self.head)


cdef class CompiledRequests:
    """The first base of a server's class of connections; see ``connections.protocol_class``."""

    # Attributes that are read for each request. The base classes in Python use them as their own.
    cdef public object cycle, flow, transport, server_state, loop
    cdef public object _active, _body, _waits_for, _stage, _stash
    cdef public bint _deaf, _ends
    cdef public long _message_number
    cdef public double _deadline, _timer_at
    cdef int descriptor
    cdef object dispatcher, turns, bare_wire, numbers
    cdef dict targets
    cdef int64_t unsent_bytes_each
    cdef Py_ssize_t header_bytes_max, header_count_max
    cdef bint checks_access
    # The rule for names, if there is one, and the last that it allowed.
    cdef object hosts
    cdef bytes allowed_host
    cdef double keep_alive_seconds
    # A request that waits for the end of this turn of the loop; what comes behind it is kept.
    cdef QueuedAppend queued

    def __cinit__(self, *_, **__):
        self.descriptor = -1
        self.allowed_host = b""

    def connection_made(self, transport):
        begin(self, transport)
        # An access log has a line for each request, which the base class writes; a client that was turned away has no answer.
        if not (self.access_log or self._deaf):
            if self.fast_path.is_bare:
                # Under TLS all bytes go through the transport, which encrypts them.
                self.bare_wire, self.descriptor = self.wire, self.wire.descriptor
            self.dispatcher, self.turns, self.keep_alive_seconds = self.fast_path, self.transfers, self.timeout_keep_alive
            self.numbers, self.unsent_bytes_each = self.fast_path.numbers, self.unsent_bytes_max
            self.targets, self.checks_access = self.fast_path.targets, self.fast_path.checks_access
            self.header_bytes_max, self.header_count_max = self.limits.header_bytes_max, self.limits.header_count_max
            self.hosts = self.limits.hosts

    cdef bint answers_to(self, const char* data, Head* head) except -1:
        """Whether the service answers to the name in Host; see ``allowed_hosts.HostRule.allows``."""
        cdef bytes host = self.allowed_host
        cdef const char* named = data + head.host.start
        if PyBytes_GET_SIZE(host) == head.host.size and memcmp(PyBytes_AS_STRING(host), named, head.host.size) == 0:
            return True
        host = PyBytes_FromStringAndSize(named, head.host.size)
        if not self.hosts.allows(host):
            return False
        self.allowed_host = host
        return True

    def data_received(self, data):
        if self.queued is not None or self._stash:
            self._keep(data)
            return None
        if self.dispatcher is not None and type(data) is bytes and self.may_answer():
            data = self.answer_plain(data)
            if data is None:
                return None
        return plain_data_received(self, data)

    cdef bint may_answer(self) except -1:
        """Whether the next request may be answered here: all others are, and their answers are taken."""
        return (
            (self._waits_for is NEXT_REQUEST or (self._waits_for is FIRST_HEAD and self.cycle is None))
            and self._stage is IDLE
            and self._body is None
            and not (self._deaf or self._ends)
            and (self._active is None or self._active.response_complete)
            and not self.flow.write_paused
        )

    cdef object answer_plain(self, bytes data):
        """Answer what can be answered here; what is left is returned, ``None`` for nothing."""
        cdef const char* content = PyBytes_AS_STRING(data)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data), start = 0, body_at, end
        cdef Head head
        cdef bytes whole
        cdef double began, until = 0
        while True:
            if not read_head(content + start, size - start, self.header_bytes_max, self.header_count_max, &head):
                break
            if self.hosts is not None and not self.answers_to(content + start, &head):
                break
            target = self.targets.get(key_of(content + start, &head))
            if target is None:
                break
            if head.content_length > <int64_t>target.body_bytes_max:
                break
            handler = target.enqueue
            if handler is None:
                handler = target.compiled_handler
            if handler is not None and self.checks_access and target.is_guarded:
                try:
                    is_admitted = self.dispatcher.admits(target, authorization_of(content + start, &head), self)
                except Exception as error:
                    self.fail_request(request_head(content + start, &head), error)
                    return None
                if not is_admitted:
                    break
            body_at = start + head.size
            end = body_at + head.content_length
            if end > size:
                whole = self.with_rest(content + start, size - start, end - start)
                if whole is None:
                    break
                # Nothing of what came with it is left before it, or behind.
                data, content, size = whole, PyBytes_AS_STRING(whole), PyBytes_GET_SIZE(whole)
                start, body_at, end = 0, head.size, head.size + head.content_length
                if end > size:
                    break
            if head.idempotency_key.size:
                varying = PyBytes_FromStringAndSize(content + start + head.idempotency_key.start, head.idempotency_key.size)
            else:
                varying = head.number if head.number >= 0 else None
            if not head.content_length:
                body = b""
            elif head.content_length < SLICED_MIN:
                body = PyBytes_FromStringAndSize(content + body_at, head.content_length)
            else:
                body = memoryview(data)[body_at:end]
            began = elapsed()
            if handler is None:
                # A handler in Python answers.
                self._message_number += 1
                self._serve(target, request_head(content + start, &head), body, began)
            else:
                try:
                    answer = handler(varying, body)
                except Exception as error:
                    self._message_number += 1
                    self.begin_deferred(target, request_head(content + start, &head), body, began, error)
                    return None if end == size else data[end:]
                if answer is None:
                    break
                if type(answer) is QueuedAppend:
                    self.wait_for(<QueuedAppend>answer, target, content + start, &head, began)
                    if end < size:
                        self._keep(data[end:])
                    return None
                self._message_number += 1
                self.dispatcher.answered_count += 1
                if not self.send_answer(target, content + start, &head, body, answer, began):
                    # The rest is being sent, and the next request waits for it.
                    return None if end == size else data[end:]
                self.note_answered(target, answer, began)
            start = end
            if start == size:
                return None
            if not self.may_answer():
                break
            if not until:
                # Read where it is: once for each turn, and tests that set it mean these connections also.
                until = began + <double>plain_requests.TURN_SECONDS
            elif began > until:
                self._give_way(data[start:])
                return None
        return data[start:] if start else data

    cdef bytes with_rest(self, const char* begun, Py_ssize_t begun_bytes, Py_ssize_t size):
        """A request of ``size`` bytes, whole or a longer part of it, if more of it is here already; else ``None``.

        Its client was sending while the loop read: what came since spares a turn, and the pieces.
        """
        cdef bytes room
        cdef ssize_t more
        if self.descriptor < 0 or size > WHOLE_BYTES_MAX or size - begun_bytes < SLICED_MIN:
            return None
        room = PyBytes_FromStringAndSize(NULL, size)
        more = recv(self.descriptor, PyBytes_AS_STRING(room) + begun_bytes, size - begun_bytes, MSG_DONTWAIT)
        if more <= 0:
            # Nothing yet; or an end or an error, which the loop also meets.
            return None
        memcpy(PyBytes_AS_STRING(room), begun, begun_bytes)
        return room if begun_bytes + more == size else room[: begun_bytes + more]

    cdef int begin_deferred(self, target, head, body, double began, outcome) except -1:
        """A deferred answer stands for the request until ``outcome`` is answered."""
        self.dispatcher.answered_count += 1
        try:
            call = self.call_of(target, head, body, began)
        except Exception as error:
            self.fail_request(head, error)
            return 0
        self._begin(self._defer(call), outcome)
        return 0

    cdef object call_of(self, target, head, body, double began):
        request_id = given_request_id(head.request_id) or next(self.numbers)
        return self.dispatcher.call_of(target, head, body, request_id, began)

    cdef int wait_for(self, QueuedAppend queued, target, const char* data, Head* head, double began) except -1:
        queued.connection, queued.target, queued.began = self, target, began
        queued.raw, queued.head = PyBytes_FromStringAndSize(data, head.size), head[0]
        self.queued = queued
        self._waits_for = NOTHING
        self._message_number += 1
        return 0

    def settle(self, QueuedAppend queued):
        """Answer the request that waits, and go on with what came meanwhile."""
        cdef const char* head
        self.queued = queued.connection = None
        answer = queued.answer
        if self._deaf:
            # The client is gone.
            return
        if answer is None:
            self._serve(queued.target, queued.request_head(), queued.body, queued.began)
        elif type(answer) is not PlainAnswer:
            self.begin_deferred(queued.target, queued.request_head(), queued.body, queued.began, answer)
        else:
            self.dispatcher.answered_count += 1
            self._waits_for = NEXT_REQUEST
            head = PyBytes_AS_STRING(queued.raw)
            if self.send_answer(queued.target, head, &queued.head, queued.body, answer, queued.began):
                self.note_answered(queued.target, answer, queued.began)
        if self._stash:
            self._look_at_stash()
        self._end_if_all_is_said()

    cdef int end_queued(self) except -1:
        """Let what waits be answered now, or have a deferred answer, which can wait on; and so what has come behind it."""
        while self.queued is not None:
            queued, awaited = self.queued, self.queued.awaited
            awaited.end()
            # The end of a turn may leave it to that of an fsync in a thread.
            if self.queued is queued and queued.awaited is awaited:
                # Only a defect would leave one behind: that must not hold up a stop.
                break
        return 0

    def eof_received(self):
        self.end_queued()
        return PlainRequests.eof_received(self)

    def connection_lost(self, exc):
        if self.queued is not None:
            # It is carried out all the same.
            self.queued.connection = self.queued = None
        PlainRequests.connection_lost(self, exc)

    def shutdown(self):
        self.end_queued()
        PlainRequests.shutdown(self)

    cdef int note_answered(self, target, answer, double began) except -1:
        cdef double deadline
        target.count(<object>PyTuple_GET_ITEM(answer, 3), elapsed() - began)
        self.server_state.total_requests += 1
        # As ``_expect``: nothing but the time is new in most rows of requests.
        deadline = self._deadline = <double>self.loop.time() + self.keep_alive_seconds
        self._waits_for = NEXT_REQUEST
        if deadline < self._timer_at:
            self._look_at(deadline)
        return 0

    cdef bint send_answer(self, target, const char* data, Head* head, body, answer, double began) except -1:
        """Whether all of it is in the kernel, or in the transport; a deferred answer sends what is left."""
        cdef bytes whole
        cdef Py_ssize_t sent = 0, size
        cdef object transport = self.transport
        parts, content = <object>PyTuple_GET_ITEM(answer, 2), <object>PyTuple_GET_ITEM(answer, 1)
        if len(parts) > (0 if content else 1):
            return self._answer(self.call_of(target, request_head(data, head), body, began), answer)
        first = <object>PyTuple_GET_ITEM(answer, 0)
        if is_request_id(data, head.request_id):
            whole = compose(first, data + head.request_id.start, head.request_id.size, self.server_state.default_headers, content)
        else:
            request_id = next(self.numbers)
            whole = compose(
                first, PyUnicode_AsUTF8(request_id), PyUnicode_GET_LENGTH(request_id), self.server_state.default_headers, content
            )
        size = PyBytes_GET_SIZE(whole)
        is_free = self.descriptor >= 0 and not transport.get_write_buffer_size() and not transport.is_closing()
        if not parts:
            if is_free:
                sent = send(self.descriptor, PyBytes_AS_STRING(whole), size, MSG_DONTWAIT | MSG_NOSIGNAL)
            if sent < size and not transport.is_closing():
                # What does not fit now, and errors, are the transport's.
                transport.write(whole if sent <= 0 else memoryview(whole)[sent:])
            return True
        part = parts[0]
        if is_free and type(part) is FileSlice and <object>PyTuple_GET_ITEM(part, 4) is True:
            sent = self.send_slice(whole, <object>PyTuple_GET_ITEM(part, 0), part)
            if sent == size + <int64_t><object>PyTuple_GET_ITEM(part, 2):
                return True
            call = self.call_of(target, request_head(data, head), body, began)
            self._defer(call).send_rest(answer, whole, sent)
            return False
        return self._answer(self.call_of(target, request_head(data, head), body, began), answer)

    cdef bint answer_member(self, member, answer) except -1:
        """Answer a request that waits in a crowd, with nothing that a deferred answer has to look at; whether it was."""
        cdef bytes whole
        cdef Py_ssize_t sent, size
        cdef object transport = self.transport, flow = self.flow
        if self.descriptor < 0 or self._active is not member or self.cycle is not member or self._stage is not IDLE:
            return False
        if self._deaf or self._ends or self._stash or self._body is not None or flow.write_paused or flow.read_paused:
            return False
        if self.pipeline or self._has_said_all or self._last_words is not None:
            return False
        if not member.keep_alive or member.closes or member.disconnected:
            return False
        if transport.is_closing() or transport.get_write_buffer_size():
            return False
        call = member.call
        request_id = call.request_id
        whole = compose(
            <object>PyTuple_GET_ITEM(answer, 0),
            PyUnicode_AsUTF8(request_id),
            PyUnicode_GET_LENGTH(request_id),
            self.server_state.default_headers,
            <object>PyTuple_GET_ITEM(answer, 1),
        )
        size = PyBytes_GET_SIZE(whole)
        member.response_started = True
        sent = send(self.descriptor, PyBytes_AS_STRING(whole), size, MSG_DONTWAIT | MSG_NOSIGNAL)
        if sent < size:
            transport.write(whole if sent <= 0 else memoryview(whole)[sent:])
        member.response_complete = True
        self.note_answered(call.target, answer, call.began)
        return True

    cdef int64_t send_slice(self, bytes head, file, part) except -1:
        """As ``file_transfer.send_at_once``, of a part that is known to be in memory."""
        cdef int64_t size_bytes = <object>PyTuple_GET_ITEM(part, 2), unsent_bytes_max = self.unsent_bytes_each
        cdef int64_t unfinished_count = self.turns.unfinished_count
        cdef Py_ssize_t head_bytes = PyBytes_GET_SIZE(head), sent
        cdef const char* content = PyBytes_AS_STRING(head)
        cdef off_t position = <object>PyTuple_GET_ITEM(part, 1)
        cdef ssize_t more = 0
        cdef int source, on = 1, off = 0
        if type(file) is not LocalFile or size_bytes > max(LEAST_PIECE, min(PIECE, TURN // (unfinished_count + 1))):
            return 0
        source = file.descriptor
        if source < 0:
            # It is closed: the transfer of the rest reports that.
            return 0
        if 0 < unsent_bytes_max < size_bytes:
            # As ``file_transfer.allow_unsent``.
            unsent_bytes_max *= max(1, min(TIMES_MAX, TIMES_TOTAL // (unfinished_count + 1)))
            if unsent_bytes_max != <int64_t>self.bare_wire.unsent_bytes_max:
                self.bare_wire.allow_unsent(unsent_bytes_max)
        with nogil:
            if size_bytes >= CORKED_MIN:
                setsockopt(self.descriptor, IPPROTO_TCP, TCP_CORK, &on, sizeof(on))
            sent = send(self.descriptor, content, head_bytes, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE)
            if sent == head_bytes:
                more = sendfile(self.descriptor, source, &position, size_bytes)
            if size_bytes >= CORKED_MIN:
                setsockopt(self.descriptor, IPPROTO_TCP, TCP_CORK, &off, sizeof(off))
        # What went wrong is met again when the rest is sent.
        return max(sent, 0) + max(more, 0)


cdef object authorization_of(const char* data, Head* head):
    """The credential of a request, or ``None``."""
    if not head.authorization.size:
        return None
    return PyBytes_FromStringAndSize(data + head.authorization.start, head.authorization.size)


def answer_members(list members, answer):
    """Answer members of a crowd with one answer, those that can be answered at once.

    Return those that their ``answer`` has to answer, and of those that failed each with its error.
    """
    cdef list left = [], failed = []
    for member in members:
        connection = member.connection
        try:
            if not (isinstance(connection, CompiledRequests) and (<CompiledRequests>connection).answer_member(member, answer)):
                left.append(member)
        except Exception as error:
            failed.append((member, error))
    return left, failed
