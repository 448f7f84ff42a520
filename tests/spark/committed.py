"""What readers of committed records see of a topic."""

from __future__ import annotations

from rollway.client import RollwayClient
from rollway.records import Record, committed_batches, decode_batch, records_from_columns, split_batches


def committed_records(client: RollwayClient, topic: str) -> dict[int, list[Record]]:
    """The committed records of each partition that has some, in order."""
    found: dict[int, list[Record]] = {}
    for limits in client.watermarks(topic):
        offset = limits.log_start_offset
        while offset < limits.last_stable_offset:
            fetched = client.fetch(
                topic, limits.partition, offset=offset, max_bytes=1 << 24, isolation="read_committed"
            )
            for batch in committed_batches(split_batches(fetched.batches), fetched.aborted):
                found.setdefault(limits.partition, []).extend(records_from_columns(decode_batch(batch)))
            offset = fetched.next_offset
    return found


def committed_values(client: RollwayClient, topic: str) -> list[str]:
    """The values of all committed records, sorted."""
    return sorted(
        (record.value or b"").decode() for records in committed_records(client, topic).values() for record in records
    )
