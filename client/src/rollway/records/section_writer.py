"""The uncompressed record section of a batch, from columns."""

from __future__ import annotations

import numpy as np

from rollway.records.batch import Buffer
from rollway.records.columns import Int64Array, RecordColumns
from rollway.records.record import records_from_columns
from rollway.records.varint import append_varlong


def record_sizes(columns: RecordColumns) -> Int64Array:
    """An upper bound of the bytes each record takes in the section."""
    sizes = columns.keys.lengths() + columns.values.lengths() + 5 * 5 + 10 + 1
    if columns.headers is not None:
        ends = np.cumsum(columns.headers.counts)
        total = np.concatenate(
            ([0], np.cumsum(columns.headers.names.lengths() + columns.headers.values.lengths() + 10))
        )
        sizes += total[ends] - total[ends - columns.headers.counts]
    return sizes


def record_section(columns: RecordColumns) -> Buffer:
    """All records, one after the other, offset deltas from 0."""
    base_timestamp = int(columns.timestamps[0])
    section = bytearray()
    for place, record in enumerate(records_from_columns(columns)):
        # Wraps around like Java's long, so that reading wraps back.
        delta = (record.timestamp - base_timestamp + 2**63) % 2**64 - 2**63
        body = bytearray(1)
        append_varlong(body, delta)
        append_varlong(body, place)
        for part in (record.key, record.value):
            append_varlong(body, -1 if part is None else len(part))
            body += part or b""
        append_varlong(body, len(record.headers))
        for name, value in record.headers:
            encoded = name.encode()
            append_varlong(body, len(encoded))
            body += encoded
            append_varlong(body, -1 if value is None else len(value))
            body += value or b""
        append_varlong(section, len(body))
        section += body
    return section
