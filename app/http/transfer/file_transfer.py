"""Bytes and stretches of files on their way into a socket, beside the event loop's own transport.

As much as the socket takes goes out at once, from wherever the transfer is begun: most answers are never waited for.
The rest has its turns with other transfers while the socket takes it (``transfer_turns``). Once that is full, a
duplicate of it is watched, as the loop keeps its hands on the transport's own descriptor.
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
"""Measured: with less the two calls cost what they spare."""
UNSENT_TIMES_MAX = 16
UNSENT_TIMES_TOTAL = 256
"""What the kernel may hold unsent of one answer and of all, in units of what it may of each in a crowd."""

_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class SourceFile(Protocol):
    """An open file; its descriptor stays valid while a transfer holds it."""

    def fileno(self) -> int: ...


class StalledError(Exception):
    """The peer took no byte for too long."""


Ended = Callable[[Exception | None], None]


_NOTHING = UnsentParts(())


class FileTransfer:
    """Sends over the connection of ``transport``, which must hold nothing, and not write meanwhile.

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
        """``wire`` is the socket of ``transport``."""
        self._loop = loop
        self._transport = transport
        self._connection_wire = wire
        self._turns = turns
        # Our own, once the socket is waited for.
        self._wire: Wire | None = None
        self._unsent_bytes_max = unsent_bytes_max
        self._stall_seconds = stall_timeout_ms / 1000
        self._unsent = _NOTHING
        self._ended: Ended | None = None
        self._is_over = False
        self._is_corked = False
        # Whether that ends with the transfer; else who began it ends it.
        self._uncorks = False
        self._is_queued = False
        self._is_unfinished = False
        self._is_held_by_thread = False
        self._timer: asyncio.TimerHandle | None = None
        self._sent_bytes_before = self._queued_bytes = 0

    def start(self, parts: Sequence[AnyPart], ended: Ended, sent_bytes: int = 0) -> bool:
        """Send ``parts`` one behind the other. True when the kernel has all of them; ``ended`` is not called then.

        Of the first two ``sent_bytes`` are out already, see ``send_at_once``, and the socket took no more.

        Otherwise ``ended`` is called once, later: with None when all is sent, or with

        - FileEndedError: a file is shorter than its part; what there was is sent;
        - StalledError: the peer took nothing for the stall timeout;
        - ConnectionError: the peer is gone, or ``abort`` was called.

        A file may be closed by its owner once its first byte is sent: the transfer has a descriptor of its own.
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
        except Exception as error:  # noqa: BLE001 - told in the next turn, as every other end
            self._loop.call_soon(self._finish, error)
        return False

    async def send(self, file: SourceFile, offset: int, count: int) -> None:
        """Send ``count`` bytes of ``file`` from ``offset`` on.

        Raises:
            FileEndedError, StalledError, ConnectionError: as ``start`` tells them.
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
            # Others have their turn, however quick the client is.
            await asyncio.sleep(0)
            return
        try:
            await over
        except asyncio.CancelledError:
            self.abort()
            raise

    def abort(self) -> None:
        """Send nothing more; ``ended`` is told ConnectionAbortedError. Again, or after the end, is fine."""
        if not self._is_over and self._ended is not None:
            self._finish(ConnectionAbortedError())

    def hold_small_writes(self) -> None:
        """Let the kernel wait with a packet that is not full until ``close``.

        The head so leaves with the first bytes. And sendfile gives the socket 64 KiB at a time, some bytes more than a
        packet on loopback may have: without this every third packet had those alone.
        """
        if not self._is_corked:
            self._is_corked = True
            self._set_option(socket.IPPROTO_TCP, socket.TCP_CORK, 1)

    def reset(self) -> None:
        """Let the close throw away what the peer has not taken, and tell it so."""
        self._set_option(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)

    def close(self) -> None:
        """Let small writes go."""
        if self._is_corked:
            self._is_corked = False
            self._set_option(socket.IPPROTO_TCP, socket.TCP_CORK, 0)

    def _set_option(self, level: int, option: int, value: int | bytes) -> None:
        if not self._transport.is_closing():
            self._connection_wire.set_option(level, option, value)

    # Turns, and waiting

    def _hold(self) -> None:
        """The first piece is out: from now on others are asked first, and the file may be closed by its owner."""
        self._is_unfinished = True
        self._turns.unfinished_count += 1
        self._unsent.keep_file()

    def _wait(self) -> None:
        """Go on when it is our turn, when the socket takes more, or in a thread."""
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
        """Send a piece; how many bytes were sent."""
        self._is_queued = False
        unsent = self._unsent
        before = unsent.sent_bytes
        try:
            unsent.keep_file()
            if unsent.send(self._wire or self._connection_wire, PIECE_BYTES):
                self._finish(None)
            else:
                self._wait()
        except Exception as error:  # noqa: BLE001 - whoever waits for the end is told
            self._finish(error)
        return unsent.sent_bytes - before

    def _own_wire(self) -> Wire:
        wire = self._wire
        if wire is None:
            wire = self._wire = Wire(os.dup(self._connection_wire.descriptor))
        return wire

    def _watch(self) -> None:
        """Queue when the socket takes more. It stays watched: to begin and end that costs more than a look."""
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
            # Aborted meanwhile: the thread used the descriptors until now.
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
        except Exception as failure:  # noqa: BLE001 - whoever waits for the end is told
            self._finish(failure)
            return
        self._finish(None)

    def _look_for_stall(self, wire: Wire) -> None:
        """Whether the peer took anything since the last look, however little: a socket is writable much later."""
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
            # Before it closes: its number may be another's at once.
            self._loop.remove_writer(wire.descriptor)
            wire.release()
            os.close(wire.descriptor)
        self._unsent.close_file()


def send_at_once(wire: Wire, turns: TransferTurns, unsent_bytes_max: int, head: bytes, part: FileSlice) -> int:
    """Send ``head`` and a stretch of a file if one piece may hold it and it is in memory; how many bytes went out.

    As ``FileTransfer.start`` begins, without a transfer: most answers need none. What the socket did not take is left
    to one, and so is what went wrong, which it meets again.
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
        # Also the error of a socket that takes nothing.
        pass
    if is_corked:
        wire.set_option(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    return sent


def allow_unsent(wire: Wire, turns: TransferTurns, unsent_bytes_max: int, size_bytes: int) -> None:
    """Let the kernel take more of this answer while few are waited for: each time that it is full costs a turn."""
    if unsent_bytes_max and size_bytes > unsent_bytes_max:
        times = max(1, min(UNSENT_TIMES_MAX, UNSENT_TIMES_TOTAL // (turns.unfinished_count + 1)))
        wire.allow_unsent(times * unsent_bytes_max)
