"""The table of problem kinds, one constant for each: the only place of their codes, statuses and numbers.

Raise one with ``Problem(kinds.JOB_NOT_FOUND, detail)``. The OpenAPI document, docs/reference/errors.md and the client
library's exceptions are made from the table: run ``make openapi`` after a change. CONTRIBUTING.md has the recipe.
"""

from __future__ import annotations

from app.problems.kind import At, Kind, kinds_in, name_member, offset_member, text_member, time_member

_RETRY_AFTER = ("Retry-After",)
_LIMITS = ("Log-Start-Offset", "High-Watermark", "Last-Stable-Offset")
_LOG_START = offset_member("First readable offset.", 40)
_LOG_END = offset_member("Offset of the next record.", 60)

# HTTP
MALFORMED_REQUEST = Kind(
    "malformed_request", 400, "The request is not HTTP as this service reads it, or its target no UTF-8.", at=At.ALL
)
MALFORMED_BODY = Kind("malformed_body", 400, "The body is not what its media type or encoding says.", at=At.BODY)
CROSS_SITE_REQUEST = Kind(
    "cross_site_request", 403, "A web page of another site asked for this through a browser.", at=At.ALL
)
NOT_FOUND = Kind("not_found", 404, "There is no such route.")
METHOD_NOT_ALLOWED = Kind("method_not_allowed", 405, "The route exists, with the methods that Allow names.")
NOT_ACCEPTABLE = Kind(
    "not_acceptable", 406, "None of the media types that Accept names is offered.", at=At.READ | At.MULTI_FETCH
)
REQUEST_TIMEOUT = Kind("request_timeout", 408, "The headers arrived too slowly.", retryable=True, at=At.ALL)
REQUEST_TIMEOUT_OF_BODY = Kind(
    "request_timeout", 408, "The body arrived too slowly.", retryable=True, applied="unknown", at=At.ALL
)
REQUEST_TOO_LARGE = Kind("request_too_large", 413, "The body is larger than the service takes.", at=At.BODY)
UNSUPPORTED_CONTENT_ENCODING = Kind(
    "unsupported_content_encoding", 415, "The body's Content-Encoding is neither gzip nor zstd.", at=At.BODY
)
UNSUPPORTED_MEDIA_TYPE = Kind(
    "unsupported_media_type", 415, "The body's Content-Type is not taken here.", at=At.BODY, headers=("Accept",)
)
MISDIRECTED_REQUEST = Kind(
    "misdirected_request", 421, "The service does not answer to the name in Host: allowed_hosts.", at=At.ALL
)
INVALID_REQUEST = Kind("invalid_request", 422, "Well-formed, but not valid; errors lists the faults.", at=At.ALL)
REQUEST_HEADER_FIELDS_TOO_LARGE = Kind("request_header_fields_too_large", 431, "The headers are too many or too large.")
HTTP_VERSION_NOT_SUPPORTED = Kind("http_version_not_supported", 505, "The request is neither HTTP/1.1 nor HTTP/1.0.")

# The service
INTERNAL_ERROR = Kind("internal_error", 500, "The service failed; its log says more under the request_id.", at=At.ALL)
INTERNAL_ERROR_OF_WRITE = Kind(
    "internal_error", 500, "The service failed in a write, which may be carried out.", applied="unknown", at=At.ALL
)
STARTING = Kind(
    "starting", 503, "The logs are being recovered.", retry_after_ms=1_000, at=At.ALL, component="StartingProblem"
)
SHUTTING_DOWN = Kind("shutting_down", 503, "The service is stopping.", retryable=True, at=At.ALL, headers=_RETRY_AFTER)
SHUTTING_DOWN_UNFINISHED = Kind(
    "shutting_down",
    503,
    "The request was not done when the stop had waited long enough.",
    retryable=True,
    applied="unknown",
    at=At.ALL,
)
OVERLOADED = Kind(
    "overloaded",
    503,
    "Too much waits already: connections, fetches, or appends.",
    retryable=True,
    at=At.WRITE | At.READ | At.MULTI_FETCH,
    headers=_RETRY_AFTER,
)
UNSUPPORTED_BY_ENGINE = Kind(
    "unsupported_by_engine",
    501,
    "The engine of this service cannot do this; `GET /v1/engine` shows what it can do.",
    members={
        "engine": name_member("Name of the engine.", "kafka"),
        "capability": name_member("Name of the missing capability.", "segments"),
    },
    at=At.PRODUCE,
    component="UnsupportedByEngineProblem",
    client_error="UnsupportedByEngineError",
)
DIRECTORY_LOCKED = Kind("directory_locked", 503, "Another process holds the data directory.", retry_after_ms=5_000)
TOO_MANY_OPEN_FILES = Kind(
    "too_many_open_files",
    503,
    "The process, or the machine, may open no more files. Open files keep working; the disk is not at fault.",
    kafka_code=56,
    retry_after_ms=5_000,
    at=At.WRITE | At.CHANGE | At.READ,
)

# Identity, rights and quotas
UNAUTHENTICATED = Kind(
    "unauthenticated",
    401,
    "The request carries no credential, or one that was not accepted.",
    at=At.AUTHENTICATED,
    headers=("WWW-Authenticate",),
)
TLS_REQUIRED = Kind(
    "tls_required", 403, "A secret came over a connection without TLS; it was not looked at.", at=At.AUTHENTICATED
)
TOPIC_AUTHORIZATION_FAILED = Kind(
    "topic_authorization_failed", 403, "The principal may not do this to the topic.", kafka_code=29
)
GROUP_AUTHORIZATION_FAILED = Kind(
    "group_authorization_failed", 403, "The principal may not do this to the group.", kafka_code=30
)
CLUSTER_AUTHORIZATION_FAILED = Kind(
    "cluster_authorization_failed", 403, "The principal may not do this to the cluster.", kafka_code=31
)
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = Kind(
    "transactional_id_authorization_failed", 403, "The principal may not use the transactional id.", kafka_code=53
)
CREDENTIAL_NOT_FOUND = Kind("credential_not_found", 404, "There is no such key or token, or the caller may not see it.")
TOO_MANY_FAILURES = Kind(
    "too_many_failures",
    429,
    "Too many secrets from this address were wrong.",
    retryable=True,
    at=At.AUTHENTICATED,
    headers=_RETRY_AFTER,
)
QUOTA_LIMIT_REACHED = Kind("quota_limit_reached", 422, "There are as many quotas as the service keeps.", kafka_code=44)
THROTTLED = Kind(
    "throttled",
    429,
    "A quota was broken; what comes before its time is refused.",
    kafka_code=89,
    retryable=True,
    at=At.ALL,
    headers=_RETRY_AFTER,
)

# Topics
UNKNOWN_TOPIC_OR_PARTITION = Kind(
    "unknown_topic_or_partition",
    404,
    "No such topic, or no such partition of it.",
    kafka_code=3,
    at=At.NAMED,
    client_error="TopicNotFoundError",
)
UNKNOWN_TOPIC_ID = Kind(
    "unknown_topic_id", 404, "No topic has this id.", kafka_code=100, client_error="TopicNotFoundError"
)
INCONSISTENT_TOPIC_ID = Kind(
    "inconsistent_topic_id",
    409,
    "The topic of this name has another id.",
    kafka_code=103,
    client_error="TopicReplacedError",
)
TOPIC_EXISTS = Kind(
    "topic_exists",
    409,
    "A topic of that name exists with other partitions or another configuration.",
    kafka_code=36,
    client_error="TopicExistsError",
)
INVALID_TOPIC = Kind(
    "invalid_topic",
    422,
    "The topic's name or partition count is not allowed, or the topic is internal.",
    kafka_code=17,
    at=At.NAMED,
)
INVALID_CONFIG = Kind(
    "invalid_config",
    422,
    "A topic configuration has unknown names or impossible values; all of them are listed.",
    kafka_code=40,
    at=At.CONTROL,
)
POLICY_VIOLATION = Kind(
    "policy_violation",
    403,
    "The topic's policy forbids it, such as deleting records of a topic that is only compacted.",
    kafka_code=44,
    at=At.CONTROL,
)

# Logs and their disk
PARTITION_OFFLINE = Kind(
    "partition_offline",
    503,
    "The partition is offline after a disk failure, or read-only because stored bytes are damaged.",
    kafka_code=56,
    retry_after_ms=5_000,
    at=At.WRITE,
)
DISK_FULL = Kind(
    "disk_full",
    507,
    "The disk is full or read-only. Reads go on; appends resume when space returns.",
    kafka_code=56,
    retry_after_ms=5_000,
    at=At.WRITE | At.CHANGE,
)
DISK_FAILED = Kind(
    "disk_failed",
    503,
    "The disk refused a change with an error, such as EIO. The change was not made; stored data is unchanged.",
    kafka_code=56,
    retry_after_ms=5_000,
    at=At.CHANGE | At.PRODUCER | At.CONTROL,
)
APPEND_OUTCOME_UNKNOWN = Kind(
    "append_outcome_unknown",
    503,
    "The disk failed during an append: any part of it may be written, and the partition goes offline.",
    kafka_code=56,
    retryable=True,
    applied="unknown",
    at=At.WRITE,
)
CHANGE_OUTCOME_UNKNOWN = Kind(
    "change_outcome_unknown",
    503,
    "The disk failed after a change, or refused to undo it: the next start may find it or not.",
    kafka_code=56,
    retryable=True,
    applied="unknown",
    at=At.CHANGE | At.CONTROL,
)
STORED_DATA_CORRUPT = Kind(
    "stored_data_corrupt",
    500,
    "Stored bytes are damaged. The service's log names the file and the position.",
    kafka_code=2,
    at=At.PRODUCER | At.READ,
)
STORED_DATA_CORRUPT_OF_WRITE = Kind(
    "stored_data_corrupt",
    500,
    "A request that writes met damaged stored bytes, and may be carried out.",
    kafka_code=2,
    applied="unknown",
    at=At.PRODUCER | At.READ,
)
NOT_ENOUGH_REPLICAS = Kind(
    "not_enough_replicas",
    503,
    "Fewer copies are in sync than `min.insync.replicas` requires.",
    kafka_code=19,
    retry_after_ms=1_000,
)
NOT_ENOUGH_REPLICAS_AFTER_APPEND = Kind(
    "not_enough_replicas_after_append",
    503,
    "The records are written, but fewer copies than `min.insync.replicas` have them now.",
    kafka_code=20,
    applied="unknown",
    retry_after_ms=1_000,
)
FENCED_LEADER_EPOCH = Kind(
    "fenced_leader_epoch",
    409,
    "The client's leader epoch is over; the client must fetch the current one first.",
    kafka_code=74,
    at=At.EPOCH,
)
UNKNOWN_LEADER_EPOCH = Kind(
    "unknown_leader_epoch",
    503,
    "The client's leader epoch is newer than this leader's.",
    kafka_code=75,
    retry_after_ms=1_000,
    at=At.EPOCH,
)
OFFSET_NOT_AVAILABLE = Kind(
    "offset_not_available",
    503,
    "The high watermark has not reached the current leader epoch yet.",
    kafka_code=78,
    retry_after_ms=1_000,
)

# Producing
CLIENT_TOO_OLD = Kind(
    "client_too_old",
    400,
    "The rollway library of the client is older than the JSON of records.",
    at=At.PRODUCE | At.MULTI_FETCH,
)
INVALID_RECORD = Kind(
    "invalid_record",
    400,
    "A batch breaks a rule of the log; the records are named when single ones are at fault.",
    kafka_code=87,
    at=At.PRODUCE,
)
CORRUPT_BATCH = Kind(
    "corrupt_batch",
    400,
    "The bytes are not whole record batches, or a CRC does not match.",
    kafka_code=2,
    at=At.PRODUCE,
)
INVALID_TIMESTAMP = Kind(
    "invalid_timestamp", 400, "A timestamp is outside the range that the topic accepts.", kafka_code=32, at=At.PRODUCE
)
UNSUPPORTED_CODEC = Kind(
    "unsupported_codec", 400, "The batch names a compression codec that does not exist.", kafka_code=76, at=At.PRODUCE
)
UNSUPPORTED_MESSAGE_FORMAT = Kind(
    "unsupported_message_format",
    400,
    "The message format lacks a feature that the request needs.",
    kafka_code=43,
    at=At.PRODUCE,
)
MESSAGE_TOO_LARGE = Kind(
    "message_too_large", 413, "One batch is larger than the topic's `max.message.bytes`.", kafka_code=10, at=At.PRODUCE
)
RECORD_LIST_TOO_LARGE = Kind(
    "record_list_too_large",
    413,
    "The batches of one request do not fit into one segment (`segment.bytes`).",
    kafka_code=18,
    at=At.PRODUCE,
)
INVALID_REQUIRED_ACKS = Kind(
    "invalid_required_acks", 422, "acks is none of 0, 1 and all, or 0 in a transaction.", kafka_code=21, at=At.PRODUCE
)
EXPECTED_OFFSET_MISMATCH = Kind(
    "expected_offset_mismatch",
    412,
    "The log end offset is not the one that the append requires.",
    at=At.PRODUCE,
    members={"expected_offset": offset_member("expected_offset of the request.", 59), "log_end_offset": _LOG_END},
    component="ExpectedOffsetProblem",
)
UNEXPECTED_APPEND_OFFSET = Kind(
    "unexpected_append_offset", 409, "Batches copied from a leader do not continue at the end of this log."
)
INCOMPLETE_PRODUCER = Kind(
    "incomplete_producer", 400, "Of the headers of an idempotent producer, some are missing.", at=At.PRODUCE
)
IDEMPOTENCY_KEY_REUSED = Kind(
    "idempotency_key_reused", 422, "The Idempotency-Key came with other records before.", at=At.PRODUCE
)
OUT_OF_ORDER_SEQUENCE = Kind(
    "out_of_order_sequence", 409, "A producer skipped or repeated a sequence number.", kafka_code=45, at=At.PRODUCE
)
REQUEST_TIMED_OUT = Kind(
    "request_timed_out",
    504,
    "Not acknowledged in time; the append goes on.",
    kafka_code=7,
    retryable=True,
    applied="unknown",
    at=At.PRODUCE | At.TRANSACTION,
)

# Transactions
PRODUCER_FENCED = Kind(
    "producer_fenced",
    409,
    "The producer's epoch is not the current one: a newer instance exists, or its transaction has ended.",
    kafka_code=47,
    at=At.PRODUCE | At.TRANSACTION,
    client_error="ProducerFencedError",
)
INVALID_TXN_STATE = Kind(
    "invalid_txn_state",
    409,
    "The transaction is not in a state that allows this.",
    kafka_code=48,
    at=At.PRODUCE | At.TRANSACTION,
    client_error="ProducerFencedError",
)
INVALID_PRODUCER_ID_MAPPING = Kind(
    "invalid_producer_id_mapping",
    409,
    "The transactional id belongs to another producer id, or to none.",
    kafka_code=49,
    at=At.PRODUCE | At.TRANSACTION,
    client_error="ProducerFencedError",
)
INVALID_TRANSACTION_TIMEOUT = Kind(
    "invalid_transaction_timeout", 422, "The transaction timeout is above the service's limit.", kafka_code=50
)
CONCURRENT_TRANSACTIONS = Kind(
    "concurrent_transactions",
    503,
    "The producer's last transaction is still ending; the same request works afterwards.",
    kafka_code=51,
    retry_after_ms=20,
    at=At.PRODUCE | At.PRODUCER,
)
TRANSACTION_COORDINATOR_FENCED = Kind(
    "transaction_coordinator_fenced", 409, "A newer transaction coordinator has written a marker.", kafka_code=52
)
TRANSACTIONAL_ID_NOT_FOUND = Kind(
    "transactional_id_not_found", 404, "This transactional id was not initialised.", kafka_code=105
)
TRANSACTION_ABORTED = Kind(
    "transaction_aborted", 409, "Another part of the atomic request was refused: none is committed.", retryable=True
)
TRANSACTION_NOT_HANGING = Kind("transaction_not_hanging", 409, "The coordinator knows the transaction: abort its id.")
TOO_MANY_PARTITIONS = Kind(
    "too_many_partitions", 422, "The transaction would write to more partitions than allowed.", at=At.PRODUCE
)

# Fetching
OFFSET_OUT_OF_RANGE_BELOW = Kind(
    "offset_out_of_range",
    410,
    "The offset is below the log start.",
    kafka_code=1,
    at=At.READ,
    headers=_LIMITS,
    members={
        "log_start_offset": _LOG_START,
        "log_end_offset": _LOG_END,
        "log_start_moved_ms": time_member(
            "Time when the log start last moved, in milliseconds since the epoch; null: not since the process started.",
            1714564800000,
        ),
        "log_start_moved_by": text_member("Cause of the move: retention or delete-records.", "retention"),
    },
    component="LogStartProblem",
    client_error="OffsetOutOfRangeError",
)
OFFSET_OUT_OF_RANGE_ABOVE = Kind(
    "offset_out_of_range",
    416,
    "The offset is above the log end.",
    kafka_code=1,
    at=At.READ,
    headers=_LIMITS,
    members={"log_start_offset": _LOG_START, "log_end_offset": _LOG_END},
    component="LogEndProblem",
    client_error="OffsetOutOfRangeError",
)
RECORD_NOT_FOUND = Kind("record_not_found", 404, "The log has no record at this offset.")
RECORD_TOO_LARGE = Kind(
    "record_too_large",
    422,
    "The record is larger in this form than an answer may be. Read it raw, or its value, or go on at next_offset.",
    kafka_code=10,
    at=At.READ,
    members={
        "record_offset": offset_member("Offset of the record.", 41),
        "next_offset": offset_member("Offset from which to continue without the record.", 42),
    },
    component="RecordTooLargeProblem",
)
RANGE_NOT_SATISFIABLE = Kind("range_not_satisfiable", 416, "The Range lies outside the value.")
FETCH_SESSION_NOT_FOUND = Kind(
    "fetch_session_not_found", 404, "There is no such fetch session: begin another.", kafka_code=70, at=At.MULTI_FETCH
)
INVALID_FETCH_SESSION_EPOCH = Kind(
    "invalid_fetch_session_epoch",
    409,
    "Not the session's next request: begin another session.",
    kafka_code=71,
    at=At.MULTI_FETCH,
)
FETCH_SESSION_TOPIC_ID_ERROR = Kind(
    "fetch_session_topic_id_error",
    409,
    "A session names all topics by id, or all by name.",
    kafka_code=106,
    at=At.MULTI_FETCH,
)

# Load jobs
JOB_NOT_FOUND = Kind(
    "job_not_found", 404, "There is no such load job, or it was forgotten.", client_error="JobNotFoundError"
)
INVALID_JOB_STATE = Kind(
    "invalid_job_state",
    409,
    "The load job has ended another way, or is ending so; state says how.",
    client_error="JobConflictError",
)
JOB_INCOMPLETE = Kind(
    "job_incomplete",
    409,
    "The log has not as many records of a winner as it says it wrote.",
    client_error="JobConflictError",
)
JOB_TOPICS_DIFFER = Kind(
    "job_topics_differ",
    409,
    "This version of the application's data goes to other topics.",
    client_error="JobConflictError",
)
JOB_VERSION_FORGOTTEN = Kind(
    "job_version_forgotten",
    409,
    "The version may have been loaded, too long ago to know.",
    client_error="JobConflictError",
)

ALL = tuple(kinds_in(globals()))
"""Every kind, by status and code."""
