"""Record sections read by plain Python: one record after the other, one field after the other.

``reader`` has the layout of a section and says what these functions promise. They also find the words for the
fault of a section, whichever of the two readers found it.
"""

from __future__ import annotations

from array import array

import numpy as np

from rollway.records.columns import BinaryColumnBuilder, HeaderColumns, RecordColumns
from rollway.records.errors import BrokenRecordError, DecompressedSizeError, RecordFormatError
from rollway.records.sections.varint import read_varint, read_varlong

RECORD_BODY_BYTES_MIN = 6
"""A record without key, value and headers, its length field left out."""

HEADER_BYTES_MIN = 2
"""A record header with an empty name and value."""


def read_section(section: bytes | memoryview, record_count: int, headers_max: int) -> RecordColumns:
    """Read ``record_count`` records that fill ``section``; offsets and timestamps are the deltas that stand there.

    Raises:
        BrokenRecordError: there are not as many records, or one of them breaks the format.
        DecompressedSizeError: there are more than ``headers_max`` headers. Each record's are counted before they are
            read.
    """
    return _Reader(section, headers_max).read(record_count)


def find_facts(section: bytes | memoryview, record_count: int, headers_max: int) -> tuple[int, int, bool] | None:
    """Return the least and the greatest timestamp delta, and whether a record has no key.

    ``None`` if ``read_section`` refuses the section, or its offset deltas do not count up from 0.
    """
    try:
        columns = read_section(section, record_count, headers_max)
    except RecordFormatError:
        return None
    if record_count == 0 or not np.array_equal(columns.offsets, np.arange(record_count)):
        return None
    return int(columns.timestamps.min()), int(columns.timestamps.max()), columns.keys.nulls is not None


def fit_records(section: memoryview, start: int, record_count: int, bytes_max: int) -> tuple[int, int]:
    """Return how many of the next ``record_count`` records fit into ``bytes_max`` from ``start`` on, and their end.

    Reads their lengths only. Stops before a record whose length is broken or leads out of the section.
    """
    end = min(start + bytes_max, len(section))
    position = start
    for count in range(record_count):
        try:
            length, body = read_varint(section, position, end)
        except BrokenRecordError:
            return count, position
        if length < RECORD_BODY_BYTES_MIN or length > end - body:
            return count, position
        position = body + length
    return record_count, position


def explain(
    section: bytes | memoryview, record_count: int, headers_max: int, fault: tuple[int, int, int]
) -> RecordFormatError:
    """Return the error of a section, as ``read_section`` raises it, without reading the records before the fault.

    ``fault`` is the number of the first record that is not sound, where it begins, and how many headers the records
    before it have.
    """
    place, position, header_count = fault
    try:
        _Reader(section, headers_max - header_count, place, position).read(record_count)
    except RecordFormatError as error:
        return error
    # Another thread has changed the memory since the fault was found.
    return _broken_record(place, "breaks the format")


def too_few_records(found_count: int, record_count: int) -> BrokenRecordError:
    """Return the error of a section that ends too early."""
    return BrokenRecordError(f"the records end after {found_count}, not {record_count}")


def bytes_left_over(size_bytes: int, record_count: int) -> BrokenRecordError:
    """Return the error of a section that goes on behind its last record."""
    return BrokenRecordError(f"{size_bytes} bytes are left over after {record_count} records")


def _broken_record(place: int, message: str) -> BrokenRecordError:
    return BrokenRecordError(f"record {place} {message}", ((place, message),))


class _Reader:
    """Reads a section from record number ``place`` on, which begins at ``position``.

    It keeps records in arrays of numbers and bytes, so that a small one takes little memory: at most 42 bytes beside
    its content, and 18 for each header.
    """

    def __init__(self, section: bytes | memoryview, headers_left: int, place: int = 0, position: int = 0) -> None:
        self._data = section if isinstance(section, bytes) else bytes(section)
        self._headers_left = headers_left
        self._place = place
        self._position = position
        self._timestamps = array("q")
        self._offsets = array("q")
        self._header_counts = array("q")
        self._keys = BinaryColumnBuilder()
        self._values = BinaryColumnBuilder()
        self._names = BinaryColumnBuilder()
        self._header_values = BinaryColumnBuilder()

    def read(self, record_count: int) -> RecordColumns:
        """Read up to record number ``record_count``, where the section must end."""
        while self._place < record_count:
            if self._position == len(self._data):
                raise too_few_records(self._place, record_count)
            try:
                self._position = self._read_record(self._position)
            except BrokenRecordError as error:
                raise _broken_record(self._place, str(error)) from None
            self._place += 1
        left_bytes = len(self._data) - self._position
        if left_bytes:
            raise bytes_left_over(left_bytes, record_count)
        headers = None
        if len(self._names):
            counts = np.frombuffer(self._header_counts, dtype=np.int64)
            headers = HeaderColumns(counts, self._names.column(), self._header_values.column())
        return RecordColumns(
            np.frombuffer(self._offsets, dtype=np.int64),
            np.frombuffer(self._timestamps, dtype=np.int64),
            self._keys.column(),
            self._values.column(),
            headers,
        )

    def _read_record(self, position: int) -> int:
        """Read the record at ``position``; return where it ends."""
        data = self._data
        length, position = read_varint(data, position, len(data))
        end = position + length
        if length < RECORD_BODY_BYTES_MIN or end > len(data):
            raise BrokenRecordError(f"says it is {length} bytes long where {len(data) - position} are left")
        timestamp_delta, position = read_varlong(data, position + 1, end)  # behind the attributes, which are unused
        offset_delta, position = read_varint(data, position, end)
        key, position = _read_bytes(data, position, end)
        value, position = _read_bytes(data, position, end)
        header_count, position = read_varint(data, position, end)
        if header_count:
            position = self._read_headers(header_count, position, end)
        if position != end:
            raise BrokenRecordError(f"has {end - position} bytes left over at its end")
        self._timestamps.append(timestamp_delta)
        self._offsets.append(offset_delta)
        self._header_counts.append(header_count)
        self._keys.append(key)
        self._values.append(value)
        return end

    def _read_headers(self, count: int, position: int, end: int) -> int:
        if not 0 <= count <= (end - position) // HEADER_BYTES_MIN:
            raise BrokenRecordError(f"has {count} headers where {end - position} bytes are left")
        self._headers_left -= count
        if self._headers_left < 0:
            raise too_many_for_memory()
        for _ in range(count):
            name, position = _read_bytes(self._data, position, end)
            if name is None:
                raise BrokenRecordError("has a header without a name")
            value, position = _read_bytes(self._data, position, end)
            self._names.append(name)
            self._header_values.append(value)
        return position


def too_many_for_memory() -> DecompressedSizeError:
    """Return the error of a section whose columns would outgrow their limit."""
    return DecompressedSizeError("the batch has more records or headers than there is memory for")


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """Read a length and the bytes that it counts, -1 for a null; return them and where they end."""
    length, position = read_varint(data, position, end)
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise BrokenRecordError(f"has a field of {length} bytes where {end - position} are left")
    return data[position : position + length], position + length
