"""A request to many partitions under an Idempotency-Key: each part has a producer of its own, made of the key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from app.engine.partitions import Partition
from app.event_loop.pools import INLINE_BYTES_MAX, call_in
from app.problems.problem import Fault, invalid
from app.produce.idempotence import EPOCH_COUNT, ProducerStamp, RequestKey, key_reused, mark_times, stamp_keyed
from app.produce.produce_body import PartRequest, ProduceRequest
from app.produce.stored_records import holds_same_records
from app.produce.submit import Producing
from log_model.batches.append_request import AppendResult
from log_model.batches.batch_validation import ValidBatch
from log_model.errors import OutOfOrderSequenceError, UnknownTopicOrPartitionError
from log_model.offsets import Offset


@dataclass(frozen=True, slots=True)
class KeyedParts:
    """The stamp of each part, and which of its records came with a time; ``None`` means all of them.

    The epoch of the stamps is a checksum of the whole request. So a part in the log tells whether the other parts
    belong to the same request. ``turn_id`` is the same for all requests with the key.
    """

    turn_id: int
    stamps: list[ProducerStamp]
    timed: list[list[bool] | None]

    async def stamp(self, producing: Producing, place: int, batches: Sequence[ValidBatch]) -> None:
        """Put the producer of the part at ``place`` into its batches.

        Raises:
            Problem: 422, they have a producer.
        """
        await stamp_keyed(producing, self.stamps[place], batches)

    async def refuse_reuse(self, producing: Producing, request: ProduceRequest) -> None:
        """Refuse another request with the key before anything of it is written.

        Raises:
            Problem: idempotency_key_reused.
        """
        for part, stamp in zip(request.parts, self.stamps, strict=True):
            try:
                states = await producing.engine.appends.producer_states(part.topic, stamp.producer_id)
            except UnknownTopicOrPartitionError:
                continue
            for number, known in states.items():
                if known.producer_epoch != stamp.producer_epoch:
                    raise key_reused(number)

    async def checked(
        self,
        producing: Producing,
        place: int,
        log: Partition,
        batches: Sequence[ValidBatch],
        state: AppendResult | Exception,
    ) -> AppendResult | Exception:
        """Return the outcome of the part at ``place``; ``idempotency_key_reused`` if the log has other records."""
        if isinstance(state, OutOfOrderSequenceError):
            return key_reused(log.name.partition)
        if isinstance(state, AppendResult) and state.duplicate:
            base_offset, timed = Offset(state.base_offset), self.timed[place]
            same = await producing.engine.reads.stored(
                log, lambda stored: holds_same_records(stored, base_offset, batches, timed)
            )
            if not same:
                return key_reused(log.name.partition)
        return state


async def keyed_parts(producing: Producing, key: RequestKey, request: ProduceRequest, size_bytes: int) -> KeyedParts:
    """Return the producers that stand for ``key`` in this request.

    The request was parsed with ``TIME_ABSENT``, and gets its times here.

    Raises:
        Problem: 422, the request has a producer.
    """
    if request.transactional_id is not None or any(part.stamp is not None for part in request.parts):
        detail = "the request has a producer, whose sequences make it safe to send again; leave one of the two out"
        raise invalid([Fault("Idempotency-Key", "unsupported_header", detail)])
    now_ms = producing.engine.now_ms()
    timed = [None if part.records is None else mark_times(part.records, now_ms) for part in request.parts]

    def checksum() -> int:
        return _checksum(request.parts, timed)

    epoch = checksum() if size_bytes <= INLINE_BYTES_MAX else await call_in(producing.pools.read, checksum)
    counts: dict[tuple[str, int], int] = {}
    stamps = []
    for part in request.parts:
        number = counts.get((part.topic, part.partition), 0)
        counts[part.topic, part.partition] = number + 1
        stamps.append(key.stamp_for_part(part.topic, number, epoch))
    return KeyedParts(key.stamp_for_part("", 0, 0).producer_id, stamps, timed)


def _checksum(parts: Sequence[PartRequest], timed: Sequence[list[bool] | None]) -> int:
    digest = blake2b(digest_size=8)
    for part, marks in zip(parts, timed, strict=True):
        for piece in _pieces(part, marks):
            digest.update(b"-" if piece is None else b"%d:" % len(piece) + piece)
    return int.from_bytes(digest.digest(), "big") % EPOCH_COUNT


def _pieces(part: PartRequest, marks: list[bool] | None) -> Iterator[bytes | None]:
    """Yield everything that makes up a part, except times that the service gave."""
    yield f"{part.topic} {part.partition}".encode()
    yield part.record_batches
    if part.records is None or marks is None:
        return
    rows = part.records
    yield b"%d" % len(rows)
    yield from rows.keys
    yield from rows.values
    for timestamp, is_timed in zip(rows.timestamps, marks, strict=True):
        yield b"%d" % timestamp if is_timed else None
    for headers in rows.headers or ():
        yield repr(headers).encode()
