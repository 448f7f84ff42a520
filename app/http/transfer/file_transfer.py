"""Transfers of bytes and slices of files into a socket, past the event loop's own transport.

A transfer first sends as much as the socket takes, within the call that begins it. Most answers end there. Then it
takes turns with other transfers as long as the socket takes bytes (``transfer_turns``). When the socket is full, the
loop watches a duplicate of it, because the transport keeps its own descriptor registered.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Protocol

from app.http.transfer import page_cache
from app.http.transfer.send_queue import queued_bytes
from app.http.transfer.transfer_turns import PIECE_BYTES, TransferTurns
from app.http.transfer.unsent_parts import AnyPart, UnsentParts
from app.http.transfer.wire import Wire
from log_model.reads import FileSlice

CORKED_BYTES_MIN = 224 * 1024
"""Size from which an answer is corked. With less, the two calls cost as much as they save, as measured."""
UNSENT_TIMES_MAX = 16
UNSENT_TIMES_TOTAL = 256
"""Bounds of the unsent bytes that the kernel holds for one answer, and for all answers together.

Both are multiples of ``unsent_bytes_max``, the bound for each answer in a crowd.
"""

_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class SourceFile(Protocol):
    """An open file. Its descriptor stays valid while a transfer holds it."""

    def fileno(self) -> int: ...


class StalledError(Exception):
    """A peer that took no byte for the stall timeout."""


Ended = Callable[[Exception | None], None]


_NOTHING = UnsentParts(())


class FileTransfer:
    """One transfer over a connection, and its waits: for a turn, for the socket, or for the disk.

    The connection's ``transport`` must hold no bytes, and must not write meanwhile.

    Thread: the event loop's. Cold data is sent from a thread of the loop's pool, so that only that thread waits
    for the disk.
    """

    __slots__ = (
        *("_connection_wire", "_ended", "_is_corked", "_is_held_by_thread", "_is_over", "_is_queued"),
        *("_is_unfinished", "_loop", "_queued_bytes", "_sent_bytes_before", "_stall_seconds", "_timer"),
        *("_transport", "_turns", "_uncorks", "_unsent", "_unsent_bytes_max", "_wire", "__weakref__"),
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        wire: Wire,
        turns: TransferTurns,
        stall_timeout_ms: int,
        unsent_bytes_max: int = 0,
    ) -> None:
        """Prepare a transfer. ``wire`` is the socket of ``transport``."""
        self._loop = loop
        self._transport = transport
        self._connection_wire = wire
        self._turns = turns
        # A duplicate of ours, made when the transfer has to wait for the socket.
        self._wire: Wire | None = None
        self._unsent_bytes_max = unsent_bytes_max
        self._stall_seconds = stall_timeout_ms / 1000
        self._unsent = _NOTHING
        self._ended: Ended | None = None
        self._is_over = False
        self._is_corked = False
        # Whether ``start`` has corked the socket, so that the end of the transfer uncorks it.
        self._uncorks = False
        self._is_queued = False
        self._is_unfinished = False
        self._is_held_by_thread = False
        self._timer: asyncio.TimerHandle | None = None
        self._sent_bytes_before = self._queued_bytes = 0

    def start(self, parts: Sequence[AnyPart], ended: Ended, sent_bytes: int = 0) -> bool:
        """Send ``parts`` one behind the other, and return whether the kernel has all of them.

        If it has, ``ended`` is not called. Otherwise it is called once, later: with None when all is sent, or with

        - FileEndedError: a file is shorter than its part; its bytes are sent;
        - StalledError: the peer took no byte for the stall timeout;
        - ConnectionError: the peer is gone, or ``abort`` was called.

        ``sent_bytes`` of the first two parts are already sent, see ``send_at_once``, and the socket took no more.
        The owner of a file may close it once its first byte is sent: the transfer then has a descriptor of its own.
        """
        self._ended = ended
        unsent = self._unsent = UnsentParts(parts)
        if sent_bytes:
            unsent.skip(sent_bytes)
        if self._transport.is_closing():
            self._loop.call_soon(self._finish, ConnectionAbortedError())
            return False
        size_bytes = unsent.size_bytes()
        allow_unsent(self._connection_wire, self._turns, self._unsent_bytes_max, size_bytes)
        if size_bytes >= CORKED_BYTES_MIN and not self._is_corked:
            self.hold_small_writes()
            self._uncorks = True
        try:
            if unsent.send(self._connection_wire, self._turns.first_piece_bytes(size_bytes)):
                self._is_over = True
                if self._uncorks:
                    self.close()
                return True
            self._hold()
            self._wait()
        except Exception as error:  # noqa: BLE001 - passed to ``ended`` later, as every other end
            self._loop.call_soon(self._finish, error)
        return False

    async def send(self, file: SourceFile, offset: int, count: int) -> None:
        """Send ``count`` bytes of ``file`` from ``offset`` on.

        Raises:
            FileEndedError, StalledError, ConnectionError: as ``start`` describes them.
        """
        over: asyncio.Future[None] = self._loop.create_future()

        def ended(error: Exception | None) -> None:
            if over.done():
                return
            if error is None:
                over.set_result(None)
            else:
                over.set_exception(error)

        part = FileSlice(file, offset, count)  # type: ignore[arg-type]
        if self.start([part] if count else [], ended):
            # Other tasks run in between, also with a fast client.
            await asyncio.sleep(0)
            return
        try:
            await over
        except asyncio.CancelledError:
            self.abort()
            raise

    def abort(self) -> None:
        """Send no more; ``ended`` receives ConnectionAbortedError. After the end this does nothing."""
        if not self._is_over and self._ended is not None:
            self._finish(ConnectionAbortedError())

    def hold_small_writes(self) -> None:
        """Let the kernel hold back a packet that is not full, until ``close``.

        So the head leaves with the first bytes. Also, sendfile gives the socket 64 KiB at a time, some bytes more than
        a packet on loopback may have. Without this, every third packet would have only those bytes.
        """
        if not self._is_corked:
            self._is_corked = True
            self._set_option(socket.IPPROTO_TCP, socket.TCP_CORK, 1)

    def reset(self) -> None:
        """Let the close of the connection discard the bytes that the peer has not taken, and reset it."""
        self._set_option(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)

    def close(self) -> None:
        """Let the kernel send small packets again."""
        if self._is_corked:
            self._is_corked = False
            self._set_option(socket.IPPROTO_TCP, socket.TCP_CORK, 0)

    def _set_option(self, level: int, option: int, value: int | bytes) -> None:
        if not self._transport.is_closing():
            self._connection_wire.set_option(level, option, value)

    # Turns, and waiting

    def _hold(self) -> None:
        """Count this transfer as unfinished, and keep its file open: the first piece is sent, and not all."""
        self._is_unfinished = True
        self._turns.unfinished_count += 1
        self._unsent.keep_file()

    def _wait(self) -> None:
        """Continue when the socket takes more, in a thread, or at the next turn."""
        if self._unsent.is_full:
            self._watch()
        elif self._unsent.is_cold:
            self._send_from_thread()
        else:
            self._queue()

    def _queue(self) -> None:
        if not self._is_queued:
            self._is_queued = True
            self._turns.queue(self._loop, self)

    def take_turn(self) -> int:
        """Send a piece and return the number of bytes that were sent."""
        self._is_queued = False
        unsent = self._unsent
        before = unsent.sent_bytes
        try:
            unsent.keep_file()
            if unsent.send(self._wire or self._connection_wire, PIECE_BYTES):
                self._finish(None)
            else:
                self._wait()
        except Exception as error:  # noqa: BLE001 - passed to ``ended``
            self._finish(error)
        return unsent.sent_bytes - before

    def _own_wire(self) -> Wire:
        wire = self._wire
        if wire is None:
            wire = self._wire = Wire(os.dup(self._connection_wire.descriptor))
        return wire

    def _watch(self) -> None:
        """Queue when the socket takes more. It stays watched, because starting and ending that costs more."""
        if self._timer is None:
            wire = self._own_wire()
            self._loop.add_writer(wire.descriptor, self._queue)
            self._queued_bytes = queued_bytes(wire.descriptor)
            self._timer = self._loop.call_later(self._stall_seconds, self._look_for_stall, wire)

    def _send_from_thread(self) -> None:
        wire = self._own_wire()
        self._unsent.keep_file()
        if self._timer is not None:
            self._loop.remove_writer(wire.descriptor)
            self._timer.cancel()
            self._timer = None
        self._is_held_by_thread = True
        sending = self._loop.run_in_executor(None, os.sendfile, wire.descriptor, *self._unsent.cold_piece())
        sending.add_done_callback(self._sent_from_thread)

    def _sent_from_thread(self, sending: asyncio.Future[int]) -> None:
        self._is_held_by_thread = False
        unsent = self._unsent
        error = None if sending.cancelled() else sending.exception()
        if self._is_over:
            # The transfer was aborted meanwhile. The thread has used the descriptors until now.
            self._close_descriptors()
            return
        try:
            unsent.is_full, unsent.is_cold = isinstance(error, BlockingIOError), False
            if error is None:
                unsent.end_cold_piece(sending.result())
            elif not unsent.is_full:
                raise error
            if unsent:
                self._wait()
                return
        except Exception as failure:  # noqa: BLE001 - passed to ``ended``
            self._finish(failure)
            return
        self._finish(None)

    def _look_for_stall(self, wire: Wire) -> None:
        """End the transfer if the peer took no byte since the last look.

        Each byte counts, because the socket becomes writable much later.
        """
        before, self._queued_bytes = self._queued_bytes, queued_bytes(wire.descriptor)
        sent_bytes = self._unsent.sent_bytes
        is_moving = sent_bytes > self._sent_bytes_before or self._queued_bytes < before
        if not is_moving:
            self._finish(StalledError())
            return
        self._sent_bytes_before = sent_bytes
        self._timer = self._loop.call_later(self._stall_seconds, self._look_for_stall, wire)

    def _finish(self, error: Exception | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._is_queued:
            self._turns.leave(self)
        if self._is_unfinished:
            self._turns.unfinished_count -= 1
        if self._uncorks and error is None:
            self.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_held_by_thread:
            self._close_descriptors()
        self._unsent.clear()
        ended, self._ended = self._ended, None
        assert ended is not None
        ended(error)

    def _close_descriptors(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            # Before it is closed, because another file may get its number at once.
            self._loop.remove_writer(wire.descriptor)
            wire.release()
            os.close(wire.descriptor)
        self._unsent.close_file()


def send_at_once(wire: Wire, turns: TransferTurns, unsent_bytes_max: int, head: bytes, part: FileSlice) -> int:
    """Send ``head`` and a slice of a file, and return the number of bytes that the socket took.

    Nothing is sent if the slice exceeds one piece or is not in memory. This is the beginning of ``FileTransfer.start``
    without a transfer, which most answers do not need. A transfer sends the rest. It also meets an error that
    occurred here again.
    """
    size_bytes = part.size_bytes
    if size_bytes > turns.first_piece_bytes(size_bytes):
        return 0
    sent, is_corked = 0, size_bytes >= CORKED_BYTES_MIN
    try:
        source = part.file.fileno()
        if not part.is_cached and not page_cache.seems_cached(source, part.position, size_bytes):
            return 0
        allow_unsent(wire, turns, unsent_bytes_max, size_bytes)
        if is_corked:
            wire.set_option(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        sent = wire.send(head, is_more_to_come=True)
        if sent == len(head):
            sent += os.sendfile(wire.descriptor, source, part.position, size_bytes)
    except (OSError, ValueError):
        # A socket that takes no byte raises an OSError as well.
        pass
    if is_corked:
        wire.set_option(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    return sent


def allow_unsent(wire: Wire, turns: TransferTurns, unsent_bytes_max: int, size_bytes: int) -> None:
    """Let the kernel hold more of this answer if few transfers are unfinished, as each full socket costs a turn."""
    if unsent_bytes_max and size_bytes > unsent_bytes_max:
        times = max(1, min(UNSENT_TIMES_MAX, UNSENT_TIMES_TOTAL // (turns.unfinished_count + 1)))
        wire.allow_unsent(times * unsent_bytes_max)
