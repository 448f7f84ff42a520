"""A service with one mistake in it: ``python -m tests.histories.defective_service DEFECT serve ...``.

Each is something that could go wrong behind an interface that looks healthy; the checker has to find it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import app.engine_local.reading.pending_read
import app.fetch.fetched_records
import app.routes.records.partition_fetch
import storage.producers.producer_state
from app.cli import main
from log_model.batches.append_request import AppendRequest, AppendResult
from log_model.errors import StorageError
from log_model.offsets import Offset, Position
from log_model.reads import FetchData
from log_model.transactions import TransactionMarker, UnstableTransactions
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import PartitionLog
from storage.recovery.segment_recovery import SegmentRecovery
from storage.recovery.segment_scan import SegmentScan, SegmentScanner
from storage.segment.segment import Segment
from tests.histories.clients import TOPIC
from tests.support.earlier_transactions import end_as_before

DEFECTS: dict[str, Callable[[], None]] = {}
FOUND_AS: dict[str, set[str]] = {}
"""The anomalies of which at least one must be found."""
UNDISTURBED: set[str] = set()
"""Those for which nothing has to be killed."""


def defect(*kinds: str, killed: bool = True) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register a function that plants a defect."""

    def register(plant: Callable[[], None]) -> Callable[[], None]:
        DEFECTS[plant.__name__] = plant
        FOUND_AS[plant.__name__] = set(kinds)
        if not killed:
            UNDISTURBED.add(plant.__name__)
        return plant

    return register


def _patch(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    setattr(owner, name, make(getattr(owner, name)))


@defect("lost write", "poll skip", "stale read", "inconsistent offsets")
def recovery_cuts_one_batch_too_many() -> None:
    def make(scan: Any) -> Any:
        def short(self: SegmentRecovery, segment: Segment, scanner: SegmentScanner, *, is_last: bool) -> SegmentScan:
            result: SegmentScan = scan(self, segment, scanner, is_last=is_last)
            batches = list(segment.walk(Position(0), result.valid_bytes))
            if not is_last or len(batches) < 2 or self.report.name.topic != TOPIC:
                return result
            end_offset = Offset(batches[-2].header.last_offset + 1)
            return replace(result, valid_bytes=int(batches[-2].end), end_offset=end_offset, problem="planted")

        return short

    _patch(SegmentRecovery, "_scan", make)
    _patch(SegmentRecovery, "durable_end", lambda _: lambda self, segments: segments[-1].base_offset)


@defect("duplicate", "torn batch", "inconsistent offsets")
def sequences_are_not_checked() -> None:
    storage.producers.producer_state.check_batch = lambda *_: None


@defect("aborted read")
def read_committed_reads_open_transactions() -> None:
    _patch(UnstableTransactions, "first_unstable", lambda _: lambda self, high_watermark: None)


@defect("aborted read")
def aborted_transactions_are_not_listed() -> None:
    def make(read: Any) -> Any:
        def without(*arguments: Any, **options: Any) -> FetchData:
            data: FetchData = read(*arguments, **options)
            return data._replace(aborted=None if data.aborted is None else ())

        return without

    _patch(LogSnapshot, "read", make)


@defect("lost write", "torn transaction")
def a_commit_aborts_in_one_partition() -> None:
    def make(append: Any) -> Any:
        def flipped(self: PartitionLog, group: Sequence[AppendRequest]) -> list[AppendResult | StorageError]:
            if self.name.partition == 0:
                group = [_aborting(request) for request in group]
            answers: list[AppendResult | StorageError] = append(self, group)
            return answers

        return flipped

    _patch(PartitionLog, "append", make)


def _aborting(request: AppendRequest) -> AppendRequest:
    if request.transaction_marker is None:
        return request
    marker: TransactionMarker = request.transaction_marker
    return AppendRequest.marker(marker._replace(commit=False))


@defect("poll skip")
def a_fetch_goes_on_one_too_far() -> None:
    def make(read: Any) -> Any:
        def further(*arguments: Any, **options: Any) -> Any:
            records = read(*arguments, **{**options, "between": None})
            if len(records.documents) < 2:
                return records
            return records._replace(documents=records.documents[:-1])

        return further

    _patch(app.fetch.fetched_records, "read_records", make)

    app.routes.records.partition_fetch.read_records = app.fetch.fetched_records.read_records


@defect("nonmonotonic poll")
def a_fetch_begins_with_its_batch() -> None:
    def make(read: Any) -> Any:
        def earlier(snapshot: LogSnapshot, request: Any, start: Offset, *others: Any) -> Any:
            return read(snapshot, request, Offset(max(snapshot.log_start_offset, start - 1)), *others)

        return earlier

    _patch(app.engine_local.reading.pending_read, "read_range", make)


@defect("stale read")
def readers_are_shown_an_old_snapshot() -> None:
    kept: dict[Segment, list[LogSnapshot]] = {}

    def make(read: Any) -> Any:
        def from_old(snapshot: LogSnapshot, request: Any, start: Offset, *others: Any) -> Any:
            older = kept.setdefault(snapshot.segments[0], [])
            older.append(snapshot)
            shown = older.pop(0) if len(older) > 10 else snapshot
            return read(shown if start <= shown.last_stable_offset else snapshot, request, start, *others)

        return from_old

    _patch(app.engine_local.reading.pending_read, "_read", make)


@defect("inconsistent offsets", "lost write")
def an_acknowledgement_names_the_offset_before() -> None:
    def make(append: Any) -> Any:
        def wrong(self: PartitionLog, group: Sequence[AppendRequest]) -> list[AppendResult | StorageError]:
            answers: list[AppendResult | StorageError] = append(self, group)
            return [
                answer._replace(base_offset=Offset(answer.base_offset + 1))
                if isinstance(answer, AppendResult) and answer.base_offset % 7 == 3
                else answer
                for answer in answers
            ]

        return wrong

    _patch(PartitionLog, "append", make)


@defect("aborted read", "torn transaction", "lost write", killed=False)
def a_transaction_has_the_epoch_of_the_one_before() -> None:
    """As before KIP-890: a late commit or abort ends whatever transaction is open then."""
    end_as_before()


if __name__ == "__main__":
    DEFECTS[sys.argv.pop(1)]()
    main()
