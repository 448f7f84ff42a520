"""Fetches of one partition: the models of their queries, and their responses in all media types.

A route declares the media types of its path and picks one of them; ``fetch_partition`` does the rest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app.access.needs import access_of
from app.access.operations import Operation, topic_resource
from app.engine.partitions import Partition
from app.engine.reading import PendingRead, Read, ReadOutcome
from app.engine.topic_ids import check_topic_id
from app.fast_path.declarations import cache_query
from app.fetch.fetch_headers import RECORD_FORM, aborted_header, fetched_headers
from app.fetch.fetched_records import ISOLATIONS, read_records
from app.fetch.fetching import Fetching
from app.fetch.message_sets import read_message_set
from app.http.bodies.byte_budget import NO_HOLD, Hold
from app.http.compression import plain_etag
from app.http.connection.parking import Answer, until
from app.http.methods import sends_body
from app.http.transfer.zero_copy import SliceResponse
from app.media_types import JSON, MESSAGE_SET, NDJSON, OCTETS, RECORD_BATCHES
from app.openapi.document import UNDOCUMENTED
from app.problems import request_context
from app.problems.problem import Fault, invalid, invalid_value
from app.quotas.throttling import Client
from app.record_json.decoding import DecodingLimits
from app.record_json.record_documents import FetchDocument, encode_document, encode_lines
from app.record_json.record_texts import IN_LINES, IN_LIST
from app.record_json.work_rooms import TEXT_BYTES_MIN
from app.routes.answers import HeldResponse
from log_model.offsets import Offset
from log_model.reads import FileSlice
from schemas.base import LONG_MAX, FlagParameter, TimestampParameter, WholeNumber
from schemas.names import OffsetParameter, TopicIdParameter
from schemas.offsets import Isolation, OffsetOrPlaceParameter
from schemas.records import Encoding

MAX_BYTES_DEFAULT = 1024 * 1024
DECODED_BYTES_MAX = 8 * 1024 * 1024
"""Limit on the stored bytes that one JSON response reads, which holds its records in memory; caps ``max_bytes``."""
WAIT_MS_MAX = 60_000
RECORDS_MAX = 1_000_000

ABORTED_COUNT_MAX = 400
"""Limit on the aborted transactions that a header lists: 16 KiB."""
_FAST_PATH_PARAMETERS = ("offset", "max_records", "max_bytes", "wait_ms", "min_bytes", "isolation", "on_truncated")
FAST_PATH_TEXT_PARAMETERS = (*_FAST_PATH_PARAMETERS, "encoding")
"""The parameters that the fast path knows for JSON and lines."""
FAST_PATH_BATCHES_PARAMETERS = (*_FAST_PATH_PARAMETERS, "end_offset", "topic_id")
"""The parameters that the fast path knows for record batches."""


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The format of a response and of the records in it. ``magic`` and ``has_hard_limit`` are for message sets."""

    media_type: str
    isolation: Isolation
    encoding: Encoding = "utf8"
    magic: int = 1
    has_hard_limit: bool = False

    @property
    def is_raw(self) -> bool:
        """Whether the response has the stored batches byte for byte, without decoding them."""
        return self.media_type in (RECORD_BATCHES, OCTETS)

    @property
    def name(self) -> str:
        """The name under which metrics count the bytes of these responses."""
        if self.is_raw:
            return "raw"
        return {NDJSON: "ndjson", MESSAGE_SET: "message_set"}.get(self.media_type, "json")

    def bytes_max(self, limit: int) -> int:
        """Return the limit on the stored bytes of a response, of which other bounds are ``limit``."""
        return limit if self.is_raw else min(limit, DECODED_BYTES_MAX)

    @property
    def tag(self) -> str:
        """The part of an ETag that names the isolation and the format of the records."""
        media_type = f"{self.media_type};committed" if self.isolation == "read_committed" else self.media_type
        if self.is_raw:
            return media_type
        if self.media_type == MESSAGE_SET:
            return f"{media_type};{self.magic}"
        return f"{media_type};{self.encoding};{RECORD_FORM}"


class FetchParameters(BaseModel):
    """The query of a fetch of record batches; the queries of other media types have more parameters."""

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
        Field(description="End before the first record of the range that is at or after this time."),
    ] = None
    max_records: Annotated[
        Annotated[int, WholeNumber(1, RECORDS_MAX)] | None,
        Field(description="Limit on the records. Record batches come whole: all batches with one of these records."),
    ] = None
    max_bytes: Annotated[
        int,
        WholeNumber(1, LONG_MAX),
        Field(
            description="Limit on the bytes of stored batches; the first batch always comes. The service has its own "
            "limit, and lower ones for JSON. A JSON response may end inside a batch; continue at Next-Offset."
        ),
    ] = MAX_BYTES_DEFAULT
    wait_ms: Annotated[
        int,
        WholeNumber(0, WAIT_MS_MAX),
        Field(description="Milliseconds to wait for min_bytes; then the available records are returned."),
    ] = 0
    min_bytes: Annotated[
        int,
        WholeNumber(1, 2**31 - 1),
        Field(description="With wait_ms: wait until this many bytes of batches are available."),
    ] = 1
    isolation: Annotated[
        Isolation,
        Field(
            description="read_committed: up to the last stable offset, without records of aborted transactions. Record "
            "batches still contain these records; Aborted-Transactions lists their transactions."
        ),
    ] = "read_uncommitted"
    on_truncated: Annotated[
        Literal["error", "earliest"],
        Field(description="If the start is below the log start: error returns 410, earliest starts at the log start."),
    ] = "error"
    topic_id: Annotated[
        TopicIdParameter | None,
        Field(
            description="Id of the topic that the offsets belong to: 409 if the topic of this name has a different id "
            "because it was deleted and created again. Absent: any topic of this name."
        ),
    ] = None

    def form(self, media_type: str) -> AnswerForm:
        """Return the format of a response of this media type.

        Raises:
            Problem: 422 if the query has a parameter of another media type.
        """
        return AnswerForm(media_type, self.isolation)

    def _ends_before(self, now_ms: int | None) -> bool:
        return self.until is not None and now_ms is not None and self.until <= now_ms

    def request(self, bytes_max: int, now_ms: int | None = None) -> Read:
        """Return the fetch that the query describes, limited to ``bytes_max``.

        If ``until`` is before ``now_ms``, a range skips the records with timestamps after ``now_ms``.

        Raises:
            Problem: 422 if there is no start, or more than one.
        """
        starts = [name for name in ("offset", "timestamp", "tail") if getattr(self, name) is not None]
        if len(starts) != 1:
            detail = "give exactly one of offset, timestamp and tail"
            raise invalid_value(starts[-1] if starts else "offset", detail)
        return Read(
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


class TextFetchParameters(FetchParameters):
    """The query of a fetch of JSON or of lines of JSON."""

    encoding: Annotated[
        Encoding,
        Field(
            description="Form of keys and values in JSON. utf8: text in key and value, and bytes that are not UTF-8 in "
            "key_base64 and value_base64. base64: always in key_base64 and value_base64. json: JSON in key and value, "
            "and bytes that are not JSON in key_base64 and value_base64."
        ),
    ] = "utf8"

    def form(self, media_type: str) -> AnswerForm:
        """Do as the base class."""
        return AnswerForm(media_type, self.isolation, self.encoding)


class AnyFetchParameters(TextFetchParameters):
    """The query of a fetch with a negotiated media type. The parameters for message sets are not in the document."""

    magic: Annotated[
        Annotated[int, WholeNumber(0, 1)] | None,
        Field(
            description="For message sets only: the format of the messages. Absent: 1; format 0 has no timestamps.",
            json_schema_extra={UNDOCUMENTED: True},
        ),
    ] = None
    hard_limit: Annotated[
        FlagParameter,
        Field(
            description="For message sets only: max_bytes limits the bytes of the response, which may end inside a "
            "message. First-Entry-Incomplete: true means that no message is whole; retry with twice the max_bytes.",
            json_schema_extra={UNDOCUMENTED: True},
        ),
    ] = False

    def form(self, media_type: str) -> AnswerForm:
        """Do as the base class."""
        given = [name for name in ("magic", "hard_limit") if getattr(self, name) not in (None, False)]
        if given and media_type != MESSAGE_SET:
            detail = f"is for {MESSAGE_SET} only"
            raise invalid([Fault(name, "invalid_value", detail) for name in given], f"{given[0]} {detail}")
        magic = 1 if self.magic is None else self.magic
        return AnswerForm(media_type, self.isolation, self.encoding, magic, self.hard_limit)


class _Prepared(NamedTuple):
    """A response without its common headers: slices of files, or content."""

    outcome: ReadOutcome
    next_offset: Offset
    slices: tuple[FileSlice, ...] = ()
    content: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})

    @property
    def size_bytes(self) -> int:
        return len(self.content) + sum(piece.size_bytes for piece in self.slices)


async def fetch_partition(
    request: Request, log: Partition, fetching: Fetching, parameters: FetchParameters, media_type: str
) -> Response:
    """Fetch the records that the query selects, and return them as ``media_type``.

    Raises:
        Problem: the query or the topic's id is wrong, or the client lost its rights while it waited.
        StorageError: the engine refused the read, such as one of an offset outside the log.
    """
    form = parameters.form(media_type)
    check_topic_id(log.name.topic, log.topic_id, parameters.topic_id)
    quotas, client = fetching.quotas, Client.of_request()
    bytes_max = quotas.fetch_bytes_max(client, fetching.settings.fetch_bytes_max)
    wanted = parameters.request(form.bytes_max(bytes_max), fetching.engine.now_ms())
    cache_query(request, parameters)
    pending = await fetching.engine.reads.begin(log, wanted)
    answer = answer_of(log, fetching, parameters, form, wanted, pending)
    return await answer(request) if pending.waiting is None else await until(request, pending.waiting, answer)


def answer_of(
    log: Partition,
    fetching: Fetching,
    parameters: FetchParameters,
    form: AnswerForm,
    wanted: Read,
    pending: PendingRead,
) -> Answer:
    """Return the function that answers with the outcome of ``pending``, a read as ``wanted``, when its wait is over.

    It may raise the errors of ``fetch_partition``.
    """
    partition = log.name.partition

    async def answer(request: Request) -> Response:
        # Rights may have changed while it waited.
        (await access_of(request)).require(Operation.READ, topic_resource(log.name.topic))
        prepare: Callable[[ReadOutcome], _Prepared]
        hold = NO_HOLD
        if form.is_raw:
            prepare = _prepare_slices
            prepared = await pending.outcome(prepare)
        else:
            prepare = functools.partial(_prepare, wanted, form, partition)

            async def attempt(limits: DecodingLimits) -> _Prepared:
                max_bytes = None if form.has_hard_limit else limits.text_bytes
                return await pending.outcome(functools.partial(prepare, limits=limits), max_bytes=max_bytes)

            prepared, hold = await fetching.rooms.decode(attempt)
        with hold.released_on_error():
            quotas, client = fetching.quotas, Client.of_request()
            size_bytes = prepared.size_bytes if sends_body(request.scope) else 0
            throttle_ms = quotas.charge_fetch(client, size_bytes)
            if throttle_ms:
                request_context.throttle(throttle_ms)
                # Without records it does not describe the range, so caches must not store it.
                prepared = prepare(prepared.outcome.emptied())
            hold.settle(len(prepared.content), always_bytes=TEXT_BYTES_MIN)
            return _respond(request, log, parameters, form, prepared, fetching.count_fetched, hold)

    return answer


def _prepare_slices(outcome: ReadOutcome) -> _Prepared:
    data = outcome.data
    return _Prepared(outcome, data.next_offset, slices=data.slices, headers=aborted_header(data))


def _prepare(
    wanted: Read, form: AnswerForm, partition: int, outcome: ReadOutcome, *, limits: DecodingLimits | None = None
) -> _Prepared:
    """Build a response that stays in memory until the client has received it.

    The more bytes such responses hold in total, the smaller is ``limits``, and with it this response.
    """
    limits = limits or DecodingLimits()
    if form.media_type == MESSAGE_SET:
        return _prepare_message_set(wanted, form, outcome, limits)
    is_lines = form.media_type == NDJSON
    records = read_records(
        outcome,
        encoding=form.encoding,
        partition=partition,
        between=IN_LINES if is_lines else IN_LIST,
        limits=limits,
    )
    if is_lines:
        return _Prepared(outcome, records.next_offset, content=encode_lines(records.documents))
    ends = outcome.limits
    document = FetchDocument(
        records.documents,
        records.next_offset,
        ends.log_start_offset,
        ends.high_watermark,
        ends.last_stable_offset,
        ends.log_end_offset,
    )
    return _Prepared(outcome, records.next_offset, content=encode_document(document))


def _prepare_message_set(wanted: Read, form: AnswerForm, outcome: ReadOutcome, limits: DecodingLimits) -> _Prepared:
    hard_limit = wanted.max_bytes if form.has_hard_limit else None
    read = read_message_set(outcome, magic=form.magic, hard_limit=hard_limit, limits=limits)
    headers = {} if hard_limit is None else {"First-Entry-Incomplete": str(read.is_first_incomplete).lower()}
    return _Prepared(outcome, read.next_offset, content=read.content, headers=headers)


def _respond(
    request: Request,
    log: Partition,
    parameters: FetchParameters,
    form: AnswerForm,
    prepared: _Prepared,
    count: Callable[[str, int], None],
    hold: Hold,
) -> Response:
    headers = fetched_headers(
        log,
        prepared.outcome,
        prepared.next_offset,
        parameters,
        form.tag,
        prepared.headers,
        is_exact=form.is_raw,
        # With a hard limit the content depends on the limit, and the client fetches a cut message again.
        may_be_kept=not form.has_hard_limit,
    )
    if (etag := headers.get("ETag")) is not None and is_match(request, etag):
        if form.media_type in (JSON, NDJSON):
            headers["Vary"] = "Accept, Accept-Encoding"
        hold.release()
        return Response(status_code=304, headers=headers)
    if form.is_raw:
        size_bytes = sum(piece.size_bytes for piece in prepared.slices)
        response: Response = SliceResponse(prepared.slices, headers, form.media_type)
    else:
        size_bytes = len(prepared.content)
        response = HeldResponse(prepared.content, headers, form.media_type, hold)
    count(form.name, size_bytes if sends_body(request.scope) else 0)
    return response


def is_match(request: Request, etag: str) -> bool:
    """Return whether If-None-Match contains ``etag``, for any content encoding."""
    header = request.headers.get("if-none-match")
    if header is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in header.split(",")]
    return "*" in tags or any(plain_etag(tag) == etag.removeprefix("W/") for tag in tags)
