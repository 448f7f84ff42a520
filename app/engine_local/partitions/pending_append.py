"""One append on its way to the file and, where somebody waits for that, to the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from log_model.errors import let_go_of_frames
from storage.log.partition_log import AppendRequest, AppendResult, PartitionLog

Result = TypeVar("Result")


class PendingAppend:
    """One append on its way. ``written`` completes when readers of the file see it, ``fsynced`` when a power cut
    would not take it. Both fail with the same error when the append is refused.

    ``fsynced`` completes only if somebody asked: by the topic's ``flush.policy=group`` or by ``wants_fsync``.

    ``result`` and ``error`` tell what is known already, without a future: most appends are written when they are
    handed back. ``throttle_ms`` is how long the client that asked for it is to be silent.
    """

    __slots__ = (
        "_callback",
        "_fsynced",
        "_is_fsynced",
        "_loop",
        "_written",
        "error",
        "log",
        "request",
        "result",
        "size_bytes",
        "throttle_ms",
        "wants_fsync",
    )

    def __init__(
        self,
        log: PartitionLog,
        request: AppendRequest,
        size_bytes: int,
        wants_fsync: bool,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.log = log
        self.request = request
        self.size_bytes = size_bytes
        self.wants_fsync = wants_fsync
        self.throttle_ms = 0
        self.result: AppendResult | None = None
        self.error: BaseException | None = None
        self._is_fsynced = False
        self._loop = loop
        self._written: asyncio.Future[AppendResult] | None = None
        self._fsynced: asyncio.Future[AppendResult] | None = None
        self._callback: Callable[[PendingAppend], None] | None = None

    def call_when_fsynced(self, callback: Callable[[PendingAppend], None]) -> None:
        """Call ``callback``, the only one, as soon as it is fsynced or refused: without a turn of the loop between."""
        self._callback = callback

    def outcome(self) -> AppendResult:
        """What became of it, once that is known. Raises the error it was refused with."""
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result

    @property
    def written(self) -> asyncio.Future[AppendResult]:
        future = self._written
        if future is None:
            future = self._written = self._loop.create_future()
            if self.result is not None:
                future.set_result(self.result)
            elif self.error is not None:
                set_exception(future, self.error)
        return future

    @property
    def fsynced(self) -> asyncio.Future[AppendResult]:
        future = self._fsynced
        if future is None:
            future = self._fsynced = self._loop.create_future()
            if self._is_fsynced and self.result is not None:
                future.set_result(self.result)
            elif self.error is not None:
                set_exception(future, self.error)
        return future

    def note_written(self, result: AppendResult) -> None:
        """Complete ``written``."""
        self.result = result
        if self._written is not None:
            set_result(self._written, result)

    def note_fsynced(self) -> None:
        """Complete ``fsynced``."""
        assert self.result is not None
        self._is_fsynced = True
        if self._fsynced is not None:
            set_result(self._fsynced, self.result)
        self._call_back()

    def fail(self, error: BaseException) -> None:
        """Answer both futures with ``error``, where they have no answer yet."""
        let_go_of_frames(error)
        self.error = error
        for future in (self._written, self._fsynced):
            if future is not None:
                set_exception(future, error)
        self._call_back()

    def _call_back(self) -> None:
        callback, self._callback = self._callback, None
        if callback is None:
            return
        try:
            callback(self)
        except Exception as error:  # noqa: BLE001 - the others of its group have their answers all the same
            self._loop.call_exception_handler({"message": "an answer to an append failed", "exception": error})


def set_result(future: asyncio.Future[Result], result: Result) -> None:
    """Complete ``future`` unless it is."""
    if not future.done():
        future.set_result(result)


def set_exception(future: asyncio.Future[Result], error: BaseException) -> None:
    """Fail ``future`` unless it is done."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # seen: nobody may be waiting for this one
