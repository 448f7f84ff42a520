"""Append of a leader's stored batches: their offsets and epochs are given, and the bytes do not change (spec E18)."""

from __future__ import annotations

from collections.abc import Sequence

from log_model.batches.batch_validation import ValidBatch
from log_model.errors import CorruptBatchError, UnexpectedAppendOffsetError
from log_model.offsets import LeaderEpoch, Offset
from log_model.transactions import marker_of
from rollway.records import HEADER_BYTES, RecordBatch, RecordFormatError, split_batches
from storage.log.log_truncation import LogTruncation
from storage.log.log_writer import LogWriter


class CopiedAppend:
    """Appends a leader's batches. Sizes, timestamps and sequences are not checked again.

    Thread: the partition's writer only.
    """

    def __init__(self, writer: LogWriter, truncation: LogTruncation) -> None:
        self._writer = writer
        self._truncation = truncation

    def append(self, content: bytes) -> None:
        """Append whole batches; see ``PartitionLog.append_copied``.

        Raises:
            CorruptBatchError, UnexpectedAppendOffsetError: nothing was written.
            DiskFullError, TooManyOpenFilesError: some of the batches may be written, none in part.
            OSError: the disk failed.
        """
        batches = _checked(content)
        if not batches:
            return
        self._fit(batches)
        for batch in batches:
            self._begin_epoch_of(batch)
            base_offset = Offset(batch.header.base_offset)
            if not self._writer.config.compacts:
                # A truncation of the leader's log left a gap there.
                self._truncation.skip_to(base_offset)
            control = marker_of(batch) if batch.header.is_control else None
            buffer = batch.buffer
            valid = ValidBatch(bytearray(buffer[:HEADER_BYTES]), batch.body, batch.header, batch.header.max_timestamp)
            self._writer.append_copied(valid, control)

    def _fit(self, batches: Sequence[RecordBatch]) -> None:
        """Check that the first batch is at or above the log end. An empty log may restart at a batch that reaches over
        its log start."""
        written = self._writer.written
        first, last = batches[0].header, batches[-1].header
        log_end = written.log_end.offset
        if first.base_offset >= log_end:
            return
        is_empty = len(written.segments) == 1 and written.active.size_bytes == 0
        if is_empty and first.base_offset < written.log_start_offset <= first.last_offset:
            self._truncation.start_at(Offset(first.base_offset))
            return
        raise UnexpectedAppendOffsetError(
            f"offsets {first.base_offset} to {last.last_offset} cannot be appended, the log ends at {log_end}",
            first_offset=first.base_offset,
            last_offset=last.last_offset,
        )

    def _begin_epoch_of(self, batch: RecordBatch) -> None:
        """Record the batch's epoch before its first record is written (spec E1)."""
        epoch = batch.header.partition_leader_epoch
        latest = self._writer.epochs.latest
        if epoch >= 0 and (latest is None or epoch > latest.epoch):
            self._writer.epochs.assign(LeaderEpoch(epoch), Offset(batch.header.base_offset))


def _checked(content: bytes) -> list[RecordBatch]:
    """Split ``content`` into batches, and check that they are whole, have right CRCs and rising offsets."""
    try:
        batches = split_batches(content)
        for batch in batches:
            batch.check_crc()
    except RecordFormatError as error:
        raise CorruptBatchError(f"a leader's batches are damaged: {error}") from error
    next_offset = 0
    for batch in batches:
        header = batch.header
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise CorruptBatchError(f"a leader's batches go back from offset {next_offset} to {header.base_offset}")
        next_offset = header.next_offset
    return batches
