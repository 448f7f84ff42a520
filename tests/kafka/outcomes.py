"""What a side made of the bodies of a case, in a form in which two sides are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rollway.records import HEADER_BYTES, RecordBatch, TimestampType, decompress_batch, split_batches
from tests.cases.logs import patched
from tests.kafka.cases import Case
from tests.kafka.sides import EVERYTHING, Side
from tests.kafka.wire import LATEST

_LENGTH_AT, _MAX_TIME_AT = 8, 35
_OWN_HEADER_AT = 21
"""Where the fields behind the CRC begin."""


class Outcome(NamedTuple):
    """What became of one body. Offsets are counted from the log end before the case."""

    code: int
    base_offset: int = -1
    is_stamped: bool = False
    log_start_offset: int = -1
    stored: tuple[bytes, ...] = ()
    """The batches that the body left in the log."""

    def __str__(self) -> str:
        if self.code:
            return f"refused, {self.code}"
        what = " + ".join(f"{len(batch)} bytes {batch[:96].hex()}" for batch in self.stored) or "nothing"
        stamp = ", with a log append time" if self.is_stamped else ""
        return f"success at {self.base_offset}, log start {self.log_start_offset}{stamp}; stored {what}"


def play(side: Side, case: Case, partition: int) -> tuple[list[Outcome], list[str]]:
    """Send the bodies of a case in order; return their outcomes, and what the side said about those it refused."""
    start = end = side.find_offset(case.topic, partition, LATEST).offset
    outcomes, messages = [], []
    for body in case.bodies:
        answer = side.send(case.topic, partition, body)
        messages.append(answer.message)
        if answer.code:
            outcomes.append(Outcome(answer.code))
            continue
        stored = read_batches(side, case.topic, partition, end)
        end = stored[-1].header.next_offset if stored else end
        outcomes.append(
            Outcome(
                0,
                answer.base_offset if answer.base_offset < 0 else answer.base_offset - start,
                answer.log_append_time >= 0,
                answer.log_start_offset,
                tuple(comparable(batch, case.topic, start) for batch in stored),
            )
        )
    return outcomes, messages


def read_batches(side: Side, topic: str, partition: int, offset: int) -> list[RecordBatch]:
    """Read all batches from an offset on, in as many fetches as it takes."""
    found: list[RecordBatch] = []
    while True:
        read = side.read(topic, partition, offset, EVERYTHING)
        assert read.code == 0, f"{topic}-{partition} cannot be read at {offset}: {read.code}"
        if not read.records:
            return found
        found += split_batches(read.records)
        offset = found[-1].header.next_offset


def comparable(batch: RecordBatch, topic: str, start: int = 0) -> bytes:
    """Return a stored batch without what may differ between two sides that did the same.

    Times that the log gave are 0. Records that the log compressed itself are uncompressed, as two compressors
    need not agree. Offsets count from ``start``.
    """
    data = bytes(batch.buffer)
    header = batch.header
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        data = patched(data, _MAX_TIME_AT, ">q", 0)
    head, records = data[_LENGTH_AT:HEADER_BYTES], data[HEADER_BYTES:]
    if topic.startswith("to-"):
        head, records = data[_OWN_HEADER_AT:HEADER_BYTES], bytes(decompress_batch(batch))
    return (header.base_offset - start).to_bytes(8, "big") + head + records


def differing(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> list[int]:
    """Return the places of the bodies whose outcomes differ."""
    return [place for place, (one, two) in enumerate(zip(ours, theirs, strict=True)) if one != two]
