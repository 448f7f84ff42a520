"""Telling people how far a job is while Spark works."""

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
    """Where a job says what it is doing. Its methods are called on the job's thread."""

    def say(self, sentence: str) -> None:
        """A step was finished, or a thing is worth knowing."""

    def during(self, step: str, look: Callable[[], str]) -> Any:
        """A context manager around a long step; ``look`` says how far it is, is called on another thread, and is
        quick."""


class SilentProgress:
    """For programs: nothing is told."""

    def say(self, sentence: str) -> None:
        """Nothing."""

    @contextmanager
    def during(self, step: str, look: Callable[[], str]) -> Iterator[None]:  # noqa: ARG002 - nobody wants to know
        """Nothing."""
        yield


class ConsoleProgress:
    """For people: lines on a stream; on a terminal one line that is written anew twice a second."""

    def __init__(self, stream: TextIO | None = None, interval_seconds: float | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._interval_seconds = interval_seconds or (TERMINAL_SECONDS if self._is_terminal else LINES_SECONDS)

    def say(self, sentence: str) -> None:
        """One line, with unprintable characters escaped."""
        self._stream.write(f"{escape_unprintable(sentence)}\n")
        self._stream.flush()

    @contextmanager
    def during(self, step: str, look: Callable[[], str]) -> Iterator[None]:
        """``step: how far`` every interval until the block ends."""
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
            except Exception as error:  # noqa: BLE001 - how far it is must not end the job
                text = f"how far it is cannot be told ({type(error).__name__})"
            line = escape_unprintable(f"{step}: {text}" if text else step)
            self._stream.write(f"\r{line}\x1b[K" if self._is_terminal else f"{line}\n")
            self._stream.flush()


def tasks_done(spark: SparkSession) -> str:
    """``34 of 64 tasks`` of what Spark works on now; empty where it does not say (Spark Connect, between stages)."""
    try:
        tracker = spark.sparkContext.statusTracker()
    except Exception:  # noqa: BLE001 - a Connect session has no context, and says so in several ways
        return ""
    stages = [info for each in tracker.getActiveStageIds() if (info := tracker.getStageInfo(each)) is not None]
    if not stages:
        return ""
    return f"{sum(each.numCompletedTasks for each in stages)} of {sum(each.numTasks for each in stages)} tasks"
