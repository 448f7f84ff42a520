"""Fetches of one partition in JSON and NDJSON, answered on the connection: as ``fetchRecords`` does.

It reads small ranges that are in memory. The route reads, decodes and writes all others in a thread.

Thread: the event loop.
"""

from __future__ import annotations

from typing import Any

from app.fast_path.fetch_crowds import wait_in_crowd
from app.fast_path.local_parts import LocalParts
from app.fast_path.request import PlainRequest
from app.fetch.fetched_records import records_of
from app.http.connection.fast_path_interface import CrowdWait, PlainAnswer, make_head
from app.http.connection.response_cycle import TLS_PIECE_BYTES
from app.media_types import JSON, NDJSON
from app.problems.problem import Problem
from app.record_json.decoding import DecodingLimits, NeedsRoomError
from app.record_json.record_documents import FetchDocument, encode_document, encode_lines
from app.record_json.record_texts import IN_LINES, IN_LIST, RecordText
from app.record_json.translate import Encoding
from log_model.errors import StorageError
from log_model.offsets import Offset
from log_model.reads import FetchData, Isolation
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import PartitionLog

STORED_BYTES_MAX = 64 * 1024
"""At most this many bytes of batches become JSON on the loop; more do so in a thread."""

TEXT_BYTES_MAX = 1024 * 1024
"""Larger answers are made in a thread, and counted there."""

TOGETHER_BYTES_MAX = 16 * 1024
"""Larger answers to a crowd are made one by one in threads, and counted there."""

FEW_RECORDS = 32
FEW_BYTES = 8 * 1024
"""Few records are looked for in this many bytes first: finding where 64 KiB of small batches end takes longer."""

# Both with what the batches decompress to, of which no more is made here; measured: about a millisecond of the loop.
_LIMITS = DecodingLimits(TEXT_BYTES_MAX, TEXT_BYTES_MAX, TEXT_BYTES_MAX, TEXT_BYTES_MAX, is_large=False)

# Under TLS the transport takes whatever it is given and counts none of it.
_TLS_LIMITS = DecodingLimits(TLS_PIECE_BYTES, TLS_PIECE_BYTES, TLS_PIECE_BYTES, TLS_PIECE_BYTES, is_large=False)

_IDENTITY = (b"", b"identity")
_STATUS = make_head(200)
_HEAD = (
    b"log-start-offset: %d\r\nhigh-watermark: %d\r\nlast-stable-offset: %d\r\nnext-offset: %d\r\n"
    b"cache-control: no-store\r\nvary: Accept, Accept-Encoding\r\ncontent-length: %d\r\ncontent-type: %b\r\n"
)


def fetch_json(parts: LocalParts, request: PlainRequest) -> PlainAnswer | CrowdWait | None:
    """Answer, or leave the request to the route: errors, quotas, closed ranges, times, some waits."""
    asked = request.target.parameters
    if not _is_simple(parts, request):
        return None
    try:
        log = parts.engine.manager.find_open(request.target.topic, request.target.partition)
    except StorageError:
        return None
    if log is None:
        return None
    snapshot = log.snapshot
    bound = snapshot.high_watermark
    start = _start_of(snapshot, asked.offset if request.head.number is None else request.head.number)
    if not snapshot.log_start_offset <= start <= bound:
        return None
    if asked.wait_ms and start >= bound:
        return wait_in_crowd(parts, request, log, start, _answer_together)
    if asked.wait_ms and asked.min_bytes > 1:
        return None
    max_bytes = min(asked.max_bytes, parts.settings.fetch_bytes_max)
    is_lines = request.target.media_type == NDJSON
    answer = _answer(parts, log, start, max_bytes, asked.max_records, asked.encoding, is_lines=is_lines)
    if answer is not None:
        parts.fetching.count_fetched("ndjson" if is_lines else "json", len(answer.body))
    return answer


def _answer_together(
    parts: LocalParts, log: PartitionLog, start: Offset, max_bytes: int, form: Any
) -> PlainAnswer | None:
    """Make the answer of a crowd, if it is small: clients that do not take it at once hold little memory."""
    snapshot = log.snapshot
    if not snapshot.log_start_offset <= start <= snapshot.high_watermark or not _has_room(parts):
        return None
    answer = _answer(parts, log, start, max_bytes, None, form.encoding, is_lines=form.media_type == NDJSON)
    return None if answer is None or len(answer.body) > TOGETHER_BYTES_MAX else answer


def _answer(
    parts: LocalParts,
    log: PartitionLog,
    start: Offset,
    max_bytes: int,
    max_records: int | None,
    encoding: Encoding,
    *,
    is_lines: bool,
) -> PlainAnswer | None:
    """Make the answer from ``start``, which is inside the log, if what it needs is in memory and small."""
    snapshot = log.snapshot
    end = None if max_records is None else Offset(start + max_records)
    is_few = max_records is not None and max_records <= FEW_RECORDS
    try:
        data = _read(snapshot, start, end, max_bytes, FEW_BYTES) if is_few else None
        data = data or _read(snapshot, start, end, max_bytes, STORED_BYTES_MAX)
        if data is None:
            return None
        found = records_of(
            data,
            start,
            end,
            encoding=encoding,
            partition=log.name.partition,
            between=IN_LINES if is_lines else IN_LIST,
            limits=_LIMITS if parts.settings.tls_certificate is None else _TLS_LIMITS,
        )
    except (StorageError, NeedsRoomError, Problem):
        return None
    if found.is_cut:
        return None
    next_offset = found.next_offset if end is None else min(found.next_offset, end)
    return _written(snapshot, found.documents, next_offset, is_lines=is_lines)


def _read(snapshot: LogSnapshot, start: Offset, end: Offset | None, max_bytes: int, looked_at: int) -> FetchData | None:
    """Read as the route would, if ``looked_at`` bytes of batches are enough and memory has them."""
    data = snapshot.read_cached(
        start,
        min(max_bytes, looked_at),
        isolation=Isolation.HIGH_WATERMARK,
        content_bytes_max=STORED_BYTES_MAX,
    )
    if data is None or any(piece.content is None for piece in data.slices):
        return None
    is_cut = max_bytes > looked_at and data.next_offset < snapshot.high_watermark
    return None if is_cut and (end is None or data.next_offset < end) else data


def _is_simple(parts: LocalParts, request: PlainRequest) -> bool:
    """Return whether this handler knows all that is asked for, and there is memory for an answer."""
    asked = request.target.parameters
    return (
        asked.offset is not None
        and asked.until is None
        and asked.end_offset is None
        and asked.isolation == "read_uncommitted"
        and request.target.accept_encoding in _IDENTITY
        and _has_room(parts)
    )


def _has_room(parts: LocalParts) -> bool:
    """Return whether there is memory for an answer."""
    return parts.answer_budget.fair_share() >= STORED_BYTES_MAX


def _start_of(snapshot: LogSnapshot, place: int | str) -> Offset:
    if place == "earliest":
        return snapshot.log_start_offset
    return snapshot.high_watermark if place == "latest" else Offset(int(place))


def _written(snapshot: LogSnapshot, documents: list[RecordText], next_offset: Offset, *, is_lines: bool) -> PlainAnswer:
    ends = (
        snapshot.log_start_offset,
        snapshot.high_watermark,
        snapshot.last_stable_offset,
    )
    if is_lines:
        content = encode_lines(documents)
    else:
        content = encode_document(FetchDocument(documents, next_offset, *ends, snapshot.log_end_offset))
    media_type = NDJSON if is_lines else JSON
    return PlainAnswer(_STATUS + _HEAD % (*ends, next_offset, len(content), media_type.encode()), content)
