"""From the records of a request to batches the log may take. Synchronous; large requests do it in a thread."""

from __future__ import annotations

from collections.abc import Sequence

from app.translate import ParsedRecords
from rollway.records import encode_batches, stamp
from storage.batch_validation import ValidBatch, validate_batches
from storage.config import TopicConfig
from storage.errors import InvalidRecordError, RecordError, RecordListTooLargeError


def validated_batches(
    parsed: ParsedRecords,
    config: TopicConfig,
    now_ms: int,
    rows: Sequence[int] | None = None,
    *,
    together: bool = True,
) -> list[ValidBatch]:
    """Encode all records, or these rows, into batches of at most ``max.message.bytes``, and validate them.

    What is appended ``together`` must fit into one segment; otherwise each batch must, and is made to.

    Raises:
        RefusedError: as ``validate_batches``; the records it names are numbered as in the request.
    """
    batches: list[ValidBatch] = []
    record_count = 0
    batch_bytes_max = min(config.max_message_bytes, config.segment_bytes)
    for encoded in encode_batches(parsed.columns(rows), batch_bytes_max=batch_bytes_max):
        # Each batch comes to the log as from a client of its own: numbered from 0.
        buffer = bytearray(encoded)
        stamp(buffer, 0, 0, 0)
        try:
            batches += validate_batches(buffer, config, now_ms)
        except InvalidRecordError as error:
            raise _numbered_as_asked(error, record_count, rows) from error
        record_count += batches[-1].header.record_count
    total_bytes = sum(batch.size_bytes for batch in batches)
    if together and total_bytes > config.segment_bytes:
        raise RecordListTooLargeError(
            f"{total_bytes} bytes of batches do not fit into a segment of {config.segment_bytes} bytes"
        )
    return batches


def _numbered_as_asked(error: InvalidRecordError, before: int, rows: Sequence[int] | None) -> InvalidRecordError:
    numbered = []
    for refused in error.record_errors:
        place = before + refused.batch_index
        numbered.append(RecordError(place if rows is None else rows[place], refused.message))
    return type(error)(str(error), numbered)
