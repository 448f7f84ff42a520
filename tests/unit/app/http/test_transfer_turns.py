"""Transfers whose sockets take all they are given send one after the other, so much in a turn of the loop."""

from __future__ import annotations

import asyncio

import uvloop

from app.http.transfer.transfer_turns import LEAST_PIECE_BYTES, PIECE_BYTES, TURN_BYTES, TransferTurns

PER_TURN = TURN_BYTES // PIECE_BYTES


class Sender:
    """Sends so many pieces of one size, and notes its name for each."""

    def __init__(self, turns: TransferTurns, sent: list[str], name: str, count: int, piece_bytes: int) -> None:
        self._turns = turns
        self._sent = sent
        self._name = name
        self._left = count
        self._piece_bytes = piece_bytes

    def queue(self) -> None:
        self._turns.queue(asyncio.get_running_loop(), self)

    def take_turn(self) -> int:
        self._sent.append(self._name)
        self._left -= 1
        if self._left:
            self.queue()
        return self._piece_bytes


def run_turns(senders: list[tuple[str, int, int]]) -> tuple[list[str], list[int]]:
    """Who sent, in order, and how many pieces went out in each turn of the loop."""
    sent: list[str] = []
    counts: list[int] = []

    async def scenario() -> None:
        turns = TransferTurns()
        for name, count, piece_bytes in senders:
            Sender(turns, sent, name, count, piece_bytes).queue()
        assert not sent
        while len(sent) < sum(count for _, count, _ in senders):
            before = len(sent)
            await asyncio.sleep(0)
            counts.append(len(sent) - before)

    uvloop.run(scenario())
    return sent, counts


def test_each_sends_a_piece_after_the_others() -> None:
    sent, counts = run_turns([("a", 3, PIECE_BYTES), ("b", 3, PIECE_BYTES), ("c", 1, PIECE_BYTES)])
    assert sent == ["a", "b", "c", "a", "b", "a", "b"]
    assert max(counts) == PER_TURN


def test_small_pieces_make_no_turn_long() -> None:
    sent, counts = run_turns([("crowd", 1, 1) for _ in range(300)])
    assert len(sent) == 300
    assert max(counts) == TURN_BYTES // LEAST_PIECE_BYTES


def test_who_leaves_is_not_asked() -> None:
    sent: list[str] = []

    async def scenario() -> None:
        turns = TransferTurns()
        senders = [Sender(turns, sent, name, 1, PIECE_BYTES) for name in "abc"]
        for sender in senders:
            sender.queue()
        turns.leave(senders[1])
        for _ in range(4):
            await asyncio.sleep(0)
        # An empty queue can be filled again.
        senders[1].queue()
        for _ in range(2):
            await asyncio.sleep(0)

    uvloop.run(scenario())
    assert sent == ["a", "c", "b"]


def test_the_others_go_on_when_one_fails() -> None:
    sent: list[str] = []
    errors: list[object] = []

    class Failing(Sender):
        def take_turn(self) -> int:
            raise RuntimeError("defect")

    async def scenario() -> None:
        loop, turns = asyncio.get_running_loop(), TransferTurns()
        loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
        Failing(turns, sent, "a", 1, PIECE_BYTES).queue()
        Sender(turns, sent, "b", 2, PIECE_BYTES).queue()
        for _ in range(4):
            await asyncio.sleep(0)

    uvloop.run(scenario())
    assert sent == ["b", "b"]
    assert [str(error) for error in errors] == ["defect"]


def test_first_pieces_of_a_crowd_fit_into_a_turn() -> None:
    turns = TransferTurns()
    assert turns.first_piece_bytes(2 * PIECE_BYTES) == PIECE_BYTES
    turns.unfinished_count = 7
    assert turns.first_piece_bytes(2 * PIECE_BYTES) == TURN_BYTES // 8
    turns.unfinished_count = 1000
    assert turns.first_piece_bytes(2 * PIECE_BYTES) == LEAST_PIECE_BYTES


def test_what_must_queue_behind_others_sends_nothing_before() -> None:
    async def scenario() -> None:
        turns = TransferTurns()
        Sender(turns, [], "a", 1, PIECE_BYTES).queue()
        assert turns.first_piece_bytes(PIECE_BYTES + 1) == 0
        assert turns.first_piece_bytes(PIECE_BYTES) == PIECE_BYTES
        await asyncio.sleep(0)
        assert turns.first_piece_bytes(PIECE_BYTES + 1) == PIECE_BYTES

    uvloop.run(scenario())
