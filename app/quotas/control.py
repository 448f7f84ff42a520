"""Changes of quotas, one at a time: first on the disk, then in force."""

from __future__ import annotations

import asyncio
import functools

from app.event_loop.pools import Pools, call_in
from app.problems import kinds
from app.problems.problem import Problem
from app.quotas.limits import QUOTA_COUNT_MAX, Limits, QuotaEntity
from app.quotas.store import QuotaStore
from app.quotas.throttling import Quotas
from log_model.errors import ChangeOutcomeUnknownError


class QuotaControl:
    """Control of the quotas of a running service. Thread: the event loop; a thread of a pool writes the file."""

    def __init__(self, quotas: Quotas, store: QuotaStore, pools: Pools) -> None:
        self.quotas = quotas
        self._store = store
        self._pools = pools
        self._changing = asyncio.Lock()

    async def set(self, entity: QuotaEntity, limits: Limits) -> None:
        """Give ``entity`` exactly ``limits``, durably and from now on. Without limits its quota is removed.

        Raises:
            Problem: 422, there are too many quotas.
            DiskFullError, TooManyOpenFilesError, DiskFailedError: the disk refused; the quota is as before.
            ChangeOutcomeUnknownError: the change is in force, but the next start may not find it.
        """
        async with self._changing:
            table = self.quotas.table.with_limits(entity, limits)
            if len(table) > QUOTA_COUNT_MAX:
                raise Problem(kinds.QUOTA_LIMIT_REACHED, f"there are {QUOTA_COUNT_MAX} quotas already")
            try:
                await call_in(self._pools.control, functools.partial(self._store.save, table))
            except ChangeOutcomeUnknownError:
                self.quotas.table = table
                raise
            self.quotas.table = table
