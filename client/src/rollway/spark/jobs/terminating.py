"""SIGTERM, by which ``docker stop``, Kubernetes and schedulers end a process, heeded as Ctrl-C is."""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self


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
        # Spark's own has its tasks end.
        with suppress(KeyboardInterrupt):
            if callable(interrupt):
                interrupt(number, frame)
        raise Terminated
