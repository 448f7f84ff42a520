"""``rollway log import``: a data directory from the log directory of a Kafka broker."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from app.cli import options
from app.cli.command_errors import CommandError
from app.cli.options import named_path
from app.cli.rendering import note, plural, print_json, print_table, progress_bar, say
from log_model.errors import StorageError
from rollway.printable import escape_unprintable
from storage.disk.file_system import LocalFileSystem
from storage.log_import import BrokerDirectoryError, ImportedTopic, find_topics, import_topics, plan_topics


def import_log(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="The log directory of a broker that does not run.", parser=named_path),
    ],
    data_dir: Annotated[
        Path, typer.Argument(metavar="DIR", help="The data directory to make: absent, or empty.", parser=named_path)
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="Only this topic; may be repeated.", show_default=False),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(
            "--settings",
            metavar="FILE",
            help="JSON: topics, and for each its settings, which come before those of the cluster.",
            parser=named_path,
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the topics and their settings, and copy nothing.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Make a data directory from the log directory of a Kafka broker.

    It copies the partitions with their topic ids, and reads the settings of topics from the cluster's metadata in the
    same directory. The broker's directory is only read. A topic without a retention of its own keeps its records for
    ever: the defaults of a broker are not in its directory. Groups and the transaction coordinator stay behind.

    \b
    Examples:
      rollway log import /var/lib/kafka rollway-data
      rollway log import /var/lib/kafka rollway-data --topic orders --dry-run
      rollway log import /var/lib/kafka rollway-data --settings settings.json
    """
    disk = LocalFileSystem()
    try:
        found = find_topics(disk, source, topic or ())
        topics = plan_topics(found, _settings(settings))
        if not dry_run:
            size_bytes = sum(path.stat().st_size for each in topics for path in _files(source, each))
            with progress_bar(shown=sys.stderr.isatty() and not as_json, knows_size=True) as bar:
                task = bar.add_task("import", total=size_bytes, records=0)
                import_topics(disk, found, data_dir, topics, lambda count: bar.update(task, advance=count))
    except BrokerDirectoryError as error:
        raise CommandError(str(error)) from None
    except StorageError as error:
        raise CommandError(f"{error}.") from None
    except OSError as error:
        raise CommandError(f"{error.filename or source}: {error.strerror}.") from None
    if as_json:
        print_json({"topics": [_document(each) for each in topics], "has_metadata": found.has_metadata})
        return
    _print_topics(topics)
    if not found.has_metadata:
        note("This directory has no metadata of its cluster: give the settings of topics with --settings.")
    what = plural(sum(each.topic.partition_count for each in topics), "partition")
    say(f"Dry run: {what} would be copied." if dry_run else f"Copied {what} to {data_dir}.")


def _files(source: Path, topic: ImportedTopic) -> list[Path]:
    return [
        path
        for number in range(topic.topic.partition_count)
        for path in (source / f"{topic.topic.name}-{number}").iterdir()
        if path.is_file()
    ]


def _settings(path: Path | None) -> Mapping[str, Mapping[str, object]]:
    if path is None:
        return {}
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path} is not JSON: {error}.") from None
    if not isinstance(document, dict) or not all(isinstance(each, dict) for each in document.values()):
        raise CommandError(f'{path} must have the form {{"orders": {{"retention.ms": -1}}}}.')
    return document


def _document(topic: ImportedTopic) -> dict[str, object]:
    return {
        "topic": topic.topic.name,
        "topic_id": topic.topic.topic_id,
        "partitions": topic.topic.partition_count,
        "config": dict(topic.settings),
        "left_out": dict(topic.left_out),
    }


def _print_topics(topics: Sequence[ImportedTopic]) -> None:
    print_table(
        ["TOPIC", "PARTITIONS", "SETTINGS"],
        [
            (
                each.topic.name,
                each.topic.partition_count,
                ", ".join(f"{name}={value}" for name, value in sorted(each.settings.items())),
            )
            for each in topics
        ],
    )
    for each in topics:
        for name, reason in sorted(each.left_out.items()):
            note(escape_unprintable(f"{each.topic.name}: {name} is left out: {reason}."))
