"""The pieces of an entry: ``pieces_c`` takes and notes them where it was compiled, otherwise ``pieces_py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from rollway.records.compiled import load
from storage.journal import pieces_py
from storage.journal.journal_files import JournalFile
from storage.journal.pieces_py import PIECE_BYTES_MAX, Answer, TakenPieces
from storage.log.partition_log import PartitionLog
from storage.log.written_log import Journal

__all__ = ["PIECE_BYTES_MAX", "Answer", "TakenPieces", "note_journaled", "take_pieces"]


class CompiledPieces(Protocol):
    """The functions of ``pieces_c.pyx``."""

    def take(self, logs: Sequence[PartitionLog], answers: list[Answer], bytes_max: int) -> TakenPieces | None:
        """Do the same as ``take_pieces``. ``None`` leaves it to ``pieces_py``, with no lock held."""

    def note(self, taken: TakenPieces, journal: Journal, file: JournalFile) -> None:
        """Do the same as ``note_journaled``."""


compiled = cast("CompiledPieces | None", load("storage.journal.pieces_c"))
"""The compiled module, or ``None``; looked up here with every call. Tests set it to ``None``."""


def take_pieces(logs: Sequence[PartitionLog], answers: list[Answer], bytes_max: int) -> TakenPieces:
    """Take what each log has written since it was durable, as the body of an entry of at most ``bytes_max`` bytes.

    For a log of which nothing is taken, the answer is set; see ``Journal.flush``. No truncation of the others may come
    between the return and ``TakenPieces.release``.
    """
    taken = None if compiled is None else compiled.take(logs, answers, bytes_max)
    return pieces_py.take_pieces(logs, answers, bytes_max) if taken is None else taken


def note_journaled(taken: TakenPieces, journal: Journal, file: JournalFile) -> None:
    """Note in each log, and in the journal's ``file``, that the pieces are durable. Publish the logs afterwards."""
    note = pieces_py.note_journaled if compiled is None else compiled.note
    note(taken, journal, file)
