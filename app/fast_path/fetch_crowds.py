"""Plain fetches of one partition that wait: those that will get the same bytes wait as one crowd.

What wakes a crowd has one answer made for it, which goes to each of its connections. The answer is made again if the
log has moved meanwhile, so no member gets less than a fetch that waits alone. A member whose answer is not this one is
answered by its route, as if it had waited there: the topic is gone, there are quotas by now, its rights are not known,
or the records are not small and in memory.

Thread: the event loop.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from app.engine_local.partitions.crowds import Crowd
from app.engine_local.partitions.fetch_waiters import Wake, known_place
from app.fast_path.request import PlainRequest
from app.fetch.fetched_records import ISOLATIONS
from app.http.connection.crowd_member import CrowdMember
from app.http.connection.fast_path_interface import CrowdWait, Late, PlainAnswer
from log_model.offsets import LogOffsetMetadata, Offset
from rollway.records.compiled import load
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import PartitionLog

if TYPE_CHECKING:
    from app.fast_path.local_parts import LocalParts

Make = Callable[["LocalParts", PartitionLog, Offset, int, Any], PlainAnswer | None]

logger = logging.getLogger(__name__)

compiled_connections = load("app.fast_path.connection_c")
"""The compiled path of plain requests, or ``None``; see ``connection_c.pyx``."""


class _Key(NamedTuple):
    """All that decides the bytes of an answer, and when it comes. Fetches with equal keys wait together."""

    log: PartitionLog
    place: LogOffsetMetadata
    min_bytes: int
    max_bytes: int
    form: Any
    """The ``AnswerForm`` of the route."""
    make: Make


def wait_in_crowd(
    parts: LocalParts, request: PlainRequest, log: PartitionLog, start: Offset, make: Make
) -> CrowdWait | None:
    """Return the wait of a fetch from ``start``, where nothing is; ``None`` if it must wait in its route.

    ``make`` makes the whole answer of a crowd, without parts, and counts nothing. ``None`` leaves it to the route.
    """
    target = request.target
    asked, route = target.parameters, target.route
    if asked.end_offset is not None or asked.max_records is not None or route.answers_late is None:  # type: ignore[attr-defined]
        return None
    if parts.is_released or parts.quotas.table.has_any:
        return None
    form = asked.form(target.media_type)
    # As in the route: a wait for more bytes than one response holds would be useless.
    max_bytes = min(asked.max_bytes, form.bytes_max(parts.settings.fetch_bytes_max))
    min_bytes = min(asked.min_bytes, max_bytes)
    place = known_place(log.snapshot, start)
    if place is None and min_bytes > 1:
        # A thread has to look where it is.
        return None
    return _FetchWait(
        parts, asked.wait_ms, _Key(log, place or LogOffsetMetadata(start), min_bytes, max_bytes, form, make)
    )


class _FetchWait(CrowdWait):
    """The wait of one fetch in its crowd."""

    __slots__ = ("_crowds", "_key", "_parts", "_wait_ms")

    def __init__(self, parts: LocalParts, wait_ms: int, key: _Key) -> None:
        self._parts = parts
        self._crowds = parts.engine.partitions.crowds
        self._wait_ms = wait_ms
        self._key: _Key | None = key

    def join(self, member: CrowdMember) -> None:
        """Wait.

        Raises:
            Problem: overloaded.
        """
        key, self._key = self._key, None
        assert key is not None
        # The member, which stays with its connection, holds no log: the files of a deleted one would stay open.
        self._crowds.join(key, member, self._wait_ms, functools.partial(FetchCrowd, self._parts, key))

    def leave(self, member: CrowdMember) -> bool:
        """End the wait without an answer, and return whether ``member`` waited."""
        return self._crowds.leave(member)

    def expire(self, member: CrowdMember) -> None:
        """Have ``member`` answered soon, if it waits."""
        self._crowds.expire(member)


class FetchCrowd(Crowd):
    """Fetches that get the same bytes."""

    __slots__ = ("_made", "_parts", "_wanted")

    def __init__(self, parts: LocalParts, key: _Key) -> None:
        super().__init__(key, key.log, key.place, key.min_bytes, ISOLATIONS[key.form.isolation])
        self._parts = parts
        self._wanted = key
        # The last answer, and what it was made of.
        self._made: tuple[LogSnapshot, PlainAnswer | None] | None = None

    def answer(self, members: list[CrowdMember], wake: Wake) -> bool:
        """Answer each of ``members``. Return whether its route answers any of them."""
        resumed_count = 0
        answer = self._answer_now(wake)
        left = members if answer is None else self._answer_at_once(members, answer)
        for member in left:
            try:
                if answer is None or not _is_admitted(member):
                    resumed_count += 1
                    member.resume(self._late(member, wake))
                else:
                    self._parts.fetching.count_fetched(self._wanted.form.name, len(answer.body))
                    member.answer(answer)
            except Exception as error:  # noqa: BLE001 - one of them must not take the answers of the others
                _give_up(member, error)
        if not self.done.done():
            # The others still wait, and must not keep files of the log open.
            self._made = None
        return resumed_count > 0

    def _answer_now(self, wake: Wake) -> PlainAnswer | None:
        """Return the answer of all that are answered now; ``None`` if each is answered by its route."""
        if wake is Wake.GONE or self._parts.quotas.table.has_any:
            return None
        snapshot, key = self.log.snapshot, self._wanted
        if self._made is None or self._made[0] is not snapshot:
            try:
                answer = key.make(self._parts, key.log, key.place.offset, key.max_bytes, key.form)
                self._made = snapshot, answer
            except Exception:
                logger.exception("the common answer of fetches that waited was not made")
                self._made = snapshot, None
        return self._made[1]

    def _answer_at_once(self, members: list[CrowdMember], answer: PlainAnswer) -> list[CrowdMember]:
        """Answer those that are answered in C; return the others."""
        if compiled_connections is None or members[0].connection.fast_path.checks_access:
            return members
        left, failed = compiled_connections.answer_members(members, answer)
        count = len(members) - len(left) - len(failed)
        self._parts.fetching.count_fetched(self._wanted.form.name, count * len(answer.body))
        for member, error in failed:
            _give_up(member, error)
        return list(left)

    def _late(self, member: CrowdMember, wake: Wake) -> Late:
        """Return the part of the route that comes behind the wait."""
        target, parts = member.call.target, self._parts
        asked, route = target.parameters, target.route
        form = asked.form(target.media_type)
        wanted = asked.request(form.bytes_max(parts.settings.fetch_bytes_max))
        pending = parts.engine.reads.go_on(self.log, wanted, self._wanted.place.offset, _Waited(wake))
        late: Late = route.answers_late(self.log, parts.fetching, asked, form, wanted, pending)  # type: ignore[attr-defined]
        return late


class _Waited:
    """A wait that is over."""

    def __init__(self, wake: Wake) -> None:
        self.done: asyncio.Future[Wake] = asyncio.get_running_loop().create_future()
        self.done.set_result(wake)

    def cancel(self) -> None:
        """Do nothing."""

    def expire(self) -> None:
        """Do nothing."""


def _is_admitted(member: CrowdMember) -> bool:
    """Return whether the client still has the rights that its route needs, as far as is known here."""
    connection, call = member.connection, member.call
    fast_path = connection.fast_path
    if not (fast_path.checks_access and call.target.is_guarded):
        return True
    return bool(fast_path.admits(call.target, call.head.authorization, connection))


def _give_up(member: CrowdMember, error: Exception) -> None:
    """Let the application answer a defect of ours, or cut the connection if an answer has begun."""
    logger.error("a fetch that waited was not answered", exc_info=error)
    try:
        member.fail(error)
    except Exception:  # noqa: BLE001 - the first one is logged
        member.connection.cut()
