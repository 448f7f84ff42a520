"""``rollway retention``: plan, run."""

from __future__ import annotations

from typing import Any

import typer

from app.cli import options
from app.cli.http_session import open_session, topic_path
from app.cli.rendering import format_bytes, plural, print_json, print_table, say
from app.cli.timestamps import format_timestamp

commands = typer.Typer(help="Show the plan of retention, and run it now.", rich_markup_mode=None)


@commands.command("plan")
def plan_retention(
    topic: options.Topic,
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Show the segments that retention would delete, with the rule, and the reason why others stay.

    \b
    Examples:
      rollway retention plan flights
      rollway retention plan flights --json
    """
    with open_session(server, api_key) as session:
        plan = session.get(topic_path(topic, "retention", "plan"))
    if as_json:
        print_json(plan)
        return
    rows = [_plan_row(entry, segment) for entry in plan["partitions"] for segment in entry["segments"]]
    print_table(["PARTITION", "BASE OFFSET", "SIZE", "LARGEST TIMESTAMP", "DELETE", "WHY", "DUE"], rows)


def _plan_row(partition: dict[str, Any], segment: dict[str, Any]) -> tuple[object, ...]:
    return (
        partition["partition"],
        segment["base_offset"],
        format_bytes(segment["size_bytes"]),
        format_timestamp(segment.get("largest_timestamp")),
        segment["deleted"],
        segment.get("reason") or segment.get("held_by"),
        format_timestamp(segment.get("due_ms")),
    )


@commands.command("run")
def run_retention(
    topic: options.Topic,
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Apply the topic's retention now, before the next check.

    \b
    Examples:
      rollway retention run flights
      rollway topics alter flights -c retention.bytes=10485760 && rollway retention run flights
    """
    with open_session(server, api_key) as session:
        answer = session.send("POST", topic_path(topic, "retention", "run"))
    if as_json:
        print_json(answer)
        return
    deleted = answer["deleted"]
    if not deleted:
        say(f"Nothing of {topic} is due for deletion.")
        return
    print_table(
        ["PARTITION", "BASE OFFSET", "SIZE", "WHY"],
        [
            (each["partition"], each["base_offset"], format_bytes(each["size_bytes"]), each["reason"])
            for each in deleted
        ],
    )
    size = sum(each["size_bytes"] for each in deleted)
    say(f"Deleted {plural(len(deleted), 'segment')}, {format_bytes(size)}.")
