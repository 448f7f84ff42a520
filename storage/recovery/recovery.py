"""Opening a partition: from the files that any kind of stop left to a log that can be trusted (spec E20).

After a clean stop nothing is scanned. Otherwise recovery scans every segment from the recovery point: it checks the
batches, rebuilds the indexes, and ends the log at the first batch that is not whole, if it lies above everything that
was ever durable. Damage below is reported and kept, never cut (disk rule 5).
"""

from __future__ import annotations

import logging
from dataclasses import replace

from log_model.errors import CorruptionError
from log_model.offsets import LeaderEpoch, Offset, Position
from storage.disk.checkpoint import CorruptCheckpointError
from storage.disk.file_names import LOG_SUFFIX, offset_file_name, parse_offset_file_name
from storage.disk.leftover_files import clear_leftovers, find_lost_segments, remove_segment_files
from storage.disk.topic_metadata import CorruptMetadataError, read_partition_metadata, write_partition_metadata
from storage.index.index_builder import IndexSettings
from storage.log.partition_log import PartitionLog
from storage.log.written_log import LogParts
from storage.recovery.recovery_progress import PartitionRecovery, RecoveryMeter
from storage.recovery.segment_recovery import SegmentRecovery
from storage.recovery.segment_split import find_overflow, split_segment
from storage.recovery.transaction_recovery import restore_producers
from storage.segment.segment import Segment

_logger = logging.getLogger(__name__)


class PartitionOpener:
    """Opens one partition; used once.

    ``parts`` are those of an empty log, without a segment. Their epochs and producers are filled from the files.
    ``meter`` receives the number of scanned bytes. ``clean`` says whether the last stop was clean.

    Raises (from ``open``):
        OSError: the disk refused.
        CorruptionError: a file is damaged without which the partition cannot be opened.
    """

    def __init__(self, parts: LogParts, meter: RecoveryMeter, *, clean: bool) -> None:
        self._parts = parts
        self._meter = meter
        self.report = PartitionRecovery(parts.name, clean)

    def open(self) -> PartitionLog:
        """Recover the partition where needed, and return the log, with everything in it durable.

        The messages about the partition are logged together, at the end, because others are opened at the same time.
        """
        try:
            return self._open()
        finally:
            for level, text in self.report.log_lines:
                _logger.log(level, "%s: %s", self._parts.name, text)

    def _open(self) -> PartitionLog:
        parts, report = self._parts, self.report
        self._check_topic_id()
        self._load_epochs()
        known_epochs = None if parts.epochs.latest is None else parts.epochs
        expected_start = self._expected_start()
        lost = find_lost_segments(parts.file_system, parts.directory, expected_start)
        witnesses = [segment.base_offset for segment in lost]
        for note in clear_leftovers(parts.file_system, parts.directory, clean=report.clean, witnesses=witnesses):
            report.note(note)
        recovery = SegmentRecovery(parts, known_epochs, lost, expected_start, self._meter, report)
        segments = self._split_far(self._find_segments(), recovery)
        if segments:
            segments = self._drop_below_log_start(segments, expected_start)
        log_start = max(expected_start, segments[0].base_offset if segments else Offset(0))
        ends = recovery.find_ends(segments)
        log_end = ends[-1] if ends else log_start
        if segments and log_end < log_start and not report.damage:
            self._remove(segments, f"the log ends at {log_end}, below the log start {log_start}")
            segments = []
        if not segments:
            log_end = recovery.find_end_without_segments(log_start)
            segments = [self._first_segment(log_end)]
        if report.damage:
            log_end = max(log_end, report.damage[-1].end, log_start)
        else:
            recovery.forget_gaps()
            self._settle_epochs(segments, log_start, log_end)
        had_all_indexes = self._restore_producers(segments, log_end, recovery)
        recovery_point = min(recovery.recovery_point, log_end)
        # Every unusual finding leaves a note, except rebuilt segments.
        last = segments[-1]
        had_all_indexes = had_all_indexes and not last.offset_index.was_opened and not last.time_index.was_opened
        is_sound = had_all_indexes and not report.notes
        is_untouched = report.clean and is_sound
        if report.clean and not is_untouched:
            parts.before_change(parts.topic_id, parts.name, False)
            segments[-1].unseal()
        return PartitionLog(
            replace(
                parts,
                is_untouched=is_untouched,
                segments=tuple(segments),
                log_start_offset=log_start,
                log_end_offset=log_end,
                recovery_point=log_end if report.clean and not report.damage else recovery_point,
                damage=tuple(report.damage),
                damage_hint=recovery.damage_hint,
                high_watermark=parts.checkpoints.high_watermarks.get(parts.name),
            )
        )

    # Files on the disk

    def _check_topic_id(self) -> None:
        parts = self._parts
        try:
            stored = read_partition_metadata(parts.file_system, parts.directory)
        except CorruptMetadataError as error:
            # The topic's own file, which has a checksum, says to which topic the directory belongs.
            self.report.note(f"{error}: it is written again")
            stored = parts.topic_id
            parts.checkpoints.ballast.run(
                lambda: write_partition_metadata(parts.file_system, parts.directory, parts.topic_id)
            )
        if stored is not None and stored != parts.topic_id:
            raise CorruptionError(
                f"{parts.directory} belongs to topic id {stored}, but topic {parts.name.topic} has {parts.topic_id}"
            )

    def _load_epochs(self) -> None:
        try:
            self._parts.epochs.load()
        except CorruptCheckpointError as error:
            self.report.note(f"the leader epochs are rebuilt: {error}")
            self._parts.epochs.clear()

    def _find_segments(self) -> list[Segment]:
        parts = self._parts
        bases = []
        for file_name in parts.file_system.list_directory(parts.directory):
            parsed = parse_offset_file_name(file_name)
            if parsed is not None and parsed.suffix == LOG_SUFFIX and not parsed.state:
                if file_name != offset_file_name(parsed.offset, LOG_SUFFIX):
                    self.report.note(f"{file_name} is not a segment's name and is left alone")
                    continue
                bases.append(Offset(parsed.offset))
        bases.sort()
        settings = IndexSettings.of(parts.config)
        return [
            Segment(
                parts.file_system,
                parts.directory,
                base,
                settings,
                size_bytes=parts.file_system.size(parts.directory / offset_file_name(base, LOG_SUFFIX)),
                created_ms=parts.began_ms,
                # Until its first change the last one is as a clean stop leaves it.
                sealed=base != bases[-1] or self.report.clean,
                jitter_ms=parts.config.draw_segment_jitter_ms(parts.random) if base == bases[-1] else 0,
            )
            for base in bases
        ]

    def _split_far(self, segments: list[Segment], recovery: SegmentRecovery) -> list[Segment]:
        """Split segments whose offsets are too far apart for an index; only compaction makes such segments."""
        place = 0
        while self._parts.config.compacts and place < len(segments):
            segment = segments[place]
            following = segments[place + 1].base_offset if place + 1 < len(segments) else recovery.durable_end(segments)
            far = find_overflow(segment, following)
            if far is not None and self._split(segment, *far):
                segments = self._find_segments()
            segment.log.close()
            place += 1
        return segments

    def _split(self, segment: Segment, position: Position, base_offset: Offset) -> bool:
        with self.report.tolerating_full_disk(f"segment {segment.base_offset} spans too many offsets and is not split"):
            split_segment(self._parts.file_system, segment, position, base_offset)
            self.report.note(
                f"segment {segment.base_offset} is split at {base_offset}: it spans too many offsets for an index"
            )
            return True
        return False

    def _expected_start(self) -> Offset:
        """Return the expected log start: it is durable before anything below it is deleted."""
        checkpoints, name = self._parts.checkpoints, self._parts.name
        start = checkpoints.log_starts.get(name, Offset(0))
        if self._parts.epochs.latest is not None and not checkpoints.is_log_start_certain(name):
            start = max(start, self._parts.epochs.entries[0].start_offset)
        return start

    def _drop_below_log_start(self, segments: list[Segment], log_start: Offset) -> list[Segment]:
        """Finish a deletion that a crash interrupted: remove segments that end below the log start."""
        keep_from = 0
        while keep_from + 1 < len(segments) and segments[keep_from + 1].base_offset <= log_start:
            keep_from += 1
        if keep_from:
            self._remove(segments[:keep_from], f"they end below the log start {log_start}")
        return segments[keep_from:]

    def _remove(self, segments: list[Segment], why: str) -> None:
        parts = self._parts
        bases = ", ".join(str(segment.base_offset) for segment in segments)
        self.report.note(f"segments {bases} are removed: {why}")
        for segment in segments:
            remove_segment_files(parts.file_system, parts.directory, segment.base_offset)
        parts.file_system.sync_directory(parts.directory)

    def _first_segment(self, log_start: Offset) -> Segment:
        parts = self._parts
        segment = Segment.create(
            parts.file_system,
            parts.directory,
            log_start,
            parts.config,
            created_ms=parts.clock.elapsed_ms(),
            jitter_ms=parts.config.draw_segment_jitter_ms(parts.random),
        )
        parts.file_system.sync_directory(parts.directory)
        return segment

    # Putting it together

    def _settle_epochs(self, segments: list[Segment], log_start: Offset, log_end: Offset) -> None:
        """Bring the leader epochs in line with the log, and begin a new one after an unclean stop (spec E1)."""
        epochs = self._parts.epochs
        # An epoch that begins at the log end stays: a client may have received it.
        epochs.truncate_from_end(Offset(log_end + 1))
        epochs.truncate_from_start(log_start)
        if epochs.latest is None:
            self._epochs_from_batches(segments, log_start)
        if epochs.latest is not None and not self.report.clean and self._had_records(log_end):
            epoch = LeaderEpoch(epochs.latest.epoch + 1)
            # With one copy no reader compares epochs.
            with self.report.tolerating_full_disk(f"the leader epoch stays {epoch - 1}"):
                epochs.assign_or_keep(epoch, log_end, self._parts.checkpoints.ballast.run)

    def _had_records(self, log_end: Offset) -> bool:
        """Return whether records may have been read here, even if the stop lost them all: an offset that a client may
        have seen must not be given again in the same epoch."""
        parts = self._parts
        high_watermark = parts.checkpoints.high_watermarks.get(parts.name, Offset(0))
        is_later_epoch = parts.epochs.current > 0
        # The cut of a preallocated file proves nothing.
        was_torn = self.report.truncated_bytes > 0 and not parts.config.preallocate
        return log_end > 0 or high_watermark > log_end or is_later_epoch or was_torn

    def _epochs_from_batches(self, segments: list[Segment], log_start: Offset) -> None:
        """Rebuild lost leader epochs: every batch carries its own, and they only rise."""
        epochs, newest = self._parts.epochs, 0
        epochs.assign(LeaderEpoch(0), segments[0].base_offset)
        try:
            for segment in segments:
                for batch in segment.walk(0, segment.size_bytes):
                    epoch = batch.header.partition_leader_epoch
                    if epoch > newest:
                        newest = epoch
                        epochs.assign(LeaderEpoch(epoch), Offset(batch.header.base_offset))
        except CorruptionError as error:
            self.report.note(f"leader epochs are known only up to damaged batches: {error}")
        epochs.truncate_from_start(log_start)

    def _restore_producers(self, segments: list[Segment], log_end: Offset, recovery: SegmentRecovery) -> bool:
        """Bring the producers to their state at the log end; return whether every transaction index was sound."""
        parts = self._parts
        parts.producers.snapshots.delete_stray([segment.base_offset for segment in segments])
        try:
            return parts.checkpoints.ballast.run(
                lambda: restore_producers(
                    parts.producers,
                    parts.transaction_checkpoint,
                    segments,
                    log_end,
                    recovery.scanned(segments),
                    self.report.damage,
                    recovery.without_producers,
                )
            )
        except CorruptionError as error:
            self.report.note(f"producers are known only up to damaged batches: {error}")
            return False
