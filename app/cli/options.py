"""Options that many commands share."""

from __future__ import annotations

from typing import Annotated

import typer

DEFAULT_SERVER = "http://127.0.0.1:8080"

Server = Annotated[
    str, typer.Option("--server", "-s", envvar="ROLLWAY_SERVER", metavar="URL", help="Address of the service.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False)]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, metavar="N", help="This partition alone.", show_default=False)
]
