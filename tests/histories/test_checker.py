"""The checker finds every kind of anomaly that is planted, and nothing in a history without."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.histories.checker import ANOMALIES, Checker, count_by_kind
from tests.histories.history import FinalLog, History, Isolation, Poll, Seen, Send, StoredBatch

PARTITIONS = 2


class _Log:
    """A partition that does everything right."""

    def __init__(self) -> None:
        self.records: list[tuple[Seen, str | None]] = []
        self.batches: list[StoredBatch] = []
        self.end = 0

    def append(self, values: tuple[str, ...], transaction: str | None) -> int:
        base = self.end
        self.records += [(Seen(base + place, value), transaction) for place, value in enumerate(values)]
        self._grow(len(values), is_control=False)
        return base

    def mark(self) -> None:
        self._grow(1, is_control=True)

    def _grow(self, count: int, *, is_control: bool) -> None:
        self.batches.append(StoredBatch(self.end, self.end + count, is_control))
        self.end += count


def good_history(seed: int = 1) -> History:
    """Four producers, two of them transactional, and two consumers, one after the other at random."""
    source = random.Random(seed)
    history, logs, time = History(), [_Log() for _ in range(PARTITIONS)], 0
    for number in range(120):
        process = source.randrange(4)
        name = f"t{number}" if process < 2 else None
        for partition in range(PARTITIONS) if name else [source.randrange(PARTITIONS)]:
            values = tuple(f"{process}-{number}-{partition}-{place}" for place in range(source.randint(1, 3)))
            base = logs[partition].append(values, name)
            history.sends.append(Send(process, partition, values, time, time + 1, "acknowledged", base, name))
            time += 2
        if name:
            history.transactions[name] = source.choice(["committed", "committed", "aborted"])
            for log in logs:
                log.mark()
    aborted = {name for name, outcome in history.transactions.items() if outcome == "aborted"}
    for number, log in enumerate(logs):
        uncommitted = [seen for seen, _ in log.records]
        committed = [seen for seen, name in log.records if name not in aborted]
        history.final[number] = FinalLog(0, log.end, uncommitted, committed, log.batches)
        for process, isolation in ((10, "read_uncommitted"), (11, "read_committed")):
            position = 0
            while position < log.end:
                end = min(log.end, position + source.randint(1, 9))
                kept = committed if isolation == "read_committed" else uncommitted
                records = tuple(seen for seen in kept if position <= seen.offset < end)
                history.polls.append(_poll(process, number, isolation, time, position, end, log.end, records))
                position, time = end, time + 2
    return history


def _poll(
    process: int,
    partition: int,
    isolation: str,
    time: int,
    position: int,
    end: int,
    high_watermark: int,
    records: tuple[Seen, ...],
) -> Poll:
    chosen: Isolation = "read_committed" if isolation == "read_committed" else "read_uncommitted"
    return Poll(process, partition, chosen, time, time + 1, position, end, high_watermark, records)


@pytest.mark.parametrize("seed", range(20))
def test_a_good_history_has_no_anomaly(seed: int) -> None:
    history = good_history(seed)
    assert len(history.sends) > 100
    assert Checker(history).check() == []


def _plain(history: History, least: int = 1) -> Send:
    return next(send for send in history.sends if send.transaction is None and len(send.values) >= least)


def _forget(history: History, *values: str) -> None:
    for log in history.final.values():
        log.uncommitted = [seen for seen in log.uncommitted if seen.value not in values]
        log.committed = [seen for seen in log.committed if seen.value not in values]
    history.polls = [
        replace(poll, records=tuple(seen for seen in poll.records if seen.value not in values))
        for poll in history.polls
    ]


def _replace_send(history: History, send: Send, other: Send) -> None:
    history.sends[history.sends.index(send)] = other


def _poll_with(history: History, isolation: str, count: int = 1) -> int:
    return next(
        place
        for place, poll in enumerate(history.polls)
        if poll.isolation == isolation and len(poll.records) >= count and poll.position > 0
    )


def lost_write(history: History) -> None:
    _forget(history, *_plain(history).values)


def lost_commit(history: History) -> None:
    name = next(name for name, outcome in history.transactions.items() if outcome == "committed")
    for log in history.final.values():
        log.committed = [seen for seen in log.committed if seen.value not in _values(history, name)]


def lost_after_a_read(history: History) -> None:
    poll = history.polls[_poll_with(history, "read_uncommitted")]
    value = poll.records[0].value
    send = next(send for send in history.sends if value in send.values)
    _replace_send(history, send, replace(send, outcome="unknown", base_offset=None))
    for log in history.final.values():
        log.uncommitted = [seen for seen in log.uncommitted if seen.value not in send.values]
        log.committed = [seen for seen in log.committed if seen.value not in send.values]


def _values(history: History, transaction: str) -> set[str]:
    return {value for send in history.sends if send.transaction == transaction for value in send.values}


def unseen(history: History) -> None:
    values = _plain(history).values
    history.polls = [poll for poll in history.polls if not any(seen.value in values for seen in poll.records)]


def duplicate(history: History) -> None:
    log = history.final[0]
    seen = log.uncommitted[0]
    for kept in (log.uncommitted, log.committed):
        kept.append(Seen(log.log_end_offset, seen.value))
    log.batches.append(StoredBatch(log.log_end_offset, log.log_end_offset + 1, is_control=False))
    log.log_end_offset += 1


def wrong_acknowledgement(history: History) -> None:
    send = _plain(history)
    assert send.base_offset is not None
    _replace_send(history, send, replace(send, base_offset=send.base_offset + 1))


def changed_record(history: History) -> None:
    place = _poll_with(history, "read_uncommitted", 2)
    poll = history.polls[place]
    first, second, *rest = poll.records
    swapped = (Seen(first.offset, second.value), Seen(second.offset, first.value), *rest)
    history.polls[place] = replace(poll, records=swapped)


def skipping_poll(history: History) -> None:
    place = _poll_with(history, "read_committed", 2)
    history.polls[place] = replace(history.polls[place], records=history.polls[place].records[1:])


def disorder_in_a_poll(history: History) -> None:
    place = _poll_with(history, "read_uncommitted", 2)
    history.polls[place] = replace(history.polls[place], records=history.polls[place].records[::-1])


def step_back_between_polls(history: History) -> None:
    place = _poll_with(history, "read_uncommitted")
    poll = history.polls[place]
    before = [seen for seen in history.final[poll.partition].uncommitted if seen.offset < poll.position][-1]
    history.polls[place] = replace(poll, records=(before, *poll.records))


def interleaved_request(history: History) -> None:
    """The records of two requests lie among each other."""
    one = _plain(history, 2)
    log = history.final[one.partition]
    after = next(seen for seen in log.uncommitted if seen.offset > one.base_offset + len(one.values) - 1)
    moves = {one.values[-1]: after.offset, after.value: one.base_offset + len(one.values) - 1}
    for kept in (log.uncommitted, log.committed):
        kept[:] = sorted(Seen(moves.get(seen.value, seen.offset), seen.value) for seen in kept)


def disorder_of_a_producer(history: History) -> None:
    sends = [send for send in history.sends if send.process == 3 and send.partition == 0]
    first, second = sends[0], sends[1]
    _replace_send(history, first, replace(first, began=second.ended + 1, ended=second.ended + 2))


def aborted_record(history: History) -> None:
    name = next(name for name, outcome in history.transactions.items() if outcome == "aborted")
    values = _values(history, name)
    log = history.final[0]
    log.committed = sorted([*log.committed, *(seen for seen in log.uncommitted if seen.value in values)])


def aborted_record_in_a_poll(history: History) -> None:
    name = next(name for name, outcome in history.transactions.items() if outcome == "aborted")
    seen = next(seen for seen in history.final[0].uncommitted if seen.value in _values(history, name))
    for place, poll in enumerate(history.polls):
        inside = poll.position <= seen.offset < poll.next_offset
        if poll.isolation == "read_committed" and poll.partition == 0 and inside:
            history.polls[place] = replace(poll, records=tuple(sorted((*poll.records, seen))))


def torn_batch(history: History) -> None:
    send = _plain(history, 2)
    _replace_send(history, send, replace(send, outcome="unknown", base_offset=None))
    _forget(history, send.values[-1])


def torn_transaction(history: History) -> None:
    name = next(
        name
        for name, outcome in history.transactions.items()
        if outcome == "committed" and len({send.partition for send in history.sends if send.transaction == name}) > 1
    )
    history.transactions[name] = "unknown"
    history.final[0].committed = [
        seen for seen in history.final[0].committed if seen.value not in _values(history, name)
    ]


def gap(history: History) -> None:
    del history.final[0].batches[3]


def missing_end(history: History) -> None:
    history.final[1].log_end_offset += 1


def phantom(history: History) -> None:
    send = _plain(history)
    history.sends.remove(send)


def refused_but_there(history: History) -> None:
    send = _plain(history)
    _replace_send(history, send, replace(send, outcome="refused", base_offset=None))


def stale_read(history: History) -> None:
    place = _poll_with(history, "read_uncommitted")
    history.polls[place] = replace(history.polls[place], high_watermark=1)


def stale_after_another_poll(history: History) -> None:
    history.sends = [replace(send, ended=10**9) for send in history.sends]
    stale_read(history)


PLANTED: list[tuple[str, Callable[[History], None]]] = [
    ("lost write", lost_write),
    ("lost write", lost_commit),
    ("lost write", lost_after_a_read),
    ("unseen", unseen),
    ("duplicate", duplicate),
    ("inconsistent offsets", wrong_acknowledgement),
    ("inconsistent offsets", changed_record),
    ("poll skip", skipping_poll),
    ("nonmonotonic poll", disorder_in_a_poll),
    ("nonmonotonic poll", step_back_between_polls),
    ("send skip", interleaved_request),
    ("nonmonotonic send", disorder_of_a_producer),
    ("aborted read", aborted_record),
    ("aborted read", aborted_record_in_a_poll),
    ("torn batch", torn_batch),
    ("torn transaction", torn_transaction),
    ("offset gap", gap),
    ("offset gap", missing_end),
    ("phantom", phantom),
    ("phantom", refused_but_there),
    ("stale read", stale_read),
    ("stale read", stale_after_another_poll),
]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("kind", "plant"), PLANTED, ids=[plant.__name__ for _, plant in PLANTED])
def test_a_planted_anomaly_is_found(kind: str, plant: Callable[[History], None], seed: int) -> None:
    history = good_history(seed)
    plant(history)
    assert count_by_kind(Checker(history).check())[kind] > 0


def test_every_kind_is_planted() -> None:
    assert {kind for kind, _ in PLANTED} == set(ANOMALIES)
