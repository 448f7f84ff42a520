"""Transactions that the service's own producers have left open: each is aborted at once, with repeated tries.

Each has one task, which ends with the durable abort, with the service's stop, or when the transaction has reached its
timeout. From then on ``upkeep`` aborts it like every timed-out transaction. After a restart, the start aborts it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from app.engine.transactions import ProducerIdentity, Transaction
from app.engine_local.transactions.endings import Endings
from app.engine_local.transactions.log.state import TransactionTable, fence
from app.engine_local.transactions.markers import RETRY_MS_MAX, RETRY_MS_MIN
from app.engine_local.transactions.sessions import Session
from app.engine_local.transactions.turns import Turns
from app.problems.problem import Problem
from log_model.errors import ShuttingDownError, StorageError, let_go_of_frames

logger = logging.getLogger(__name__)


class LeftOpen:
    """Aborts transactions that the service's own producers have left open. Thread: the event loop."""

    def __init__(self, table: TransactionTable, turns: Turns, endings: Endings, now_ms: Callable[[], int]) -> None:
        self._table = table
        self._turns = turns
        self._endings = endings
        self._now_ms = now_ms

    def abort(self, name: str, producer: ProducerIdentity) -> None:
        """Abort the transaction of this producer in the background, if there is one. The producer does not go on.

        A transaction that another producer has begun under the same name by then stays open.
        """
        self._turns.tasks.spawn(self._abort(name, producer), f"aborting what {name!r} left")

    async def _abort(self, name: str, producer: ProducerIdentity) -> None:
        delay_ms, reason = RETRY_MS_MIN, ""
        deadline: float | None = None

        async def fence_it(session: Session) -> None:
            # This runs under the lock of the id, so that it sees the result of a transition that was under way.
            left = self._find(name, producer)
            if left is not None:
                await self._endings.decide(session, fence(left, self._now_ms()))

        while True:
            try:
                await self._turns.in_turn(name, fence_it)
            except ShuttingDownError:
                return
            except (StorageError, Problem) as error:
                if str(error) != reason:
                    reason = str(error)
                    logger.warning("the transaction that %r has left open is not aborted yet: %s", name, reason)
                # The frames hold logs, and the logs hold their files.
                let_go_of_frames(error)
            else:
                return
            left = self._find(name, producer)
            now = asyncio.get_running_loop().time()
            if left is not None and deadline is None:
                deadline = now + left.timeout_ms / 1000
            if left is None or now >= (deadline or 0.0) or not await self._endings.pause(delay_ms):
                return
            delay_ms = min(2 * delay_ms, RETRY_MS_MAX)

    def _find(self, name: str, producer: ProducerIdentity) -> Transaction | None:
        transaction = self._table.find(name)
        is_left = transaction is not None and transaction.is_ongoing and transaction.producer == producer
        return transaction if is_left else None
