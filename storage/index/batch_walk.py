"""A walk over the batches of a segment file by their headers; records are not read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from log_model.errors import CorruptionError
from log_model.offsets import ByteRange, Offset, Position
from rollway.records import HEADER_BYTES, BatchHeader, RecordBatch, RecordFormatError, parse_header
from storage.disk.file_system import File
from storage.index.index_file import RELATIVE_OFFSET_MAX

_PIECE_BYTES = 8192


class StoredBatch(NamedTuple):
    """A batch's header, and the position at which the batch begins."""

    position: Position
    header: BatchHeader

    @property
    def end(self) -> Position:
        return Position(self.position + self.header.size_bytes)


def walk_batches(
    file: File,
    position: int,
    end: int,
    segment_base_offset: int,
    *,
    has_gaps: bool,
    holes: Sequence[ByteRange] = (),
) -> Iterator[StoredBatch]:
    """Yield the batches in ``[position, end)``; ``position`` begins a batch or lies in one of the ``holes``.

    Holes are damaged bytes that recovery has noted, in order. The walk continues behind each of them.

    Offsets must rise from the segment's base offset, without gaps unless ``has_gaps``, and stay within 2^31-1 of it.
    Every batch must lie below ``end`` and have magic 2. CRCs are not checked: they do not cover offsets, so they would
    not confirm them (disk rule 6).

    Raises:
        CorruptionError: the bytes at a position are no such batch.
    """
    next_offset = segment_base_offset
    may_skip = has_gaps or position > 0
    piece = b""
    piece_at = position
    while position < end:
        hole = next((hole for hole in holes if hole.start <= position < hole.end), None)
        if hole is not None:
            position, may_skip = hole.end, True
            continue
        start = position - piece_at
        if start + HEADER_BYTES > len(piece):
            piece = file.read(position, min(_PIECE_BYTES, end - position))
            piece_at = position
            start = 0
        try:
            header = parse_header(piece, start)
        except RecordFormatError as error:
            raise CorruptionError(f"{file.path}: no batch at byte {position}: {error}") from error
        if position + header.size_bytes > end:
            raise CorruptionError(
                f"{file.path}: the batch at byte {position} is {header.size_bytes} bytes long, "
                f"but the log ends at byte {end}"
            )
        is_next = header.base_offset == next_offset or (may_skip and header.base_offset > next_offset)
        if not is_next or header.last_offset_delta < 0:
            raise CorruptionError(
                f"{file.path}: the batch at byte {position} has offsets {header.base_offset} to {header.last_offset}, "
                f"but offset {next_offset} comes next"
            )
        if header.last_offset - segment_base_offset > RELATIVE_OFFSET_MAX:
            raise CorruptionError(
                f"{file.path}: the batch at byte {position} ends with offset {header.last_offset}, which is too far "
                f"from the segment's base {segment_base_offset} for an index entry"
            )
        yield StoredBatch(Position(position), header)
        next_offset = header.last_offset + 1
        may_skip = has_gaps
        position += header.size_bytes


def read_batch(file: File, batch: StoredBatch) -> RecordBatch:
    """Read a whole batch and check its CRC.

    Raises:
        CorruptionError: the batch is damaged, or the file has become shorter.
    """
    content = file.read(batch.position, batch.header.size_bytes)
    try:
        whole = RecordBatch(memoryview(content))
        whole.check_crc()
    except RecordFormatError as error:
        raise CorruptionError(
            f"{file.path}: the batch of offset {Offset(batch.header.base_offset)} at byte {batch.position} "
            f"is damaged: {error}"
        ) from error
    return whole
