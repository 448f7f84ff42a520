"""The cost of reading JSON: the values of a document are counted before any object is made of them.

A byte of JSON may become 30 bytes of objects (``[],[],``), and a body of 150 KB of gzip 64 MiB of JSON.
"""

from __future__ import annotations

from typing import Protocol, cast

from app.problems import kinds
from app.problems.problem import Problem
from app.record_json import json_values_py
from app.record_json.json_values_py import ESCAPES_OF_VALUE, SPACES_OF_VALUE
from rollway.records.compiled import load

VALUES_MAX = 1_000_000
"""The most values of one document: reading this many holds the interpreter for about 100 ms."""

VALUE_BYTES = 200
"""The memory of a value as objects, about: that of a list or of an object with one member."""

UNCOUNTED_BYTES = 64 * 1024
"""Documents up to this size are read without counting."""


class CompiledValues(Protocol):
    """The function of ``json_values_c.pyx``."""

    def count_values(self, data: bytes | bytearray | memoryview) -> int:
        """Return the number that ``json_values.count_values`` describes."""


compiled = cast("CompiledValues | None", load("app.record_json.json_values_c"))
"""The compiled module, or ``None``. Looked up here with every call."""


def count_values(document: bytes | bytearray | memoryview, enough: int = VALUES_MAX) -> int:
    """Return how many values ``document`` has, if it is JSON; each stands behind one of ``[{,:``.

    Spaces outside of texts and escapes also count: ``SPACES_OF_VALUE`` spaces or ``ESCAPES_OF_VALUE`` escapes as one
    value. Without a compiler, a number up to ``enough`` may also count characters inside of texts. Takes hardly any
    memory. Example: ``[1, 2]`` has 2 values, and one space, which is less than a value.

    Thread: any; a large document is counted without the interpreter's lock, or in pieces.
    """
    if compiled is not None:
        return compiled.count_values(document)
    return json_values_py.count_values(document, enough)


def refuse_too_many(document: bytes | bytearray | memoryview, remedy: str, values_max: int = VALUES_MAX) -> int:
    """Refuse JSON of more than ``values_max`` values. Return about how many bytes its values take as objects.

    Raises:
        Problem: 413, a permanent error; ``remedy`` says what to do instead.
    """
    if len(document) <= UNCOUNTED_BYTES:
        return len(document) * VALUE_BYTES // 3
    count = count_values(document, values_max)
    if count > values_max:
        raise Problem(
            kinds.REQUEST_TOO_LARGE,
            f"the body has {count} values, counting {SPACES_OF_VALUE} bytes of space or {ESCAPES_OF_VALUE} escapes as "
            f"one; as JSON that is read at once it may have {values_max}: {remedy}",
        )
    return count * VALUE_BYTES + 2 * len(document)
