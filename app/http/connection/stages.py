"""States of a connection: its place in the request that comes in, and the next thing that its client must send."""

from __future__ import annotations

import enum


class Stage(enum.Enum):
    """The place of the parser in a request."""

    IDLE = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()


class Waits(enum.Enum):
    """The thing that a connection waits for from its client. It waits for at most one at a time."""

    NOTHING = enum.auto()
    NEXT_REQUEST = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()
