"""Quotas charged with the requests of clients, and the times that clients have to wait (spec A3, D4)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from app.problems import kinds, request_context
from app.problems.problem import Problem
from app.quotas.limits import Limit, QuotaEntity, QuotaKind, QuotaTable
from app.quotas.sampled_rate import SAMPLE_COUNT, WINDOW_MS, SampledRate
from log_model.clock import Clock

TRACKED_CLIENTS_MAX = 100_000


ANONYMOUS = "ANONYMOUS"
"""Kafka's name for a user that was not authenticated."""


class Client(NamedTuple):
    """The sender of a request: the principal's name, and the header ``Client-Id``, empty if there is none."""

    user: str
    client_id: str = ""

    @classmethod
    def of_request(cls) -> Client:
        """Return the client whose request the current task handles."""
        return cls(request_context.principal.get() or ANONYMOUS, request_context.client_id.get())


class _Account:
    __slots__ = ("muted_until_ms", "rate")

    def __init__(self) -> None:
        self.rate = SampledRate()
        self.muted_until_ms = 0


class Quotas:
    """The accounts of all clients that have quotas.

    As in Kafka, a request that exceeds the quota is still served, except for a fetch, whose records are withheld. The
    response says for how long the client must wait. Earlier requests are refused with 429.

    Thread: the event loop.
    """

    def __init__(
        self, clock: Clock, table: QuotaTable | None = None, *, on_throttled: Callable[[str], None] | None = None
    ) -> None:
        """Begin without accounts.

        ``on_throttled`` receives the quota's name for every request that exceeds a quota or arrives too early.
        """
        self.table = table or QuotaTable()
        self._clock = clock
        self._on_throttled = on_throttled or (lambda _: None)
        # The account that is idle for the longest time comes first.
        self._accounts: OrderedDict[tuple[QuotaKind, QuotaEntity], _Account] = OrderedDict()

    def admit(self, kind: QuotaKind, client: Client) -> None:
        """Refuse a client whose time to wait is not over.

        Raises:
            Problem: 429 throttled.
        """
        limit = self.table.find(kind, *client)
        if limit is None:
            return
        account = self._accounts.get((kind, limit.shared_by))
        if account is None:
            return
        left_ms = account.muted_until_ms - self._clock.elapsed_ms()
        if left_ms > 0:
            self._on_throttled(kind.value)
            raise Problem(
                kinds.THROTTLED,
                f"the quota of {limit.shared_by} is {limit.per_second:g} {_UNITS[kind]}; wait {left_ms} ms",
                retry_after_ms=left_ms,
                throttle_time_ms=left_ms,
            )

    def is_muted(self, kind: QuotaKind, client: Client) -> bool:
        """Return whether ``admit`` would refuse. Counts nothing."""
        limit = self.table.find(kind, *client)
        account = None if limit is None else self._accounts.get((kind, limit.shared_by))
        return account is not None and account.muted_until_ms > self._clock.elapsed_ms()

    def charge(self, kind: QuotaKind, client: Client, amount: float) -> int:
        """Count ``amount``, also if it exceeds the quota. Return the milliseconds that the client must wait."""
        limit = self.table.find(kind, *client)
        if limit is None:
            return 0
        now_ms = self._clock.elapsed_ms()
        account = self._account(kind, limit)
        account.rate.record(amount, now_ms)
        return self._throttle(kind, account, limit, now_ms)

    def charge_fetch(self, client: Client, size_bytes: int) -> int:
        """Count a response of ``size_bytes``; return 0 if it may be sent.

        If it exceeds the quota, do not count it and return the milliseconds that the client must wait: the caller must
        send an empty response.

        A client that received nothing lately gets the response all the same, and must wait before the next one.
        Otherwise a batch larger than the quota would never be read. (Kafka's consumers starve there.)
        """
        limit = self.table.find(QuotaKind.FETCH, *client)
        if limit is None:
            return 0
        now_ms = self._clock.elapsed_ms()
        account = self._account(QuotaKind.FETCH, limit)
        was_silent = account.rate.measure(now_ms) <= 0
        account.rate.record(size_bytes, now_ms)
        throttle_ms = self._throttle(QuotaKind.FETCH, account, limit, now_ms)
        if throttle_ms and was_silent:
            return 0
        if throttle_ms:
            account.rate.record(-size_bytes, now_ms)
        return throttle_ms

    def fetch_bytes_max(self, client: Client, bytes_max: int) -> int:
        """Return the most bytes that a fetch may read: the quota's bytes of all full windows, so that it can succeed.

        The result is at most ``bytes_max``.
        """
        limit = self.table.find(QuotaKind.FETCH, *client)
        if limit is None:
            return bytes_max
        return min(bytes_max, int(limit.per_second * (SAMPLE_COUNT - 1) * WINDOW_MS / 1000))

    def _account(self, kind: QuotaKind, limit: Limit) -> _Account:
        key = (kind, limit.shared_by)
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = _Account()
            if len(self._accounts) > TRACKED_CLIENTS_MAX:
                self._accounts.popitem(last=False)
        else:
            self._accounts.move_to_end(key)
        return account

    def _throttle(self, kind: QuotaKind, account: _Account, limit: Limit, now_ms: int) -> int:
        throttle_ms = account.rate.throttle_ms(limit.per_second, now_ms)
        if throttle_ms:
            self._on_throttled(kind.value)
            account.muted_until_ms = now_ms + throttle_ms
        return throttle_ms


_UNITS = {
    QuotaKind.PRODUCE: "bytes a second produced",
    QuotaKind.FETCH: "bytes a second fetched",
    QuotaKind.REQUEST: "requests a second",
}
