"""The record section of a batch, from columns or lists (its layout: ``reader``).

``writer_c`` writes sections in C where it was compiled, otherwise ``writer_py`` writes them in Python: the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar, cast

from rollway.records.columns import RecordColumns
from rollway.records.compiled import load
from rollway.records.sections import writer_py

Item = TypeVar("Item")


class CompiledWriter(Protocol):
    """The functions of ``writer_c.pyx``. ``None`` stands for records that they leave to ``writer_py``."""

    def write_section(self, columns: RecordColumns) -> bytes | None:
        """Return the section of all records."""

    def write_lists(
        self,
        timestamps: list[int],
        keys: list[bytes | None],
        values: list[bytes | None],
        header_blocks: list[bytes] | None,
    ) -> bytes | None:
        """Return the section of lists; ``OverflowError`` for a timestamp that is no int64."""

    def fit_records(self, columns: RecordColumns, bytes_max: int) -> int | None:
        """Return the number of records that fit."""


compiled = cast("CompiledWriter | None", load("rollway.records.sections.writer_c"))
"""The compiled module, or ``None``. Tests set it to ``None`` to hold both against each other."""


def write_section(columns: RecordColumns) -> bytes:
    """Write all records, at least one, with offset deltas from 0.

    Timestamp deltas wrap around at 2^63 as a long of Java does, and back when they are read.

    Raises:
        ValueError: the records take more than ``writer_py.SECTION_BYTES_MAX``, 49 bytes less than 2 GiB.
    """
    written = None if compiled is None else compiled.write_section(columns)
    return writer_py.write_section(columns) if written is None else written


def write_lists(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Sequence[tuple[str, bytes | None]]] | None = None,
) -> bytes:
    """Write all records, at least one, as ``write_section``. They are lists of the same length.

    Raises:
        ValueError: as ``write_section``.
        UnicodeEncodeError: the name of a header has a lone surrogate that stands for no byte.
    """
    blocks = None if headers is None else list(map(writer_py.encode_headers, headers))
    if compiled is not None:
        try:
            written = compiled.write_lists(_as_list(timestamps), _as_list(keys), _as_list(values), blocks)
        except OverflowError:
            written = None
        if written is not None:
            return written
    return writer_py.write_lists(timestamps, keys, values, blocks)


def fit_records(columns: RecordColumns, bytes_max: int) -> int:
    """Return how many of the records, from the first on, a section of at most ``bytes_max`` holds.

    Example: records that take 100 bytes each, three of them, and a ``bytes_max`` of 250: 2.
    """
    fitting = None if compiled is None else compiled.fit_records(columns, bytes_max)
    return writer_py.fit_records(columns, bytes_max) if fitting is None else fitting


def _as_list(items: Sequence[Item]) -> list[Item]:
    # The compiled function takes no subclass of a list.
    return items if type(items) is list else list(items)
