"""The forms of records on the wire."""

from __future__ import annotations

JSON = "application/json"
NDJSON = "application/x-ndjson"
RECORD_BATCHES = "application/vnd.kafka.record-batch.v2"
OCTETS = "application/octet-stream"
"""Bytes of no particular form: what generated clients call record batches."""
MESSAGE_SET = "application/vnd.kafka.message-set"
