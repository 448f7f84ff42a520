"""Options that many commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.command_errors import UsageProblem
from app.cli.timestamps import parse_timestamp

DEFAULT_SERVER = "http://127.0.0.1:8080"

# No setting has a longer number, and Python parses none of thousands of digits.
_DIGITS_MAX = 40

Server = Annotated[
    str, typer.Option("--server", "-s", envvar="ROLLWAY_SERVER", metavar="URL", help="Address of the service.")
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        envvar="ROLLWAY_API_KEY",
        metavar="KEY",
        help="API key, token or JWT; better in ROLLWAY_API_KEY, as other users can read command lines.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False)]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, metavar="N", help="Only this partition.", show_default=False)
]


def named_path(text: str) -> Path:
    """Parse a path from the command line. An empty one, from a variable that is not set, would be the working
    directory.

    Raises:
        BadParameter: it is empty.
    """
    if not text:
        raise typer.BadParameter("it is empty; name a path")
    return Path(text)


def moment(text: str, prefix: str = "") -> int:
    """Parse a time of an option; return milliseconds since the epoch.

    Raises:
        UsageProblem: the text is no time; the message begins with ``prefix``.
    """
    try:
        return parse_timestamp(text)
    except ValueError as error:
        raise UsageProblem(f"{prefix}{error}.") from None


def parse_config(settings: list[str] | None, option: str = "--config") -> dict[str, object]:
    """Parse settings from ``NAME=VALUE`` words. Whole numbers, true and false become values of these types.

    Raises:
        UsageProblem: a word has no ``=``.
    """
    config: dict[str, object] = {}
    for setting in settings or []:
        name, separator, value = setting.partition("=")
        if not separator or not name:
            raise UsageProblem(f"{option} needs NAME=VALUE, as in retention.ms=86400000, not {setting!r}.")
        if value.removeprefix("-").isdecimal() and value.isascii() and len(value) <= _DIGITS_MAX:
            config[name] = int(value)
        else:
            config[name] = {"true": True, "false": False}.get(value, value)
    return config
