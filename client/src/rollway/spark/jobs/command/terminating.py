"""Ctrl-C, and SIGTERM, by which ``docker stop``, Kubernetes and schedulers end a process, heeded alike."""

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
"""How long an interrupted job waits for a JVM that does not answer."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


class Termination:
    """While entered, the first SIGTERM raises ``Terminated`` in the main thread and every later one is ignored: they
    would end the aborting of what is under way. Leaves all signals alone in another thread.
    """

    def __init__(self) -> None:
        self.was_asked = False
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._raise)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        """Take every error that comes after the signal for its consequence: who was interrupted may raise another."""
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
        if self.was_asked:
            logging.disable(logging.NOTSET)
        return self.was_asked

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if self.was_asked:
            return
        self.was_asked = True
        # py4j logs the traceback of what ends a call, and of each call after its JVM has ended.
        logging.disable(logging.CRITICAL)
        interrupt = signal.getsignal(signal.SIGINT)
        # That of cancel_when_interrupted has Spark's tasks end.
        with suppress(KeyboardInterrupt):
            if callable(interrupt):
                interrupt(number, frame)
        raise Terminated


def cancel_when_interrupted(context: SparkContext) -> None:
    """Have Ctrl-C cancel what Spark does for ``context``, and raise ``KeyboardInterrupt`` in the main thread.

    Spark's own handler asks the JVM over the connection of the thread that it interrupts. Where that thread has sent a
    command and not begun to read the answer, the handler waits until the command ends, for hours perhaps. Here another
    thread asks. The interrupted thread gets a new connection, since an answer is still to come on the old one.

    Thread: the main one; another leaves signals alone.
    """

    def cancel() -> None:
        # A JVM that has ended has no jobs either.
        with suppress(Py4JError, OSError):
            context.cancelAllJobs()

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - how signals are handed over
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
