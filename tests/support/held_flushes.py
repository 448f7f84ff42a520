"""Fsyncs that wait until a test lets them go on."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from log_model.errors import PartitionFailedError
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager


class HeldFlush:
    """Holds every flush that covers a log, in whatever thread, until ``go_on``; it may then fail with ``error``.

    ``reached`` says that one waits.
    """

    def __init__(self, manager: LogManager, log: PartitionLog) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.error: Exception | None = None
        self._log = log
        self._flush = manager.journal.flush
        manager.journal.flush = self._hold  # type: ignore[method-assign]

    def _hold(self, logs: Sequence[PartitionLog]) -> list[bool | PartitionFailedError]:
        if self._log in logs:
            self.reached.set()
            assert self.go_on.wait(30)
            if self.error is not None:
                raise self.error
        return self._flush(logs)
