"""Errors for users of Spark: one sentence, without the traceback through this library.

Spark shows the whole traceback of an exception in Python, and adds its own.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from rollway.client.errors import RollwayError
from rollway.spark.errors import OptionError, with_credential_named

_CALLED_BY_SPARK = (
    "schema",
    "reader",
    "writer",
    "streamReader",
    "streamWriter",
    "partitions",
    "read",
    "write",
    "commit",
    "abort",
    "initialOffset",
    "latestOffset",
    "reportLatestOffset",
    "prepareForTriggerAvailableNow",
)
_SAY_IT_ALL = (RollwayError, OptionError)

_log = logging.getLogger("rollway.spark")
_Class = TypeVar("_Class", bound=type)


def actionable(kind: _Class) -> _Class:
    """Decorate a class that Spark calls: remove tracebacks from its errors for users, and log them at level debug."""
    for name in _CALLED_BY_SPARK:
        method = kind.__dict__.get(name)
        if method is not None:
            setattr(kind, name, _rows(method) if inspect.isgeneratorfunction(method) else _call(method))
    return kind


def _call(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            answer = method(*args, **kwargs)
        except _SAY_IT_ALL as error:
            raise _told(error) from None
        return _guarded(answer) if inspect.isgenerator(answer) else answer

    return call


def _rows(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def rows(*args: Any, **kwargs: Any) -> Iterator[Any]:
        return _guarded(method(*args, **kwargs))

    return rows


def _guarded(rows: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from rows
    except _SAY_IT_ALL as error:
        raise _told(error) from None


def _told(error: Exception) -> Exception:
    _log.debug("what Spark is told without its traceback", exc_info=error)
    return with_credential_named(error).with_traceback(None)
