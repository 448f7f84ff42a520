"""Raw fetches of one partition, answered on the connection: as ``fetchRecordBatches``, which stays the declaration.

Under TLS only bytes that were read into memory are answered here. The route answers with parts of files.

Thread: the event loop. It reads bytes that are in memory; a thread of the readers reads others.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from app.engine.reading import Read
from app.engine_local.reading.ranges import read_offsets
from app.fast_path.fetch_crowds import wait_in_crowd
from app.fast_path.request import PlainRequest
from app.fetch.fetch_headers import aborted_header, fetched_headers
from app.fetch.fetched_records import ISOLATIONS
from app.http.connection.fast_path_interface import CrowdWait, PlainAnswer, make_head
from app.media_types import OCTETS, RECORD_BATCHES
from log_model.offsets import Offset
from log_model.reads import FetchData, Isolation
from rollway.records.compiled import load
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import PartitionLog
from storage.manager.topic_registry import Topic
from storage.segment import batch_search

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from app.fast_path.local_parts import LocalParts

compiled_handlers = load("app.fast_path.fetch_c")
"""The compiled handler of plain fetches, or ``None``; see ``fetch_c.pyx``."""

CONTENT_BYTES_MAX = 16 * 1024
"""Up to this size it is quicker to read and write bytes than to let the kernel send them from the file."""

_LIMITS = (
    b"log-start-offset: %d\r\nhigh-watermark: %d\r\nlast-stable-offset: %d\r\n"
    b"cache-control: no-store\r\nvary: Accept\r\n%b"
)
_RANGES = {
    media_type: b"next-offset: %%d\r\ncontent-length: %%d\r\ncontent-type: %b\r\n" % media_type.encode()
    for media_type in (RECORD_BATCHES, OCTETS)
}
_Limits = tuple[Offset, Offset, Offset]
_STATUS = make_head(200)
_NONE_ABORTED = b"aborted-transactions: \r\n"


def fetch_batches(
    parts: LocalParts, request: PlainRequest
) -> PlainAnswer | CrowdWait | Coroutine[Any, Any, PlainAnswer] | None:
    """Answer, or leave the request to the route: errors, quotas, starts that are no offset, some waits."""
    asked = request.target.parameters
    if asked.offset is None or asked.until is not None:
        return None
    topic = parts.engine.manager.topics.get(request.target.topic)
    log = None if topic is None else topic.partitions.find(request.target.partition)
    if topic is None or log is None or asked.topic_id not in (None, topic.topic_id):
        return None
    snapshot = log.snapshot
    bound = snapshot.bound(ISOLATIONS[asked.isolation]).offset
    start = _start_of(request, snapshot, bound)
    if not snapshot.log_start_offset <= start <= snapshot.log_end_offset:
        return None
    if not asked.wait_ms or (start < bound and asked.min_bytes <= 1):
        return _answer_now(parts, request, topic, log, start)
    # A wait for more than one byte begins here only where nothing is: the route also finds what is too little.
    if start < bound or not request.target.sends_files:
        return None
    return wait_in_crowd(parts, request, log, start, _answer_together)


def _start_of(request: PlainRequest, snapshot: LogSnapshot, bound: Offset) -> Offset:
    """Return the first offset that is asked for, which may lie outside the log."""
    asked = request.target.parameters
    if asked.offset == "earliest":
        return snapshot.log_start_offset
    if asked.offset == "latest":
        return bound
    start = Offset(asked.offset if request.head.number is None else request.head.number)
    return (
        snapshot.log_start_offset if asked.on_truncated == "earliest" and start < snapshot.log_start_offset else start
    )


def _answer_now(
    parts: LocalParts, request: PlainRequest, topic: Topic, log: PartitionLog, start: Offset
) -> PlainAnswer | Coroutine[Any, Any, PlainAnswer] | None:
    asked, snapshot = request.target.parameters, log.snapshot
    max_bytes = min(asked.max_bytes, parts.settings.fetch_bytes_max)
    isolation = ISOLATIONS[asked.isolation]
    bound = snapshot.bound(isolation).offset
    if asked.end_offset is None and (asked.max_records is None or start + asked.max_records >= bound):
        data = snapshot.read_cached(start, max_bytes, isolation=isolation, content_bytes_max=CONTENT_BYTES_MAX)
        if data is not None and (request.target.sends_files or _is_in_memory(data)):
            _offer_compiled(parts, request, topic, max_bytes)
            parts.fetching.count_fetched("raw", data.size_bytes)
            return _plain_answer(snapshot, isolation, request.target.media_type, data)
    if not request.target.sends_files:
        return None
    wanted = asked.request(parts.settings.fetch_bytes_max)
    return _read_in_thread(parts, log, snapshot, request, wanted, start)


def _is_in_memory(data: FetchData) -> bool:
    """Return whether all bytes were read already, in one piece: an answer with them has no parts."""
    return not data.slices or (len(data.slices) == 1 and data.slices[0].content is not None)


def _offer_compiled(parts: LocalParts, request: PlainRequest, topic: Topic, max_bytes: int) -> None:
    """Let the next requests for this target be answered in C, if they ask for all from an offset on."""
    target, asked = request.target, request.target.parameters
    isolation = ISOLATIONS[asked.isolation]
    if (
        compiled_handlers is None
        or batch_search.compiled is None
        or target.compiled_topic_id == topic.topic_id
        or asked.end_offset is not None
        or asked.max_records is not None
    ):
        return
    # What is offered holds no log and no snapshot, whose files would stay open.
    target.compiled_topic_id = topic.topic_id
    compiled = compiled_handlers.CompiledFetch(
        parts,
        topic,
        target.partition,
        asked.offset,
        bool(asked.wait_ms),
        isolation is Isolation.LAST_STABLE,
        max_bytes,
        CONTENT_BYTES_MAX,
        target.sends_files,
        functools.partial(_head_of, isolation=isolation),
        _RANGES[target.media_type],
    )
    request.compiled_handler = compiled.answer


def _head_of(limits: _Limits, isolation: Isolation) -> bytes:
    """Return the part that the heads of answers have in common while the log has these limits."""
    return _STATUS + _LIMITS % (*limits, _NONE_ABORTED if isolation is Isolation.LAST_STABLE else b"")


def _plain_answer(snapshot: LogSnapshot, isolation: Isolation, media_type: str, data: FetchData) -> PlainAnswer:
    limits = (snapshot.log_start_offset, snapshot.high_watermark, snapshot.last_stable_offset)
    slices = data.slices
    content = b"" if not slices else slices[0].content if len(slices) == 1 else None
    head = _head_of(limits, isolation) + _RANGES[media_type] % (data.next_offset, data.size_bytes)
    if content is not None:
        return PlainAnswer(head, content)
    # Those with content are memory that is there already.
    return PlainAnswer(head, b"", [piece if piece.content is None else bytes(piece.content) for piece in slices])


def _answer_together(_: LocalParts, log: PartitionLog, start: Offset, max_bytes: int, form: Any) -> PlainAnswer | None:
    """Make the answer of a crowd, if all of it is in memory and small, or if there is nothing."""
    snapshot, isolation = log.snapshot, ISOLATIONS[form.isolation]
    if start < snapshot.log_start_offset:
        return None
    data = snapshot.read_cached(start, max_bytes, isolation=isolation, content_bytes_max=CONTENT_BYTES_MAX)
    answer = None if data is None else _plain_answer(snapshot, isolation, form.media_type, data)
    return None if answer is None or answer.parts else answer


async def _read_in_thread(
    parts: LocalParts,
    log: PartitionLog,
    snapshot: LogSnapshot,
    request: PlainRequest,
    wanted: Read,
    start: Offset,
) -> PlainAnswer:
    asked, media_type = request.target.parameters, request.target.media_type
    outcome = await parts.engine.read(functools.partial(read_offsets, snapshot, wanted, start))
    data = outcome.data
    size_bytes = data.size_bytes
    form = asked.form(media_type)
    headers = [
        *fetched_headers(log, outcome, data.next_offset, asked, form.tag, aborted_header(data), is_exact=True).items(),
        ("content-length", str(size_bytes)),
        ("content-type", media_type),
    ]
    parts.fetching.count_fetched("raw", size_bytes)
    return PlainAnswer(make_head(200, headers), b"", data.slices)
