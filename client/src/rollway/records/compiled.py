"""The compiled modules: all that the package was installed with, unless the environment asks for plain Python.

A compiled module ``x_c`` does the same as the plain module ``x_py``, and ``x`` calls one of them. With
``ROLLWAY_PURE_PYTHON=1`` in the environment, no module of this process is a compiled one.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

PURE_PYTHON_VARIABLE = "ROLLWAY_PURE_PYTHON"


def load(name: str) -> ModuleType | None:
    """Return the compiled module of this name, ``None`` if it was not built or is not wanted.

    Example: ``load("rollway.records.sections.reader_c")``.
    """
    if os.environ.get(PURE_PYTHON_VARIABLE, "0") not in {"", "0"}:
        return None
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def is_compiled() -> bool:
    """Return whether this process reads and writes records in C."""
    return all(map(load, ("rollway.records.sections.reader_c", "rollway.records.sections.writer_c")))
