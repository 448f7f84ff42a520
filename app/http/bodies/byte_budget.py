"""How many bytes all requests together may hold in memory, for bodies that come in and answers that go out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from app.problems import kinds
from app.problems.problem import Problem

_RETRY_AFTER_MS = 1_000


class ByteBudget:
    """A count of bytes with a limit.

    Thread: the event loop's.
    """

    def __init__(self, limit_bytes: int, what: str) -> None:
        """``what`` names what is counted, in the refusal: ``bodies of requests``."""
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.peak_bytes = 0
        self._what = what

    def fair_share(self) -> int:
        """What one more may take so that others find room, too: a quarter of what is left."""
        return max(0, self.limit_bytes - self.held_bytes) // 4

    def hold(self, size_bytes: int = 0) -> Hold:
        """Count ``size_bytes`` until the hold is released."""
        return Hold(self, size_bytes)

    def take(self, size_bytes: int, *, always_bytes: int = 0) -> Hold:
        """``hold``, but only if all together take no more than twice the limit then, or if nothing else is held.

        So a refusal passes: what is held goes, as clients that take nothing are cut off. ``always_bytes`` are never
        refused.

        Raises:
            Problem: 503.
        """
        if size_bytes > always_bytes and self.held_bytes > 0 and self.held_bytes + size_bytes > 2 * self.limit_bytes:
            raise self.refusal()
        return self.hold(size_bytes)

    def refusal(self, headers: Mapping[str, str] | None = None) -> Problem:
        """What a request is told that finds no room."""
        return Problem(
            kinds.OVERLOADED,
            f"{self._what} hold all the memory they may have, {self.limit_bytes} bytes",
            retry_after_ms=_RETRY_AFTER_MS,
            headers=headers,
        )


class Hold:
    """The bytes that one request counts among those of a budget. Release it when they are gone, again is fine."""

    def __init__(self, budget: ByteBudget, size_bytes: int) -> None:
        self._budget = budget
        self.size_bytes = size_bytes
        budget.held_bytes += size_bytes
        budget.peak_bytes = max(budget.peak_bytes, budget.held_bytes)

    def resize(self, size_bytes: int) -> None:
        """Count ``size_bytes`` from now on."""
        budget = self._budget
        budget.held_bytes += size_bytes - self.size_bytes
        budget.peak_bytes = max(budget.peak_bytes, budget.held_bytes)
        self.size_bytes = size_bytes

    def grow(self, size_bytes: int, *, always_bytes: int = 0) -> None:
        """Count ``size_bytes``, more than before, of a body on its way in; ``always_bytes`` are never refused.

        Raises:
            Problem: 503, all together take more than they may now. The rest of the body is not read, so the
                connection cannot be used again.
        """
        self.resize(size_bytes)
        if size_bytes > always_bytes and self._budget.held_bytes > self._budget.limit_bytes:
            raise self._budget.refusal(headers={"Connection": "close"})

    def settle(self, size_bytes: int, *, always_bytes: int = 0) -> None:
        """``resize``, refused as ``ByteBudget.take``; then nothing is counted any more.

        Raises:
            Problem: 503.
        """
        self.release()
        self._budget.take(size_bytes, always_bytes=always_bytes).release()
        self.resize(size_bytes)

    @contextlib.contextmanager
    def released_on_error(self) -> Iterator[None]:
        """Release when the block fails: no answer is made that would."""
        try:
            yield
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Count nothing any more."""
        self.resize(0)


NO_HOLD = ByteBudget(0, "nothing").hold()
"""Of an answer that holds no memory."""
