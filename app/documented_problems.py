"""The errors of each route for the OpenAPI document: which statuses, which codes, an example of each."""

from __future__ import annotations

from typing import Any

from app.http.problems import MEDIA_TYPE, TYPE_PREFIX, documented_problems, title_of
from schemas.errors import problem_example

_KINDS = {(status, code): entry for entry in documented_problems() for status, code in [entry[:2]]}

ALWAYS = (
    "internal_error",
    "invalid_request",
    "starting",
    "shutting_down",
    "malformed_request",
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
WRITE = ("overloaded", "partition_offline", "append_outcome_unknown", "disk_full")
PRODUCE = (
    *BODY,
    *NAMED,
    *WRITE,
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
PRODUCER = (*BODY, *WRITE, "concurrent_transactions", "stored_data_corrupt")
TRANSACTION = (
    *PRODUCER,
    "invalid_producer_id_mapping",
    "producer_fenced",
    "invalid_txn_state",
    "request_timed_out",
)
CONTROL = (*BODY, *NAMED, *WRITE, "invalid_config")
READ = (*NAMED, "not_acceptable", "offset_out_of_range", "stored_data_corrupt", "overloaded")


def problems(*codes: str) -> dict[int | str, dict[str, Any]]:
    """FastAPI's ``responses`` for these errors and those that every route has."""
    wanted = dict.fromkeys((*codes, *ALWAYS))
    responses: dict[int | str, dict[str, Any]] = {}
    for (status, code), (_, _, kafka_code, retryable, applied, when) in _KINDS.items():
        if code not in wanted:
            continue
        content = {"schema": {"$ref": "#/components/schemas/Problem"}, "examples": {}}
        response = responses.setdefault(status, {"description": "", "content": {MEDIA_TYPE: content}})
        response["description"] = "; ".join(filter(None, (response["description"], title_of(code))))
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
        response["content"][MEDIA_TYPE]["examples"][code] = {"summary": when, "value": example}
        if status == 503:
            response["headers"] = {
                "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 0}}
            }
    return responses
