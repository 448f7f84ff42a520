"""A look at whether bytes of a file are in memory, so that reading them does not wait for the disk."""

from __future__ import annotations

import os

from storage.segment import batch_search

PROBE_BYTES = 1024 * 1024
"""The distance between two places of a stretch that are probed."""


def seems_cached(source: int, offset: int, length: int) -> bool:
    """Return whether ``length`` bytes from ``offset`` on are in the page cache at both ends and at places between.

    Example: of 3 MiB, four bytes are probed. A file system that cannot tell counts as memory: the result is true.
    """
    if batch_search.compiled is not None:
        return batch_search.compiled.seems_cached(source, offset, length, PROBE_BYTES)
    byte = bytearray(1)
    try:
        for place in range(offset, offset + length - 1, PROBE_BYTES):
            os.preadv(source, [byte], place, os.RWF_NOWAIT)
        os.preadv(source, [byte], offset + length - 1, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
