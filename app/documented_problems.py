"""The errors of each route for the OpenAPI document: which statuses, which codes, an example of each."""

from __future__ import annotations

from typing import Any, NamedTuple

from schemas.errors import problem_example

PROBLEM_MEDIA_TYPE = "application/problem+json"


class DocumentedProblem(NamedTuple):
    """One kind of error as the document shows it."""

    status: int
    title: str
    detail: str
    kafka_code: int = -1
    retryable: bool = False
    applied: str = "no"


PROBLEMS: dict[str, DocumentedProblem] = {
    "malformed_body": DocumentedProblem(400, "Malformed body", "JSON is malformed: invalid character (byte 12)"),
    "corrupt_batch": DocumentedProblem(400, "Corrupt batch", "the batch at byte 0 has a wrong CRC", 2),
    "invalid_record": DocumentedProblem(400, "Invalid record", "a record has no key", 87),
    "invalid_timestamp": DocumentedProblem(400, "Invalid timestamp", "a timestamp lies too far ahead", 32),
    "unsupported_codec": DocumentedProblem(400, "Unsupported codec", "there is no codec 5", 76),
    "unknown_topic_or_partition": DocumentedProblem(
        404, "Unknown topic or partition", "there is no topic flights", 3
    ),
    "record_not_found": DocumentedProblem(404, "Record not found", "the log has no record at offset 42"),
    "not_acceptable": DocumentedProblem(406, "Not acceptable", "none of the media types asked for is offered"),
    "policy_violation": DocumentedProblem(403, "Policy violation", "the topic is compacted, not deleted from", 44),
    "topic_exists": DocumentedProblem(409, "Topic exists", "topic flights has 6 partitions", 36),
    "out_of_order_sequence": DocumentedProblem(409, "Out of order sequence", "expected sequence 7, got 9", 45),
    "producer_fenced": DocumentedProblem(409, "Producer fenced", "a newer producer has this id", 47),
    "invalid_txn_state": DocumentedProblem(409, "Invalid transaction state", "no transaction is open", 48),
    "offset_below_log_start": DocumentedProblem(
        410, "Offset out of range", "offset 0 is below the log start, 7", 1
    ),
    "offset_above_end": DocumentedProblem(416, "Offset out of range", "offset 99 is above the end, 42", 1),
    "range_not_satisfiable": DocumentedProblem(416, "Range not satisfiable", "the value has 12 bytes"),
    "expected_offset_mismatch": DocumentedProblem(
        412, "Expected offset mismatch", "expected log end offset 7, but it is 9"
    ),
    "message_too_large": DocumentedProblem(413, "Message too large", "the batch is larger than max.message.bytes", 10),
    "record_list_too_large": DocumentedProblem(413, "Record list too large", "the batches do not fit a segment", 18),
    "request_too_large": DocumentedProblem(413, "Request too large", "the body has more than 33554432 bytes"),
    "unsupported_media_type": DocumentedProblem(415, "Unsupported media type", "send application/json"),
    "invalid_request": DocumentedProblem(422, "Invalid request", "/records/3/value: this field is required"),
    "invalid_topic": DocumentedProblem(422, "Invalid topic", 'a topic name cannot be "." or ".."', 17),
    "invalid_config": DocumentedProblem(422, "Invalid configuration", "retention.ms: must be a whole number", 40),
    "invalid_required_acks": DocumentedProblem(422, "Invalid required acks", "acks must be 0, 1 or all", 21),
    "internal_error": DocumentedProblem(500, "Internal error", "the service failed; its log says more"),
    "stored_data_corrupt": DocumentedProblem(500, "Stored data corrupt", "stored bytes are damaged", 2),
    "starting": DocumentedProblem(503, "Starting", "the logs are being recovered", retryable=True),
    "shutting_down": DocumentedProblem(503, "Shutting down", "the service is stopping", retryable=True),
    "overloaded": DocumentedProblem(503, "Overloaded", "too much waits to be written", retryable=True),
    "partition_offline": DocumentedProblem(503, "Partition offline", "a disk failed", 56, retryable=True),
    "append_outcome_unknown": DocumentedProblem(
        503, "Append outcome unknown", "the disk failed under the append", 56, retryable=True, applied="unknown"
    ),
    "request_timed_out": DocumentedProblem(
        504, "Request timed out", "not acknowledged in time", 7, retryable=True, applied="unknown"
    ),
    "disk_full": DocumentedProblem(507, "Disk full", "the disk is full", 56, retryable=True),
}
_SHOWN_CODES = {"offset_below_log_start": "offset_out_of_range", "offset_above_end": "offset_out_of_range"}

ALWAYS = ("internal_error", "starting", "shutting_down")
BODY = ("malformed_body", "request_too_large", "unsupported_media_type", "invalid_request")
PRODUCE = (
    *BODY,
    "corrupt_batch",
    "invalid_record",
    "invalid_timestamp",
    "unsupported_codec",
    "unknown_topic_or_partition",
    "out_of_order_sequence",
    "producer_fenced",
    "invalid_txn_state",
    "expected_offset_mismatch",
    "message_too_large",
    "record_list_too_large",
    "invalid_topic",
    "invalid_required_acks",
    "not_acceptable",
    "overloaded",
    "partition_offline",
    "append_outcome_unknown",
    "request_timed_out",
    "disk_full",
)
NAMED = ("unknown_topic_or_partition", "invalid_topic", "invalid_request")
CONTROL = (*BODY, *NAMED, "invalid_config", "overloaded", "partition_offline", "append_outcome_unknown", "disk_full")
READ = (
    *NAMED,
    "not_acceptable",
    "offset_below_log_start",
    "offset_above_end",
    "stored_data_corrupt",
    "overloaded",
)


def problems(*codes: str) -> dict[int | str, dict[str, Any]]:
    """FastAPI's ``responses`` for these errors and those that every route has."""
    responses: dict[int | str, dict[str, Any]] = {}
    for code in dict.fromkeys((*codes, *ALWAYS)):
        problem = PROBLEMS[code]
        response = responses.setdefault(
            problem.status,
            {
                "description": "",
                "content": {
                    PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, "examples": {}}
                },
            },
        )
        titles = [response["description"], problem.title] if response["description"] else [problem.title]
        response["description"] = "; ".join(dict.fromkeys(titles))
        response["content"][PROBLEM_MEDIA_TYPE]["examples"][code] = {"value": _example(code, problem)}
        if problem.status == 503:
            response["headers"] = {
                "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 0}}
            }
    return responses


def _example(code: str, problem: DocumentedProblem) -> dict[str, Any]:
    return problem_example(
        problem.status,
        _SHOWN_CODES.get(code, code),
        problem.title,
        problem.detail,
        kafka_code=problem.kafka_code,
        retryable=problem.retryable,
        applied=problem.applied,
    )
