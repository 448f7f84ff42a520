"""The end of each segment of a partition, and the damage in it (spec E20).

A clean stop leaves every end where the file ends. After any other stop, the segments from the recovery point on are
scanned. Bytes behind the first batch that is not whole are the tail of a crash if they lie above everything that was
ever durable: they are cut. Below that they are damage, which is reported and kept (disk rule 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from log_model.errors import CorruptionError
from log_model.offsets import ByteRange, Offset
from storage.disk.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    offset_file_name,
    parse_offset_file_name,
)
from storage.disk.file_system import File, FileSystem
from storage.disk.leftover_files import LostSegment, remove_segment_files
from storage.disk.truncation_gaps import TruncationGap
from storage.log.leader_epochs import LeaderEpochs
from storage.log.written_log import LogParts
from storage.recovery.recovery_progress import PartitionRecovery, RecoveryMeter
from storage.recovery.segment_scan import SegmentScan, SegmentScanner, indexed_position, leads_to, written_bytes
from storage.segment.segment import Segment

_REWRITE_BYTES = 1024 * 1024


class SegmentRecovery:
    """Finds where the segments of one partition end; used once.

    Args:
        parts: the parts of the log that are known before its segments.
        epochs: the known leader epochs; ``None`` if they were lost.
        lost: the segments whose log files are missing.
        log_start: the log start offset. Damage below is only noted: no reader can request those records, and their
            file is deleted with its other records.
        meter: receives the number of scanned bytes during the scan.
        report: receives damage, notes, and the number of scanned and of truncated bytes.

    Raises (from every method):
        OSError: the disk refused.
    """

    def __init__(
        self,
        parts: LogParts,
        epochs: LeaderEpochs | None,
        lost: Sequence[LostSegment],
        log_start: Offset,
        meter: RecoveryMeter,
        report: PartitionRecovery,
    ) -> None:
        self._parts = parts
        self._epochs = epochs
        self._lost = lost
        self._log_start = log_start
        self._meter = meter
        self.report = report
        self.recovery_point = parts.checkpoints.recovery_points.get(parts.name, Offset(0))
        """The end of all that was surely fsynced."""
        self.damage_hint: str | None = None
        """A remedy that may help with the damage."""
        self._found_gaps: list[TruncationGap] = []
        self.without_producers: set[Offset] = set()
        """The base offsets of the scanned segments that have no batches of producers."""

    def durable_end(self, segments: Sequence[Segment]) -> Offset:
        """Return the end of all that was durable: a new segment begins only when the last is durable (disk rule 7)."""
        lost = (segment.end_offset for segment in self._lost)
        return max([self.recovery_point, *lost, *(segment.base_offset for segment in segments[-1:])])

    def scanned(self, segments: Sequence[Segment]) -> list[Segment]:
        """Return the segments to scan: none after a clean stop, otherwise all from the recovery point on."""
        if self.report.clean:
            return []
        scan_from = _first_scanned([segment.base_offset for segment in segments], self.recovery_point)
        return [segment for segment in segments if segment.base_offset >= scan_from]

    def find_ends(self, segments: Sequence[Segment]) -> list[Offset]:
        """Return the exclusive end offset of every segment, in order, and report what is damaged or missing.

        Afterwards the sizes and the holes of the segments show their good bytes alone. The tail of a crash is cut, and
        bytes that may only be in the page cache are durable.
        """
        if segments:
            self._check_beginning(segments[0])
        durable_end = self.durable_end(segments)
        first_scanned = len(segments) - len(self.scanned(segments))
        ends: list[Offset] = []
        for place, segment in enumerate(segments):
            following = segments[place + 1].base_offset if place + 1 < len(segments) else None
            scanner = SegmentScanner(
                segment,
                self._epochs,
                has_gaps=self._parts.config.compacts,
                durable_end=durable_end,
                following=following,
                recovery_point=self.recovery_point,
                tell=self._meter.scanned,
            )
            if place >= first_scanned:
                result = self._scan(segment, scanner, is_last=following is None)
            else:
                result = self._find_end(segment) or scanner.scan()
            ends.append(self._judge(segment, result, following, durable_end))
            segment.log.close()
        return ends

    def find_end_without_segments(self, log_start: Offset) -> Offset:
        """Return the end of a log that has no segments, and report what is missing from ``log_start`` on."""
        log_end = max(log_start, self.durable_end([]))
        if log_end > log_start:
            self._report_damage(
                log_start, log_end, self._why_short() if self._lost else "their segment files are missing"
            )
        return log_end

    def forget_gaps(self) -> None:
        """Forget noted gaps that were not found, because they might hide a later loss of a file."""
        with self.report.tolerating_full_disk("gaps that were not found stay noted for now"):
            self._parts.checkpoints.gaps.keep(self._parts.name, self._found_gaps)

    # Judging

    def _check_beginning(self, first: Segment) -> None:
        if first.base_offset > self._log_start and not self._is_noted(self._log_start, first.base_offset):
            self._report_damage(self._log_start, first.base_offset, "their segment files are missing")

    def _judge(self, segment: Segment, result: SegmentScan, following: Offset | None, durable_end: Offset) -> Offset:
        """Return the end of the segment, and distinguish damage from the tail of a crash."""
        segment.holes = tuple(hole.place for hole in result.holes)
        for hole in result.holes:
            self._report_damage(hole.start_offset, hole.end_offset, hole.problem)
        if following is not None:
            if result.problem is None and self._may_skip(result.end_offset, following):
                return following
            segment.size_bytes = result.valid_bytes
            why = result.problem or self._why_missing()
            # A damaged header may have offsets that belong to the next segment.
            self._report_damage(min(result.end_offset, Offset(following - 1)), following, why)
            return following
        if result.end_offset < durable_end:
            segment.size_bytes = result.valid_bytes
            self._report_damage(result.end_offset, durable_end, result.problem or self._why_short())
            # If only deleted offsets are left, the log begins again at its start.
            return durable_end if durable_end > self._log_start else result.end_offset
        if result.problem is not None:
            self._cut(segment, result)
        return result.end_offset

    def _may_skip(self, end: Offset, following: Offset) -> bool:
        """Return whether a segment may end at ``end`` if the next one begins at ``following``.

        A truncation inside a batch leaves a gap, which is noted (spec E21). Compaction also leaves gaps (spec D13).
        """
        compacts = self._parts.config.compacts
        return end == following or (compacts and end < following) or self._is_noted(end, following)

    def _is_noted(self, start: Offset, end: Offset) -> bool:
        """Return whether the gap is noted, by a truncation or because an operator accepted its loss."""
        found = self._parts.checkpoints.gaps.of(self._parts.name) & {TruncationGap(start, end)}
        self._found_gaps += found
        return bool(found)

    def _why_missing(self) -> str:
        gaps = self._parts.checkpoints.gaps
        if gaps.is_lost:
            self.damage_hint = f"{gaps.path}, the list of gaps, is also damaged: restore or correct it"
        return "they are missing" if self.damage_hint is None else f"they are missing; {self.damage_hint}"

    def _why_short(self) -> str:
        if not self._lost:
            return "the log ends too early"
        path = self._parts.directory / offset_file_name(self._lost[0].base_offset, LOG_SUFFIX)
        self.damage_hint = f"{path} is missing, though its indexes are there: restore it"
        return self.damage_hint

    def _report_damage(self, start: Offset, end: Offset, why: str) -> None:
        if end <= self._log_start:
            self.report.note(f"offsets {start} to {end} are damaged, below the log start {self._log_start}: {why}")
        else:
            self.report.report_damage(start, end, why)

    def _cut(self, segment: Segment, result: SegmentScan) -> None:
        report = self.report
        cut_bytes = self._parts.file_system.size(segment.file.path) - result.valid_bytes
        if self._parts.config.preallocate:
            # Bytes that were never written are no data.
            cut_bytes = written_bytes(segment.file, result.valid_bytes, cut_bytes)
        segment.size_bytes = result.valid_bytes
        if report.clean or result.is_old_format:
            # After a clean stop there was no scan: the last batch itself is bad. Or it is whole, in an old format.
            self._report_damage(result.end_offset, Offset(result.end_offset + 1), result.problem or "")
            return
        if any(hole.end_offset > self._log_start for hole in result.holes):
            # The tail of a crash behind damage: a repair of the damage must find the tail unchanged.
            report.note(f"{cut_bytes} bytes behind offset {result.end_offset} are not shown: {result.problem}")
            return
        segment.file.truncate(result.valid_bytes)
        segment.file.sync()
        report.truncated_bytes += cut_bytes
        if cut_bytes:
            report.note(f"{cut_bytes} bytes behind offset {result.end_offset} are cut: {result.problem}")

    # Scanning

    def _find_end(self, segment: Segment) -> SegmentScan | None:
        """Walk from the last index entry to the end of a segment that needs no scan; ``None`` if a batch is damaged, or
        if readers could not reach the log start in this segment.

        The index is read as a plain file, and stays unloaded until the first read of the segment (spec C4).
        """
        file_system = self._parts.file_system
        if segment.base_offset < self._log_start and not leads_to(file_system, segment, self._log_start):
            return None
        position = indexed_position(file_system, segment)
        end_offset = segment.base_offset
        try:
            for batch in segment.walk(position, segment.size_bytes):
                end_offset = Offset(batch.header.last_offset + 1)
        except CorruptionError:
            return None
        return SegmentScan(segment.size_bytes, end_offset, None)

    def _scan(self, segment: Segment, scanner: SegmentScanner, *, is_last: bool) -> SegmentScan:
        """Check every batch, and rewrite bytes that may only be in the page cache (disk rule 4).

        The last segment's indexes are removed; the first look-up rebuilds them from the log. The other segments'
        indexes are durable since the roll, and are checked when they are opened.
        """
        result = scanner.scan()
        self.report.scanned_bytes += result.valid_bytes
        if result.problem is None and not result.has_producers:
            self.without_producers.add(segment.base_offset)
        if is_last:
            indexes = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
            remove_segment_files(self._parts.file_system, self._parts.directory, segment.base_offset, indexes)
            self._rewrite(segment.file, result.runs(result.durable_bytes))
        return result

    def _rewrite(self, file: File, runs: Iterable[ByteRange]) -> None:
        for run in runs:
            for position in range(run.start, run.end, _REWRITE_BYTES):
                file.write(position, [file.read(position, min(_REWRITE_BYTES, run.end - position))])
        file.sync()


def scan_bytes(file_system: FileSystem, directory: Path, recovery_point: Offset) -> int:
    """Return the number of bytes to scan in a partition's directory after an unclean stop.

    Raises:
        OSError: the disk refused.
    """
    names = [
        parsed
        for parsed in map(parse_offset_file_name, file_system.list_directory(directory))
        if parsed is not None and parsed.suffix == LOG_SUFFIX and not parsed.state
    ]
    bases = sorted(Offset(parsed.offset) for parsed in names)
    scan_from = _first_scanned(bases, recovery_point)
    return sum(file_system.size(directory / offset_file_name(base, LOG_SUFFIX)) for base in bases if base >= scan_from)


def _first_scanned(base_offsets: list[Offset], recovery_point: Offset) -> Offset:
    """Return the base offset of the first segment to scan: the one with the recovery point."""
    below = [base for base in base_offsets if base <= recovery_point]
    return below[-1] if below else Offset(0)
