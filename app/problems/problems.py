"""Every error as problem+json (RFC 9457), the framework's own included, and the one table from engine errors to HTTP.

A client decides from ``retryable`` and ``applied`` alone; people read ``detail``. What went wrong inside the service
stays in its log, under a request id that the answer names.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import msgspec
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.methods import methods_of_path, template_below
from app.problems import request_context
from app.problems.fault_words import model_words
from rollway.records.errors import (
    BrokenBatchError,
    BrokenRecordError,
    DecompressedSizeError,
    RecordFormatError,
    UnknownCodecError,
    UnsupportedMagicError,
)
from storage import errors as storage_errors
from storage.errors import StorageError, let_go_of_frames

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:rollway:problem:"
ERRORS_MAX = 100

Applied = Literal["no", "unknown"]


class Problem(Exception):  # noqa: N818 - the name of the document it becomes
    """An error on its way to the client. Raise it anywhere below a route.

    ``errors`` are single faults, each a mapping with pointer, code and detail; ``headers`` go out beside the
    document; ``extra`` are members of this kind of problem, such as ``log_end_offset``.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        kafka_code: int = -1,
        retryable: bool = False,
        applied: Applied = "no",
        retry_after_ms: int | None = None,
        errors: Iterable[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.kafka_code = kafka_code
        self.retryable = retryable
        self.applied: Applied = applied
        self.retry_after_ms = retry_after_ms
        self.errors = [dict(error) for error in errors]
        self.headers = dict(headers or {})
        self.extra = extra

    def document(self, instance: str) -> dict[str, Any]:
        """The members of the document, for the request of ``instance``."""
        return {
            "type": TYPE_PREFIX + self.code,
            "title": title_of(self.code),
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
            "code": self.code,
            "kafka_code": self.kafka_code,
            "retryable": self.retryable,
            "applied": self.applied,
            "retry_after_ms": self.retry_after_ms,
            "errors": self.errors,
            **self.extra,
        }

    def body(self, instance: str) -> bytes:
        """The document as UTF-8; lone surrogates, which are not, become question marks."""
        document = self.document(instance)
        try:
            # Ten times as quick: an answer may have thousands of results.
            return msgspec.json.encode(document)
        except (UnicodeEncodeError, OverflowError):
            return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    def all_headers(self) -> dict[str, str]:
        """The headers of the answer, without its length."""
        headers = {"Content-Type": MEDIA_TYPE, "Cache-Control": "no-store", **self.headers}
        if self.retry_after_ms is not None:
            headers["Retry-After"] = str(-(-self.retry_after_ms // 1000))
        return headers

    def response(self, instance: str) -> Response:
        """The answer."""
        return Response(self.body(instance), self.status, self.all_headers())


def title_of(code: str) -> str:
    """A kind of problem for people: its code in words."""
    return code.replace("_", " ").capitalize()


def instance_of(scope: Scope) -> str:
    """The path that was asked, as a URI reference."""
    raw: bytes | None = scope.get("raw_path")
    return quote(raw if raw is not None else scope.get("path", ""), safe="/%:@!$&'()*+,;=~-._")


# The engine's errors and the codec's

_RETRY_AFTER_SHUTDOWN_MS = 1_000
_RETRY_AFTER_DISK_MS = 5_000
_RETRY_AFTER_REPLICAS_MS = 1_000
_RETRY_AFTER_TRANSACTION_MS = 20


class _Answer(NamedTuple):
    status: int
    retry_after_ms: int | None = None


_ANSWERS: dict[type[StorageError], _Answer] = {
    storage_errors.CorruptBatchError: _Answer(400),
    storage_errors.InvalidRecordError: _Answer(400),
    storage_errors.InvalidTimestampError: _Answer(400),
    storage_errors.UnsupportedCodecError: _Answer(400),
    storage_errors.MessageTooLargeError: _Answer(413),
    storage_errors.RecordListTooLargeError: _Answer(413),
    storage_errors.OffsetOutOfRangeError: _Answer(416),
    storage_errors.UnknownTopicOrPartitionError: _Answer(404),
    storage_errors.InvalidTopicError: _Answer(422),
    storage_errors.TopicExistsError: _Answer(409),
    storage_errors.InvalidConfigError: _Answer(422),
    storage_errors.PolicyViolationError: _Answer(403),
    storage_errors.OutOfOrderSequenceError: _Answer(409),
    storage_errors.ProducerFencedError: _Answer(409),
    storage_errors.InvalidTxnStateError: _Answer(409),
    storage_errors.InvalidPidMappingError: _Answer(409),
    storage_errors.InvalidTransactionTimeoutError: _Answer(422),
    storage_errors.CoordinatorFencedError: _Answer(409),
    storage_errors.UnsupportedFormatError: _Answer(400),
    storage_errors.FencedLeaderEpochError: _Answer(409),
    storage_errors.UnknownTopicIdError: _Answer(404),
    storage_errors.InconsistentTopicIdError: _Answer(409),
    storage_errors.ExpectedOffsetMismatchError: _Answer(412),
    storage_errors.UnexpectedAppendOffsetError: _Answer(409),
    storage_errors.NotEnoughReplicasError: _Answer(503, _RETRY_AFTER_REPLICAS_MS),
    storage_errors.NotEnoughReplicasAfterAppendError: _Answer(503, _RETRY_AFTER_REPLICAS_MS),
    storage_errors.ConcurrentTransactionsError: _Answer(503, _RETRY_AFTER_TRANSACTION_MS),
    storage_errors.UnknownLeaderEpochError: _Answer(503, _RETRY_AFTER_REPLICAS_MS),
    storage_errors.OffsetNotAvailableError: _Answer(503, _RETRY_AFTER_REPLICAS_MS),
    storage_errors.PartitionOfflineError: _Answer(503, _RETRY_AFTER_DISK_MS),
    storage_errors.DiskFullError: _Answer(507, _RETRY_AFTER_DISK_MS),
    storage_errors.TooManyOpenFilesError: _Answer(503, _RETRY_AFTER_DISK_MS),
    storage_errors.DiskFailedError: _Answer(503, _RETRY_AFTER_DISK_MS),
    storage_errors.DirectoryLockedError: _Answer(503, _RETRY_AFTER_DISK_MS),
    storage_errors.ShuttingDownError: _Answer(503, _RETRY_AFTER_SHUTDOWN_MS),
    storage_errors.PartitionFailedError: _Answer(503),
    storage_errors.ChangeOutcomeUnknownError: _Answer(503),
    storage_errors.CorruptionError: _Answer(500),
}

_FORMAT_ERRORS: dict[type[RecordFormatError], tuple[int, str, int]] = {
    BrokenBatchError: (400, "corrupt_batch", 2),
    BrokenRecordError: (400, "invalid_record", 87),
    UnknownCodecError: (400, "unsupported_codec", 76),
    UnsupportedMagicError: (400, "invalid_record", 87),
    DecompressedSizeError: (413, "message_too_large", 10),
}


def problem_for(error: Exception) -> Problem:
    """The answer to an error of the engine or of the record formats; any other becomes internal_error.

    A subclass without a line of its own is answered as its nearest ancestor that has one. Whatever it was, it loses its
    traceback, for it has become an answer: see ``let_go_of_frames``.
    """
    problem = _answer_to(error)
    let_go_of_frames(error)
    return problem


def _answer_to(error: Exception) -> Problem:
    match error:
        case Problem():
            return error
        case StorageError():
            return _storage_problem(error)
        case RecordFormatError():
            return _format_problem(error)
    return internal_error(error)


def _storage_problem(error: StorageError) -> Problem:
    answer = next((_ANSWERS[kind] for kind in type(error).__mro__ if kind in _ANSWERS), None)
    if answer is None or answer.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        return internal_error(error)
    status = answer.status
    detail = str(error)
    faults: list[dict[str, Any]] = []
    extra: dict[str, Any] = {}
    match error:
        case storage_errors.OffsetOutOfRangeError():
            status = 410 if error.offset < error.log_start_offset else 416
            extra = {"log_start_offset": error.log_start_offset, "log_end_offset": error.log_end_offset}
        case storage_errors.ExpectedOffsetMismatchError():
            extra = {"expected_offset": error.expected_offset, "log_end_offset": error.log_end_offset}
        case storage_errors.InvalidConfigError():
            faults = [
                {"pointer": json_pointer(("config", name)), "code": error.code, "detail": reason}
                for name, reason in error.problems[:ERRORS_MAX]
            ]
        case storage_errors.InvalidTopicError(field=str(field)) | storage_errors.TopicExistsError(field=str(field)):
            faults = [{"pointer": json_pointer((field,)), "code": error.code, "detail": detail}]
        case storage_errors.InvalidTransactionTimeoutError():
            faults = [{"pointer": "/transaction_timeout_ms", "code": error.code, "detail": detail}]
        case storage_errors.InvalidRecordError():
            faults = _record_faults(error.record_errors, error.code)
    return Problem(
        status,
        error.code,
        detail,
        kafka_code=error.kafka_code,
        retryable=error.retryable,
        applied=error.applied,
        retry_after_ms=answer.retry_after_ms,
        errors=faults,
        **extra,
    )


def _format_problem(error: RecordFormatError) -> Problem:
    status, code, kafka_code = next(
        (_FORMAT_ERRORS[kind] for kind in type(error).__mro__ if kind in _FORMAT_ERRORS), (400, "corrupt_batch", 2)
    )
    faults = _record_faults(error.record_errors, code) if isinstance(error, BrokenRecordError) else []
    return Problem(status, code, str(error), kafka_code=kafka_code, errors=faults)


def _record_faults(
    record_errors: Iterable[tuple[int, str]], code: str, pointer: Callable[[int], str] = "/records/{}".format
) -> list[dict[str, Any]]:
    listed = list(record_errors)[:ERRORS_MAX]
    return [{"pointer": pointer(index), "code": code, "detail": message} for index, message in listed]


def record_problem(
    error: StorageError, record_errors: Iterable[tuple[int, str]], pointer: Callable[[int], str]
) -> Problem:
    """The answer to records that the log refuses, each named by ``pointer`` of its place.

    Who sent records knows of no batch at a byte: what is said first is what is wrong with the first of them.
    """
    problem = problem_for(error)
    problem.errors = _record_faults(record_errors, error.code, pointer)
    if problem.errors:
        problem.detail = "{pointer}: {detail}".format_map(problem.errors[0])
    return problem


def internal_error(error: Exception) -> Problem:
    """The answer to an unforeseen error or to damage of stored bytes: logged whole, answered without its inside.

    Nobody knows how far the request came: what one that writes has asked for may be done.
    """
    request_id = request_context.request_id.get() or request_context.new_request_id()
    code, kafka_code, detail = "internal_error", -1, "the service failed"
    if isinstance(error, StorageError):
        code, kafka_code = error.code, error.kafka_code
        if isinstance(error, storage_errors.CorruptionError):
            detail = "stored bytes that this request needs are damaged"
            logger.error("request %s: %s", request_id, error)
        else:
            logger.error("request %s failed", request_id, exc_info=error)
    else:
        logger.error("request %s failed", request_id, exc_info=error)
    return Problem(
        500,
        code,
        f"{detail}; its log says more under {request_id}",
        kafka_code=kafka_code,
        applied="unknown" if request_context.may_write.get() else "no",
        request_id=request_id,
    )


# The framework's errors

_HTTP_CODES = {400: "malformed_request", 404: "not_found", 405: "method_not_allowed", 413: "request_too_large"}


def http_problem(error: HTTPException, scope: Scope) -> Problem:
    """The answer to what the framework itself refused."""
    try:
        phrase = HTTPStatus(error.status_code).phrase
    except ValueError:
        phrase = "Error"
    code = _HTTP_CODES.get(error.status_code) or re.sub(r"[^a-z0-9]+", "_", phrase.lower()).strip("_")
    detail = str(error.detail)
    if detail == phrase:
        detail = {
            404: _nothing_at(scope),
            405: _not_allowed(scope),
        }.get(error.status_code, detail)
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED and "app" in scope:
        headers["Allow"] = ", ".join(methods_of_path(scope))
    return Problem(error.status_code, code, detail, headers=headers)


def _nothing_at(scope: Scope) -> str:
    detail = f"there is nothing at {instance_of(scope)}"
    if scope["path"] == "/":
        return f"{detail}: the interface is below /v1, and /docs shows it"
    if b"%2f" in scope.get("raw_path", b"").lower():
        return f"{detail}: a name in a path cannot have a slash, %2F neither"
    return detail


def _not_allowed(scope: Scope) -> str:
    detail = f"{scope.get('method')} is not possible here"
    template = template_below(scope, "PUT") if scope.get("method") == "POST" and "app" in scope else None
    return f"{detail}; to create one: PUT {template}" if template else detail


def validation_problem(error: RequestValidationError) -> Problem:
    """The 422 for parameters and bodies that do not fit their model; 400 for a body that is no JSON."""
    found = error.errors()
    for fault in found:
        if fault["type"] == "json_invalid":
            return Problem(400, "malformed_body", "the body is no JSON")
    faults = [
        {
            "pointer": _pointer(fault["loc"]),
            "code": _fault_code(fault["type"]),
            "detail": model_words(fault),
        }
        for fault in found[:ERRORS_MAX]
    ]
    first = faults[0]
    return Problem(422, "invalid_request", f"{first['pointer'] or 'the body'}: {first['detail']}", errors=faults)


def _fault_code(kind: str) -> str:
    """One code for every wrong value, whichever way it is wrong."""
    return kind if kind in ("missing", "extra_forbidden") else "invalid_value"


def _pointer(location: Sequence[int | str]) -> str:
    """A JSON pointer for a place in the body; the plain name for a parameter."""
    place, *steps = location
    return json_pointer(steps) if place == "body" else ".".join(str(step) for step in steps)


def json_pointer(steps: Iterable[int | str]) -> str:
    """The JSON pointer (RFC 6901) that walks ``steps``."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


# Into the application


def install(app: FastAPI) -> None:
    """Answer every error of ``app`` with a problem, its 404, 405, 422 and 500 included."""

    async def answer(request: Request, error: Exception) -> Response:
        return problem_for(error).response(instance_of(request.scope))

    async def answer_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        let_go_of_frames(error)
        return http_problem(error, request.scope).response(instance_of(request.scope))

    async def answer_validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        let_go_of_frames(error)
        return validation_problem(error).response(instance_of(request.scope))

    # Exception: only what a middleware outside of ours lets through, since that answers all else.
    for kind in (Problem, StorageError, RecordFormatError, Exception):
        app.add_exception_handler(kind, answer)
    app.add_exception_handler(HTTPException, answer_http)
    app.add_exception_handler(RequestValidationError, answer_validation)
    app.add_middleware(ProblemMiddleware)


class ProblemMiddleware:
    """Answers what no handler caught. Pure ASGI; costs one call for a request that does not fail.

    The framework's own handler for unforeseen errors raises again after it answered, which would log them twice.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, watched_send)
        except ClientDisconnect:
            # Nobody is there to be answered.
            return
        except Exception as error:
            if started:
                # The head is out: only a cut connection can say that the rest is missing.
                raise
            await problem_for(error).response(instance_of(scope))(scope, receive, send)


# For the reference

_OTHER_KINDS: list[tuple[int, str, int, bool, Applied, str]] = [
    (
        400,
        "malformed_request",
        -1,
        False,
        "no",
        "The request is not HTTP as this service reads it, or its target no UTF-8.",
    ),
    (400, "incomplete_producer", -1, False, "no", "Of the headers of an idempotent producer, some are missing."),
    (400, "malformed_body", -1, False, "no", "The body is not what its media type or encoding says."),
    (400, "client_too_old", -1, False, "no", "The rollway library of the client is older than the JSON of records."),
    (401, "unauthenticated", -1, False, "no", "The request carries no credential, or one that was not accepted."),
    (403, "topic_authorization_failed", 29, False, "no", "The principal may not do this to the topic."),
    (403, "group_authorization_failed", 30, False, "no", "The principal may not do this to the group."),
    (403, "cluster_authorization_failed", 31, False, "no", "The principal may not do this to the cluster."),
    (403, "transactional_id_authorization_failed", 53, False, "no", "The principal may not use the transactional id."),
    (403, "cross_site_request", -1, False, "no", "A web page of another site asked for this through a browser."),
    (
        403,
        "tls_required",
        -1,
        False,
        "no",
        "A secret came over a connection without TLS; it was not looked at.",
    ),
    (404, "not_found", -1, False, "no", "There is no such route."),
    (404, "credential_not_found", -1, False, "no", "There is no such key or token, or the caller may not see it."),
    (404, "job_not_found", -1, False, "no", "There is no such load job, or it was forgotten."),
    (404, "record_not_found", -1, False, "no", "The log has no record at this offset."),
    (404, "transactional_id_not_found", 105, False, "no", "This transactional id was not initialised."),
    (
        404,
        "fetch_session_not_found",
        70,
        False,
        "no",
        "There is no such fetch session: begin another.",
    ),
    (405, "method_not_allowed", -1, False, "no", "The route exists, with the methods that Allow names."),
    (406, "not_acceptable", -1, False, "no", "None of the media types that Accept names is offered."),
    (408, "request_timeout", -1, True, "no", "The headers arrived too slowly."),
    (408, "request_timeout", -1, True, "unknown", "The body arrived too slowly."),
    (409, "invalid_fetch_session_epoch", 71, False, "no", "Not the session's next request: begin another session."),
    (409, "fetch_session_topic_id_error", 106, False, "no", "A session names all topics by id, or all by name."),
    (
        409,
        "invalid_job_state",
        -1,
        False,
        "no",
        "The load job has ended another way, or is ending so; state says how.",
    ),
    (409, "job_incomplete", -1, False, "no", "The log has not as many records of a winner as it says it wrote."),
    (409, "job_topics_differ", -1, False, "no", "This version of the application's data goes to other topics."),
    (409, "job_version_forgotten", -1, False, "no", "The version may have been loaded, too long ago to know."),
    (409, "transaction_aborted", -1, True, "no", "Another part of the atomic request was refused: none is committed."),
    (409, "transaction_not_hanging", -1, False, "no", "The coordinator knows the transaction: abort its id."),
    (413, "request_too_large", -1, False, "no", "The body is larger than the service takes."),
    (415, "unsupported_media_type", -1, False, "no", "The body's Content-Type is not taken here."),
    (415, "unsupported_content_encoding", -1, False, "no", "The body's Content-Encoding is neither gzip nor zstd."),
    (416, "range_not_satisfiable", -1, False, "no", "The Range lies outside the value."),
    (421, "misdirected_request", -1, False, "no", "The service does not answer to the name in Host: allowed_hosts."),
    (
        422,
        "record_too_large",
        10,
        False,
        "no",
        "The record is larger in this form than an answer may be. Read it raw, or its value, or go on at next_offset.",
    ),
    (422, "invalid_request", -1, False, "no", "Well-formed, but not valid; errors lists the faults."),
    (422, "idempotency_key_reused", -1, False, "no", "The Idempotency-Key came with other records before."),
    (422, "too_many_partitions", -1, False, "no", "The transaction would write to more partitions than allowed."),
    (422, "quota_limit_reached", 44, False, "no", "There are as many quotas as the service keeps."),
    (422, "invalid_required_acks", 21, False, "no", "acks is none of 0, 1 and all, or 0 in a transaction."),
    (429, "too_many_failures", -1, True, "no", "Too many secrets from this address were wrong."),
    (429, "throttled", 89, True, "no", "A quota was broken; what comes before its time is refused."),
    (431, "request_header_fields_too_large", -1, False, "no", "The headers are too many or too large."),
    (500, "internal_error", -1, False, "no", "The service failed; its log says more under the request_id."),
    (500, "internal_error", -1, False, "unknown", "The same of a request that writes: it may be carried out."),
    (500, "stored_data_corrupt", 2, False, "unknown", "The same of a request that writes: it may be carried out."),
    (503, "shutting_down", -1, True, "unknown", "The request was not done when the stop had waited long enough."),
    (503, "starting", -1, True, "no", "The logs are being recovered."),
    (503, "overloaded", -1, True, "no", "Too much waits already: connections, fetches, or appends."),
    (505, "http_version_not_supported", -1, False, "no", "The request is neither HTTP/1.1 nor HTTP/1.0."),
    (504, "request_timed_out", 7, True, "unknown", "Not acknowledged in time; the append goes on."),
]


def documented_problems() -> list[tuple[int, str, int, bool, str, str]]:
    """Every kind of problem for the reference: status, code, kafka_code, retryable, applied, when."""
    rows: list[tuple[int, str, int, bool, str, str]] = list(_OTHER_KINDS)
    for kind, answer in _ANSWERS.items():
        when = (kind.__doc__ or "").partition("\n")[0]
        if kind is storage_errors.OffsetOutOfRangeError:
            rows.append((410, kind.code, kind.kafka_code, False, "no", "The offset is below the log start."))
            when = "The offset is above the log end."
        rows.append((answer.status, kind.code, kind.kafka_code, kind.retryable, kind.applied, when))
    return sorted(rows)
