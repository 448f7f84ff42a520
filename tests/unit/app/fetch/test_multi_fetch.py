"""Fetches of many partitions: other requests get turns of the loop meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

from app.access.access import EVERYTHING
from app.fetch.multi_fetch import PARTITIONS_PER_TURN, _resolve
from app.fetch.multi_fetch_body import FetchPartition
from tests.support.servers import ThreadedServer


def test_others_get_a_turn_between_many_partitions_that_do_not_exist(tmp_path: Path) -> None:
    """9,000 of them took 120 to 200 ms of the loop at once."""
    with ThreadedServer(tmp_path / "data") as server:
        parts = server.service.parts
        asked = [FetchPartition(number, 0, "nothing") for number in range(10 * PARTITIONS_PER_TURN)]

        async def turns_of_others() -> int:
            resolving = asyncio.ensure_future(_resolve(parts.fetching, EVERYTHING, asked))
            turns = 0
            while not resolving.done():
                turns += 1
                await asyncio.sleep(0)
            assert all(answer.error is not None for answer in resolving.result())
            return turns

        assert server.service.loop is not None
        assert asyncio.run_coroutine_threadsafe(turns_of_others(), server.service.loop).result(30) >= 10
