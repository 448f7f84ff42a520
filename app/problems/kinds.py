"""Every kind of problem, for the reference."""

from __future__ import annotations

from app.problems.engine import _ANSWERS
from app.problems.problem import Applied
from storage import errors as storage_errors

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
