"""The errors of each route for the OpenAPI document: statuses, codes, and an example of each code."""

from __future__ import annotations

from typing import Any

from app.problems.kinds import documented_problems
from app.problems.problem import MEDIA_TYPE, TYPE_PREFIX, title_of
from schemas.base import Schema
from schemas.errors import problem_example

_KINDS = {(status, code): entry for entry in documented_problems() for status, code in [entry[:2]]}

ALWAYS = (
    "internal_error",
    "invalid_request",
    "starting",
    "shutting_down",
    "malformed_request",
    "misdirected_request",
    "cross_site_request",
    "request_timeout",
    "throttled",
)
BODY = (
    "malformed_body",
    "request_too_large",
    "unsupported_media_type",
    "unsupported_content_encoding",
    "invalid_request",
)
NAMED = ("unknown_topic_or_partition", "invalid_topic", "invalid_request")
EPOCH = ("fenced_leader_epoch", "unknown_leader_epoch")
WRITE = ("overloaded", "partition_offline", "append_outcome_unknown", "disk_full", "too_many_open_files")
CHANGE = ("disk_full", "too_many_open_files", "disk_failed", "change_outcome_unknown")
PRODUCE = (
    *BODY,
    *NAMED,
    *WRITE,
    "client_too_old",
    "corrupt_batch",
    "invalid_record",
    "invalid_timestamp",
    "unsupported_codec",
    "unsupported_message_format",
    "out_of_order_sequence",
    "producer_fenced",
    "invalid_txn_state",
    "invalid_producer_id_mapping",
    "concurrent_transactions",
    "too_many_partitions",
    "expected_offset_mismatch",
    "message_too_large",
    "record_list_too_large",
    "invalid_required_acks",
    "incomplete_producer",
    "idempotency_key_reused",
    "request_timed_out",
)
PRODUCER = (*BODY, *WRITE, "disk_failed", "concurrent_transactions", "stored_data_corrupt")
TRANSACTION = (
    *PRODUCER,
    "invalid_producer_id_mapping",
    "producer_fenced",
    "invalid_txn_state",
    "request_timed_out",
)
CONTROL = (*BODY, *NAMED, *WRITE, "disk_failed", "change_outcome_unknown", "invalid_config", "policy_violation")
READ = (*NAMED, "not_acceptable", "offset_out_of_range", "stored_data_corrupt", "overloaded", "record_too_large")
MULTI_FETCH = (
    *BODY,
    "client_too_old",
    "not_acceptable",
    "overloaded",
    "fetch_session_not_found",
    "invalid_fetch_session_epoch",
    "fetch_session_topic_id_error",
)


def _offset(description: str) -> dict[str, Any]:
    return {"type": "integer", "format": "int64", "minimum": 0, "description": description}


_LOG_START = _offset("First readable offset.")
_LOG_END = _offset("Offset of the next record.")
# Members that only some problems have; schemas.errors.Problem allows any member.
_OWN_MEMBERS: dict[tuple[int, str], dict[str, dict[str, Any]]] = {
    (410, "offset_out_of_range"): {
        "log_start_offset": _LOG_START,
        "log_end_offset": _LOG_END,
        "log_start_moved_ms": {
            "type": ["integer", "null"],
            "format": "int64",
            "description": "Time when the log start last moved, in milliseconds since the epoch; null: not since the "
            "process started.",
        },
        "log_start_moved_by": {
            "type": ["string", "null"],
            "description": "Cause of the move: retention or delete-records.",
        },
    },
    (416, "offset_out_of_range"): {"log_start_offset": _LOG_START, "log_end_offset": _LOG_END},
    (422, "record_too_large"): {
        "record_offset": _offset("Offset of the record."),
        "next_offset": _offset("Offset from which to continue without the record."),
    },
    (412, "expected_offset_mismatch"): {
        "expected_offset": _offset("expected_offset of the request."),
        "log_end_offset": _LOG_END,
    },
}
_MEMBER_EXAMPLES = {
    "log_start_offset": 40,
    "log_end_offset": 60,
    "log_start_moved_ms": 1714564800000,
    "log_start_moved_by": "retention",
    "expected_offset": 59,
    "record_offset": 41,
    "next_offset": 42,
}


def problems(*codes: str, progress: type[Schema] | None = None) -> dict[int | str, dict[str, Any]]:
    """Return FastAPI's ``responses`` for these errors and for the errors that every route has.

    ``progress`` documents the member ``progress`` of the 503 that a starting service returns.
    """
    wanted = dict.fromkeys((*codes, *ALWAYS))
    responses: dict[int | str, dict[str, Any]] = {}
    for (status, code), (_, _, kafka_code, retryable, applied, when) in _KINDS.items():
        if code not in wanted:
            continue
        content: dict[str, Any] = {"schema": {"$ref": "#/components/schemas/Problem"}, "examples": {}}
        response = responses.setdefault(status, {"description": "", "content": {MEDIA_TYPE: content}})
        titles = dict.fromkeys(filter(None, (*response["description"].split("; "), title_of(code))))
        response["description"] = "; ".join(titles)
        example = problem_example(
            TYPE_PREFIX + code,
            status,
            code,
            title_of(code),
            when,
            kafka_code=kafka_code,
            retryable=retryable,
            applied=applied,
        )
        members = _OWN_MEMBERS.get((status, code), {})
        example |= {name: _MEMBER_EXAMPLES[name] for name in members}
        if progress is not None and code == "starting":
            document = progress.model_json_schema()
            members = {"progress": {"anyOf": [document, {"type": "null"}]}}
            example["progress"] = document["examples"][0]
        if members:
            shared: dict[str, Any] = {"$ref": "#/components/schemas/Problem"}
            response["content"][MEDIA_TYPE]["schema"] = {"allOf": [shared, {"type": "object", "properties": members}]}
        response["content"][MEDIA_TYPE]["examples"][code] = {"summary": when, "value": example}
    return responses
