"""One append on its way to the file and, if that is waited for, to the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from log_model.errors import let_go_of_frames
from storage.log.partition_log import AppendRequest, AppendResult, PartitionLog

Result = TypeVar("Result")


class PendingAppend:
    """One append on its way, as ``app.engine.appending`` promises it.

    ``written`` completes once the batches are in the file, ``fsynced`` once they survive a power cut. Both fail with
    the same error if the append is refused. ``fsynced`` completes only with ``wants_fsync``, or with the topic's
    ``flush.policy=group``.

    ``result`` and ``error`` are available without a future: most appends are written when ``PartitionWriter.append``
    returns.
    """

    __slots__ = (
        "_callbacks",
        "_fsynced",
        "_is_fsynced",
        "_loop",
        "_written",
        "error",
        "partition",
        "request",
        "result",
        "size_bytes",
        "throttle_ms",
        "wants_fsync",
    )

    def __init__(
        self,
        partition: PartitionLog,
        request: AppendRequest,
        size_bytes: int,
        wants_fsync: bool,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.partition = partition
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
        self._callbacks: tuple[Callable[[PendingAppend], None], ...] = ()

    def call_when_done(self, callback: Callable[[PendingAppend], None]) -> None:
        """Call ``callback`` once the append is refused or written, with ``wants_fsync`` once it is fsynced.

        Callbacks run in the order of these calls, in the turn of the loop in which the writer learns the outcome. If
        the outcome is known already, they run in the next turn.
        """
        if self.error is None and (self.result is None or (self.wants_fsync and not self._is_fsynced)):
            self._callbacks += (callback,)
        else:
            self._loop.call_soon(callback, self)

    def outcome(self) -> AppendResult:
        """Return the result once it is known, or raise the error of the refusal."""
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
        if not self.wants_fsync:
            self._call_back()

    def note_fsynced(self) -> None:
        """Complete ``fsynced``."""
        assert self.result is not None
        self._is_fsynced = True
        if self._fsynced is not None:
            set_result(self._fsynced, self.result)
        self._call_back()

    def fail(self, error: BaseException) -> None:
        """Fail both futures with ``error`` unless they are done."""
        let_go_of_frames(error)
        self.error = error
        for future in (self._written, self._fsynced):
            if future is not None:
                set_exception(future, error)
        self._call_back()

    def _call_back(self) -> None:
        callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            try:
                callback(self)
            except Exception as error:  # noqa: BLE001 - other appends of its group must complete all the same
                self._loop.call_exception_handler({"message": "an answer to an append failed", "exception": error})


def set_result(future: asyncio.Future[Result], result: Result) -> None:
    """Complete ``future`` unless it is done."""
    if not future.done():
        future.set_result(result)


def set_exception(future: asyncio.Future[Result], error: BaseException) -> None:
    """Fail ``future`` unless it is done."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # seen: there may be no waiter
