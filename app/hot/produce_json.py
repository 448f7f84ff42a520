"""JSON records to one partition, on the connection: read, encoded, appended, published and answered in one go.

Whatever would be refused before the append is left to the route, which refuses it.
"""

from __future__ import annotations

from app.broker import Broker
from app.hot.produce import append_batches, options_of
from app.hot.request import HotRequest
from app.http.hot import Outcome
from app.http.problems import Problem
from app.quotas.limits import QuotaKind
from app.record_batches import compresses, validated_batches
from app.translate import parse_record_list
from storage.errors import StorageError

BODY_BYTES_MAX = 128 * 1024
"""Measured: half a millisecond of the loop. More is read in a thread."""


def produce_json(broker: Broker, request: HotRequest) -> Outcome | None:
    """As ``produceRecords`` for ``application/json``."""
    head = request.head
    quotas = broker.quotas
    if not request.body or (quotas.table.has_any and quotas.is_muted(QuotaKind.PRODUCE, request.client)):
        return None
    now_ms = broker.now_ms()
    try:
        log = broker.partition(head.topic, head.partition)
        if compresses(log.config):
            return None
        parsed = parse_record_list(bytes(request.body), head.parameters.encoding, now_ms=now_ms)
        parsed.check_partition(head.partition)
        batches = validated_batches(parsed, log.config, now_ms)
    except (StorageError, Problem):
        return None
    if not batches:
        return None
    size_bytes = sum(batch.size_bytes for batch in batches)
    return append_batches(broker, log, request, batches, options_of(request), size_bytes)
