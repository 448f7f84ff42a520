"""What a log must know of records that it stores as they came, found without making columns of them.

Quick, and only ever sure of the good: an answer means that the general reader (``section_reader``) reads the same
records without complaint, their offset deltas counting up from 0. Everything else, broken or merely unusual, is
``None`` and the general reader's to judge: there is one verdict, and one wording of it.

Compiled (``sections_c.pyx``), this is one walk. In Python, records of one shape are taken to be the rule: few of them
are compared field by field, each field of all records as one string of bytes; many in runs (``record_runs``). Other
small sections are walked record by record.
"""

from __future__ import annotations

from typing import NamedTuple

from rollway.records import compiled
from rollway.records.errors import BrokenRecordError, DecompressedSizeError
from rollway.records.record_runs import find_extremes
from rollway.records.section_reader import RECORD_COLUMN_BYTES, header_count_max, survey_section
from rollway.records.section_rows import HEADER_BYTES_MIN
from rollway.records.sections.varint import read_varint, read_varlong

# Measured: fewer records are walked sooner than they are compared field by field, or looked at as a run.
_COMPARE_MIN = 8
_RUN_MIN = 12
# Measured: with more records of different shapes arrays are quicker.
_WALK_MAX = 100
_WALK_BYTES_MAX = 64 * 1024
# Zigzagged numbers from 0 on that take one byte: the offset deltas of the first records, or any number of no sign.
_WHOLE_NUMBERS = bytes(range(0, 0x80, 2))


class SectionFacts(NamedTuple):
    """The least and the greatest timestamp delta, and whether a record has no key."""

    timestamp_delta_min: int
    timestamp_delta_max: int
    has_null_key: bool


def find_facts(
    section: bytes | memoryview, record_count: int, columns_bytes_max: int | None = None
) -> SectionFacts | None:
    """The facts of ``record_count`` records, at least one, that fill ``section``; ``None`` when in doubt.

    An answer means that ``read_section`` with the same ``columns_bytes_max`` reads them, and that record ``i`` has the
    offset delta ``i``. No keys, values or headers are copied out of a large section. Thread: any.
    """
    sections = compiled.sections
    if sections is not None:
        found = sections.find_facts(section, record_count, header_count_max(record_count, columns_bytes_max))
        return None if found is None else SectionFacts(*found)
    is_small = record_count <= _WALK_MAX and len(section) <= _WALK_BYTES_MAX
    try:
        if is_small and _COMPARE_MIN <= record_count <= len(_WHOLE_NUMBERS):
            facts = _compare(bytes(section), record_count)
            if facts is not None:
                return facts
        if record_count >= _RUN_MIN or not is_small:
            if columns_bytes_max is not None and record_count * RECORD_COLUMN_BYTES > columns_bytes_max:
                return None
            extremes = find_extremes(section, record_count)
            if extremes is not None:
                return SectionFacts(*extremes)
        if is_small:
            return _walk(bytes(section), record_count)
        survey = survey_section(section, record_count, columns_bytes_max)
    except (BrokenRecordError, DecompressedSizeError, IndexError):
        return None
    return None if survey is None else SectionFacts(*survey)


def _compare(data: bytes, record_count: int) -> SectionFacts | None:
    """The facts of records of one shape, without headers, whose deltas take one byte and have no sign.

    The last one may be of another length. Each field is at the same place in all others: the length by induction.

    Raises:
        BrokenRecordError, IndexError: a record breaks the format.
    """
    low = data[0]
    body = 1 if low < 0x80 else 2
    stride = body + (low >> 1 if low < 0x80 else data[1] << 6 | low >> 1 & 0x3F)
    count = record_count if stride * record_count == len(data) else record_count - 1
    last = count * stride
    key = data[body + 3]
    value_at = body + 4 if key == 1 else body + 4 + (key >> 1)
    value = data[value_at]
    end = value_at + 1 if value == 1 else value_at + 1 + (value >> 1)
    same = [0, body + 3, value_at]
    if body == 2:
        same.append(1)
    if value >= 0x80:
        same.append(value_at + 1)
        end = value_at + 2 + (data[value_at + 1] << 6 | value >> 1 & 0x3F)
        if data[value_at + 1] >= 0x80:
            return None
    if (
        (low & 1 or (body == 2 and data[1] >= 0x80))
        or (key != 1 and (key & 1 or key >= 0x80))
        or (value != 1 and value & 1)
        or end != stride - 1
        or last > len(data)
        or data[body + 2 : last : stride] != _WHOLE_NUMBERS[:count]
        or data[end:last:stride] != bytes(count)
    ):
        return None
    for at in same:
        if data[at:last:stride] != data[at : at + 1] * count:
            return None
    timestamps = data[body + 1 : last : stride]
    if timestamps.translate(None, _WHOLE_NUMBERS):
        return None
    least, greatest, has_null_key = min(timestamps) >> 1, max(timestamps) >> 1, key == 1
    if count == record_count:
        return SectionFacts(least, greatest, has_null_key)
    facts = _walk(data, record_count, count, last)
    if facts is None:
        return None
    return SectionFacts(min(least, facts[0]), max(greatest, facts[1]), has_null_key or facts[2])


def _walk(data: bytes, record_count: int, first: int = 0, position: int = 0) -> SectionFacts | None:
    """From record to record, beginning at ``position`` with the one whose offset delta is ``first``.

    Places only grow: if a record's last field ends where it does, all of them are inside.

    Raises:
        BrokenRecordError, IndexError: a record breaks the format.
    """
    end = len(data)
    least = greatest = 0
    has_null_key = False
    for place in range(first, record_count):
        # Most numbers take one byte or two, and are read here: a call costs more than reading one.
        low = data[position]
        if low < 0x80:
            stop = position + 1 + (low >> 1)
            position += 2
        elif data[position + 1] < 0x80:
            stop = position + 2 + (data[position + 1] << 6 | low >> 1 & 0x3F)
            position += 3
        else:
            length, position = read_varint(data, position, end)
            low, stop = length << 1, position + length
            position += 1
        if low & 1 or stop > end:
            return None
        delta = data[position]
        if delta < 0x80:
            delta = delta >> 1 ^ -(delta & 1)
            position += 1
        else:
            delta, position = read_varlong(data, position, stop)
        if place == first:
            least = greatest = delta
        elif delta > greatest:
            greatest = delta
        elif delta < least:
            least = delta
        if data[position] == place << 1 < 0x80:
            position += 1
        else:
            offset, position = read_varint(data, position, stop)
            if offset != place:
                return None
        low = data[position]
        if low == 1:
            has_null_key = True
            position += 1
        else:
            position = _skip(data, position, stop) if low >= 0x80 or low & 1 else position + 1 + (low >> 1)
        low = data[position]
        if low < 0x80 and not low & 1:
            position += 1 + (low >> 1)
        elif low >= 0x80 and not low & 1 and data[position + 1] < 0x80:
            position += 2 + (data[position + 1] << 6 | low >> 1 & 0x3F)
        elif low == 1:
            position += 1
        else:
            position = _skip(data, position, stop)
        if data[position] == 0:
            position += 1
        else:
            position = _walk_headers(data, position, stop)
        if position != stop:
            return None
    return SectionFacts(least, greatest, has_null_key) if position == end else None


def _skip(data: bytes, position: int, stop: int) -> int:
    """Where the bytes end whose length stands at ``position``. A null in a form of its own is none here."""
    length, position = read_varint(data, position, stop)
    if length < 0:
        raise BrokenRecordError(f"has a field of {length} bytes")
    return position + length


def _walk_headers(data: bytes, position: int, stop: int) -> int:
    """Where the headers end whose count stands at ``position``."""
    count, position = read_varint(data, position, stop)
    if not 0 <= count <= (stop - position) // HEADER_BYTES_MIN:
        raise BrokenRecordError(f"has {count} headers")
    for _ in range(count):
        length, position = read_varint(data, position, stop)
        if length < 0:
            raise BrokenRecordError("has a header without a name")
        position += length
        if data[position] == 1:
            position += 1
        else:
            position = _skip(data, position, stop)
    return position
