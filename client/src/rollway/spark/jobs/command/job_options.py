"""Options of jobs on the command line, and their values."""

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
ToUrl = Annotated[str | None, typer.Option("--to-url", metavar="URL", help="Service of the other topic; else --url.")]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Format = Annotated[
    str, typer.Option("--format", "-f", metavar="NAME", help="csv, json, parquet, orc, text, avro; else by file name.")
]
FileSchema = Annotated[
    str | None,
    typer.Option("--schema", metavar="DDL", help="Columns and types; else the files' own, in CSV all text."),
]
ReadOptions = Annotated[
    list[str] | None, typer.Option("--read-option", metavar="KEY=VALUE", help="Option of Spark's reader; repeatable.")
]
Where = Annotated[str | None, typer.Option("--where", metavar="EXPR", help="Condition for the rows to keep.")]
Key = Annotated[str | None, typer.Option("--key", metavar="EXPR", help="Key of the record.")]
Value = Annotated[
    str | None,
    typer.Option("--value", metavar="EXPR", help="Value; else the line of JSON or text, or the row as JSON."),
]
Timestamp = Annotated[
    str | None, typer.Option("--timestamp", metavar="EXPR", help="Timestamp, date, string, or milliseconds; else now.")
]
Headers = Annotated[
    str | None, typer.Option("--headers", metavar="EXPR", help="Headers: a map, or an array of key-value structs.")
]
Start = Annotated[
    str, typer.Option("--from", metavar="PLACE", help='earliest, latest, a time, or offsets such as {"0": 1200}.')
]
End = Annotated[str, typer.Option("--until", metavar="PLACE", help="End of the range, as for --from; exclusive.")]
ByKey = Annotated[bool, typer.Option("--by-key", help="Let keys decide the partition instead of keeping it.")]
FileSize = Annotated[
    str, typer.Option("--file-size", metavar="SIZE", help="Size of a file: 64m; 0: one per partition and hour.")
]
TargetConfig = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="KEY=VALUE",
        help="Setting of TO, if it is created; an existing TO must have it already.",
    ),
]
AppId = Annotated[
    str | None, typer.Option("--app-id", metavar="ID", help="Application of the load; each --version is loaded once.")
]
AppVersion = Annotated[int | None, typer.Option("--version", metavar="N", help="Version of the application's load.")]
OnLoss = Annotated[
    str, typer.Option("--on-data-loss", metavar="WHAT", help="fail, or skip: go on with the records that are left.")
]
FormatOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="KEY=VALUE",
        help='Option of format("rollway") or Kafka: for writes if the job writes, for reads if it reads.',
    ),
]
ToFormatOptions = Annotated[
    list[str] | None,
    typer.Option("--to-option", metavar="KEY=VALUE", help="Option for the other topic; else --option holds for both."),
]
SkipRejects = Annotated[bool, typer.Option("--skip-rejects", help="Leave out rows that cannot be records.")]
RejectsTopic = Annotated[
    str | None, typer.Option("--rejects-topic", metavar="TOPIC", help="Topic for rows that cannot be records.")
]
RejectsTo = Annotated[
    str | None, typer.Option("--rejects-to", metavar="FOLDER", help="Folder for rows that cannot be records.")
]
AllowExpired = Annotated[
    bool, typer.Option("--allow-expired", help="Also accept records that are older than the topic keeps.")
]
MaxRejects = Annotated[
    int | None, typer.Option("--max-rejects", metavar="N", help="With more rejected rows nothing is loaded.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, report the plan, write nothing.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


def pairs(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    """Parse the ``KEY=VALUE`` texts of a repeated option.

    Raises:
        JobUsageError: a text has no ``=``.
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
    """Return unless an option with one of these parameters is given: it is for ``purpose``, and would be ignored.

    Raises:
        JobUsageError: such an option is given.
    """
    for parameter in context.command.params:
        if parameter.name in names and context.params[parameter.name]:
            raise JobUsageError(f"{parameter.opts[0]} is for {purpose}.")


def address(topic: str, url: str, format_options: Sequence[str] | None) -> TopicAddress:
    """Return a topic of a Rollway service. ``format("rollway")`` also finds a token in ``ROLLWAY_API_KEY``."""
    return TopicAddress(topic=topic, url=url, options=pairs("--option", format_options))


def topic_address(topic: str, url: str, kafka: str | None, given: Mapping[str, str]) -> TopicAddress:
    """Return a topic of Kafka if its servers are given, else one of a Rollway service."""
    if kafka is None:
        return TopicAddress(topic=topic, url=url, options=given)
    return TopicAddress(topic=topic, url=kafka, format="kafka", options=given)


def options_of_both(
    format_options: Sequence[str] | None, to_format_options: Sequence[str] | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options of the topic to read and of the topic to write.

    Without ``--to-option``, the options of ``--option`` are divided between the two.
    """
    given = pairs("--option", format_options)
    return divided(given) if to_format_options is None else (given, pairs("--to-option", to_format_options))


def file_bytes(text: str) -> int:
    """Parse a size in bytes, such as ``128m``; 0 is also allowed.

    Raises:
        OptionError: the text is no size.
    """
    return 0 if text.strip() == "0" else OptionValues({"--file-size": text}).size_bytes("--file-size", 0)


def on_data_loss(text: str) -> OnDataLoss:
    """Parse the reaction to records that are gone.

    Raises:
        JobUsageError: it is neither ``fail`` nor ``skip``.
    """
    if text == "fail":
        return "fail"
    if text == "skip":
        return "skip"
    raise JobUsageError(f"--on-data-loss {text!r} is neither fail nor skip.")
