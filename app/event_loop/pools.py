"""Threads for blocking calls, in separate pools: a slow fsync holds up neither reads nor other writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

from app.settings import Settings

Result = TypeVar("Result")

INLINE_BYTES_MAX = 64 * 1024
"""Work on more bytes than this leaves the loop for a thread."""


class Pools:
    """The pools of one service: one for writes, one for fsync, one to read and decode, one for work on whole topics."""

    def __init__(self, settings: Settings) -> None:
        self.write = ThreadPoolExecutor(settings.write_threads, "rollway-write")
        self.flush = ThreadPoolExecutor(settings.flush_threads, "rollway-flush")
        self.read = ThreadPoolExecutor(settings.read_threads, "rollway-read")
        # Creating, growing or deleting a topic of 10,000 partitions may take seconds, and other topics must not wait.
        self.control = ThreadPoolExecutor(8, "rollway-control")

    def close(self) -> None:
        """Let the threads end once their work is done."""
        for pool in (self.write, self.flush, self.read, self.control):
            pool.shutdown(wait=True)


async def call_in(pool: Executor, call: Callable[[], Result]) -> Result:
    """Run ``call`` in a thread of ``pool`` and return its result."""
    return await asyncio.get_running_loop().run_in_executor(pool, call)
