"""An atomic request whose commit fails leaves no transaction open: readers of committed records do not wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.engine.transactions import Transaction, TransactionState
from app.engine_local.transactions.log.state_log import TransactionStateLog
from log_model.errors import DiskFullError
from tests.support.servers import ThreadedServer

WAITED_SECONDS_MAX = 30.0
"""Half of the transaction's own timeout."""


def await_that(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAITED_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline


def held_up(client: httpx.Client, topic: str) -> list[bool]:
    """Whether readers of committed records wait in each of the partitions."""
    found = [client.get(f"{topic}/partitions/{partition}").json() for partition in (0, 1)]
    return [each["last_stable_offset"] < each["high_watermark"] for each in found]


def refuse(monkeypatch: pytest.MonkeyPatch, refused: dict[TransactionState, int]) -> None:
    """Let the state log refuse this many writes of these states, as a full disk does."""
    write = TransactionStateLog.write

    async def write_or_refuse(self: TransactionStateLog, transaction: Transaction) -> None:
        if refused.get(transaction.state, 0):
            refused[transaction.state] -= 1
            raise DiskFullError("no space for the state of a transaction")
        await write(self, transaction)

    monkeypatch.setattr(TransactionStateLog, "write", write_or_refuse)


def produce(client: httpx.Client, topic: str, value: str) -> httpx.Response:
    name = topic.rsplit("/", 1)[1]
    parts = [{"topic": name, "partition": partition, "records": [{"value": value}]} for partition in (0, 1)]
    return client.post("/v1/produce?atomic=true", json={"partitions": parts})


def committed_values(client: httpx.Client, topic: str) -> list[Any]:
    answer = client.get(f"{topic}/partitions/0/records?offset=0&isolation=read_committed")
    return [record["value"] for record in answer.json()["records"]]


def test_a_commit_that_fails_is_aborted_at_once(
    client: httpx.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        refuse(patch, {TransactionState.PREPARE_COMMIT: 1})
        failed = produce(client, topic, "lost")
    assert (failed.status_code, failed.json()["code"], failed.json()["applied"]) == (507, "disk_full", "no")
    await_that(lambda: held_up(client, topic) == [False, False])
    assert committed_values(client, topic) == []
    assert produce(client, topic, "kept").status_code == 200
    assert committed_values(client, topic) == ["kept"]


def test_an_abort_that_fails_as_well_is_tried_again(
    client: httpx.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {TransactionState.PREPARE_COMMIT: 1, TransactionState.PREPARE_ABORT: 2}
    refuse(monkeypatch, refused)
    assert produce(client, topic, "lost").status_code == 507
    await_that(lambda: held_up(client, topic) == [False, False])
    assert not any(refused.values())
    assert committed_values(client, topic) == []


def test_the_check_finds_a_transaction_that_is_left_open(
    server: ThreadedServer, client: httpx.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a failed commit is left to the timeout."""
    monkeypatch.setattr(server.service.parts.engine.transactions.pool, "_abort_left", lambda *_: None)
    refuse(monkeypatch, {TransactionState.PREPARE_COMMIT: 1})
    assert produce(client, topic, "lost").status_code == 507
    assert held_up(client, topic) == [True, True]
