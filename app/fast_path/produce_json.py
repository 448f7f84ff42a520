"""JSON records to one partition, on the connection: read, encoded, appended, published and answered in one go.

Requests that would be refused before the append are left to the route, which refuses them.
"""

from __future__ import annotations

from app.fast_path.local_parts import LocalParts
from app.fast_path.produce import append_batches, options_of
from app.fast_path.request import PlainRequest
from app.http.connection.fast_path_interface import Outcome
from app.problems.problem import Problem
from app.record_json.record_batches import compresses, plain_batches, validated_batches
from app.record_json.translate import parse_record_list
from log_model.errors import StorageError

BODY_BYTES_MAX = 128 * 1024
"""Measured: half a millisecond of the loop. More is read in a thread."""

PLAIN_BODY_BYTES_MAX = 640 * 1024
"""500 records of 1 KiB, and room for their keys, where ``plain_batches`` can read it.

Measured: 0.05 ms of the loop for 500 such records, and 1.2 us for each KiB of text that is mostly escapes.
"""


def produce_json(parts: LocalParts, request: PlainRequest) -> Outcome | None:
    """Answer as ``produceRecords`` does for ``application/json``."""
    target = request.target
    if not request.body:
        return None
    now_ms = parts.engine.now_ms()
    try:
        log = parts.engine.partition(target.topic, target.partition)
        if compresses(log.config):
            return None
        encoding = target.parameters.encoding
        batches = plain_batches(request.body, encoding, log.config, target.partition, now_ms)
        if batches is None:
            if len(request.body) > BODY_BYTES_MAX:
                return None
            parsed = parse_record_list(bytes(request.body), encoding, now_ms=now_ms)
            parsed.check_partition(target.partition)
            batches = validated_batches(parsed, log.config)
    except (StorageError, Problem):
        return None
    if not batches:
        return None
    return append_batches(parts, log, request, batches, options_of(parts, request))
