"""``rollway serve``: the service itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from app.cli.command_errors import UsageProblem
from app.cli.topics import parse_config


def serve_command(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help="Where the records lie; made when absent. [env: ROLLWAY_DATA_DIR]",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host", metavar="HOST", help="Address to listen on. [env: ROLLWAY_HOST]", show_default="127.0.0.1"
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            metavar="PORT",
            help="Port; 0 picks a free one. [env: ROLLWAY_PORT]",
            show_default="8080",
        ),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(
            "--log-level",
            metavar="LEVEL",
            help="debug, info, warning or error. [env: ROLLWAY_LOG_LEVEL]",
            show_default="info",
        ),
    ] = None,
    topic_default: Annotated[
        list[str] | None,
        typer.Option(
            "--topic-default",
            metavar="NAME=VALUE",
            show_default=False,
            help="Default of a topic setting, by Kafka's name; repeatable. [env: ROLLWAY_TOPIC_DEFAULTS]",
        ),
    ] = None,
) -> None:
    """Run the service until SIGTERM or Ctrl-C.

    Prints one line with its address when it is ready. Options beat the environment, which beats the settings file.

    \b
    Examples:
      rollway serve
      rollway serve --data-dir /var/lib/rollway --host 0.0.0.0 --port 8080
      rollway serve --port 0 --topic-default retention.ms=86400000
    """
    # Imported late: no other command needs the service, and each would start slower with it.
    from app.server import serve
    from app.settings import Settings

    given: dict[str, Any] = {"data_dir": data_dir, "host": host, "port": port, "log_level": log_level}
    if topic_default:
        given["topic_defaults"] = parse_config(topic_default)
    try:
        settings = Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        raise UsageProblem(_sentence(error)) from None
    raise typer.Exit(serve(settings))


def _sentence(error: ValidationError) -> str:
    reasons = (
        f"{'.'.join(str(part) for part in each['loc']) or 'settings'}: {each['msg'].removeprefix('Value error, ')}"
        for each in error.errors()
    )
    return f"The settings are wrong: {'; '.join(reasons)}."
