"""Where a connection is in a request, and what of its client it waits for."""

from __future__ import annotations

import enum


class Stage(enum.Enum):
    """Where in a request the parser is."""

    IDLE = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()


class Waits(enum.Enum):
    """What of its client a connection waits for, at most for one thing at a time."""

    NOTHING = enum.auto()
    NEXT_REQUEST = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()
