"""Where the records of a section begin: the only thing about them that one record must tell about the next.

Neighbours of equal length are the rule, so a length is taken for that of a whole run and the run is verified at once:
if the same length field stands at every step of that width, each step is a record by induction. Elsewhere a loop walks
from length to length and looks at nothing else.
"""

from __future__ import annotations

import numpy as np

from rollway.records.columns import ByteArray, Int64Array
from rollway.records.errors import BrokenRecordError
from rollway.records.varint import read_varint

_RUN_MIN = 32
_WALK_MIN = 32
_WALK_MAX = 4096
# A run is verified in growing pieces, so that a short one does not cost a look at the whole section.
_FIRST_PIECE = 256


def record_starts(section: bytes | memoryview, data: ByteArray, record_count: int) -> Int64Array:
    """The places where records begin, and last the place where the last one ends.

    ``data`` is ``section`` as an array; ``record_count`` records of the smallest size fit into it. Lengths are followed
    here and judged by the caller, who reads them again. The places rise; the last may lie beyond the section. When the
    section ends before the records do, there are fewer places than ``record_count + 1``.
    """
    starts = np.empty(record_count + 1, dtype=np.int64)
    walked: bytes | None = None
    walk_count = _WALK_MIN
    place = 0
    position = 0
    while place < record_count and position < len(data):
        run_count, stride = _run_length(data, position, record_count - place)
        if run_count:
            starts[place : place + run_count] = np.arange(position, position + run_count * stride, stride)
            place += run_count
            position += run_count * stride
            walk_count = _WALK_MIN
            continue
        walked = bytes(section) if walked is None else walked
        found, position = _walk(walked, position, min(walk_count, record_count - place))
        starts[place : place + len(found)] = found
        place += len(found)
        walk_count = min(2 * walk_count, _WALK_MAX)
    starts[place] = position
    return starts[: place + 1]


def _run_length(data: ByteArray, position: int, record_count: int) -> tuple[int, int]:
    """How many records from ``position`` on have the same length, and the bytes from one to the next.

    (0, 0) when they are too few to be worth an array. The last of them need not end inside the section.
    """
    field = _length_field(data, position)
    if field is None:
        return 0, 0
    field_bytes, stride = field
    steps_max = min(record_count, (len(data) - position - field_bytes) // stride + 1)
    if steps_max < _RUN_MIN:
        return 0, 0
    expected = data[position : position + field_bytes]
    run_count = 0
    piece_count = _RUN_MIN
    while run_count < steps_max:
        piece_count = min(piece_count, steps_max - run_count)
        start = position + run_count * stride
        same = data[start : start + (piece_count - 1) * stride + 1 : stride] == expected[0]
        for place in range(1, field_bytes):
            start += 1
            same &= data[start : start + (piece_count - 1) * stride + 1 : stride] == expected[place]
        equal_count = piece_count if same.all() else int(same.argmin())
        run_count += equal_count
        if equal_count < piece_count:
            break
        piece_count = max(_FIRST_PIECE, 4 * piece_count)
    return (run_count, stride) if run_count >= _RUN_MIN else (0, 0)


def _length_field(data: ByteArray, position: int) -> tuple[int, int] | None:
    """The size of the length field at ``position``, and of the whole record."""
    head = data[position : position + 5].tobytes()
    try:
        length, field_bytes = read_varint(head, 0, len(head))
    except BrokenRecordError:
        return None
    return (field_bytes, field_bytes + length) if length > 0 else None


def _walk(section: bytes, position: int, record_count: int) -> tuple[list[int], int]:
    """The starts of up to ``record_count`` records from ``position`` on, and where the last of them ends.

    Fewer when the section ends before. A length that is negative or no number is followed to somewhere else than it
    says, so that its record does not end where it should.
    """
    starts: list[int] = []
    found = starts.append
    try:
        for _ in range(record_count):
            low = section[position]
            found(position)
            if low < 0x80:
                position += 1 + (low >> 1)
                continue
            high = section[position + 1]
            if high < 0x80:
                # Two times seven bits, less the sign: 2 + ((high << 7 | low & 0x7F) >> 1).
                position += (high << 6) + (low >> 1) - 62
                continue
            length, body = read_varint(section, position, len(section))
            position = body + abs(length)
    except (IndexError, BrokenRecordError):
        position = len(section)
    return starts, position
