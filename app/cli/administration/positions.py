"""``rollway positions``: the start positions of groups of readers."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from app.cli import options
from app.cli.command_errors import AnswerError
from app.cli.http_session import open_session, path_of
from app.cli.rendering import plural, print_json, print_table, say

commands = typer.Typer(help="Show and delete start positions of groups.", rich_markup_mode=None)

GroupId = Annotated[str, typer.Argument(metavar="GROUP", help="Id of the group.")]


def _path(group_id: str) -> str:
    return path_of("groups", group_id, "start-positions")


def _rows(document: dict[str, Any]) -> list[tuple[str, int, int]]:
    try:
        return [
            (topic, int(partition), offset)
            for topic, offsets in document["positions"].items()
            for partition, offset in offsets.items()
        ]
    except (ValueError, AttributeError):
        raise AnswerError("The answer's positions are none; is this the address of a Rollway service?") from None


@commands.command("show")
def show_positions(
    group_id: GroupId,
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Show the start positions of a group.

    \b
    Examples:
      rollway positions show flights-dashboard
    """
    with open_session(server, api_key) as session:
        found = session.get(_path(group_id))
    if as_json:
        print_json(found)
    elif not found["positions"]:
        say(f"Nothing is pinned for group {group_id}.")
    else:
        print_table(["TOPIC", "PARTITION", "OFFSET"], _rows(found))


@commands.command("delete")
def delete_positions(
    group_id: GroupId,
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="Only positions in this topic.")] = "",
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Delete the start positions of a group. Its next query pins new ones.

    \b
    Examples:
      rollway positions delete flights-dashboard --topic flights
    """
    query = f"?{urlencode({'topic': topic})}" if topic else ""
    with open_session(server, api_key) as session:
        gone = session.send("DELETE", f"{_path(group_id)}{query}", None)
    if as_json:
        print_json(gone)
    else:
        say(f"Forgot {plural(len(_rows(gone)), 'start position')} of group {group_id}.")
