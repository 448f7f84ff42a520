"""Equal handling of Ctrl-C and of SIGTERM, with which ``docker stop``, Kubernetes and schedulers end a process."""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

from py4j.protocol import Py4JError
from pyspark import SparkContext

CANCEL_SECONDS = 10.0
"""Longest time that an interrupted job waits for a JVM that does not respond."""


class Terminated(KeyboardInterrupt):
    """The process received SIGTERM."""


class Termination:
    """A context in which the first SIGTERM raises ``Terminated`` in the main thread. Later ones are ignored, because
    they would interrupt the abort of the job. In another thread it leaves all signals alone.
    """

    def __init__(self) -> None:
        self.was_asked = False
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._raise)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        """Suppress every error after the signal as its consequence: interrupted code may raise another error."""
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
        if self.was_asked:
            logging.disable(logging.NOTSET)
        return self.was_asked

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if self.was_asked:
            return
        self.was_asked = True
        # py4j logs the traceback of an interrupted call, and of each call after the end of its JVM.
        logging.disable(logging.CRITICAL)
        interrupt = signal.getsignal(signal.SIGINT)
        # The handler of cancel_when_interrupted ends Spark's tasks.
        with suppress(KeyboardInterrupt):
            if callable(interrupt):
                interrupt(number, frame)
        raise Terminated


def cancel_when_interrupted(context: SparkContext) -> None:
    """Let Ctrl-C cancel the Spark jobs of ``context``, and raise ``KeyboardInterrupt`` in the main thread.

    Spark's own handler calls the JVM over the connection of the thread that it interrupts. If that thread has sent a
    command and not begun to read the response, the handler waits until the command ends, perhaps for hours. Here
    another thread makes the call. The interrupted thread gets a new connection, because a response is still to come on
    the old one.

    Thread: the main one. In another thread it leaves signals alone.
    """

    def cancel() -> None:
        # A JVM that has ended has no jobs.
        with suppress(Py4JError, OSError):
            context.cancelAllJobs()

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - the signature of handlers
        asking = threading.Thread(target=cancel, name="cancelling Spark's jobs", daemon=True)
        asking.start()
        asking.join(CANCEL_SECONDS)
        gateway: Any = context._gateway  # noqa: SLF001 - there is no public way
        connection = gateway and gateway._gateway_client.get_thread_connection()  # noqa: SLF001
        if connection is not None:
            connection.close()
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)
