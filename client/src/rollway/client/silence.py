"""Lines in the log while a service does not respond. The error follows only after all tries, which may take a minute.

The first line appears within two seconds, so that a typo in the address is noticed at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FIRST_LINE_SECONDS = 1.5
"""Time of the first request without a response, after which a line is logged."""
NEXT_LINE_SECONDS = 10.0
"""Least time between two lines."""

_log = logging.getLogger("rollway.client")


class Silence:
    """The log lines of one client about tries without a response. Thread-safe."""

    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self._url = url
        self._clock = clock
        self._lock = threading.Lock()
        self._has_answered = False
        self._next_line = float("-inf")

    @contextmanager
    def broken(self, wait_ms: int) -> Iterator[None]:
        """Log a line if the request in the block takes long, unless the service has responded to this client before.

        ``wait_ms`` is added to the time that the service may take.
        """
        if self._has_answered:
            yield
            return
        timer = threading.Timer(FIRST_LINE_SECONDS + wait_ms / 1_000, self._tell_wait)
        timer.daemon = True
        timer.start()
        try:
            yield
            self._has_answered = True
        finally:
            timer.cancel()

    def tell(self, last_error: str, tries_left: int) -> None:
        """Log that a try has failed and that more tries follow."""
        if self._is_time():
            plural = "try" if tries_left == 1 else "tries"
            _log.warning("Rollway at %s: %s; up to %d more %s", self._url, last_error, tries_left, plural)

    def _tell_wait(self) -> None:
        if self._is_time():
            _log.warning("no answer from Rollway at %s yet: is that its address? Still waiting", self._url)

    def _is_time(self) -> bool:
        with self._lock:
            now = self._clock()
            if now < self._next_line:
                return False
            self._next_line = now + NEXT_LINE_SECONDS
            return True
