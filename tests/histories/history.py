"""What clients of a service saw, in the manner of Jepsen: sends, transactions, polls, and how each ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

SendOutcome = Literal["acknowledged", "refused", "unknown"]
TransactionOutcome = Literal["committed", "aborted", "unknown"]
Isolation = Literal["read_uncommitted", "read_committed"]
Value = str
"""Unique in the whole history: it names who sent it and how many came before."""


class Seen(NamedTuple):
    """A record as somebody read it."""

    offset: int
    value: Value


@dataclass(frozen=True, slots=True)
class Send:
    """One request to append ``values``, retries of it included. Times are nanoseconds of one clock.

    ``refused`` means that the service promised it was not applied.
    """

    process: int
    partition: int
    values: tuple[Value, ...]
    began: int
    ended: int
    outcome: SendOutcome
    base_offset: int | None = None
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class Poll:
    """One answer to a fetch of one partition from ``position`` on; to be continued at ``next_offset``."""

    process: int
    partition: int
    isolation: Isolation
    began: int
    ended: int
    position: int
    next_offset: int
    high_watermark: int
    records: tuple[Seen, ...]


class StoredBatch(NamedTuple):
    """A batch of the log at the end: ``[base_offset, end_offset)``, of a producer or a marker."""

    base_offset: int
    end_offset: int
    is_control: bool


@dataclass(slots=True)
class FinalLog:
    """What one partition held when all was over, read by each isolation and by its raw batches."""

    log_start_offset: int
    log_end_offset: int
    uncommitted: list[Seen]
    committed: list[Seen]
    batches: list[StoredBatch]


@dataclass(slots=True)
class History:
    """Everything that happened."""

    sends: list[Send] = field(default_factory=list)
    transactions: dict[str, TransactionOutcome] = field(default_factory=dict)
    polls: list[Poll] = field(default_factory=list)
    final: dict[int, FinalLog] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    """Answers that no healthy service gives to these clients."""
