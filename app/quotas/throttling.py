"""Charging what clients do against their quotas, and telling them how long to wait (spec A3, D4)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from app.problems import request_context
from app.problems.problems import Problem
from app.quotas.limits import Limit, QuotaEntity, QuotaKind, QuotaTable
from app.quotas.sampled_rate import SAMPLE_COUNT, WINDOW_MS, SampledRate
from storage.disk.clock import Clock

TRACKED_CLIENTS_MAX = 100_000


ANONYMOUS = "ANONYMOUS"
"""Kafka's name for a user who was not asked."""


class Client(NamedTuple):
    """Who asks: the principal's name, and what the client calls itself (header ``Client-Id``), empty for nothing."""

    user: str
    client_id: str = ""

    @classmethod
    def of_request(cls) -> Client:
        """Whose request this task is at."""
        return cls(request_context.principal.get() or ANONYMOUS, request_context.client_id.get())


class _Account:
    __slots__ = ("muted_until_ms", "rate")

    def __init__(self) -> None:
        self.rate = SampledRate()
        self.muted_until_ms = 0


class Quotas:
    """The accounts of all clients that have quotas.

    As in Kafka a request that breaks the quota is still served, but for a fetch, whose records are kept back; the
    answer says for how long the client is to be silent. Requests before that time are refused with 429.

    Thread: the event loop.
    """

    def __init__(
        self, clock: Clock, table: QuotaTable | None = None, *, on_throttled: Callable[[str], None] | None = None
    ) -> None:
        """``on_throttled`` is called with the quota's name for every request that breaks a quota or comes too early."""
        self.table = table or QuotaTable()
        self._clock = clock
        self._on_throttled = on_throttled or (lambda _: None)
        # Longest idle first.
        self._accounts: OrderedDict[tuple[QuotaKind, QuotaEntity], _Account] = OrderedDict()

    def admit(self, kind: QuotaKind, client: Client) -> None:
        """Refuse a client that was told to wait and does not.

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
                429,
                "throttled",
                f"the quota of {limit.shared_by} is {limit.per_second:g} {_UNITS[kind]}; wait {left_ms} ms",
                kafka_code=89,
                retryable=True,
                retry_after_ms=left_ms,
                throttle_time_ms=left_ms,
            )

    def is_muted(self, kind: QuotaKind, client: Client) -> bool:
        """Whether ``admit`` would refuse. Counts nothing."""
        limit = self.table.find(kind, *client)
        account = None if limit is None else self._accounts.get((kind, limit.shared_by))
        return account is not None and account.muted_until_ms > self._clock.elapsed_ms()

    def charge(self, kind: QuotaKind, client: Client, amount: float) -> int:
        """Count ``amount``, whether that breaks the quota or not; how many milliseconds the client is to wait."""
        limit = self.table.find(kind, *client)
        if limit is None:
            return 0
        now_ms = self._clock.elapsed_ms()
        account = self._account(kind, limit)
        account.rate.record(amount, now_ms)
        return self._throttle(kind, account, limit, now_ms)

    def charge_fetch(self, client: Client, size_bytes: int) -> int:
        """Count an answer of ``size_bytes``. If that breaks the quota it is not counted, and how many milliseconds to
        wait is returned: the answer has to go out empty.

        Who got nothing lately gets the answer even so, and has to wait before the next: a batch larger than the
        quota would never be read otherwise. (Kafka's consumers starve there.)
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
        """The most a fetch may bring: what the quota lets through in all its full windows, so that one can succeed."""
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
