"""Fetch sessions: a client of many partitions sends only changes of its request, and receives only changes.

As Kafka's (spec D1): a session holds the request for each partition, and the limits that were last sent for it. One
request at a time: each carries the number of the last one plus one. A lost response is noticed by that number, and the
client then begins a new session.

Thread: the event loop.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from app.fetch.multi_fetch_body import FetchPartition, MultiFetchRequest, PartitionKey
from app.fetch.partition_reads import PartitionAnswer
from app.problems import kinds
from app.problems.kind import Kind
from app.problems.problem import Problem, invalid_value
from schemas.multi_fetch import INT_MAX, PARTITIONS_MAX

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0


def next_epoch(epoch: int) -> int:
    """Return the number of the request after ``epoch``."""
    return 1 if epoch == INT_MAX else epoch + 1


class _Cached:
    """One partition of a session: the request for it, and the limits that the client has, -1 for none."""

    __slots__ = ("asked", "high_watermark", "log_start_offset")

    def __init__(self, asked: FetchPartition) -> None:
        self.asked = asked
        self.high_watermark = -1
        self.log_start_offset = -1

    def is_news(self, answer: PartitionAnswer) -> bool:
        """Return whether the answer has something that the client does not have yet."""
        return (
            answer.error is not None
            or answer.brings_records
            or answer.diverging is not None
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
        )

    def note(self, answer: PartitionAnswer) -> None:
        """Remember the limits of an answer that is sent. An error forgets them, so that its end is news."""
        self.high_watermark = answer.high_watermark
        self.log_start_offset = answer.log_start_offset


class _Session:
    """One client's partitions, in the order in which they are read."""

    __slots__ = ("created_ms", "epoch", "partitions", "principal", "session_id", "used_ms", "uses_topic_ids")

    def __init__(self, session_id: int, principal: str | None, uses_topic_ids: bool | None, now_ms: int) -> None:
        self.session_id = session_id
        self.principal = principal
        self.uses_topic_ids = uses_topic_ids
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.partitions: dict[PartitionKey, _Cached] = {}
        self.created_ms = now_ms
        self.used_ms = now_ms


class FetchContext(Protocol):
    """The partitions of one request, and the part of the answers that is sent."""

    @property
    def partitions(self) -> Sequence[FetchPartition]:
        """The partitions to read, in this order."""
        ...

    def news(self, answers: Iterable[PartitionAnswer]) -> list[PartitionAnswer]:
        """Return the answers that are to be sent.

        Raises:
            Problem: another request of the session came in between.
        """
        ...

    def sent(self, answers: Iterable[PartitionAnswer]) -> int:
        """Remember that these answers are being sent. Return the session's id, 0 without a session.

        Raises:
            Problem: as ``news``.
        """
        ...


class FetchSessions:
    """All sessions, at most ``count_max`` with ``partition_count_max`` partitions together.

    Without room, a new session replaces one that was idle for more than ``idle_ms``, or a smaller one that is
    older than ``idle_ms``. If there is none, its client gets no session.
    """

    def __init__(
        self, *, count_max: int, partition_count_max: int, idle_ms: int, elapsed_ms: Callable[[], int]
    ) -> None:
        self._count_max = count_max
        self._partition_count_max = partition_count_max
        self._idle_ms = idle_ms
        self._elapsed_ms = elapsed_ms
        # The least recently used session is the first.
        self._sessions: OrderedDict[int, _Session] = OrderedDict()
        self.partition_count = 0
        self.eviction_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def context(self, request: MultiFetchRequest, principal: str | None) -> FetchContext:
        """Return the partitions that ``request`` means with its session, and the session's part in the response.

        Raises:
            Problem: fetch_session_not_found (70), invalid_fetch_session_epoch (71), fetch_session_topic_id_error (106),
                or more partitions than a session may have.
        """
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            ended = self._sessions.get(request.session_id)
            if ended is not None and ended.principal == principal:
                self._drop(ended)
            if request.session_epoch == FINAL_EPOCH:
                return _Sessionless(request.partitions)
            return _Full(self, request, principal)
        session = self._sessions.get(request.session_id)
        if session is None or session.principal != principal:
            raise _refused(kinds.FETCH_SESSION_NOT_FOUND, f"there is no fetch session {request.session_id}")
        if session.epoch != request.session_epoch:
            raise _wrong_epoch(session.session_id, request.session_epoch)
        if request.uses_topic_ids not in (None, session.uses_topic_ids):
            named = "topic_id" if session.uses_topic_ids else "topic alone"
            detail = f"session {session.session_id} names its partitions by {named}"
            raise _refused(kinds.FETCH_SESSION_TOPIC_ID_ERROR, detail)
        self._update(session, request)
        if not session.partitions:
            self._drop(session)
            return _Sessionless(())
        session.epoch = next_epoch(session.epoch)
        self._touch(session)
        return _Incremental(session)

    def _update(self, session: _Session, request: MultiFetchRequest) -> None:
        before = len(session.partitions)
        added = sum(1 for asked in request.partitions if asked.key not in session.partitions)
        if before + added > PARTITIONS_MAX:
            detail = f"a session has at most {PARTITIONS_MAX} partitions"
            raise invalid_value("/partitions", detail)
        if self.partition_count + added > self._partition_count_max:
            raise Problem(kinds.OVERLOADED, "the fetch sessions have all the partitions they may have")
        for asked in request.partitions:
            cached = session.partitions.get(asked.key)
            if cached is None:
                session.partitions[asked.key] = _Cached(asked)
            else:
                cached.asked = asked
        for forgotten in request.forgotten:
            session.partitions.pop(forgotten.key, None)
        self.partition_count += len(session.partitions) - before

    def create(self, request: MultiFetchRequest, principal: str | None, answers: Iterable[PartitionAnswer]) -> int:
        """Begin a session with the partitions of ``request`` and the limits in ``answers``; return its id or 0."""
        now_ms = self._elapsed_ms()
        if not request.partitions or not self._make_room(len(request.partitions), now_ms):
            return NO_SESSION
        session = _Session(self._new_id(), principal, request.uses_topic_ids, now_ms)
        session.partitions = {asked.key: _Cached(asked) for asked in request.partitions}
        self._sessions[session.session_id] = session
        self.partition_count += len(session.partitions)
        _note_all(session.partitions, answers)
        return session.session_id

    def _touch(self, session: _Session) -> None:
        """Note that the session was used now."""
        session.used_ms = self._elapsed_ms()
        self._sessions.move_to_end(session.session_id)

    def _new_id(self) -> int:
        while True:
            session_id = secrets.randbelow(INT_MAX) + 1
            if session_id not in self._sessions:
                return session_id

    def _make_room(self, size: int, now_ms: int) -> bool:
        """Evict until there is room for a session of ``size`` partitions. Return false if it may not have any."""
        if size > self._partition_count_max or self._count_max == 0:
            return False
        while len(self._sessions) >= self._count_max or self.partition_count + size > self._partition_count_max:
            victim = self._victim(size, now_ms)
            if victim is None:
                return False
            self._drop(victim)
            self.eviction_count += 1
        return True

    def _victim(self, size: int, now_ms: int) -> _Session | None:
        longest_unused = next(iter(self._sessions.values()))
        if now_ms - longest_unused.used_ms > self._idle_ms:
            return longest_unused
        old = [session for session in self._sessions.values() if now_ms - session.created_ms > self._idle_ms]
        smallest = min(old, key=lambda session: len(session.partitions), default=None)
        return smallest if smallest is not None and len(smallest.partitions) < size else None

    def _drop(self, session: _Session) -> None:
        if self._sessions.pop(session.session_id, None) is not None:
            self.partition_count -= len(session.partitions)


class _Sessionless:
    """A request without a session."""

    def __init__(self, partitions: Sequence[FetchPartition]) -> None:
        self.partitions = partitions

    def news(self, answers: Iterable[PartitionAnswer]) -> list[PartitionAnswer]:
        return list(answers)

    def sent(self, answers: Iterable[PartitionAnswer]) -> int:  # noqa: ARG002 - there is nothing to remember
        return NO_SESSION


class _Full:
    """The first request of a session."""

    def __init__(self, sessions: FetchSessions, request: MultiFetchRequest, principal: str | None) -> None:
        self.partitions = request.partitions
        self._sessions = sessions
        self._request = request
        self._principal = principal

    def news(self, answers: Iterable[PartitionAnswer]) -> list[PartitionAnswer]:
        return list(answers)

    def sent(self, answers: Iterable[PartitionAnswer]) -> int:
        return self._sessions.create(self._request, self._principal, answers)


class _Incremental:
    """A later request of a session."""

    def __init__(self, session: _Session) -> None:
        self.partitions = [cached.asked for cached in session.partitions.values()]
        self._session = session
        self._next_epoch = session.epoch

    def news(self, answers: Iterable[PartitionAnswer]) -> list[PartitionAnswer]:
        self._check_epoch()
        cached = self._session.partitions
        return [answer for answer in answers if cached[answer.asked.key].is_news(answer)]

    def sent(self, answers: Iterable[PartitionAnswer]) -> int:
        self._check_epoch()
        _note_all(self._session.partitions, answers)
        return self._session.session_id

    def _check_epoch(self) -> None:
        if self._session.epoch != self._next_epoch:
            raise _wrong_epoch(self._session.session_id, self._next_epoch)


def _note_all(partitions: dict[PartitionKey, _Cached], answers: Iterable[PartitionAnswer]) -> None:
    """Note the answers that are sent. Partitions that bring records are read last next time, so that none starves."""
    for answer in answers:
        cached = partitions[answer.asked.key]
        cached.note(answer)
        if answer.brings_records:
            del partitions[answer.asked.key]
            partitions[answer.asked.key] = cached


def _refused(kind: Kind, detail: str) -> Problem:
    return Problem(kind, f"{detail}; begin another with session_epoch 0")


def _wrong_epoch(session_id: int, epoch: int) -> Problem:
    return _refused(kinds.INVALID_FETCH_SESSION_EPOCH, f"request {epoch} is not the next of session {session_id}")
