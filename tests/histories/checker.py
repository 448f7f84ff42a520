"""Judges a history by what Kafka's log promises. Offsets fix the order, so this is a sweep and no search."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from tests.histories.history import FinalLog, History, Poll, Seen, Send, Value

ANOMALIES = (
    "lost write",  # acknowledged, but not in the log
    "unseen",  # in the log, but no consumer that read to the end got it
    "duplicate",  # one value at two offsets
    "inconsistent offsets",  # one offset with two values, or not where the acknowledgement says
    "poll skip",  # a poll passed over a record that it had to give
    "nonmonotonic poll",  # offsets that fall inside a poll, or from one poll to the next
    "send skip",  # a request's records do not lie one behind the other
    "nonmonotonic send",  # a producer's later request lies before its earlier one
    "aborted read",  # read_committed gave a record of an aborted or refused transaction (G1a)
    "torn batch",  # part of a request's records
    "torn transaction",  # part of a transaction, to read_committed
    "offset gap",  # offsets that neither a record nor a marker has
    "phantom",  # a record that nobody sent, or whose send was refused
    "stale read",  # a high watermark below what was acknowledged or seen before the poll began
)


class Anomaly(NamedTuple):
    """Something that must not be."""

    kind: str
    detail: str


class _Sent(NamedTuple):
    send: Send
    place: int

    @property
    def offset(self) -> int | None:
        return None if self.send.base_offset is None else self.send.base_offset + self.place


class Checker:
    """Finds every anomaly of a history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._found: list[Anomaly] = []
        self._sent: dict[Value, _Sent] = {
            value: _Sent(send, place) for send in history.sends for place, value in enumerate(send.values)
        }
        self._uncommitted = {
            number: {seen.value: seen.offset for seen in log.uncommitted} for number, log in self._logs()
        }
        self._committed = {number: {seen.value: seen.offset for seen in log.committed} for number, log in self._logs()}

    def check(self) -> list[Anomaly]:
        """All anomalies, by kind in the order of ``ANOMALIES``."""
        self._check_final()
        self._check_sends()
        self._check_transactions()
        self._check_polls()
        self._check_fresh()
        return sorted(self._found, key=lambda anomaly: ANOMALIES.index(anomaly.kind))

    def _report(self, kind: str, detail: str) -> None:
        assert kind in ANOMALIES
        self._found.append(Anomaly(kind, detail))

    def _logs(self) -> Iterable[tuple[int, FinalLog]]:
        return self._history.final.items()

    # The log at the end

    def _check_final(self) -> None:
        for number, log in self._logs():
            offsets: dict[int, Value] = {}
            places: dict[Value, int] = {}
            for seen in log.uncommitted:
                if seen.value in places:
                    self._report("duplicate", f"{seen.value} at {places[seen.value]} and {seen.offset} of {number}")
                places[seen.value] = seen.offset
                offsets[seen.offset] = seen.value
                self._check_is_sent(seen, number, "the log")
            for seen in log.committed:
                if offsets.get(seen.offset) != seen.value:
                    self._report("inconsistent offsets", f"{seen} of {number} is {offsets.get(seen.offset)} otherwise")
            end = log.log_start_offset
            for batch in log.batches:
                if batch.base_offset != end:
                    self._report("offset gap", f"partition {number}: offsets {end} to {batch.base_offset}")
                end = batch.end_offset
            if end != log.log_end_offset:
                self._report("offset gap", f"partition {number}: offsets {end} to the log end {log.log_end_offset}")

    def _check_is_sent(self, seen: Seen, partition: int, where: str) -> None:
        sent = self._sent.get(seen.value)
        if sent is None or sent.send.partition != partition:
            self._report("phantom", f"{where} has {seen} in partition {partition}, sent by nobody")
        elif sent.send.outcome == "refused":
            self._report("phantom", f"{where} has {seen} in partition {partition}, whose send was refused")

    # Sends

    def _check_sends(self) -> None:
        last: dict[tuple[int, int], int] = {}
        for send in sorted(self._history.sends, key=lambda send: send.began):
            stored = self._uncommitted.get(send.partition, {})
            present = [stored[value] for value in send.values if value in stored]
            if send.outcome == "acknowledged":
                self._check_acknowledged(send)
            if 0 < len(present) < len(send.values):
                self._report("torn batch", f"{len(present)} of {len(send.values)} records of {send.values[0]} ...")
            elif any(later != earlier + 1 for earlier, later in pairwise(present)):
                self._report("send skip", f"the records of {send.values[0]} ... lie at {present}")
            if present:
                source = (send.process, send.partition)
                if present[0] <= last.get(source, -1):
                    self._report("nonmonotonic send", f"{send.values[0]} at {present[0]}, after {last[source]}")
                last[source] = present[-1]

    def _check_acknowledged(self, send: Send) -> None:
        stored = self._uncommitted.get(send.partition, {})
        for value in send.values:
            offset = self._sent[value].offset
            if value not in stored:
                self._report("lost write", f"{value}, acknowledged at {offset} of partition {send.partition}")
            elif stored[value] != offset:
                self._report("inconsistent offsets", f"{value} acknowledged at {offset}, but it is at {stored[value]}")

    # Transactions

    def _check_transactions(self) -> None:
        members: dict[str, list[Send]] = defaultdict(list)
        for send in self._history.sends:
            if send.transaction is not None and send.outcome != "refused":
                members[send.transaction].append(send)
        for name, outcome in self._history.transactions.items():
            values = [(send.partition, value) for send in members[name] for value in send.values]
            certain = [
                (send.partition, value)
                for send in members[name]
                if send.outcome == "acknowledged"
                for value in send.values
            ]
            visible = [value for partition, value in values if value in self._committed.get(partition, {})]
            if outcome == "aborted" and visible:
                self._report("aborted read", f"{visible[0]} of transaction {name}, which was aborted")
            missing = [value for partition, value in certain if value not in self._committed.get(partition, {})]
            if outcome == "committed":
                for value in missing:
                    self._report("lost write", f"{value} of transaction {name}, whose commit was acknowledged")
            elif visible and missing:
                self._report("torn transaction", f"{name}: {visible[0]} is visible, {missing[0]} is not")

    def _is_visible(self, value: Value, isolation: str) -> bool:
        number = self._sent[value].send.partition
        return value in (self._committed if isolation == "read_committed" else self._uncommitted).get(number, {})

    # Polls

    def _check_polls(self) -> None:
        seen_values: set[Value] = set()
        previous: dict[tuple[int, int], Poll] = {}
        final = {
            (number, isolation): sorted(log.committed if isolation == "read_committed" else log.uncommitted)
            for number, log in self._logs()
            for isolation in ("read_uncommitted", "read_committed")
        }
        for poll in sorted(self._history.polls, key=lambda poll: poll.ended):
            source = (poll.process, poll.partition)
            before = previous.get(source)
            follows = before is not None and before.next_offset == poll.position
            self._check_order(poll, before if follows else None)
            self._check_records(poll)
            self._check_complete(poll, final.get((poll.partition, poll.isolation), []))
            seen_values.update(seen.value for seen in poll.records)
            previous[source] = poll
        for number, log in self._logs():
            for seen in log.uncommitted:
                if self._history.polls and seen.value not in seen_values and self._must_be_seen(seen.value):
                    self._report("unseen", f"{seen} of partition {number}")

    def _must_be_seen(self, value: Value) -> bool:
        sent = self._sent.get(value)
        if sent is None or sent.send.outcome != "acknowledged":
            return False
        return sent.send.transaction is None or self._history.transactions.get(sent.send.transaction) == "committed"

    def _check_order(self, poll: Poll, before: Poll | None) -> None:
        offsets = [seen.offset for seen in poll.records]
        if any(later <= earlier for earlier, later in pairwise(offsets)):
            self._report("nonmonotonic poll", f"consumer {poll.process} got {offsets} in one poll")
        if poll.next_offset < poll.position or (
            offsets and not poll.position <= offsets[0] <= offsets[-1] < poll.next_offset
        ):
            self._report(
                "nonmonotonic poll",
                f"consumer {poll.process} asked from {poll.position}, got {offsets[:1]} to {offsets[-1:]}, "
                f"and was sent on to {poll.next_offset}",
            )
        if before is not None and before.records and offsets and offsets[0] <= before.records[-1].offset:
            self._report("nonmonotonic poll", f"consumer {poll.process} got {offsets[0]} after {before.records[-1]}")

    def _check_records(self, poll: Poll) -> None:
        for seen in poll.records:
            sent = self._sent.get(seen.value)
            if sent is None or sent.send.outcome == "refused" or sent.send.partition != poll.partition:
                self._check_is_sent(seen, poll.partition, f"consumer {poll.process}")
                continue
            if sent.offset is not None and sent.offset != seen.offset:
                self._report("inconsistent offsets", f"{seen.value} read at {seen.offset}, sent to {sent.offset}")
            stored = self._uncommitted.get(poll.partition, {}).get(seen.value)
            if stored is None:
                self._report("lost write", f"{seen.value} was read at {seen.offset}, and is not in the log at the end")
            elif stored != seen.offset:
                self._report("inconsistent offsets", f"{seen.value} read at {seen.offset}, and at {stored} in the end")
            elif poll.isolation == "read_committed" and not self._is_visible(seen.value, poll.isolation):
                self._report("aborted read", f"consumer {poll.process} read {seen.value} at {seen.offset}")

    def _check_complete(self, poll: Poll, final: list[Seen]) -> None:
        got = {seen.offset for seen in poll.records}
        for seen in _between(final, poll.position, poll.next_offset):
            if seen.offset not in got:
                self._report("poll skip", f"consumer {poll.process} passed over {seen} of partition {poll.partition}")

    # Real time

    def _check_fresh(self) -> None:
        """Whatever was acknowledged or seen before a poll began, its high watermark has passed."""
        known: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        for send in self._history.sends:
            if send.outcome == "acknowledged" and send.base_offset is not None:
                end = send.base_offset + len(send.values)
                known[send.partition].append((send.ended, end, f"{send.values[-1]} was acknowledged"))
        for poll in self._history.polls:
            known[poll.partition].append((poll.ended, poll.high_watermark, f"consumer {poll.process} was told so"))
        for number, events in known.items():
            events.sort(reverse=True)
            newest, why = 0, ""
            for poll in sorted((each for each in self._history.polls if each.partition == number), key=_began):
                while events and events[-1][0] < poll.began:
                    _, end, reason = events.pop()
                    if end > newest:
                        newest, why = end, reason
                if poll.high_watermark < newest:
                    self._report(
                        "stale read",
                        f"consumer {poll.process} was told high watermark {poll.high_watermark} of partition {number}, "
                        f"but {why} below {newest}",
                    )


def _offsets(records: Iterable[Seen]) -> dict[Value, int]:
    return {seen.value: seen.offset for seen in records}


def _began(poll: Poll) -> int:
    return poll.began


def _between(final: list[Seen], start: int, end: int) -> Iterator[Seen]:
    for place in range(bisect_left(final, start, key=lambda seen: seen.offset), len(final)):
        if final[place].offset >= end:
            return
        yield final[place]


def count_by_kind(anomalies: Iterable[Anomaly]) -> dict[str, int]:
    """How many there are of each kind, the kinds without any included."""
    counts = dict.fromkeys(ANOMALIES, 0)
    for anomaly in anomalies:
        counts[anomaly.kind] += 1
    return counts
