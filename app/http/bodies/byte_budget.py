"""A limit on the bytes that all requests together hold in memory, for incoming bodies and outgoing answers."""

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
        """Count up to ``limit_bytes``. ``what`` names the counted things in the refusal: ``bodies of requests``."""
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.peak_bytes = 0
        self._what = what

    def fair_share(self) -> int:
        """Return a quarter of the bytes that are left: one request may take this and leave some to the next."""
        return max(0, self.limit_bytes - self.held_bytes) // 4

    def hold(self, size_bytes: int = 0) -> Hold:
        """Count ``size_bytes`` until the hold is released."""
        return Hold(self, size_bytes)

    def take(self, size_bytes: int, *, always_bytes: int = 0) -> Hold:
        """Hold ``size_bytes`` if all holds together then have at most twice the limit, or if nothing else is held.

        A size up to ``always_bytes`` is never refused. A refusal is temporary: holds are released, because clients
        that take no bytes are cut off.

        Raises:
            Problem: 503, the holds have too many bytes.
        """
        if size_bytes > always_bytes and self.held_bytes > 0 and self.held_bytes + size_bytes > 2 * self.limit_bytes:
            raise self.refusal()
        return self.hold(size_bytes)

    def refusal(self, headers: Mapping[str, str] | None = None) -> Problem:
        """Return the 503 for a request that finds no room."""
        return Problem(
            kinds.OVERLOADED,
            f"{self._what} hold all the memory they may have, {self.limit_bytes} bytes",
            retry_after_ms=_RETRY_AFTER_MS,
            headers=headers,
        )


class Hold:
    """The bytes that one request counts in a budget. Release it when they are freed; a second release does nothing."""

    def __init__(self, budget: ByteBudget, size_bytes: int) -> None:
        self._budget = budget
        self.size_bytes = size_bytes
        budget.held_bytes += size_bytes
        budget.peak_bytes = max(budget.peak_bytes, budget.held_bytes)

    def resize(self, size_bytes: int) -> None:
        """Count ``size_bytes`` instead of the size before."""
        budget = self._budget
        budget.held_bytes += size_bytes - self.size_bytes
        budget.peak_bytes = max(budget.peak_bytes, budget.held_bytes)
        self.size_bytes = size_bytes

    def grow(self, size_bytes: int, *, always_bytes: int = 0) -> None:
        """Count ``size_bytes`` of an incoming body, more than before. Up to ``always_bytes`` are never refused.

        Raises:
            Problem: 503, all holds together exceed the limit. The rest of the body is not read, so the connection
                cannot serve another request.
        """
        self.resize(size_bytes)
        if size_bytes > always_bytes and self._budget.held_bytes > self._budget.limit_bytes:
            raise self._budget.refusal(headers={"Connection": "close"})

    def settle(self, size_bytes: int, *, always_bytes: int = 0) -> None:
        """Count ``size_bytes`` from now on, or nothing if they are refused as in ``ByteBudget.take``.

        Raises:
            Problem: 503, the holds have too many bytes.
        """
        self.release()
        self._budget.take(size_bytes, always_bytes=always_bytes).release()
        self.resize(size_bytes)

    @contextlib.contextmanager
    def released_on_error(self) -> Iterator[None]:
        """Release the hold if the block fails, since then there is no answer that releases it."""
        try:
            yield
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Count nothing from now on."""
        self.resize(0)


NO_HOLD = ByteBudget(0, "nothing").hold()
"""The hold of an answer that holds no memory."""
