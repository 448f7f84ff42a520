"""``rollway log verify``: a check of all files of a data directory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from app.cli import options
from app.cli.command_errors import EXIT_FAILED, CommandError
from app.cli.options import named_path
from app.cli.rendering import format_bytes, plural, print_json, print_table, progress_bar, say
from rollway.printable import escape_unprintable
from storage.log_inspection import (
    DirectoryReport,
    Finding,
    PartitionReport,
    Severity,
    StoredFileError,
    verify_directory,
)


def verify_log(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="A data directory, a Kafka log directory, or a partition's directory.",
            parser=named_path,
        ),
    ],
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Check only this topic.", show_default=False)
    ] = None,
    headers_only: Annotated[
        bool, typer.Option("--headers-only", help="Check headers, CRCs and indexes, and decode no records.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only findings.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Check every file of a data directory, without a server.

    It checks batches (framing, CRC, records, timestamps), offsets within and between segments, every entry of every
    index, producer snapshots, checkpoints, epochs, metadata and trailing bytes. After an unclean stop it also checks
    the journal, and reads the segments as the next start will have written them. Exit status: 0 clean, 1 damage
    found. It only reads, and a server may run meanwhile.

    \b
    Examples:
      rollway log verify rollway-data
      rollway log verify rollway-data --topic flights --json
      rollway log verify /var/kafka-logs/orders-0
    """
    report = _verify(directory, topic=topic, decodes=not headers_only, shown=not (quiet or as_json))
    if as_json:
        print_json(_document(report))
    else:
        _print_report(report, quiet=quiet)
    if report.is_damaged:
        raise typer.Exit(EXIT_FAILED)


def _verify(directory: Path, *, topic: str | None, decodes: bool, shown: bool) -> DirectoryReport:
    size_bytes = sum(path.stat().st_size for path in directory.rglob("*.log") if path.is_file()) if shown else None
    batches = 0
    try:
        with progress_bar(shown=shown and sys.stderr.isatty(), knows_size=True) as bar:
            task = bar.add_task("verify", total=size_bytes, records=0)

            def on_batch(batch_bytes: int, record_count: int) -> None:
                nonlocal batches
                batches += record_count
                bar.update(task, advance=batch_bytes, records=batches)

            report = verify_directory(directory, topic=topic, decodes=decodes, on_batch=on_batch)
    except StoredFileError as error:
        raise CommandError(f"{error}.") from None
    except OSError as error:
        raise CommandError(f"{error.filename or directory} cannot be read: {error.strerror}.") from None
    if topic is not None and not report.partitions:
        raise CommandError(f"{directory} has no partition of a topic {topic}.")
    return report


def _document(report: DirectoryReport) -> dict[str, object]:
    return {
        "directory": str(report.directory),
        "clean": not report.is_damaged,
        "live": report.is_live,
        "partitions": [
            {
                "topic": partition.name.topic,
                "partition": partition.name.partition,
                "topic_id": partition.topic_id,
                "segment_count": partition.segment_count,
                "size_bytes": partition.size_bytes,
                "batch_count": partition.batch_count,
                "record_count": partition.record_count,
                "index_entry_count": partition.index_entry_count,
                "first_offset": partition.first_offset,
                "log_end_offset": partition.log_end_offset,
            }
            for partition in report.partitions
        ],
        "findings": [_finding(finding) for finding in report.findings],
    }


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "severity": finding.severity.value,
        "file": str(finding.path),
        "position": finding.position,
        "message": finding.message,
    }


def _print_report(report: DirectoryReport, *, quiet: bool) -> None:
    if not quiet and report.partitions:
        print_table(
            ["PARTITION", "OFFSETS", "RECORDS", "BATCHES", "SEGMENTS", "INDEX ENTRIES", "SIZE"],
            [
                (
                    str(partition.name),
                    _offsets(partition),
                    partition.record_count,
                    partition.batch_count,
                    partition.segment_count,
                    partition.index_entry_count,
                    format_bytes(partition.size_bytes),
                )
                for partition in report.partitions
            ],
        )
    for finding in report.findings:
        say(escape_unprintable(f"{finding.severity.value}: {finding.sentence}"))
    if quiet:
        return
    if report.is_live:
        say("A server is writing to this directory: what is after the last batch read was not checked.")
    say(_verdict(report))


def _offsets(partition: PartitionReport) -> str:
    first = partition.log_end_offset if partition.first_offset is None else partition.first_offset
    return f"[{first}, {partition.log_end_offset})"


def _verdict(report: DirectoryReport) -> str:
    damage_count = sum(finding.severity is Severity.DAMAGE for finding in report.findings)
    records = sum(partition.record_count for partition in report.partitions)
    seen = f"{plural(len(report.partitions), 'partition')} with {plural(records, 'record')}"
    if damage_count == 0:
        return f"Clean: {seen} checked."
    return f"Damaged: {plural(damage_count, 'finding')} in {seen}."
