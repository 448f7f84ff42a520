"""Records as they stand in JSON responses.

``record_texts_c`` writes them in C where it was compiled, otherwise ``record_texts_py`` writes them with msgspec. Both
write the same bytes, those of ``record_documents``; a test compares them. ``record_texts_py`` also
writes the values that are JSON themselves, and documents that are not text yet.
"""

from __future__ import annotations

import sys
from typing import Protocol, cast

import msgspec

from app.record_json import record_texts_py
from app.record_json.record_texts_py import IN_LINES, IN_LIST, BoundedTexts, RecordText
from app.record_json.translate import Encoding
from rollway.records import RecordColumns
from rollway.records.compiled import load

__all__ = ["IN_LINES", "IN_LIST", "BoundedTexts", "RecordText", "bounded_texts", "record_texts"]


class CompiledTexts(Protocol):
    """The function of ``record_texts_c.pyx``."""

    def write_texts(
        self,
        columns: RecordColumns,
        timestamp_type: bytes,
        partition: int,
        between: bytes,
        as_base64: bool,
        bytes_max: int,
    ) -> tuple[bytes, int, int]:
        """Write one JSON object for each record, with ``between`` each two of them, as many as fit into ``bytes_max``.

        Return the text, the number of its records, and about how many bytes the next record takes; 0 if there is none.
        """


compiled = cast("CompiledTexts | None", load("app.record_json.record_texts_c"))
"""The compiled module, or ``None``. Looked up here with every call. Tests set it to ``None``."""

_NOTHING = BoundedTexts([], 0, 0, 0)


def record_texts(
    columns: RecordColumns, *, encoding: Encoding, timestamp_type: str, partition: int, between: bytes | None
) -> list[RecordText]:
    """Return the records as JSON, to be encoded as a list or as lines.

    Without ``between``, each record is one document. With the ``IN_LIST`` or ``IN_LINES`` of the response, all of them
    may be a single text.
    """
    if compiled is None or between is None or encoding == "json" or not len(columns):
        return record_texts_py.record_texts(
            columns, encoding=encoding, timestamp_type=timestamp_type, partition=partition
        )
    text, _, _ = compiled.write_texts(
        columns, timestamp_type.encode(), partition, between, encoding == "base64", sys.maxsize
    )
    return [msgspec.Raw(text)]


def bounded_texts(
    columns: RecordColumns,
    *,
    encoding: Encoding,
    timestamp_type: str,
    partition: int,
    between: bytes | None,
    bytes_max: int,
) -> BoundedTexts:
    """Return as many of the first records as ``bytes_max`` bytes of text allow. A record that does not fit is not made.

    Raises:
        TooManyValuesError: with ``encoding=json``, a value has too many values to be parsed.
    """
    if not len(columns):
        return _NOTHING
    if compiled is None or between is None or encoding == "json":
        return record_texts_py.bounded_texts(
            columns,
            encoding=encoding,
            timestamp_type=timestamp_type,
            partition=partition,
            between=between,
            bytes_max=bytes_max,
        )
    text, count, missing_bytes = compiled.write_texts(
        columns, timestamp_type.encode(), partition, between, encoding == "base64", bytes_max
    )
    return BoundedTexts([msgspec.Raw(text)] if count else [], count, len(text), missing_bytes)
