"""Requests that may be sent again: sequences of a producer, and keys of clients that keep no sequences.

A key stands for a producer of its own, which writes once: its id is made of the key, in a range that no other producer
has. The batches of the request carry that id, so the key is written with them or not at all, and the log's own rules
for repeated batches answer a retry (spec E19). The producer snapshots keep the rest of its state.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from app.engine.appending import AppendOptions
from app.engine.partitions import Partition
from app.event_loop.piecewise import all_in_turns
from app.event_loop.pools import INLINE_BYTES_MAX, call_in
from app.problems import kinds
from app.problems.engine import problem_for
from app.problems.problem import Fault, Problem, invalid
from app.produce.partitioning import StickyPartitioner
from app.produce.producing import (
    ProduceOutcome,
    ProduceResultDocument,
    batches_of,
    produce,
    spread_records,
)
from app.produce.stored_records import holds_same_records
from app.produce.submit import Producing
from app.record_json.translate import TIME_ABSENT, Encoding, ParsedRecords, parse_record_lines, parse_record_list
from app.record_json.work_rooms import RequestWork
from log_model.batches.batch_validation import ValidBatch
from log_model.errors import InvalidRecordError, OutOfOrderSequenceError, StorageError
from log_model.offsets import Offset
from log_model.producers import KEYED_PRODUCER_ID_MIN, SEQUENCE_COUNT

_KEY = re.compile(r"[!-~]{1,255}", re.ASCII)
_QUOTED_KEY = re.compile(r'"((?:[!#-\[\]-~]|\\["\\])+)"', re.ASCII)
EPOCH_COUNT = 2**15
REPLAYED_HEADER = "Idempotent-Replayed"


@dataclass(frozen=True, slots=True)
class ProducerStamp:
    """The producer of the next batches, and the sequence of their first record."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool = False

    def stamp(self, batches: Sequence[ValidBatch]) -> ProducerStamp:
        """Put it into ``batches``, counting on. Return the stamp of the batches behind them."""
        sequence = self.base_sequence
        for batch in batches:
            batch.set_producer(self.producer_id, self.producer_epoch, sequence, is_transactional=self.is_transactional)
            sequence = (sequence + batch.header.last_offset_delta + 1) % SEQUENCE_COUNT
        return ProducerStamp(self.producer_id, self.producer_epoch, sequence, self.is_transactional)


@dataclass(frozen=True, slots=True)
class RequestKey:
    """An ``Idempotency-Key`` and its principal.

    Equal keys of two principals are different, and so are those of two topics.
    """

    text: str
    principal: str

    def stamp_for(self, topic: str, spread: Mapping[int, Sequence[int]] | None = None) -> ProducerStamp:
        """Return the producer that stands for the key in this topic.

        Its epoch is a checksum of how a request to the topic is spread over partitions. So the records in one partition
        tell whether records in another belong to the same request. For a request to one partition it is 0.
        """
        low_bits = _digest(self.principal, topic, self.text) % KEYED_PRODUCER_ID_MIN
        epoch = 0
        if spread is not None:
            epoch = _digest(*(f"{number} {len(rows)}" for number, rows in sorted(spread.items()))) % EPOCH_COUNT
        return ProducerStamp(KEYED_PRODUCER_ID_MIN + low_bits, epoch, 0)

    def begin_digest(self, topic: str) -> blake2b:
        """Return the digest of ``stamp_for`` up to the key, to which a compiled handler adds each request's own."""
        return _begin_digest(self.principal, topic)

    def stamp_for_part(self, topic: str, number: int, epoch: int) -> ProducerStamp:
        """Return the producer that stands for the key in one part of a request to many partitions.

        ``number`` counts the parts of the same partition, from 0: each is an append of its own.
        """
        low_bits = _digest(self.principal, topic, self.text, str(number)) % KEYED_PRODUCER_ID_MIN
        return ProducerStamp(KEYED_PRODUCER_ID_MIN + low_bits, epoch, 0)


def parse_key(text: str) -> str | None:
    """Return the key in an ``Idempotency-Key``, plain or as a quoted string of RFC 8941; ``None`` if it is none."""
    quoted = _QUOTED_KEY.fullmatch(text)
    key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else text
    return None if _KEY.fullmatch(key) is None or (text.startswith('"') and not quoted) else key


def _begin_digest(*parts: str) -> blake2b:
    digest = blake2b(digest_size=8)
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return digest


def _digest(*parts: str) -> int:
    return int.from_bytes(_begin_digest(*parts).digest(), "big")


Idempotence = ProducerStamp | RequestKey


async def stamp_batches(producing: Producing, stamp: ProducerStamp, batches: Sequence[ValidBatch]) -> ProducerStamp:
    """Put ``stamp`` into ``batches``, which gives each another CRC: in a thread if they are large.

    Return the next stamp.
    """
    if sum(batch.size_bytes for batch in batches) <= INLINE_BYTES_MAX:
        return stamp.stamp(batches)
    return await call_in(producing.pools.read, lambda: stamp.stamp(batches))


async def parse_marked(
    producing: Producing, body: bytes | bytearray, encoding: Encoding, work: RequestWork, *, lines: bool
) -> tuple[ParsedRecords, list[bool]]:
    """Return the records of a whole body, JSON or one per line, and which of them came with a time.

    Raises:
        Problem: 400, 413 or 422; 503 as ``RequestWork.parse``.
    """
    parse = functools.partial(parse_record_lines if lines else parse_record_list, body, encoding, now_ms=TIME_ABSENT)
    parsed = await work.parse(body, parse)
    return parsed, mark_times(parsed, producing.engine.now_ms())


def refuse_reserved(batches: Sequence[ValidBatch]) -> None:
    """Refuse batches with a producer id that stands for a key. The log would take them for requests with that key.

    Raises:
        InvalidRecordError: the id is in the range of keys.
    """
    for batch in batches:
        if batch.header.producer_id >= KEYED_PRODUCER_ID_MIN:
            raise InvalidRecordError(f"producer id {batch.header.producer_id} is above {KEYED_PRODUCER_ID_MIN - 1}")


def mark_times(parsed: ParsedRecords, now_ms: int) -> list[bool]:
    """Give ``now_ms`` to the records parsed without a time.

    Return which records had one: a retry repeats only those times.
    """
    timed = [timestamp != TIME_ABSENT for timestamp in parsed.timestamps]
    parsed.now_ms = now_ms
    parsed.timestamps = [now_ms if timestamp == TIME_ABSENT else timestamp for timestamp in parsed.timestamps]
    return timed


async def stamp_keyed(producing: Producing, stamp: ProducerStamp, batches: Sequence[ValidBatch]) -> None:
    """Put the stamp of a key into ``batches``.

    Raises:
        Problem: 422, they have a producer.
    """
    if any(batch.header.producer_id >= 0 for batch in batches):
        detail = "the record batches carry a producer id, and so their own protection; send them without a key"
        raise invalid([Fault("Idempotency-Key", "unsupported_header", detail)])
    await stamp_batches(producing, stamp, batches)


async def produce_keyed(
    producing: Producing,
    log: Partition,
    batches: Sequence[ValidBatch],
    options: AppendOptions,
    stamp: ProducerStamp,
    timed: Sequence[bool] | None = None,
) -> ProduceResultDocument:
    """Append batches under a key, once; a retry gets the first answer. With ``acks=0`` no answer has offsets.

    ``stamp`` is the key's in this topic; the batches have none of their own. ``timed`` says which records came with a
    time; ``None`` means all of them.

    Raises:
        Problem: idempotency_key_reused; or as ``produce``.
        StorageError: the log refused or failed.
    """
    await stamp_keyed(producing, stamp, batches)
    try:
        result = await produce(producing, log, batches, options)
    except OutOfOrderSequenceError:
        raise key_reused(log.name.partition) from None
    if result.duplicate:
        await refuse_other_records(producing, log, Offset(result.base_offset), batches, timed)
    return result


async def refuse_other_records(
    producing: Producing,
    log: Partition,
    base_offset: Offset,
    batches: Sequence[ValidBatch],
    timed: Sequence[bool] | None,
) -> None:
    """Return if the log has the records of ``batches`` at ``base_offset``, where the key was used.

    Raises:
        Problem: idempotency_key_reused.
    """
    same = await producing.engine.reads.stored(
        log, lambda stored: holds_same_records(stored, base_offset, batches, timed)
    )
    if not same:
        raise key_reused(log.name.partition)


async def produce_keyed_to_topic(
    producing: Producing,
    name: str,
    parsed: ParsedRecords,
    timed: Sequence[bool],
    options: AppendOptions,
    key: RequestKey,
) -> list[ProduceOutcome]:
    """Spread records over a topic's partitions under a key. Return one outcome each, in their order.

    Records without a key of their own go to the partition of the request's key, online or not, so that a retry
    completes the first request.

    Raises:
        Problem: idempotency_key_reused; request_timed_out, nothing was tried.
        UnknownTopicOrPartitionError: there is no such topic.
    """
    producer_id = key.stamp_for(name).producer_id
    spread = await spread_records(producing, name, parsed, (), _ByRequestKey(producer_id))
    stamp = key.stamp_for(name, spread)
    async with producing.turns.of_key(producer_id):
        for number, known in (await producing.engine.appends.producer_states(name, producer_id)).items():
            if known.producer_epoch != stamp.producer_epoch:
                # Found before any write: the records differ, or the topic has got more partitions since.
                raise key_reused(number)
        each = functools.partial(_produce_rows, producing, name, parsed, timed, options, stamp)
        return await all_in_turns(each(number, rows) for number, rows in spread.items())


async def _produce_rows(
    producing: Producing,
    name: str,
    parsed: ParsedRecords,
    timed: Sequence[bool],
    options: AppendOptions,
    stamp: ProducerStamp,
    number: int,
    rows: list[int],
) -> ProduceOutcome:
    try:
        log = await producing.engine.partition(name, number)
        batches = await batches_of(producing, log, parsed, rows)
        result = await produce_keyed(producing, log, batches, options, stamp, [timed[row] for row in rows])
        return ProduceOutcome(number, result, None)
    except (StorageError, Problem) as error:
        if options.acks == "0":
            producing.metrics.dropped_appends.inc()
        return ProduceOutcome(number, None, problem_for(error))


class _ByRequestKey(StickyPartitioner):
    """The partition of the keyless records of a request with a key: the same one for each retry."""

    def __init__(self, producer_id: int) -> None:
        super().__init__()
        self._producer_id = producer_id

    def take(self, topic: str, partitions: Sequence[int], size_bytes: int) -> int:  # noqa: ARG002 - the base class's
        return partitions[self._producer_id % len(partitions)]


def replay_headers(results: Sequence[ProduceResultDocument | None]) -> dict[str, str]:
    """Return the header that says that the whole request had been done before; none if some of it had not."""
    is_replay = bool(results) and all(result is not None and result.duplicate for result in results)
    return {REPLAYED_HEADER: "true"} if is_replay else {}


def key_reused(partition: int) -> Problem:
    """Return the refusal of another request under a key that was used."""
    return Problem(
        kinds.IDEMPOTENCY_KEY_REUSED,
        f"partition {partition} has other records under this Idempotency-Key; another request needs another key",
        partition=partition,
    )
