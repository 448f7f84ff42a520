"""A stream of records with a producer's sequences. A retry may send records again: the log's are skipped.

A record's sequence is its distance from the first record. It does not depend on the cut into batches, which is by time
and size. So a client resumes from the sequence after the last acknowledged one, or from any before. Records that are in
the log already are compared with the ones sent, answered as duplicates with their offsets, and not written.
"""

from __future__ import annotations

from collections.abc import Iterator

from app.engine.appending import AppendOptions
from app.engine.partitions import Partition
from app.problems.engine import problem_for
from app.produce.idempotence import ProducerStamp, mark_times, stamp_batches
from app.produce.producing import batches_of, result_document
from app.produce.record_stream import RecordStream
from app.produce.stored_records import KnownPlace, Rows, StoredPiece, find_stored
from app.produce.submit import Producing
from app.record_json.record_documents import encode_document
from app.record_json.translate import TIME_ABSENT, Encoding, ParsedRecords
from log_model.batches.append_request import AppendResult
from log_model.errors import OutOfOrderSequenceError, ProducerFencedError
from log_model.offsets import Offset
from log_model.producers import SEQUENCE_COUNT


class ProducerStream(RecordStream):
    """One request's records on their way into one partition, in the sequences of a producer."""

    def __init__(
        self,
        producing: Producing,
        log: Partition,
        options: AppendOptions,
        encoding: Encoding,
        instance: str,
        stamp: ProducerStamp,
    ) -> None:
        super().__init__(producing, log.name.topic, log.name.partition, options, encoding, instance)
        self._stamp = stamp
        self._stored_count: int | None = None
        self._known: list[KnownPlace] = []

    def supersede(self) -> None:
        """Submit nothing more: another request of the producer has begun."""
        stamp = self._stamp
        self._refuse(
            problem_for(
                ProducerFencedError(
                    f"another request of producer {stamp.producer_id} with epoch {stamp.producer_epoch} has begun"
                )
            )
        )

    async def _append(self, block: bytes) -> None:
        parsed = await self._parse(block, TIME_ABSENT)
        if not len(parsed):
            return
        timed = mark_times(parsed, self._producing.engine.now_ms())
        log = await self._producing.engine.partition(self._topic, self._partition or 0)
        skipped = await self._skip_stored(log, parsed, timed)
        if skipped == len(parsed):
            return
        rows = list(range(skipped, len(parsed))) if skipped else None
        batches = await batches_of(self._producing, log, parsed, rows, together=False)
        self._stamp = await stamp_batches(self._producing, self._stamp, batches)
        await self._submit(log, batches)

    async def _count_stored(self, log: Partition) -> int:
        """Return how many of the next records the log has already, behind all appends submitted before."""
        stamp = self._stamp
        self._producing.turns.begin_stream(log.name, stamp.producer_id, self)
        state = await self._producing.engine.appends.producer_state(log, stamp.producer_id, behind_appends=True)
        if state is None or state.producer_epoch != stamp.producer_epoch or not state.batches:
            return 0
        self._known = [KnownPlace(batch.first_sequence, batch.first_offset) for batch in state.batches]
        count = (state.last_sequence - stamp.base_sequence + 1) % SEQUENCE_COUNT
        return count if count < SEQUENCE_COUNT // 2 else 0

    async def _skip_stored(self, log: Partition, parsed: ParsedRecords, timed: list[bool]) -> int:
        """Acknowledge as duplicates the first records, as far as the log has them. Return how many.

        Raises:
            OutOfOrderSequenceError: the log has other records of these sequences, or none that could be compared.
        """
        if self._stored_count is None:
            self._stored_count = await self._count_stored(log)
            if self._stored_count:
                # The expected offset was for the first try.
                self._expects_offset = self._is_first_submit = False
        count = min(self._stored_count, len(parsed))
        if count == 0:
            return 0
        stamp, known = self._stamp, tuple(self._known)
        rows = Rows(
            parsed.keys,
            parsed.values,
            [()] * len(parsed) if parsed.headers is None else [tuple(headers) for headers in parsed.headers],
            parsed.timestamps,
            timed,
        )
        producer = (stamp.producer_id, stamp.producer_epoch)
        pieces = await self._producing.engine.reads.stored(
            log, lambda stored: find_stored(stored, producer, known, stamp.base_sequence, count)
        )
        last = (stamp.base_sequence + count - 1) % SEQUENCE_COUNT
        who = f"the sequences {stamp.base_sequence} to {last} of producer {stamp.producer_id}"
        if pieces is None:
            raise OutOfOrderSequenceError(f"{who} were written before, but too long ago to be compared")
        if not all(_is_same(piece, rows) for piece in pieces):
            raise OutOfOrderSequenceError(f"{who} are in the log with other records")
        await self._acknowledge_stored(log, pieces)
        final = pieces[-1]
        self._known.insert(0, KnownPlace((stamp.base_sequence + final.first_row) % SEQUENCE_COUNT, final.base_offset))
        self._stored_count -= count
        self._stamp = ProducerStamp(
            stamp.producer_id, stamp.producer_epoch, (stamp.base_sequence + count) % SEQUENCE_COUNT
        )
        return count

    async def _acknowledge_stored(self, log: Partition, pieces: list[StoredPiece]) -> None:
        end = max(piece.base_offset + piece.record_count for piece in pieces)
        if self._options.acks == "0":
            return
        if self._options.waits_for_fsync(log):
            # The request that wrote these records is gone, and may have ended before its fsync.
            await self._producing.engine.appends.flush(log, Offset(end))
        for result in _results(log, pieces):
            self._acknowledged_count += result.record_count
            self._put_line(encode_document(result_document(log, result)) + b"\n")


def _is_same(piece: StoredPiece, rows: Rows) -> bool:
    return all(piece.rows.is_same(place, rows, piece.first_row + place) for place in range(piece.record_count))


def _results(log: Partition, pieces: list[StoredPiece]) -> Iterator[AppendResult]:
    """Yield one result for each batch of the log, as when it was appended."""
    log_start_offset = log.snapshot.log_start_offset
    for piece in pieces:
        yield AppendResult(
            Offset(piece.base_offset),
            Offset(piece.base_offset + piece.record_count - 1),
            piece.record_count,
            piece.log_append_time,
            log_start_offset,
            duplicate=True,
        )
