"""Calls of compiled modules and of their plain twins, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from rollway.records import partitioner
from rollway.records.sections import reader, writer

Result = TypeVar("Result")


@contextmanager
def plain_python() -> Iterator[None]:
    """Call the plain twins, for as long as the block runs."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (partitioner, reader, writer):
            patch.setattr(module, "compiled", None)
        yield


def both(call: Callable[[], Result]) -> tuple[Result | tuple[type, str], Result | tuple[type, str]]:
    """Return the results of a call with the compiled and with the plain twins. An error is its class and its text."""

    def outcome() -> Result | tuple[type, str]:
        try:
            return call()
        except (ValueError, OverflowError) as error:
            return type(error), str(error)

    compiled = outcome()
    with plain_python():
        return compiled, outcome()
