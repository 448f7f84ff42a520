"""Records as they stand in JSON answers: as text written in C where the service was installed with a compiler.

The text is the one that msgspec makes of ``translate.record_documents``, byte for byte; a test holds them together.
"""

from __future__ import annotations

from typing import Protocol, cast

import msgspec

from app.translate import Encoding, RecordDocument, record_documents
from rollway.records import RecordColumns
from rollway.records.compiled import load

IN_LIST = b","
"""Between two records of a JSON array."""

IN_LINES = b"\n"
"""Between two records of NDJSON."""

RecordText = RecordDocument | msgspec.Raw
"""A record to encode, or the text of one or more."""


class CompiledTexts(Protocol):
    """What ``_record_texts.pyx`` has."""

    def write_texts(
        self, columns: RecordColumns, timestamp_type: bytes, partition: int, between: bytes, as_base64: bool
    ) -> bytes:
        """One JSON object for each record, with ``between`` each two of them."""


texts = cast("CompiledTexts | None", load("app._record_texts"))
"""The compiled way, or ``None``; looked up here with every call."""


def record_texts(
    columns: RecordColumns, *, encoding: Encoding, timestamp_type: str, partition: int, between: bytes | None
) -> list[RecordText]:
    """What JSON shows of these records, to be encoded in a list of such, or as lines.

    Without ``between`` one document for each record. With it, the ``IN_LIST`` or ``IN_LINES`` of the answer that it is
    for, it may be a single text for all.
    """
    if texts is None or between is None or encoding == "json" or not len(columns):
        documents = record_documents(columns, encoding=encoding, timestamp_type=timestamp_type, partition=partition)
        return cast("list[RecordText]", documents)
    text = texts.write_texts(columns, timestamp_type.encode(), partition, between, encoding == "base64")
    return [msgspec.Raw(text)]
