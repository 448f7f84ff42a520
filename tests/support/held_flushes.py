"""Fsyncs that wait until a test lets them go on."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from storage.journal.journal import JournalFlush
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
        self._is_covered = False
        self._begin, self._sync = manager.journal.begin, manager.journal.sync
        manager.journal.begin = self._note  # type: ignore[method-assign]
        manager.journal.sync = self._hold  # type: ignore[method-assign]
        manager.journal.descriptor_to_sync = lambda: -1  # type: ignore[method-assign]

    def _note(self, logs: Sequence[PartitionLog], *, may_wait: bool = True) -> JournalFlush | None:
        begun = self._begin(logs, may_wait=may_wait)
        if begun is not None and begun.taken is not None:
            self._is_covered = self._log in begun.taken.logs
        return begun

    def _hold(self) -> None:
        if self._is_covered:
            self.reached.set()
            assert self.go_on.wait(30)
            if self.error is not None:
                raise self.error
        self._sync()
