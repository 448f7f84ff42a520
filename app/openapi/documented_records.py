"""The parts that the OpenAPI document has for requests and responses with records, for all routes."""

from __future__ import annotations

from typing import Any

from app.media_types import JSON, NDJSON, OCTETS
from app.produce.idempotence import REPLAYED_HEADER

_SCHEMAS = "#/components/schemas/"
Responses = dict[int | str, dict[str, Any]]

# Producing

REPLAYED = {
    REPLAYED_HEADER: {
        "description": "true: an earlier request with this Idempotency-Key had done everything. Absent otherwise.",
        "schema": {"type": "string", "enum": ["true"]},
    }
}
APPENDED = {"description": "The records were appended.", "headers": REPLAYED}
BATCHES_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            OCTETS: {
                "schema": {
                    "type": "string",
                    "format": "binary",
                    "description": "Record batches of format 2, one after the other, each with base offset 0.",
                }
            }
        },
    }
}


def json_body(list_schema: str) -> dict[str, Any]:
    """Return the ``requestBody`` of a request with a list of records."""
    example = {"records": [{"key": "kitchen", "value": "21.5", "timestamp": 1714564800000}]}
    content = {JSON: {"schema": {"$ref": f"{_SCHEMAS}{list_schema}"}, "example": example}}
    return {"requestBody": {"required": True, "content": content}}


def lines_body(record_schema: str) -> dict[str, Any]:
    """Return the ``requestBody`` of a request with one record per line."""
    schema = {
        "type": "string",
        "format": "binary",
        "description": f"One {record_schema} per line, in a stream of any length.",
        "x-line-schema": {"$ref": f"{_SCHEMAS}{record_schema}"},
    }
    content = {NDJSON: {"schema": schema, "example": '{"key":"kitchen","value":"21.5"}\n{"value":null}\n'}}
    return {"requestBody": {"required": True, "content": content}}


ACKNOWLEDGED_LINES: dict[str, Any] = {
    "description": "One line per appended batch; a line with an error is the last. With an Idempotency-Key: one line "
    "per partition.",
    "headers": {**REPLAYED, "Cache-Control": {"description": "no-store.", "schema": {"type": "string"}}},
    "content": {
        NDJSON: {
            "schema": {
                "type": "string",
                "format": "binary",
                "description": "One PartitionProduceOutcome per line.",
                "x-line-schema": {"$ref": f"{_SCHEMAS}PartitionProduceOutcome"},
            }
        }
    },
}

# Fetching


def _offset_header(description: str) -> dict[str, Any]:
    return {"description": description, "schema": {"type": "integer", "format": "int64", "minimum": 0}}


OFFSET_HEADERS: dict[str, dict[str, Any]] = {
    "Log-Start-Offset": _offset_header("First readable offset."),
    "High-Watermark": _offset_header("End of the records that consumers may read."),
    "Last-Stable-Offset": _offset_header("End of the records that read_committed consumers may read."),
    "Next-Offset": _offset_header("Offset of the next fetch."),
    "Cache-Control": {
        "description": "immutable for a minute: a durable closed range from a numbered offset. no-cache: any other "
        "closed range. Revalidate both with the ETag. no-store: any other response.",
        "schema": {"type": "string"},
    },
    "ETag": {
        "description": "Tag of the records of a closed range; weak, except for record batches.",
        "schema": {"type": "string"},
    },
}
_BATCHES_HEADERS = {
    **OFFSET_HEADERS,
    "Aborted-Transactions": {
        "description": "With read_committed: producer id and first offset of each aborted transaction whose records "
        "may be among the batches. The transaction ends at its producer's next control batch.",
        "schema": {"type": "string"},
        "example": "4711/38, 4712/40",
    },
}
IF_NONE_MATCH = {
    "parameters": [
        {
            "name": "If-None-Match",
            "in": "header",
            "required": False,
            "description": "ETags of cached responses; 304 if the response would have one of them.",
            "schema": {"type": "string"},
            "example": '"..."',
        }
    ]
}


def _fetched(headers: dict[str, dict[str, Any]], **content: Any) -> Responses:
    """Return the responses of a fetch: a 200 with records, and a 304."""
    return {
        200: {"description": "The records; none if none arrived in time.", "headers": headers, **content},
        304: {"description": "If-None-Match has the ETag of the range.", "headers": headers},
    }


FETCHED_JSON = _fetched(OFFSET_HEADERS)
FETCHED_LINES = _fetched(
    OFFSET_HEADERS,
    content={
        NDJSON: {
            "schema": {
                "type": "string",
                "format": "binary",
                "description": "One FetchedRecord per line.",
                "x-line-schema": {"$ref": f"{_SCHEMAS}FetchedRecord"},
            }
        }
    },
)
FETCHED_BATCHES = _fetched(
    _BATCHES_HEADERS,
    content={
        OCTETS: {
            "schema": {
                "type": "string",
                "format": "binary",
                "description": "Whole record batches as stored; the first may begin below the requested offset.",
            }
        }
    },
)
