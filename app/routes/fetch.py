"""Fetching records: from one partition, one record, one value."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app.access.needs import access_of, needs
from app.access.operations import Operation, ResourceKind, topic_resource
from app.answers import HeldResponse
from app.compression import plain_etag
from app.decoding import DecodingLimits
from app.dependencies import JSON, BrokerOf, LogOf, no_old_library, within_fetch_quota
from app.documented_problems import READ, problems
from app.fetch_headers import RECORD_FORM, aborted_header, fetched_headers
from app.fetch_range import ISOLATIONS, FetchRange, FetchRequest, read_records, read_slices
from app.fetching import FetchAnswer
from app.hot.declarations import hot, remember
from app.hot.fetch import fetch_batches
from app.hot.fetch_json import fetch_json
from app.http import request_context
from app.http.byte_budget import NO_HOLD, Hold
from app.http.methods import sends_body
from app.http.negotiation import accept
from app.http.parking import until
from app.http.problems import Problem
from app.http.zero_copy import SliceResponse
from app.message_sets import read_message_set
from app.paths import RECORDS
from app.quotas.throttling import Client
from app.record_stream import NDJSON
from app.record_texts import IN_LINES, IN_LIST
from app.routes.records import MESSAGE_SET, RECORD_BATCHES
from app.topic_ids import check_topic_id
from app.translate import FetchDocument, encode_document, encode_lines
from app.work_rooms import TEXT_BYTES_MIN
from schemas.base import LONG_MAX, FlagParameter, TimestampParameter, WholeNumber
from schemas.names import OffsetParameter, TopicIdParameter
from schemas.offsets import Isolation, OffsetOrPlaceParameter
from schemas.records import Encoding, FetchResult
from storage.log_snapshot import FileSlice, LogSnapshot
from storage.offsets import Offset
from storage.partition_log import PartitionLog

MAX_BYTES_DEFAULT = 1024 * 1024
DECODED_BYTES_MAX = 8 * 1024 * 1024
"""JSON holds its records in memory: so many stored bytes at a time, whatever ``max_bytes`` says."""
WAIT_MS_MAX = 60_000
RECORDS_MAX = 1_000_000

ABORTED_COUNT_MAX = 400
"""Aborted transactions that a header lists: 16 KiB."""

router = APIRouter(tags=["records"])


HOT_PARAMETERS = (
    "offset",
    "max_records",
    "max_bytes",
    "wait_ms",
    "min_bytes",
    "isolation",
    "on_truncated",
    "encoding",
)
"""What both handlers of plain requests know."""


class FetchParameters(BaseModel):
    """The query of a fetch."""

    model_config = ConfigDict(extra="forbid", strict=True)

    offset: Annotated[
        OffsetOrPlaceParameter | None,
        Field(description="Start at this offset, at the log start (earliest), or at the high watermark (latest)."),
    ] = None
    timestamp: Annotated[
        TimestampParameter | None, Field(description="Start at the first record at or after this time.")
    ] = None
    tail: Annotated[
        Annotated[int, WholeNumber()] | None, Field(description="Start this many visible records before the end.")
    ] = None
    end_offset: Annotated[OffsetParameter | None, Field(description="End before this offset.")] = None
    until: Annotated[
        TimestampParameter | None,
        Field(description="End before the first record at or after this time, from the start of the range on."),
    ] = None
    max_records: Annotated[
        Annotated[int, WholeNumber(1, RECORDS_MAX)] | None,
        Field(description="At most so many records; raw answers hold the whole batches they are in."),
    ] = None
    max_bytes: Annotated[
        int,
        WholeNumber(1, LONG_MAX),
        Field(
            description="At most this many bytes of stored batches, but always the first batch. The service has a "
            "limit of its own, and lower ones for JSON, which may end inside a batch: go on at Next-Offset."
        ),
    ] = MAX_BYTES_DEFAULT
    wait_ms: Annotated[
        int, WholeNumber(0, WAIT_MS_MAX), Field(description="How long to wait for min_bytes; then what there is.")
    ] = 0
    min_bytes: Annotated[
        int, WholeNumber(1, 2**31 - 1), Field(description="With wait_ms: wait for so many bytes of batches.")
    ] = 1
    isolation: Annotated[
        Isolation,
        Field(
            description="read_committed: up to the last stable offset, without records of aborted transactions; raw "
            "answers hold those too and name their transactions in Aborted-Transactions."
        ),
    ] = "read_uncommitted"
    on_truncated: Annotated[
        Literal["error", "earliest"],
        Field(description="When the start is below the log start: answer 410, or start at the log start."),
    ] = "error"
    encoding: Annotated[
        Encoding,
        Field(
            description="How keys and values are shown in JSON. utf8: as text in key and value, and what is no text as "
            "bytes in key_base64 and value_base64. base64: in those two alone. json: as the JSON that they are in key "
            "and value, and what is no JSON in the other two."
        ),
    ] = "utf8"
    topic_id: Annotated[
        TopicIdParameter | None,
        Field(
            description="The id of the topic that the offsets belong to: 409 when the topic of this name has another "
            "one, since it was deleted and made again. Absent: whatever topic has this name."
        ),
    ] = None
    magic: Annotated[
        Annotated[int, WholeNumber(0, 1)] | None,
        Field(description="For message sets only: the format of the messages. 1 when absent; 0 has no timestamps."),
    ] = None
    hard_limit: Annotated[
        FlagParameter,
        Field(
            description="For message sets only: max_bytes counts the bytes of the answer, which may end inside a "
            "message. First-Entry-Incomplete says that not one is whole; ask again with twice the max_bytes."
        ),
    ] = False

    def check_media_type(self, media_type: str) -> None:
        """Refuse parameters of message sets with any other media type.

        Raises:
            Problem: 422.
        """
        given = [name for name in ("magic", "hard_limit") if getattr(self, name) not in (None, False)]
        if given and media_type != MESSAGE_SET:
            faults = [
                {"pointer": name, "code": "invalid_value", "detail": f"is for {MESSAGE_SET} only"} for name in given
            ]
            raise Problem(422, "invalid_request", f"{given[0]} is for {MESSAGE_SET} only", errors=faults)

    def _ends_before(self, now_ms: int | None) -> bool:
        return self.until is not None and now_ms is not None and self.until <= now_ms

    def request(self, bytes_max: int, now_ms: int | None = None) -> FetchRequest:
        """What is asked for, within the service's limit.

        In a range with ``until`` before ``now_ms`` the records that are later than that are passed over.

        Raises:
            Problem: 422, no start or more than one.
        """
        starts = [name for name in ("offset", "timestamp", "tail") if getattr(self, name) is not None]
        if len(starts) != 1:
            detail = "give exactly one of offset, timestamp and tail"
            fault = {"pointer": starts[-1] if starts else "offset", "code": "invalid_value", "detail": detail}
            raise Problem(422, "invalid_request", detail, errors=[fault])
        return FetchRequest(
            offset=self.offset,
            timestamp=self.timestamp,
            tail=self.tail,
            end_offset=self.end_offset,
            until=self.until,
            latest_ms=now_ms if self._ends_before(now_ms) else None,
            max_records=self.max_records,
            max_bytes=min(self.max_bytes, bytes_max),
            wait_ms=self.wait_ms,
            min_bytes=self.min_bytes,
            restart_at_earliest=self.on_truncated == "earliest",
            aborted_count_max=ABORTED_COUNT_MAX,
            isolation=ISOLATIONS[self.isolation],
        )


_Prepare = Callable[[LogSnapshot, FetchRange], "_Prepared"]


class _Prepared(NamedTuple):
    """An answer but for its headers: slices of files, or content."""

    next_offset: Offset
    slices: tuple[FileSlice, ...] = ()
    content: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})

    @property
    def size_bytes(self) -> int:
        return len(self.content) + sum(piece.size_bytes for piece in self.slices)


def _header(description: str) -> dict[str, Any]:
    return {"description": description, "schema": {"type": "integer", "format": "int64", "minimum": 0}}


OFFSET_HEADERS = {
    "Log-Start-Offset": _header("First readable offset."),
    "High-Watermark": _header("End of what consumers may read."),
    "Last-Stable-Offset": _header("End of what read_committed consumers may read."),
    "Next-Offset": _header("Fetch here next."),
    "First-Entry-Incomplete": {
        "description": "With hard_limit: whether max_bytes cut the first message.",
        "schema": {"type": "boolean"},
    },
    "Aborted-Transactions": {
        "description": "Of raw answers with read_committed: producer id and first offset of each aborted transaction "
        "whose records may be among the batches. It reaches to its producer's next control batch.",
        "schema": {"type": "string"},
        "example": "4711/38, 4712/40",
    },
    "Cache-Control": {
        "description": "immutable for a minute: a closed range from a numbered offset that is durable. Then, and for "
        "other closed ranges (no-cache), ask again with the ETag. no-store: anything else.",
        "schema": {"type": "string"},
    },
    "ETag": {
        "description": "Of a closed range: names its records. Weak but for raw batches.",
        "schema": {"type": "string"},
    },
}
_IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "ETags of answers that are known: 304 for one of them.",
    "schema": {"type": "string"},
    "example": '"..."',
}
_FETCHED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Records, or none when there are none in time.",
        "headers": OFFSET_HEADERS,
        "content": {
            NDJSON: {
                "schema": {
                    "type": "string",
                    "description": "One record per line.",
                    "x-line-schema": {"$ref": "#/components/schemas/FetchedRecord"},
                }
            },
            RECORD_BATCHES: {
                "schema": {
                    "type": "string",
                    "format": "binary",
                    "description": "Whole record batches as stored; the first may begin below the offset asked for.",
                }
            },
            MESSAGE_SET: {
                "schema": {
                    "type": "string",
                    "format": "binary",
                    "description": "The records of the range as plain messages of magic 0 or 1, without headers.",
                }
            },
        },
    },
    304: {"description": "The range is as If-None-Match says.", "headers": OFFSET_HEADERS},
}


@router.get(
    RECORDS,
    operation_id="fetchRecords",
    summary="Fetch records",
    response_model=FetchResult,
    responses={**_FETCHED, **problems(*READ, "inconsistent_topic_id", "client_too_old")},
    openapi_extra={"parameters": [_IF_NONE_MATCH]},
    dependencies=[Depends(no_old_library), Depends(within_fetch_quota)],
)
@hot(
    fetch_batches,
    accepts=[RECORD_BATCHES.encode()],
    parameters=[*HOT_PARAMETERS, "end_offset", "topic_id"],
    varies=True,
    sends_files=True,
)
@hot(
    fetch_json,
    accepts=[b"", b"*/*", JSON.encode(), NDJSON.encode()],
    parameters=HOT_PARAMETERS,
    varies=True,
)
@needs(Operation.READ, ResourceKind.TOPIC)
async def fetch_records(
    request: Request, log: LogOf, broker: BrokerOf, parameters: Annotated[FetchParameters, Query()]
) -> Response:
    """Records from one place on, in the form Accept asks for; with wait_ms the request waits until there are some."""
    media_type = accept(request, [JSON, NDJSON, RECORD_BATCHES, MESSAGE_SET])
    parameters.check_media_type(media_type)
    check_topic_id(log.name.topic, log.topic_id, parameters.topic_id)
    quotas, client = broker.quotas, Client.of_request()
    wanted = parameters.request(quotas.fetch_bytes_max(client, broker.settings.fetch_bytes_max), broker.now_ms())
    remember(request, parameters)
    if media_type != RECORD_BATCHES:
        wanted = replace(wanted, max_bytes=min(wanted.max_bytes, DECODED_BYTES_MAX))
    partition = log.name.partition
    begun = await broker.fetching.begin(log, wanted)

    async def answer(request: Request) -> Response:
        # Rights may have changed while it waited.
        (await access_of(request)).require(Operation.READ, topic_resource(log.name.topic))
        prepare: _Prepare
        hold = NO_HOLD
        if media_type == RECORD_BATCHES:
            prepare = functools.partial(_prepare_slices, wanted)
            fetched = await broker.fetching.finish(begun, prepare)
        else:
            prepare = functools.partial(_prepare, wanted, media_type, parameters, partition)

            async def attempt(limits: DecodingLimits) -> FetchAnswer[_Prepared]:
                return await broker.fetching.finish(begun, functools.partial(prepare, limits=limits))

            fetched, hold = await broker.rooms.decode(attempt)
        with hold.released_on_error():
            size_bytes = fetched.read.size_bytes if sends_body(request.scope) else 0
            throttle_ms = quotas.charge_fetch(client, size_bytes)
            if throttle_ms:
                request_context.throttle(throttle_ms)
                fetched = _without_records(fetched, prepare)
            hold.settle(len(fetched.read.content), always_bytes=TEXT_BYTES_MIN)
            return _respond(request, log, parameters, media_type, fetched, broker.fetching.count_fetched, hold)

    return await answer(request) if begun.waiter is None else await until(request, begun.waiter, answer)


@router.head(
    RECORDS,
    operation_id="headRecords",
    summary="Look where records are",
    response_class=Response,
    responses={
        200: {"description": "The headers of fetchRecords.", "headers": OFFSET_HEADERS},
        304: _FETCHED[304],
        **problems(*READ, "inconsistent_topic_id", "client_too_old"),
    },
    openapi_extra={"parameters": [_IF_NONE_MATCH]},
    dependencies=[Depends(no_old_library), Depends(within_fetch_quota)],
)
@needs(Operation.READ, ResourceKind.TOPIC)
async def head_records(
    request: Request, log: LogOf, broker: BrokerOf, parameters: Annotated[FetchParameters, Query()]
) -> Response:
    """What fetchRecords would answer, without the records."""
    return await fetch_records(request, log, broker, parameters)


def _without_records(
    fetched: FetchAnswer[_Prepared], prepare: Callable[[LogSnapshot, FetchRange], _Prepared]
) -> FetchAnswer[_Prepared]:
    """The same answer but empty: the client is to come again. It tells nothing of the range, so nobody may keep it."""
    start = fetched.wanted.start
    return FetchAnswer(fetched.snapshot, FetchRange(start, None), prepare(fetched.snapshot, FetchRange(start, start)))


def _prepare_slices(request: FetchRequest, snapshot: LogSnapshot, wanted: FetchRange) -> _Prepared:
    data = read_slices(snapshot, wanted, request)
    return _Prepared(data.next_offset, slices=data.slices, headers=aborted_header(data))


def _prepare(
    request: FetchRequest,
    media_type: str,
    parameters: FetchParameters,
    partition: int,
    snapshot: LogSnapshot,
    wanted: FetchRange,
    *,
    limits: DecodingLimits | None = None,
) -> _Prepared:
    """The answer in a form that is held in memory until it is taken: the more is held, the smaller it is."""
    limits = limits or DecodingLimits()
    if not parameters.hard_limit:
        request = replace(request, max_bytes=min(request.max_bytes, limits.text_bytes))
    if media_type == MESSAGE_SET:
        return _prepare_message_set(request, parameters, snapshot, wanted, limits)
    is_lines = media_type == NDJSON
    records = read_records(
        snapshot,
        wanted,
        request,
        encoding=parameters.encoding,
        partition=partition,
        between=IN_LINES if is_lines else IN_LIST,
        limits=limits,
    )
    if is_lines:
        return _Prepared(records.next_offset, content=encode_lines(records.documents))
    document = FetchDocument(
        records.documents,
        records.next_offset,
        snapshot.log_start_offset,
        snapshot.high_watermark,
        snapshot.last_stable_offset,
        snapshot.log_end_offset,
    )
    return _Prepared(records.next_offset, content=encode_document(document))


def _prepare_message_set(
    request: FetchRequest,
    parameters: FetchParameters,
    snapshot: LogSnapshot,
    wanted: FetchRange,
    limits: DecodingLimits,
) -> _Prepared:
    magic = 1 if parameters.magic is None else parameters.magic
    read = read_message_set(snapshot, wanted, request, magic=magic, hard_limit=parameters.hard_limit, limits=limits)
    headers = {"First-Entry-Incomplete": str(read.is_first_incomplete).lower()} if parameters.hard_limit else {}
    return _Prepared(read.next_offset, content=read.content, headers=headers)


def _form(media_type: str, parameters: FetchParameters) -> str:
    """What an ETag names beside the records: whose they are, and how they are written."""
    if parameters.isolation == "read_committed":
        media_type = f"{media_type};committed"
    if media_type.startswith(RECORD_BATCHES):
        return media_type
    if media_type.startswith(MESSAGE_SET):
        return f"{media_type};{1 if parameters.magic is None else parameters.magic}"
    return f"{media_type};{parameters.encoding};{RECORD_FORM}"


def _respond(
    request: Request,
    log: PartitionLog,
    parameters: FetchParameters,
    media_type: str,
    answer: FetchAnswer[_Prepared],
    count: Any,
    hold: Hold,
) -> Response:
    prepared = answer.read
    headers = fetched_headers(
        log,
        answer.snapshot,
        answer.wanted,
        prepared.next_offset,
        parameters,
        _form(media_type, parameters),
        prepared.headers,
        is_exact=media_type == RECORD_BATCHES,
        # What a hard limit cuts depends on that limit, and is asked for again.
        may_be_kept=not parameters.hard_limit,
    )
    if (etag := headers.get("ETag")) is not None and is_match(request, etag):
        if media_type in (JSON, NDJSON):
            headers["Vary"] = "Accept, Accept-Encoding"
        hold.release()
        return Response(status_code=304, headers=headers)
    if media_type == RECORD_BATCHES:
        form, size_bytes = "raw", sum(piece.size_bytes for piece in prepared.slices)
        response: Response = SliceResponse(prepared.slices, headers, media_type)
    else:
        form, size_bytes = {NDJSON: "ndjson", MESSAGE_SET: "message_set"}.get(media_type, "json"), len(prepared.content)
        response = HeldResponse(prepared.content, headers, media_type, hold)
    count(form, size_bytes if sends_body(request.scope) else 0)
    return response


def is_match(request: Request, etag: str) -> bool:
    """Whether If-None-Match names ``etag``, in any encoding."""
    header = request.headers.get("if-none-match")
    if header is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in header.split(",")]
    return "*" in tags or any(plain_etag(tag) == etag.removeprefix("W/") for tag in tags)
