"""The two forms of an answer for many partitions: a JSON document, and the frames of Kafka 0.7 (spec B9).

In frames the record bytes stay in their files. Headers, each of limited length, carry the facts of a partition that a
frame has no field for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from app.fetch.partition_reads import PartitionAnswer
from app.http.transfer.zero_copy import Part
from app.problems.engine import problem_for
from app.record_json.record_documents import encode_document
from app.record_json.record_texts import RecordText
from rollway.records import frame_head, multi_frame_head

FETCHED_PARTITIONS = "Fetched-Partitions"
DIVERGING_EPOCHS = "Diverging-Epochs"
ABORTED_TRANSACTIONS = "Aborted-Transactions"
HEADERS = (FETCHED_PARTITIONS, DIVERGING_EPOCHS, ABORTED_TRANSACTIONS)
HEADER_BYTES_MAX = 16 * 1024
ABORTED_COUNT_MAX = 50
"""Aborted transactions of one partition in a header: this many fit in any case, whatever the topic's name is."""
# A shorter batch is copied behind its head: less work than handing it to the kernel by itself.
COPIED_BYTES_MAX = 4 * 1024


class AbortedDocument(msgspec.Struct, gc=False):
    """See ``schemas.multi_fetch.AbortedTransaction``."""

    producer_id: int
    first_offset: int


class DivergingDocument(msgspec.Struct, gc=False):
    """See ``schemas.multi_fetch.DivergingEpoch``."""

    epoch: int
    end_offset: int


class PartitionDocument(msgspec.Struct, gc=False):
    """See ``schemas.multi_fetch.FetchedPartition``."""

    topic: str | None
    topic_id: str | None
    partition: int
    error: dict[str, Any] | None
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    next_offset: int
    records: list[RecordText]
    aborted_transactions: list[AbortedDocument] | UnsetType = UNSET
    diverging_epoch: DivergingDocument | UnsetType = UNSET


class MultiFetchDocument(msgspec.Struct, gc=False):
    """See ``schemas.multi_fetch.MultiFetchResult``."""

    session_id: int
    throttle_time_ms: int
    partitions: list[PartitionDocument]


def encode_json(
    answers: Iterable[PartitionAnswer], session_id: int, instance: str, *, throttle_time_ms: int = 0
) -> bytes:
    """Return the JSON document."""
    partitions = [_document(answer, instance) for answer in answers]
    return encode_document(MultiFetchDocument(session_id, throttle_time_ms, partitions))


def _document(answer: PartitionAnswer, instance: str) -> PartitionDocument:
    diverging = answer.diverging
    return PartitionDocument(
        topic=answer.topic,
        topic_id=answer.topic_id,
        partition=answer.asked.partition,
        error=None if answer.error is None else problem_for(answer.error).document(instance),
        log_start_offset=answer.log_start_offset,
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.last_stable_offset,
        log_end_offset=answer.log_end_offset,
        next_offset=answer.next_offset,
        records=answer.records,
        aborted_transactions=UNSET
        if answer.data is None or answer.data.aborted is None
        else [AbortedDocument(one.producer_id, one.first_offset) for one in answer.data.aborted],
        diverging_epoch=UNSET if diverging is None else DivergingDocument(diverging.epoch, diverging.end_offset),
    )


class Framed(NamedTuple):
    """An answer in frames: the partitions in it, its headers, and its body."""

    answers: list[PartitionAnswer]
    headers: dict[str, str]
    parts: list[Part]


def frame(answers: Sequence[PartitionAnswer]) -> Framed:
    """Return one frame that holds a frame for each partition, in order.

    If the headers would be too long, partitions that bring nothing are left out first, then partitions at the end.
    Reads short batches: call it in a thread.
    """
    entries = [_entries(answer) for answer in answers]
    fitting = _fitting(entries)
    if fitting < len(answers):
        kept = [place for place, answer in enumerate(answers) if _brings_something(answer)]
        answers, entries = [answers[place] for place in kept], [entries[place] for place in kept]
        fitting = _fitting(entries)
    answers, entries = answers[:fitting], entries[:fitting]
    headers = {
        name: ", ".join(entry for one in entries for entry in one.get(name, ()))
        for name in HEADERS
        if name == FETCHED_PARTITIONS or any(name in one for one in entries)
    }
    return Framed(list(answers), headers, _parts(answers))


def _brings_something(answer: PartitionAnswer) -> bool:
    return answer.error is not None or answer.diverging is not None or answer.brings_records


def _entries(answer: PartitionAnswer) -> dict[str, list[str]]:
    """Return the headers about one partition."""
    place = f"{answer.asked.topic or answer.asked.topic_id}/{answer.asked.partition}"
    limits = (answer.next_offset, answer.high_watermark, answer.last_stable_offset, answer.log_start_offset)
    entries = {FETCHED_PARTITIONS: ["/".join((place, *map(str, limits)))]}
    if answer.diverging is not None:
        entries[DIVERGING_EPOCHS] = [f"{place}/{answer.diverging.epoch}/{answer.diverging.end_offset}"]
    if answer.data is not None and answer.data.aborted:
        entries[ABORTED_TRANSACTIONS] = [f"{place}/{one.producer_id}/{one.first_offset}" for one in answer.data.aborted]
    return entries


def _fitting(entries: Iterable[dict[str, list[str]]]) -> int:
    """Return how many partitions fit before one of their headers is too long."""
    lengths = dict.fromkeys(HEADERS, 0)
    count = 0
    for one in entries:
        for name, listed in one.items():
            lengths[name] += sum(len(entry) + 2 for entry in listed)
        if max(lengths.values()) > HEADER_BYTES_MAX:
            break
        count += 1
    return count


def _parts(answers: Sequence[PartitionAnswer]) -> list[Part]:
    """Return the frames: heads and short batches in memory, the rest as slices of files."""
    parts: list[Part] = []
    held = bytearray(multi_frame_head(answer.size_bytes for answer in answers))
    for answer in answers:
        held += frame_head(answer.size_bytes, _kafka_code(answer))
        for piece in () if answer.data is None else answer.data.slices:
            if piece.size_bytes <= COPIED_BYTES_MAX:
                held += piece.read()
                continue
            parts += [bytes(held), piece]
            held.clear()
    parts.append(bytes(held))
    return parts


def _kafka_code(answer: PartitionAnswer) -> int:
    return 0 if answer.error is None else problem_for(answer.error).kafka_code
