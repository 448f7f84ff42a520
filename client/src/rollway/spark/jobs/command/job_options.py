"""Options of jobs, and what is made of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated

import typer

from rollway.spark.jobs.errors import JobUsageError
from rollway.spark.jobs.topics import OnDataLoss, TopicAddress
from rollway.spark.options.option_names import divided
from rollway.spark.options.option_values import OptionValues

DEFAULT_URL = "http://127.0.0.1:8080"

Url = Annotated[
    str, typer.Option("--url", "-u", envvar="ROLLWAY_SERVER", metavar="URL", help="Address of the service.")
]
ToUrl = Annotated[str | None, typer.Option("--to-url", metavar="URL", help="Service of the other topic, if another.")]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Format = Annotated[
    str, typer.Option("--format", "-f", metavar="NAME", help="csv, json, parquet, orc, text, avro; else by the name.")
]
FileSchema = Annotated[
    str | None,
    typer.Option("--schema", metavar="DDL", help="Columns and their types; else those of the files, of CSV as text."),
]
ReadOptions = Annotated[
    list[str] | None, typer.Option("--read-option", metavar="KEY=VALUE", help="Option of Spark's reader; repeatable.")
]
Where = Annotated[str | None, typer.Option("--where", metavar="EXPR", help="Only these rows.")]
Key = Annotated[str | None, typer.Option("--key", metavar="EXPR", help="Key of the record.")]
Value = Annotated[
    str | None,
    typer.Option("--value", metavar="EXPR", help="Value; else the line of JSON or text, or the row as JSON."),
]
Timestamp = Annotated[
    str | None, typer.Option("--timestamp", metavar="EXPR", help="Timestamp, date, string, or milliseconds; else now.")
]
Headers = Annotated[
    str | None, typer.Option("--headers", metavar="EXPR", help="Headers: a map, or an array of structs of two.")
]
Start = Annotated[
    str, typer.Option("--from", metavar="PLACE", help='earliest, latest, a time, or offsets such as {"0": 1200}.')
]
End = Annotated[str, typer.Option("--until", metavar="PLACE", help="The same; exclusive.")]
ByKey = Annotated[bool, typer.Option("--by-key", help="Let keys decide the partition instead of keeping it.")]
FileSize = Annotated[
    str, typer.Option("--file-size", metavar="SIZE", help="Of a file, such as 64m; 0: one per partition and hour.")
]
TargetConfig = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="KEY=VALUE",
        help="Setting of TO, if it is made; otherwise it must have it.",
    ),
]
AppId = Annotated[
    str | None, typer.Option("--app-id", metavar="ID", help="Whose load it is; with --version it is done only once.")
]
AppVersion = Annotated[int | None, typer.Option("--version", metavar="N", help="Which load of the application it is.")]
OnLoss = Annotated[
    str, typer.Option("--on-data-loss", metavar="WHAT", help="fail, or skip: go on with the records that are left.")
]
FormatOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="KEY=VALUE",
        help='Option of format("rollway") or Kafka, of writes where the job writes, of reads where it reads.',
    ),
]
ToFormatOptions = Annotated[
    list[str] | None,
    typer.Option("--to-option", metavar="KEY=VALUE", help="The same for the other topic; else those of --option."),
]
SkipRejects = Annotated[bool, typer.Option("--skip-rejects", help="Leave out rows that cannot be records.")]
RejectsTopic = Annotated[
    str | None, typer.Option("--rejects-topic", metavar="TOPIC", help="Topic for rows that cannot be records.")
]
RejectsTo = Annotated[
    str | None, typer.Option("--rejects-to", metavar="FOLDER", help="Folder for rows that cannot be records.")
]
AllowExpired = Annotated[
    bool, typer.Option("--allow-expired", help="Take records too that are older than the topic keeps.")
]
MaxRejects = Annotated[
    int | None, typer.Option("--max-rejects", metavar="N", help="With more of them nothing is loaded.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Look at everything, say what would be done, write nothing.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


def pairs(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    """``KEY=VALUE`` of a repeated option.

    Raises:
        JobUsageError: one of them has no ``=``.
    """
    found = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise JobUsageError(f"{option} {text!r} is not KEY=VALUE.")
        found[key] = value
    return found


OF_A_SECOND_TOPIC = ({"to_url", "to_format_options"}, "a second topic, and --files are none")
OF_FILES = (
    {"kind", "schema", "read_options", "where", "key", "value", "timestamp", "headers", "skip_rejects"},
    "--files: two topics are compared as they are",
)


def refuse_unused(context: typer.Context, names: Collection[str], purpose: str) -> None:
    """Return unless an option is given whose parameter has one of these names: it is for ``purpose``, and would be
    ignored.

    Raises:
        JobUsageError: one is.
    """
    for parameter in context.command.params:
        if parameter.name in names and context.params[parameter.name]:
            raise JobUsageError(f"{parameter.opts[0]} is for {purpose}.")


def address(topic: str, url: str, format_options: Sequence[str] | None) -> TopicAddress:
    """A topic of a Rollway service. A token may be in ``ROLLWAY_API_KEY``, where ``format("rollway")`` finds it."""
    return TopicAddress(topic=topic, url=url, options=pairs("--option", format_options))


def topic_address(topic: str, url: str, kafka: str | None, given: Mapping[str, str]) -> TopicAddress:
    """A topic of Kafka if its servers are given, else one of a Rollway service."""
    if kafka is None:
        return TopicAddress(topic=topic, url=url, options=given)
    return TopicAddress(topic=topic, url=kafka, format="kafka", options=given)


def options_of_both(
    format_options: Sequence[str] | None, to_format_options: Sequence[str] | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Those of the topic that is read and of the one that is written: of ``--option`` each has what is for it, unless
    ``--to-option`` says what the other has."""
    given = pairs("--option", format_options)
    return divided(given) if to_format_options is None else (given, pairs("--to-option", to_format_options))


def file_bytes(text: str) -> int:
    """A size in bytes, such as ``128m``; 0 is no size.

    Raises:
        OptionError: it is none.
    """
    return 0 if text.strip() == "0" else OptionValues({"--file-size": text}).size_bytes("--file-size", 0)


def on_data_loss(text: str) -> OnDataLoss:
    """What to do about records that are gone.

    Raises:
        JobUsageError: it is neither ``fail`` nor ``skip``.
    """
    if text == "fail":
        return "fail"
    if text == "skip":
        return "skip"
    raise JobUsageError(f"--on-data-loss {text!r} is neither fail nor skip.")
