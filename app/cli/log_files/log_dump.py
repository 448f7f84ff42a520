"""``rollway log dump``: the content of a log's files, in the form of Kafka's DumpLogSegments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli import options
from app.cli.command_errors import CommandError
from app.cli.options import named_path
from app.cli.records.record_text import text_or_base64
from app.cli.rendering import note, plural, print_json, say
from app.cli.standard_streams import STANDARD_OUTPUT
from rollway.printable import escape_unprintable
from rollway.records import RecordFormatError, decode_batch, split_batches
from storage.disk.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_CHECKPOINT,
    TRANSACTION_INDEX_SUFFIX,
    OffsetFileName,
    parse_offset_file_name,
)
from storage.disk.file_system import File, LocalFileSystem
from storage.log_inspection import (
    MissingBytes,
    MissingBytesSearch,
    StoredBatch,
    StoredFileError,
    read_batches,
    read_checkpoint,
    read_control_record,
    read_epochs,
    read_index_checkpoint,
    read_offset_entries,
    read_producer_snapshot,
    read_properties,
    read_small_file,
    read_time_entries,
    read_transaction_entries,
)

DECODED_BATCH_BYTES_MAX = 64 << 20

Row = dict[str, Any]


def dump_log(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Files of a log, or directories that hold them.", parser=named_path),
    ],
    records: Annotated[bool, typer.Option("--records", help="Also show the records of each batch.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show the content of segment, index, snapshot and checkpoint files.

    A directory stands for all files in it and below, in order. --json prints one object per line. After an unclean
    stop the journal may have bytes that a segment lacks: a sentence on stderr then says how many.

    \b
    Examples:
      rollway log dump rollway-data/logs/flights-0/00000000000000000000.log
      rollway log dump rollway-data/logs/flights-0 --records
      rollway log dump rollway-data/logs/flights-0/*.timeindex --json
    """
    files = [file for path in paths for file in _files_of(path)]
    if not files:
        raise CommandError(f"No file of a log is in {', '.join(str(path) for path in paths)}.")
    with contextlib.closing(MissingBytesSearch(LocalFileSystem())) as missing:
        for file in files:
            _dump_file(file, missing, records=records, as_json=as_json)


def _dump_file(file: Path, missing: MissingBytesSearch, *, records: bool, as_json: bool) -> None:
    if not as_json:
        say(escape_unprintable(f"Dumping {file}"))
    try:
        for row in _rows(file, records=records):
            if as_json:
                print_json({"file": str(file), **row})
            else:
                say(escape_unprintable(_line(row)))
        _note_missing(file, missing.find(file))
    except StoredFileError as error:
        place = "" if error.position is None else f", position {error.position}"
        raise CommandError(f"{file}{place}: {error}.") from None
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename == STANDARD_OUTPUT:
            raise
        raise CommandError(f"{error.filename or file} cannot be read: {error.strerror}.") from None


def _note_missing(file: Path, missing: MissingBytes) -> None:
    if missing.is_journal_damaged:
        note(
            f"{file}: the journal is damaged, and may have more bytes of this file. The dump does not show them; "
            "`rollway log verify` says where the damage is."
        )
    elif missing.byte_count:
        note(
            f"{file}: the journal has {plural(missing.byte_count, 'more byte')} of this file. The next start writes "
            "them to it, and the dump does not show them."
        )


def _files_of(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file() and _is_known(file.name))
    if not path.exists():
        raise CommandError(f"{path} does not exist.")
    if not _is_known(path.name):
        raise CommandError(f"{path} is not a file of a log: nothing that its name stands for is known.")
    return [path]


def _is_known(name: str) -> bool:
    parsed = parse_offset_file_name(name)
    return parsed is not None or name.endswith("-checkpoint") or name in (PARTITION_METADATA, META_PROPERTIES)


def _line(row: Row) -> str:
    if row.get("record"):
        return "| " + " ".join(f"{name}: {value}" for name, value in row.items() if name != "record")
    return " ".join(
        f"{name}: {str(value).lower() if isinstance(value, bool) else value}" for name, value in row.items()
    )


def _rows(path: Path, *, records: bool) -> Iterator[Row]:
    name = parse_offset_file_name(path.name)
    file_system = LocalFileSystem()
    if name is None or name.suffix == PRODUCER_SNAPSHOT_SUFFIX:
        yield from _small_file_rows(path, read_small_file(file_system, path))
        return
    with contextlib.closing(file_system.open(path, writable=False)) as file:
        yield from _segment_rows(file, name, records=records)


def _segment_rows(file: File, name: OffsetFileName, *, records: bool) -> Iterator[Row]:
    size = file.size()
    if name.suffix == LOG_SUFFIX:
        yield {"baseOffsetOfSegment": name.offset, "size": size}
        yield from _log_rows(file, size, records=records)
    elif name.suffix == OFFSET_INDEX_SUFFIX:
        for _, relative_offset, position in read_offset_entries(file, size):
            yield {"offset": name.offset + relative_offset, "position": position}
    elif name.suffix == TIME_INDEX_SUFFIX:
        for _, timestamp, relative_offset in read_time_entries(file, size):
            yield {"timestamp": timestamp, "offset": name.offset + relative_offset}
    elif name.suffix == TRANSACTION_INDEX_SUFFIX:
        for entry in read_transaction_entries(file, size):
            yield {
                "version": entry.version,
                "producerId": entry.producer_id,
                "firstOffset": entry.first_offset,
                "lastOffset": entry.last_offset,
                "lastStableOffset": entry.last_stable_offset,
            }


def _log_rows(file: File, size: int, *, records: bool) -> Iterator[Row]:
    try:
        for batch in read_batches(file, size):
            yield batch_row(batch)
            if records and batch.is_crc_valid:
                yield from _record_rows(file, batch)
    except StoredFileError as error:
        yield {"invalidBytes": size - (error.position or 0), "position": error.position, "why": str(error)}


def batch_row(batch: StoredBatch) -> Row:
    """Return the fields of a batch header as DumpLogSegments prints them, by its names and in its order."""
    return {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": batch.record_count,
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.last_sequence,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "partitionLeaderEpoch": batch.partition_leader_epoch,
        "isTransactional": batch.is_transactional,
        "isControl": batch.is_control,
        "deleteHorizonMs": batch.base_timestamp if batch.has_delete_horizon else None,
        "position": batch.position,
        "LogAppendTime" if batch.is_log_append_time else "CreateTime": batch.max_timestamp,
        "size": batch.size_bytes,
        "magic": batch.magic,
        "compresscodec": batch.codec_name.lower(),
        "crc": batch.crc,
        "isvalid": batch.is_crc_valid,
    }


def _record_rows(file: File, batch: StoredBatch) -> Iterator[Row]:
    if batch.size_bytes > DECODED_BATCH_BYTES_MAX:
        return
    try:
        (stored,) = split_batches(file.read(batch.position, batch.size_bytes))
        columns = decode_batch(stored)
    except RecordFormatError as error:
        raise StoredFileError(f"the records of this batch are broken: {error}", batch.position) from None
    control = read_control_record(file, batch) if batch.is_control else None
    marker: Row = (
        {} if control is None else {"endTxnMarker": control.name, "coordinatorEpoch": control.coordinator_epoch}
    )
    for number, (offset, timestamp) in enumerate(zip(columns.offsets, columns.timestamps, strict=True)):
        yield {
            "record": True,
            "offset": int(offset),
            "timestamp": int(timestamp),
            **marker,
            **text_or_base64("key", columns.keys[number]),
            **text_or_base64("value", columns.values[number]),
        }


def _small_file_rows(path: Path, content: bytes) -> Iterator[Row]:
    if path.name.endswith(PRODUCER_SNAPSHOT_SUFFIX):
        for entry in read_producer_snapshot(content):
            yield {
                "producerId": entry.producer_id,
                "producerEpoch": entry.producer_epoch,
                "lastSequence": entry.last_sequence,
                "lastOffset": entry.last_offset,
                "offsetDelta": entry.offset_delta,
                "lastTimestamp": entry.timestamp,
                "coordinatorEpoch": entry.coordinator_epoch,
                "currentTxnFirstOffset": entry.current_transaction_first_offset,
            }
    elif path.name == LEADER_EPOCH_CHECKPOINT:
        for epoch, start_offset in read_epochs(content):
            yield {"epoch": epoch, "startOffset": start_offset}
    elif path.name == TRANSACTION_INDEX_CHECKPOINT:
        for base_offset, (size_bytes, crc) in read_index_checkpoint(content).items():
            yield {"baseOffset": base_offset, "size": size_bytes, "crc": crc}
    elif path.name.endswith("-checkpoint"):
        for (topic, partition), offset in read_checkpoint(content).items():
            yield {"topic": topic, "partition": partition, "offset": offset}
    else:
        separator = ": " if path.name == PARTITION_METADATA else "="
        yield dict(read_properties(content, separator))
