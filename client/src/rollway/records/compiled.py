"""Sections of records and hashes of keys in C, where the package was installed with a compiler; otherwise in Python.

Bytes, answers and errors are those of the ways in Python, which are also who says what is wrong with bytes that are.
``ROLLWAY_PURE_PYTHON=1`` in the environment does without the compiled way.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from rollway.records.columns import BinaryColumn, RecordColumns

PURE_PYTHON_VARIABLE = "ROLLWAY_PURE_PYTHON"

_Int64s = npt.NDArray[np.int64]
# Data, offsets, nulls: the arguments of a ``BinaryColumn``.
_Strings = tuple[npt.NDArray[np.uint8], _Int64s, npt.NDArray[np.bool_] | None]


class CompiledSections(Protocol):
    """What ``sections_c.pyx`` has. ``None`` is what somebody else must judge: broken, too large, or not as expected."""

    def find_facts(
        self, section: bytes | bytearray | memoryview, record_count: int, header_count_max: int
    ) -> tuple[int, int, bool] | None:
        """The least and the greatest timestamp delta, and whether a record has no key."""

    def read_section(
        self, section: bytes | bytearray | memoryview, record_count: int, header_count_max: int
    ) -> tuple[_Int64s, _Int64s, _Strings, _Strings, tuple[_Int64s, _Strings, _Strings] | None] | None:
        """Offset deltas, timestamp deltas, keys, values, and counts, names and values of headers if there are some."""

    def write_section(self, columns: RecordColumns) -> bytes | None:
        """All records, offset deltas from 0."""

    def write_lists(
        self,
        timestamps: list[int],
        keys: list[bytes | None],
        values: list[bytes | None],
        header_blocks: list[bytes] | None,
    ) -> bytes | None:
        """The same, of lists; ``OverflowError`` for a timestamp that is no int64."""

    def hash_strings(self, column: BinaryColumn) -> npt.NDArray[np.uint32] | None:
        """The murmur2 hash of each byte string, a null's being that of no bytes."""


def load(name: str) -> ModuleType | None:
    """The compiled module of this name, if it was built and is wanted."""
    if os.environ.get(PURE_PYTHON_VARIABLE, "0") not in {"", "0"}:
        return None
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


sections = cast("CompiledSections | None", load("rollway.records.sections.sections_c"))
"""The compiled way, or ``None``. Looked up here with every call, so that tests can hold one way against the other."""


def is_compiled() -> bool:
    """Whether this process has it."""
    return sections is not None
