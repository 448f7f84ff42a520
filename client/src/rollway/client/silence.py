"""Lines in the log while a service does not answer: the error comes only after all tries, which may take a minute.

The first line comes within two seconds, so that a typo in the address is seen at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FIRST_LINE_SECONDS = 1.5
"""How long the first request may take before its silence is told."""
NEXT_LINE_SECONDS = 10.0
"""Failed tries are told this rarely."""

_log = logging.getLogger("rollway.client")


class Silence:
    """What one client tells about tries without an answer. Thread-safe."""

    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self._url = url
        self._clock = clock
        self._lock = threading.Lock()
        self._has_answered = False
        self._next_line = float("-inf")

    @contextmanager
    def broken(self, wait_ms: int) -> Iterator[None]:
        """Tell it if what is done within takes long, unless the service has answered this client before.

        ``wait_ms`` is how much longer than usual the service may take.
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
        """Tell that a try has failed and others follow."""
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
