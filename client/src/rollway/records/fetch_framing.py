"""The framing of a fetch answer in Kafka 0.7: one message set with its error, or several of them in one (spec B9).

Both begin with the same six bytes, big-endian::

    0  totalLength  int32   bytes after this field
    4  error        int16   Kafka's error code, 0 without one
    6  content              one message set (MessageSetSend), or single frames end to end (MultiMessageSetSend)

A frame says nothing about topic and partition: single frames stand in the order of the request. The content may end
in a part of a message or batch, which the reader drops by its size (spec B5). A sender of contents from files needs the
heads only: ``multi_frame_head``, then ``frame_head`` before each content.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rollway.records.batch import Buffer
from rollway.records.errors import BrokenFrameError

FRAME_HEAD_BYTES = 6
"""Size of a frame without content."""

FRAMES_MAX = 1_000_000
"""The most single frames that ``decode_multi_frame`` accepts in one."""

_HEAD = struct.Struct(">ih")
_LENGTH_BYTES = 4
_ERROR_BYTES = FRAME_HEAD_BYTES - _LENGTH_BYTES


class MessageSetFrame(NamedTuple):
    """The answer for one partition: an error code, 0 without one, and the bytes of a message set."""

    error_code: int
    content: Buffer

    @property
    def size_bytes(self) -> int:
        """The whole frame, its head included."""
        return FRAME_HEAD_BYTES + len(self.content)


class MultiFrame(NamedTuple):
    """The answer for several partitions: an error code of the whole request, and a single frame for each."""

    error_code: int
    frames: tuple[MessageSetFrame, ...]


def frame_head(content_bytes: int, error_code: int = 0) -> bytes:
    """Return the six bytes before a message set of ``content_bytes``.

    Raises:
        ValueError: the length does not fit an int32, or the error code an int16.
    """
    try:
        return _HEAD.pack(_ERROR_BYTES + content_bytes, error_code)
    except struct.error as error:
        raise ValueError(f"no frame has {content_bytes} bytes and error code {error_code}") from error


def multi_frame_head(contents_bytes: Iterable[int], error_code: int = 0) -> bytes:
    """Return the six bytes before single frames whose contents have these sizes.

    Raises:
        ValueError: as ``frame_head``; the sizes of all frames count, heads included.
    """
    return frame_head(sum(FRAME_HEAD_BYTES + content_bytes for content_bytes in contents_bytes), error_code)


def encode_frame(frame: MessageSetFrame) -> bytes:
    """Return one partition's frame.

    Raises:
        ValueError: as ``frame_head``.
    """
    return b"".join((frame_head(len(frame.content), frame.error_code), frame.content))


def encode_multi_frame(frames: Sequence[MessageSetFrame], error_code: int = 0) -> bytes:
    """Return the frames of several partitions in one.

    Raises:
        ValueError: as ``frame_head``.
    """
    head = multi_frame_head((len(frame.content) for frame in frames), error_code)
    return b"".join((head, *map(encode_frame, frames)))


def decode_frame(buffer: Buffer) -> MessageSetFrame:
    """Return the one frame that fills ``buffer``; its content is a view, not a copy.

    Raises:
        BrokenFrameError: the buffer is shorter or longer than the frame in it.
    """
    view = memoryview(buffer).cast("B")
    error_code, end = _read_head(view, 0)
    if end != len(view):
        raise BrokenFrameError(f"a frame of {end} bytes in {len(view)} bytes")
    return MessageSetFrame(error_code, view[FRAME_HEAD_BYTES:])


def decode_multi_frame(buffer: Buffer, *, frames_max: int = FRAMES_MAX) -> MultiFrame:
    """Return the multi frame that fills ``buffer``, with its single frames in order; contents are views, not copies.

    Raises:
        BrokenFrameError: the lengths do not add up, or there are more than ``frames_max`` single frames.
    """
    whole = decode_frame(buffer)
    view = memoryview(whole.content)
    frames: list[MessageSetFrame] = []
    position = 0
    while position < len(view):
        if len(frames) == frames_max:
            raise BrokenFrameError(f"more than {frames_max} frames in one")
        error_code, end = _read_head(view, position)
        frames.append(MessageSetFrame(error_code, view[position + FRAME_HEAD_BYTES : end]))
        position = end
    return MultiFrame(whole.error_code, tuple(frames))


def _read_head(view: memoryview, position: int) -> tuple[int, int]:
    """Return the error code of the frame that begins at ``position``, and where the frame ends."""
    if len(view) - position < FRAME_HEAD_BYTES:
        raise BrokenFrameError(f"{len(view) - position} bytes at byte {position}; a frame has at least 6")
    total_length, error_code = _HEAD.unpack_from(view, position)
    end = position + _LENGTH_BYTES + total_length
    if total_length < _ERROR_BYTES:
        raise BrokenFrameError(f"the frame at byte {position} says that {total_length} bytes follow its length")
    if end > len(view):
        raise BrokenFrameError(f"the frame at byte {position} ends at byte {end}, but the bytes end at {len(view)}")
    return error_code, end
