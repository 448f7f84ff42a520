"""JSON records to one partition, on the connection: read, encoded, appended, published and answered in one go.

Requests that would be refused before the append are left to the route, which refuses them.
"""

from __future__ import annotations

import re

from app.fast_path.local_parts import LocalParts
from app.fast_path.produce import Keyed, append_batches, key_of, options_of
from app.fast_path.request import PlainRequest
from app.http.connection.fast_path_interface import Outcome
from app.problems.problem import Problem
from app.produce.idempotence import EPOCH_COUNT, ProducerStamp, mark_times
from app.record_json.record_batches import compresses, plain_batches, validated_batches
from app.record_json.translate import TIME_ABSENT, parse_record_list
from log_model.errors import StorageError
from log_model.producers import KEYED_PRODUCER_ID_MIN, SEQUENCE_COUNT

_NUMBER = re.compile(rb"0|[1-9][0-9]{0,18}")
BODY_BYTES_MAX = 128 * 1024
"""Measured: half a millisecond of the loop. More is read in a thread."""

PLAIN_BODY_BYTES_MAX = 640 * 1024
"""500 records of 1 KiB, and room for their keys, where ``plain_batches`` can read it.

Measured: 0.05 ms of the loop for 500 such records, and 1.2 us for each KiB of text that is mostly escapes.
"""


def produce_json(parts: LocalParts, request: PlainRequest) -> Outcome | None:
    """Answer as ``produceRecords`` does for ``application/json``."""
    target, head = request.target, request.head
    key = key_of(request) if head.idempotency_key else None
    stamp = None if head.producer is None else _stamp_of(head.producer)
    if not request.body or (key is None and head.idempotency_key) or (stamp is None and head.producer is not None):
        return None
    if stamp is not None and request.access.is_authenticated:
        # The route looks whose id it is.
        return None
    now_ms = parts.engine.now_ms()
    timed = None
    try:
        log = parts.engine.manager.find_open(target.topic, target.partition)
        if log is None:
            return None
        encoding = target.parameters.encoding
        batches = None
        if key is None:
            batches = plain_batches(request.body, encoding, log.config, target.partition, now_ms)
        if batches is None:
            if len(request.body) > BODY_BYTES_MAX or compresses(log.config):
                return None
            parsed = parse_record_list(bytes(request.body), encoding, now_ms=now_ms if key is None else TIME_ABSENT)
            if key is not None:
                timed = mark_times(parsed, now_ms)
            parsed.check_partition(target.partition)
            batches = validated_batches(parsed, log.config)
    except (StorageError, Problem):
        return None
    if not batches:
        return None
    if stamp is not None:
        stamp.stamp(batches)
    keyed = None if key is None else Keyed(key, batches, timed)
    return append_batches(parts, log, request, batches, options_of(parts, request), keyed)


def _stamp_of(producer: tuple[bytes, bytes, bytes]) -> ProducerStamp | None:
    """Return the stamp that the headers of a producer give; ``None`` if the route may refuse them."""
    if not all(map(_NUMBER.fullmatch, producer)):
        return None
    producer_id, epoch, sequence = map(int, producer)
    if producer_id >= KEYED_PRODUCER_ID_MIN or epoch >= EPOCH_COUNT or sequence >= SEQUENCE_COUNT:
        return None
    return ProducerStamp(producer_id, epoch, sequence)
