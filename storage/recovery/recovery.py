"""Opening a partition: from the files that any kind of stop left to a log that can be trusted (spec E20).

After a clean stop nothing is scanned. Otherwise recovery scans every segment from the recovery point: it checks the
batches, rebuilds the indexes, and ends the log at the first batch that is not whole, if it lies above everything that
was ever durable. Damage below is reported and kept, never cut (disk rule 5).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from storage.config import ProducerLimits, TopicConfig
from storage.disk.checkpoint import CorruptCheckpointError
from storage.disk.clock import Clock
from storage.disk.directory_checkpoints import DirectoryCheckpoints
from storage.disk.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    PartitionName,
    offset_file_name,
    parse_offset_file_name,
)
from storage.disk.file_system import File, FileSystem
from storage.disk.leftover_files import LostSegment, clear_leftovers, find_lost_segments, remove_segment_files
from storage.disk.topic_metadata import CorruptMetadataError, read_partition_metadata, write_partition_metadata
from storage.disk.truncation_gaps import TruncationGap
from storage.errors import DISK_FULL_ERRNOS, CorruptionError
from storage.index.index_builder import IndexSettings
from storage.log.leader_epochs import LeaderEpochs
from storage.log.log_snapshot import OffsetRange
from storage.log.partition_log import PartitionLog
from storage.log.written_log import LogParts
from storage.offsets import ByteRange, LeaderEpoch, Offset, Position
from storage.producers.producer_state import ProducerState
from storage.producers.transaction_checkpoint import TransactionCheckpoint
from storage.recovery.recovery_progress import RecoveryMeter
from storage.recovery.segment_scan import SegmentScan, SegmentScanner, indexed_position, leads_to, written_bytes
from storage.recovery.segment_split import find_overflow, split_segment
from storage.recovery.transaction_recovery import restore_producers
from storage.segment.segment import Segment

_logger = logging.getLogger(__name__)

_REWRITE_BYTES = 1024 * 1024


@dataclass(slots=True)
class PartitionRecovery:
    """The results of opening one partition, for operators."""

    name: PartitionName
    clean: bool
    scanned_bytes: int = 0
    truncated_bytes: int = 0
    damage: list[OffsetRange] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class PartitionOpener:
    """Opens one partition; used once.

    Raises (from ``open``):
        OSError: the disk refused.
        CorruptionError: a file is damaged without which the partition cannot be opened.
    """

    def __init__(
        self,
        file_system: FileSystem,
        clock: Clock,
        name: PartitionName,
        topic_id: str,
        directory: Path,
        config: TopicConfig,
        checkpoints: DirectoryCheckpoints,
        meter: RecoveryMeter,
        *,
        clean: bool,
        random_source: random.Random,
        producer_limits: ProducerLimits,
    ) -> None:
        self._file_system = file_system
        self._clock = clock
        self._name = name
        self._topic_id = topic_id
        self._directory = directory
        self._config = config
        self._checkpoints = checkpoints
        self._meter = meter
        self._clean = clean
        self._random = random_source
        self._producer_limits = producer_limits
        self._epochs = LeaderEpochs(file_system, directory / LEADER_EPOCH_CHECKPOINT)
        self._epochs_known = False
        self._log_start = Offset(0)
        self._lost: list[LostSegment] = []
        self._found_gaps: list[TruncationGap] = []
        self._damage_hint: str | None = None
        self._log_lines: list[tuple[int, str]] = []
        self._without_producers: set[Offset] = set()
        self._had_all_indexes = False
        self._transactions = TransactionCheckpoint(file_system, directory)
        self.report = PartitionRecovery(name, clean)

    def open(self) -> PartitionLog:
        """Recover the partition where needed, and return the log, with everything in it durable.

        The messages about the partition are logged together, at the end, because others are opened at the same time.
        """
        try:
            return self._open()
        finally:
            for level, text in self._log_lines:
                _logger.log(level, "%s: %s", self._name, text)

    def _open(self) -> PartitionLog:
        self._check_topic_id()
        self._load_epochs()
        expected_start = self._log_start = self._expected_start()
        self._lost = find_lost_segments(self._file_system, self._directory, expected_start)
        witnesses = [lost.base_offset for lost in self._lost]
        for note in clear_leftovers(self._file_system, self._directory, clean=self._clean, witnesses=witnesses):
            self._note(note)
        segments = self._split_far(self._find_segments())
        if segments:
            segments = self._drop_below_log_start(segments, expected_start)
            self._check_first(segments[0], expected_start)
        log_start = max(expected_start, segments[0].base_offset if segments else Offset(0))
        ends = self._check_segments(segments)
        log_end = ends[-1] if ends else log_start
        if segments and log_end < log_start and not self.report.damage:
            self._remove(segments, f"the log ends at {log_end}, below the log start {log_start}")
            segments = []
        if not segments:
            log_end = max(log_start, self._durable_end([]))
            if log_end > log_start:
                self._report_damage(
                    log_start, log_end, self._why_short() if self._lost else "their segment files are missing"
                )
            segments = [self._first_segment(log_end)]
        if self.report.damage:
            log_end = max(log_end, self.report.damage[-1].end, log_start)
        if not self.report.damage:
            self._settle(segments, log_start, log_end)
        producers = self._restore_producers(segments, log_end)
        recovery_point = min(self._recovery_point(), log_end)
        # Every unusual finding leaves a note, except rebuilt segments.
        is_sound = self._had_all_indexes and not self.report.notes and not segments[-1].indexes_were_opened
        return PartitionLog(
            LogParts(
                file_system=self._file_system,
                clock=self._clock,
                name=self._name,
                topic_id=self._topic_id,
                directory=self._directory,
                config=self._config,
                segments=tuple(segments),
                log_start_offset=log_start,
                log_end_offset=log_end,
                epochs=self._epochs,
                producers=producers,
                checkpoints=self._checkpoints,
                transaction_checkpoint=self._transactions,
                recovery_point=log_end if self._clean and not self.report.damage else recovery_point,
                damage=tuple(self.report.damage),
                damage_hint=self._damage_hint,
                as_closed=self._clean and is_sound and self._file_system.exists(producers.snapshots.path_of(log_end)),
                high_watermark=self._checkpoints.high_watermarks.get(self._name),
                random=self._random,
            )
        )

    # Files on the disk

    def _check_topic_id(self) -> None:
        try:
            stored = read_partition_metadata(self._file_system, self._directory)
        except CorruptMetadataError as error:
            # The topic's own file, which has a checksum, says to which topic the directory belongs.
            self._note(f"{error}: it is written again")
            stored = self._checkpoints.ballast.run(self._write_topic_id)
        if stored is not None and stored != self._topic_id:
            raise CorruptionError(
                f"{self._directory} belongs to topic id {stored}, but topic {self._name.topic} has {self._topic_id}"
            )

    def _write_topic_id(self) -> str:
        write_partition_metadata(self._file_system, self._directory, self._topic_id)
        return self._topic_id

    def _load_epochs(self) -> None:
        try:
            self._epochs.load()
        except CorruptCheckpointError as error:
            self._note(f"the leader epochs are rebuilt: {error}")
            self._epochs.clear()
        self._epochs_known = self._epochs.latest is not None

    def _find_segments(self) -> list[Segment]:
        bases = []
        for file_name in self._file_system.list_directory(self._directory):
            parsed = parse_offset_file_name(file_name)
            if parsed is not None and parsed.suffix == LOG_SUFFIX and not parsed.state:
                if file_name != offset_file_name(parsed.offset, LOG_SUFFIX):
                    self._note(f"{file_name} is not a segment's name and is left alone")
                    continue
                bases.append(Offset(parsed.offset))
        bases.sort()
        settings = IndexSettings.of(self._config)
        return [
            Segment(
                self._file_system,
                self._directory,
                base,
                settings,
                size_bytes=self._file_system.size(self._directory / offset_file_name(base, LOG_SUFFIX)),
                created_ms=self._clock.elapsed_ms(),
                sealed=base != bases[-1],
                jitter_ms=self._config.draw_segment_jitter_ms(self._random) if base == bases[-1] else 0,
            )
            for base in bases
        ]

    def _split_far(self, segments: list[Segment]) -> list[Segment]:
        """Split segments whose offsets are too far apart for an index; only compaction makes such segments."""
        place = 0
        while self._config.compacts and place < len(segments):
            segment = segments[place]
            following = segments[place + 1].base_offset if place + 1 < len(segments) else self._durable_end(segments)
            far = find_overflow(segment, following)
            if far is not None and self._split(segment, *far):
                segments = self._find_segments()
            segment.close_file()
            place += 1
        return segments

    def _split(self, segment: Segment, position: Position, base_offset: Offset) -> bool:
        try:
            split_segment(self._file_system, segment, position, base_offset)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            self._note(f"segment {segment.base_offset} spans too many offsets and is not split: {error.strerror}")
            return False
        self._note(f"segment {segment.base_offset} is split at {base_offset}: it spans too many offsets for an index")
        return True

    def _expected_start(self) -> Offset:
        """Return the expected log start: it is durable before anything below it is deleted."""
        start = self._checkpoints.log_starts.get(self._name, Offset(0))
        if self._epochs_known and not self._checkpoints.is_log_start_certain(self._name):
            start = max(start, self._epochs.entries[0].start_offset)
        return start

    def _drop_below_log_start(self, segments: list[Segment], log_start: Offset) -> list[Segment]:
        """Finish a deletion that a crash interrupted: remove segments that end below the log start."""
        keep_from = 0
        while keep_from + 1 < len(segments) and segments[keep_from + 1].base_offset <= log_start:
            keep_from += 1
        if keep_from:
            self._remove(segments[:keep_from], f"they end below the log start {log_start}")
        return segments[keep_from:]

    def _check_first(self, first: Segment, expected_start: Offset) -> None:
        if first.base_offset > expected_start and not self._is_noted(expected_start, first.base_offset):
            self._report_damage(expected_start, first.base_offset, "their segment files are missing")

    def _remove(self, segments: list[Segment], why: str) -> None:
        self._note(f"segments {', '.join(str(segment.base_offset) for segment in segments)} are removed: {why}")
        for segment in segments:
            remove_segment_files(self._file_system, self._directory, segment.base_offset)
        self._file_system.sync_directory(self._directory)

    def _first_segment(self, log_start: Offset) -> Segment:
        segment = Segment.create(
            self._file_system,
            self._directory,
            log_start,
            self._config,
            created_ms=self._clock.elapsed_ms(),
            jitter_ms=self._config.draw_segment_jitter_ms(self._random),
        )
        self._file_system.sync_directory(self._directory)
        return segment

    # Segments

    def _check_segments(self, segments: list[Segment]) -> list[Offset]:
        """Return the exclusive end offset of every segment; scan from the recovery point unless the stop was clean."""
        durable_end = self._durable_end(segments)
        scan_from = self._scan_from(segments)
        ends: list[Offset] = []
        for place, segment in enumerate(segments):
            following = segments[place + 1].base_offset if place + 1 < len(segments) else None
            scanner = SegmentScanner(
                segment,
                self._epochs if self._epochs_known else None,
                has_gaps=self._config.compacts,
                durable_end=durable_end,
                following=following,
                recovery_point=self._recovery_point(),
                tell=self._meter.scanned,
            )
            if self._clean or segment.base_offset < scan_from:
                result = self._find_end(segment) or scanner.scan()
            else:
                result = self._scan(segment, scanner, is_last=following is None)
            ends.append(self._judge(segment, result, following, durable_end))
            segment.close_file()
        return ends

    def _recovery_point(self) -> Offset:
        return self._checkpoints.recovery_points.get(self._name, Offset(0))

    def _durable_end(self, segments: list[Segment]) -> Offset:
        """Return the end of all that was durable: a new segment begins only when the last is durable (disk rule 7)."""
        lost = (segment.end_offset for segment in self._lost)
        return max([self._recovery_point(), *lost, *(segment.base_offset for segment in segments[-1:])])

    def _scan_from(self, segments: list[Segment]) -> Offset:
        return _first_scanned([segment.base_offset for segment in segments], self._recovery_point())

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
        return end == following or (self._config.compacts and end < following) or self._is_noted(end, following)

    def _is_noted(self, start: Offset, end: Offset) -> bool:
        """Return whether the gap is noted, by a truncation or because an operator accepted its loss."""
        found = self._checkpoints.gaps.of(self._name) & {TruncationGap(start, end)}
        self._found_gaps += found
        return bool(found)

    def _why_missing(self) -> str:
        gaps = self._checkpoints.gaps
        if gaps.is_lost:
            self._damage_hint = f"{gaps.path}, the list of gaps, is also damaged: restore or correct it"
        return "they are missing" if self._damage_hint is None else f"they are missing; {self._damage_hint}"

    def _why_short(self) -> str:
        if not self._lost:
            return "the log ends too early"
        path = self._directory / offset_file_name(self._lost[0].base_offset, LOG_SUFFIX)
        self._damage_hint = f"{path} is missing, though its indexes are there: restore it"
        return self._damage_hint

    def _cut(self, segment: Segment, result: SegmentScan) -> None:
        cut_bytes = self._file_system.size(segment.file.path) - result.valid_bytes
        if self._config.preallocate:
            # Bytes that were never written are no data.
            cut_bytes = written_bytes(segment.file, result.valid_bytes, cut_bytes)
        segment.size_bytes = result.valid_bytes
        if self._clean or result.is_old_format:
            # After a clean stop there was no scan: the last batch itself is bad. Or it is whole, in an old format.
            self._report_damage(result.end_offset, Offset(result.end_offset + 1), result.problem or "")
            return
        if any(hole.end_offset > self._log_start for hole in result.holes):
            # The tail of a crash behind damage: a repair of the damage must find the tail unchanged.
            self._note(f"{cut_bytes} bytes behind offset {result.end_offset} are not shown: {result.problem}")
            return
        segment.file.truncate(result.valid_bytes)
        segment.file.sync()
        self.report.truncated_bytes += cut_bytes
        if cut_bytes:
            self._note(f"{cut_bytes} bytes behind offset {result.end_offset} are cut: {result.problem}")

    def _find_end(self, segment: Segment) -> SegmentScan | None:
        """Walk from the last index entry to the end of a segment that needs no scan; ``None`` if a batch is damaged, or
        if readers could not reach the log start in this segment.

        The index is read as a plain file, and stays unloaded until the first read of the segment (spec C4).
        """
        if segment.base_offset < self._log_start and not leads_to(self._file_system, segment, self._log_start):
            return None
        position = indexed_position(self._file_system, segment)
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
            self._without_producers.add(segment.base_offset)
        if is_last:
            indexes = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
            remove_segment_files(self._file_system, self._directory, segment.base_offset, indexes)
            self._rewrite(segment.file, result.runs(result.durable_bytes))
        return result

    def _rewrite(self, file: File, runs: Iterable[ByteRange]) -> None:
        for run in runs:
            for position in range(run.start, run.end, _REWRITE_BYTES):
                file.write(position, [file.read(position, min(_REWRITE_BYTES, run.end - position))])
        file.sync()

    # Putting it together

    def _settle(self, segments: list[Segment], log_start: Offset, log_end: Offset) -> None:
        """Bring epochs and indexes in line with the log, and begin a new epoch after an unclean stop (spec E1)."""
        self._forget_gaps()
        # An epoch that begins at the log end stays: a client may have received it.
        self._epochs.truncate_from_end(Offset(log_end + 1))
        self._epochs.truncate_from_start(log_start)
        if self._epochs.latest is None:
            self._epochs_from_batches(segments, log_start)
        if self._epochs.latest is not None and not self._clean and self._had_records(log_end):
            self._begin_epoch(LeaderEpoch(self._epochs.latest.epoch + 1), log_end)

    def _had_records(self, log_end: Offset) -> bool:
        """Return whether records may have been read here, even if the stop lost them all: an offset that a client may
        have seen must not be given again in the same epoch."""
        high_watermark = self._checkpoints.high_watermarks.get(self._name, Offset(0))
        is_later_epoch = self._epochs.latest is not None and self._epochs.latest.epoch > 0
        # The cut of a preallocated file proves nothing.
        was_torn = self.report.truncated_bytes > 0 and not self._config.preallocate
        return log_end > 0 or high_watermark > log_end or is_later_epoch or was_torn

    def _forget_gaps(self) -> None:
        """Forget noted gaps that were not found, because they might hide a later loss of a file."""
        try:
            self._checkpoints.gaps.keep(self._name, self._found_gaps)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            self._note(f"gaps that were not found stay noted for now: {error.strerror}")

    def _begin_epoch(self, epoch: LeaderEpoch, log_end: Offset) -> None:
        try:
            self._epochs.assign_or_keep(epoch, log_end, self._checkpoints.ballast.run)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            # With one copy no reader compares epochs: a full disk must not prevent reads (disk rule 8).
            self._note(f"the leader epoch stays {epoch - 1}: {error.strerror}")

    def _epochs_from_batches(self, segments: list[Segment], log_start: Offset) -> None:
        """Rebuild lost leader epochs: every batch carries its own, and they only rise."""
        self._epochs.assign(LeaderEpoch(0), segments[0].base_offset)
        newest = 0
        try:
            for segment in segments:
                for batch in segment.walk(0, segment.size_bytes):
                    epoch = batch.header.partition_leader_epoch
                    if epoch > newest:
                        newest = epoch
                        self._epochs.assign(LeaderEpoch(epoch), Offset(batch.header.base_offset))
        except CorruptionError as error:
            self._note(f"leader epochs are known only up to damaged batches: {error}")
        self._epochs.truncate_from_start(log_start)

    def _restore_producers(self, segments: list[Segment], log_end: Offset) -> ProducerState:
        producers = ProducerState(
            self._file_system,
            self._directory,
            **self._producer_limits._asdict(),
            elapsed_ms=self._clock.elapsed_ms,
        )
        producers.snapshots.delete_stray([segment.base_offset for segment in segments])
        try:
            scan_from = self._scan_from(segments)
            unsure = [] if self._clean else [entry for entry in segments if entry.base_offset >= scan_from]
            self._had_all_indexes = self._checkpoints.ballast.run(
                lambda: restore_producers(
                    producers,
                    self._transactions,
                    segments,
                    log_end,
                    unsure,
                    self.report.damage,
                    self._without_producers,
                )
            )
        except CorruptionError as error:
            self._note(f"producers are known only up to damaged batches: {error}")
        return producers

    def _report_damage(self, start: Offset, end: Offset, why: str) -> None:
        if end <= self._log_start:
            # These records are deleted: no reader can request them, and their file is deleted with its other records.
            self._note(f"offsets {start} to {end} are damaged, below the log start {self._log_start}: {why}")
            return
        self.report.damage.append(OffsetRange(start, end))
        self._log_lines.append((logging.ERROR, f"offsets {start} to {end} are damaged on disk: {why}"))
        self.report.notes.append(f"offsets {start} to {end} are damaged: {why}")

    def _note(self, text: str) -> None:
        self._log_lines.append((logging.WARNING, text))
        self.report.notes.append(text)


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
