"""Progress of a job for people, while Spark works."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

from pyspark.sql import SparkSession

from rollway.printable import escape_unprintable

TERMINAL_SECONDS = 0.5
LINES_SECONDS = 10.0


class Progress(Protocol):
    """The receiver of a job's progress. Its methods are called on the job's thread."""

    def say(self, sentence: str) -> None:
        """Report a finished step, or a fact for the user."""

    def during(self, step: str, look: Callable[[], str]) -> Any:
        """Return a context manager for a long step. ``look`` returns how far the step is; it is called on another
        thread, and must be quick."""


class SilentProgress:
    """Progress for programs: it reports nothing."""

    def say(self, sentence: str) -> None:
        """Do nothing."""

    @contextmanager
    def during(self, step: str, look: Callable[[], str]) -> Iterator[None]:  # noqa: ARG002 - part of the protocol
        """Do nothing."""
        yield


class ConsoleProgress:
    """Progress for people: lines on a stream. On a terminal it is one line that is rewritten twice a second.

    Example: ``load(spark, request, progress=ConsoleProgress())``.
    """

    def __init__(self, stream: TextIO | None = None, interval_seconds: float | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._interval_seconds = interval_seconds or (TERMINAL_SECONDS if self._is_terminal else LINES_SECONDS)

    def say(self, sentence: str) -> None:
        """Write one line, with unprintable characters escaped."""
        self._stream.write(f"{escape_unprintable(sentence)}\n")
        self._stream.flush()

    @contextmanager
    def during(self, step: str, look: Callable[[], str]) -> Iterator[None]:
        """Write ``step: how far`` every interval until the block ends."""
        ended = threading.Event()
        shower = threading.Thread(target=self._show, args=(step, look, ended), name="progress", daemon=True)
        shower.start()
        try:
            yield
        finally:
            ended.set()
            shower.join()
            if self._is_terminal:
                self._stream.write("\r\x1b[K")
                self._stream.flush()

    def _show(self, step: str, look: Callable[[], str], ended: threading.Event) -> None:
        while not ended.wait(self._interval_seconds):
            try:
                text = look()
            except Exception as error:  # noqa: BLE001 - an error of the display must not end the job
                text = f"how far it is cannot be told ({type(error).__name__})"
            line = escape_unprintable(f"{step}: {text}" if text else step)
            self._stream.write(f"\r{line}\x1b[K" if self._is_terminal else f"{line}\n")
            self._stream.flush()


def tasks_done(spark: SparkSession) -> str:
    """Return ``34 of 64 tasks`` of Spark's active stages; empty if it does not report them (Connect, between
    stages)."""
    try:
        tracker = spark.sparkContext.statusTracker()
    except Exception:  # noqa: BLE001 - a Connect session has no context, and raises several kinds of errors
        return ""
    stages = [info for each in tracker.getActiveStageIds() if (info := tracker.getStageInfo(each)) is not None]
    if not stages:
        return ""
    return f"{sum(each.numCompletedTasks for each in stages)} of {sum(each.numTasks for each in stages)} tasks"
