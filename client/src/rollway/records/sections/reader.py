"""The record section of a batch, to columns (docs/reference/on-disk-format.md)::

    length         varint    bytes after this field
    attributes     int8      unused
    timestampDelta varlong
    offsetDelta    varint
    keyLength      varint    -1: null
    key
    valueLength    varint    -1: null
    value
    headerCount    varint
    headers        each: nameLength varint, name (UTF-8), valueLength varint (-1: null), value

``reader_c`` reads sections in C where it was compiled, otherwise ``reader_py`` reads them in Python. Both find the same
records. ``reader_c`` only finds that a section is broken. ``reader_py`` explains the fault, so there is one wording.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from rollway.records.columns import BinaryColumn, HeaderColumns, Int64Array, RecordColumns
from rollway.records.compiled import load
from rollway.records.errors import BrokenRecordError, RecordFormatError
from rollway.records.sections import reader_py

# A record and a header in columns, beside their bytes, rounded up.
_RECORD_COLUMN_BYTES = 40
_HEADER_COLUMN_BYTES = 64

_INT64_MAX = 2**63 - 1

# Data, offsets, nulls: the arguments of a ``BinaryColumn``.
_Strings = tuple[npt.NDArray[np.uint8], Int64Array, npt.NDArray[np.bool_] | None]


class CompiledReader(Protocol):
    """The functions of ``reader_c.pyx``. ``None`` stands for a section that is not sound."""

    def read_section(
        self, section: bytes | memoryview, record_count: int, header_count_max: int
    ) -> tuple[Int64Array, Int64Array, _Strings, _Strings, tuple[Int64Array, _Strings, _Strings] | None] | None:
        """Return offset deltas, timestamp deltas, keys, values, and counts, names and values of headers if any."""

    def find_facts(
        self, section: bytes | memoryview, record_count: int, header_count_max: int
    ) -> tuple[int, int, bool] | None:
        """Return the least and the greatest timestamp delta, and whether a record has no key."""

    def find_fault(self, section: bytes | memoryview, record_count: int, header_count_max: int) -> tuple[int, int, int]:
        """Return the number of the first broken record, where it begins, and the number of headers before it."""

    def fit_records(
        self, section: bytes | memoryview, start: int, record_count: int, bytes_max: int
    ) -> tuple[int, int]:
        """Return the number of records that fit, and where they end."""


compiled = cast("CompiledReader | None", load("rollway.records.sections.reader_c"))
"""The compiled module, or ``None``. Tests set it to ``None`` to hold both against each other."""


class SectionFacts(NamedTuple):
    """The least and the greatest timestamp delta, and whether a record has no key."""

    timestamp_delta_min: int
    timestamp_delta_max: int
    has_null_key: bool


def read_section(section: bytes | memoryview, record_count: int, columns_bytes_max: int | None = None) -> RecordColumns:
    """Read ``record_count`` records that fill ``section`` to the last byte.

    Offsets and timestamps are the deltas of the section. With ``columns_bytes_max``, a section is refused if its
    columns would take more: compressed, many small records or headers cost their sender nothing. A record counts as 40
    bytes, a header as 64, and both are counted before they take memory.

    Example: 1,000 records with one header each need a ``columns_bytes_max`` of 104,000.

    Raises:
        BrokenRecordError: there are not as many records, or one of them breaks the format.
        DecompressedSizeError: the columns would be larger than ``columns_bytes_max``.
    """
    headers_max = _headers_max(section, record_count, columns_bytes_max)
    if compiled is None or record_count == 0:
        return reader_py.read_section(section, record_count, headers_max)
    found = compiled.read_section(section, record_count, headers_max)
    if found is None:
        fault = compiled.find_fault(section, record_count, headers_max)
        raise reader_py.explain(section, record_count, headers_max, fault)
    offsets, timestamps, keys, values, headers = found
    return RecordColumns(
        offsets,
        timestamps,
        BinaryColumn.unchecked(*keys),
        BinaryColumn.unchecked(*values),
        None
        if headers is None
        else HeaderColumns(headers[0], BinaryColumn.unchecked(*headers[1]), BinaryColumn.unchecked(*headers[2])),
    )


def find_facts(
    section: bytes | memoryview, record_count: int, columns_bytes_max: int | None = None
) -> SectionFacts | None:
    """Return the facts of records that a log stores as they came. The compiled twin makes no columns of them.

    Facts mean that ``read_section`` with the same ``columns_bytes_max`` reads these records, at least one, and that
    record ``i`` has the offset delta ``i``. ``None`` for every other section; ``read_section`` tells what is wrong.

    Thread: any.
    """
    try:
        headers_max = _headers_max(section, record_count, columns_bytes_max)
    except RecordFormatError:
        return None
    if compiled is None:
        found = reader_py.find_facts(section, record_count, headers_max)
    else:
        found = compiled.find_facts(section, record_count, headers_max)
    return None if found is None else SectionFacts(*found)


def fit_records(section: memoryview, start: int, record_count: int, bytes_max: int) -> tuple[int, int]:
    """Return how many whole records, at most ``record_count``, lie in the ``bytes_max`` bytes from ``start`` on.

    Also returns where the last of them ends. Only their lengths are read; a length that leads out of the section, or is
    none, ends the search. Example: in a section of three records of 100 bytes, two fit into 250 bytes and end at 200.
    """
    if compiled is None:
        return reader_py.fit_records(section, start, record_count, bytes_max)
    return compiled.fit_records(section, start, record_count, bytes_max)


def _headers_max(section: bytes | memoryview, record_count: int, columns_bytes_max: int | None) -> int:
    """Return how many headers ``record_count`` records may have, after checking whether there may be that many records.

    Raises:
        BrokenRecordError, DecompressedSizeError: as ``read_section``.
    """
    if not 0 <= record_count <= len(section) // (reader_py.RECORD_BODY_BYTES_MIN + 1):
        raise BrokenRecordError(f"{record_count} records cannot be in {len(section)} bytes")
    if columns_bytes_max is None:
        return _INT64_MAX
    left_bytes = columns_bytes_max - record_count * _RECORD_COLUMN_BYTES
    if left_bytes < 0:
        raise reader_py.too_many_for_memory()
    return left_bytes // _HEADER_COLUMN_BYTES
