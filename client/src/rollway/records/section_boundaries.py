"""Where the records of a section begin: the only thing about them that one record must tell about the next.

Neighbours of equal length are the rule, so a length is taken for that of a whole run and the run is verified at once:
if the same length field stands at every step of that width, each step is a record by induction. Elsewhere a loop walks
from length to length and looks at nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rollway.records.columns import BoolArray, ByteArray, Int64Array
from rollway.records.errors import BrokenRecordError
from rollway.records.section_rows import RECORD_BODY_BYTES_MIN
from rollway.records.sections.varint import read_varint
from rollway.records.varint_arrays import read_varints

_RUN_MIN = 32
# Runs are looked for again after so many records, and less often where there are none.
_WALK_MIN = 128
_WALK_MAX = 16384
_WALK_GROWTH = 8
# A run is verified in growing pieces, so that a short one does not cost a look at the whole section.
_FIRST_PIECE = 256

# From a record's start to its end, by the first byte of its length when that is all, or by both bytes of two.
_LOW_STEPS = tuple(1 + (byte >> 1) if byte < 0x80 else 2 + (byte - 0x80 >> 1) for byte in range(256))
_HIGH_STEPS = tuple(byte << 6 for byte in range(0x80))


class Boundaries(NamedTuple):
    """Where records lie: from ``starts[i]`` to ``starts[i + 1]``, what follows the length field from ``bodies[i]`` on.

    ``broken`` marks those whose length is no number, too small, or leads beyond the section.
    """

    starts: Int64Array
    bodies: Int64Array
    broken: BoolArray

    @property
    def record_count(self) -> int:
        return len(self.bodies)

    def slice(self, start: int, end: int) -> Boundaries:
        """Records ``[start, end)``."""
        return Boundaries(self.starts[start : end + 1], self.bodies[start:end], self.broken[start:end])


def find_boundaries(section: bytes | memoryview, data: ByteArray, record_count: int) -> Boundaries:
    """Find the records of a section, fewer than ``record_count`` when it ends before they do.

    ``data`` is ``section`` as an array; ``record_count`` records of the smallest size fit into it.
    """
    starts = np.empty(record_count + 1, dtype=np.int64)
    bodies = np.empty(record_count, dtype=np.int64)
    broken = np.zeros(record_count, dtype=np.bool_)
    walked: bytes | None = None
    walk_count = _WALK_MIN
    first = 0
    position = 0
    while first < record_count and position < len(data):
        run_count, field_bytes, stride = _find_run(data, position, record_count - first)
        if run_count:
            last = first + run_count
            starts[first:last] = np.arange(position, position + run_count * stride, stride)
            np.add(starts[first:last], field_bytes, out=bodies[first:last])
            position += run_count * stride
            walk_count = _WALK_MIN
        else:
            walked = bytes(section) if walked is None else walked
            found = _walk(walked, position, min(walk_count, record_count - first))
            last = first + len(found) - 1
            starts[first : last + 1] = found
            position = int(found[-1])
            length = read_varints(data, starts[first:last])
            bodies[first:last] = length.ends
            broken[first:last] = length.ends + length.numbers != starts[first + 1 : last + 1]
            broken[first:last] |= length.numbers < RECORD_BODY_BYTES_MIN
            if length.broken is not None:
                broken[first:last] |= length.broken
            walk_count = min(_WALK_GROWTH * walk_count, _WALK_MAX)
        first = last
    starts[first] = position
    if position > len(data):
        broken[first - 1] = True
    return Boundaries(starts, bodies, broken).slice(0, first)


def _find_run(data: ByteArray, position: int, record_count: int) -> tuple[int, int, int]:
    """How many records from ``position`` on have the same length; the bytes of its field, and of a whole record.

    Zeros when they are too few to be worth an array. The last of them need not end inside the section.
    """
    head = data[position : position + 5].tobytes()
    try:
        length, field_bytes = read_varint(head, 0, len(head))
    except BrokenRecordError:
        return 0, 0, 0
    if length < RECORD_BODY_BYTES_MIN:
        return 0, 0, 0
    stride = field_bytes + length
    steps_max = min(record_count, (len(data) - position - field_bytes) // stride + 1)
    run_count = 0
    piece_count = _RUN_MIN
    while run_count < steps_max:
        piece_count = min(piece_count, steps_max - run_count)
        equal_count = _count_equal(data, position + run_count * stride, stride, piece_count, head[:field_bytes])
        run_count += equal_count
        if equal_count < piece_count:
            break
        piece_count = max(_FIRST_PIECE, 4 * piece_count)
    return (run_count, field_bytes, stride) if run_count >= _RUN_MIN else (0, 0, 0)


def _count_equal(data: ByteArray, position: int, stride: int, count: int, field: bytes) -> int:
    """At how many of the next ``count`` steps of ``stride`` the same ``field`` stands, before another does."""
    reach = (count - 1) * stride + 1
    equal = data[position : position + reach : stride] == field[0]
    for place in range(1, len(field)):
        equal &= data[position + place : position + place + reach : stride] == field[place]
    return count if equal.all() else int(equal.argmin())


def _walk(section: bytes, position: int, record_count: int) -> Int64Array:
    """The starts of up to ``record_count`` records from ``position`` on, and last where the last of them ends.

    Fewer when the section ends before. A length that is negative or no number is followed to somewhere else than it
    says, so that its record does not end where it should.
    """
    try:
        return np.fromiter(_follow(section, position), dtype=np.int64, count=record_count + 1)
    except ValueError:  # there are not as many
        found = list(_follow(section, position))
        if found[-1] < len(section):
            found.append(len(section))
        return np.array(found[: record_count + 1], dtype=np.int64)


def _follow(section: bytes, position: int) -> Iterator[int]:
    """Yield one place after the other, until one is beyond the section or has no length to read."""
    low_steps, high_steps = _LOW_STEPS, _HIGH_STEPS
    while True:
        yield position
        try:
            # The loop that decides how fast records of different lengths are read: hence the tables.
            while True:
                low = section[position]
                if low < 0x80:
                    position += low_steps[low]
                else:
                    position += high_steps[section[position + 1]] + low_steps[low]
                yield position
        except IndexError:
            # A length of three bytes or more, or the end.
            try:
                length, body = read_varint(section, position, len(section))
            except BrokenRecordError:
                return
            position = body + abs(length)
