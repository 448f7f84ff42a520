"""The pieces of one entry of the journal: what several logs have written since they were last durable.

``pieces_c`` does the same in C. This module takes what that one leaves, and everything without a compiler.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import NamedTuple

from log_model.errors import PartitionFailedError
from log_model.offsets import LogOffsetMetadata
from storage.journal.entries import PIECE_OVERHEAD_BYTES, Piece, encode_body
from storage.journal.journal_files import JournalFile
from storage.log.partition_log import PartitionLog
from storage.log.written_log import Journal, JournaledEnd

PIECE_BYTES_MAX = 64 * 1024
"""A larger piece would be written twice for nothing: the fsync of its segment costs about as much."""

Answer = bool | PartitionFailedError
"""The answer of ``Journal.flush`` for one log."""


class TakenPieces(NamedTuple):
    """The pieces of an entry: of the logs at these ``places`` of a flush, each up to its end. ``body`` is the entry's.

    The ``flushing`` of each of these logs is held, by the thread that took the pieces.
    """

    places: list[int]
    logs: list[PartitionLog]
    ends: list[LogOffsetMetadata]
    body: bytes

    def release(self) -> None:
        """Release ``flushing`` of the logs. Thread: the one that took the pieces."""
        for log in self.logs:
            log.writer.flushing.release()


def take_pieces(logs: Sequence[PartitionLog], answers: list[Answer], bytes_max: int) -> TakenPieces:
    """Take what each log has written since it was durable, as the body of an entry of at most ``bytes_max`` bytes.

    For a log of which nothing is taken, the answer is set; see ``Journal.flush``. No truncation of the others may come
    between the return and ``TakenPieces.release``.
    """
    pieces: list[Piece] = []
    taken = TakenPieces([], [], [], b"")
    is_whole = False
    try:
        for place, log in enumerate(logs):
            if not log.writer.flushing.acquire(blocking=False):
                continue
            found = take_piece(log)
            if isinstance(found, tuple) and len(found[1].content) + PIECE_OVERHEAD_BYTES <= bytes_max:
                end, piece = found
                bytes_max -= len(piece.content) + PIECE_OVERHEAD_BYTES
                pieces.append(piece)
                taken.places.append(place)
                taken.logs.append(log)
                taken.ends.append(end)
                continue
            log.writer.flushing.release()
            if not isinstance(found, tuple):
                answers[place] = found
        is_whole = True
    finally:
        if not is_whole:
            taken.release()
    return taken._replace(body=encode_body(pieces))


def take_piece(log: PartitionLog) -> tuple[LogOffsetMetadata, Piece] | Answer:
    """Return the end and the piece of a log, or the answer of ``Journal.flush`` where nothing is taken.

    The caller holds the log's ``flushing``, until the piece is durable: no truncation may come between.
    """
    writer = log.writer
    written, start = writer.written, writer.durable_end
    end = written.log_end
    length = end.position - start.position
    if end.offset <= start.offset:
        return True
    if end.segment_base_offset != start.segment_base_offset or length > PIECE_BYTES_MAX:
        return False
    if log.offline_reason is not None:
        return PartitionFailedError(f"{log.name} is offline: {log.offline_reason}")
    active = written.active.log
    try:
        # Whether the file is still at its path is checked beside, each second (``PartitionLog.check_files``).
        content = active.file.read(start.position, length)
        if len(content) != length:
            raise OSError(errno.EIO, f"{active.path} was cut by another process")
    except OSError as error:
        return log.fail(error, "flushing")
    return end, Piece(log.topic_id, log.name.partition, end.segment_base_offset, start.position, end.offset, content)


def note_journaled(taken: TakenPieces, journal: Journal, file: JournalFile) -> None:
    """Note in each log, and in the journal's ``file``, that the pieces are durable. Publish the logs afterwards."""
    for log, end in zip(taken.logs, taken.ends, strict=True):
        writer = log.writer
        writer.note_journaled(end, journal)
        journaled = writer.journaled
        if journaled is None or journaled.use is not file.use:
            journaled = writer.journaled = file.logs[log] = JournaledEnd(file.use)
        journaled.offset = end.offset
