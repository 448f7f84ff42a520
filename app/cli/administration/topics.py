"""``rollway topics``: create, list, describe, alter, delete."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from app.cli import options
from app.cli.command_errors import UsageProblem
from app.cli.http_session import document_of, open_session, topic_path
from app.cli.rendering import format_bytes, plural, print_entries, print_json, print_result, print_table, say

commands = typer.Typer(help="Create, list, describe, alter and delete topics.", rich_markup_mode=None)

Config = Annotated[
    list[str] | None,
    typer.Option(
        "--config", "-c", metavar="NAME=VALUE", help="A setting, by Kafka's name; repeatable.", show_default=False
    ),
]


@commands.command("create")
def create_topic(
    topic: options.Topic,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, metavar="N", help="Number of partitions.")
    ] = 1,
    config: Config = None,
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Create a topic, unless it exists with the same partitions and settings.

    A second call with the same options changes nothing. With other partitions or settings it is refused.

    \b
    Examples:
      rollway topics create orders
      rollway topics create flights --partitions 6 --config retention.ms=-1 --config segment.bytes=1048576
    """
    with open_session(server, api_key) as session:
        answer = session.request(
            "PUT", topic_path(topic), body={"partitions": partitions, "config": options.parse_config(config)}
        )
    created = answer.status_code == 201
    made = document_of(answer)
    name = made["name"]
    count = plural(partitions, "partition")
    sentence = (
        f"Created topic {name} with {count}."
        if created
        else f"Topic {name} already exists with {count} and these settings."
    )
    print_result({**made, "created": created}, sentence, as_json=as_json)


@commands.command("list")
def list_topics(
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Only names that begin with TEXT.")] = "",
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """List the topics.

    \b
    Examples:
      rollway topics list
      rollway topics list --prefix orders. --json
    """
    with open_session(server, api_key) as session:
        topics = session.pages("/v1/topics", {"prefix": prefix} if prefix else {})
    print_entries(
        "topics",
        topics,
        ["TOPIC", "PARTITIONS", "TOPIC ID"],
        ((topic["name"], _partition_count(topic), topic.get("topic_id")) for topic in topics),
        if_none="There are no topics." if not prefix else f"No topic begins with {prefix}.",
        as_json=as_json,
    )


def _partition_count(topic: dict[str, Any]) -> object:
    partitions = topic.get("partitions")
    return len(partitions) if isinstance(partitions, list) else topic.get("partition_count", partitions)


@commands.command("describe")
def describe_topic(
    topic: options.Topic,
    all_settings: Annotated[bool, typer.Option("--all", help="Also show settings with Kafka's default.")] = False,
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Show a topic's partitions and settings.

    \b
    Examples:
      rollway topics describe flights
      rollway topics describe flights --all
      rollway topics describe flights --json | jq '.partitions[].high_watermark'
    """
    with open_session(server, api_key) as session:
        answer = session.get(topic_path(topic))
    if as_json:
        print_json(answer)
        return
    _print_topic(answer, all_settings=all_settings)


def _print_topic(topic: dict[str, Any], *, all_settings: bool) -> None:
    say(f"Topic {topic['name']}, id {topic['topic_id']}, {plural(len(topic['partitions']), 'partition')}.")
    print_table(
        ["PARTITION", "LOG START", "HIGH WATERMARK", "LOG END", "RECOVERY POINT", "SIZE", "SEGMENTS", "EPOCH"],
        [
            (
                partition["partition"],
                partition.get("log_start_offset"),
                partition.get("high_watermark"),
                partition.get("log_end_offset"),
                partition.get("recovery_point"),
                format_bytes(partition.get("size_bytes", 0)),
                _segment_count(partition),
                partition.get("leader_epoch"),
            )
            for partition in topic["partitions"]
        ],
    )
    settings = [
        (name, _setting_text(setting["value"]), setting["source"])
        for name, setting in topic["config"].items()
        if all_settings or setting["source"] != "default"
    ]
    if settings:
        print_table(["SETTING", "VALUE", "SOURCE"], settings)


def _segment_count(partition: dict[str, Any]) -> object:
    segments = partition.get("segments")
    return len(segments) if isinstance(segments, list) else segments


def _setting_text(value: object) -> str:
    """Return a setting as it is typed, without separators between thousands."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@commands.command("alter")
def alter_topic(
    topic: options.Topic,
    config: Config = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            "--unset", metavar="NAME", help="Reset this setting to its default; repeatable.", show_default=False
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, metavar="N", help="Grow to N partitions.", show_default=False),
    ] = None,
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Change a topic's settings, or add partitions.

    Settings that are not named stay the same. Partitions can only be added; keys may go to other partitions afterwards.

    \b
    Examples:
      rollway topics alter flights --config retention.bytes=10485760
      rollway topics alter flights --unset retention.bytes
      rollway topics alter flights --partitions 12
    """
    changes: dict[str, object] = dict(options.parse_config(config))
    for name in unset or []:
        if name in changes:
            raise UsageProblem(f"{name} cannot be both set and unset.")
        changes[name] = None
    if not changes and partitions is None:
        raise UsageProblem("Nothing to change: give --config, --unset or --partitions.")
    body: dict[str, object] = {}
    if changes:
        body["config"] = changes
    if partitions is not None:
        body["partitions"] = partitions
    with open_session(server, api_key) as session:
        answer = session.send("PATCH", topic_path(topic), body)
    if as_json:
        print_json(answer)
    else:
        say(f"Altered topic {answer['name']}.")


@commands.command("delete")
def delete_topic(
    topic: options.Topic,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without a prompt.")] = False,
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Delete a topic with all its records.

    On a terminal it prompts first. Elsewhere it needs --yes.

    \b
    Examples:
      rollway topics delete flights
      rollway topics delete flights --yes
    """
    if not yes:
        if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageProblem(f"Deleting {topic} with all its records needs --yes here.")
        typer.confirm(f"Delete topic {topic} with all its records?", abort=True, err=True)
    with open_session(server, api_key) as session:
        session.delete(topic_path(topic))
    print_result({"deleted": topic}, f"Deleted topic {topic}.", as_json=as_json)
