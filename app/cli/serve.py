"""``rollway serve``: the service itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli import standard_streams
from app.cli.command_errors import UsageProblem
from app.cli.options import named_path, parse_config

LogLevel = Annotated[
    str | None,
    typer.Option(
        "--log-level", metavar="LEVEL", help="debug, info, warning or error; info if absent.", show_default=False
    ),
]
LogFormat = Annotated[
    str | None,
    typer.Option(
        "--log-format", metavar="FORMAT", help="text (if absent), or json: an object per line.", show_default=False
    ),
]

TopicDefaults = Annotated[
    list[str] | None,
    typer.Option(
        "--topic-default",
        metavar="NAME=VALUE",
        help="Default of a topic setting, by Kafka's name; repeatable.",
        show_default=False,
    ),
]
Authentication = Annotated[
    bool, typer.Option("--authentication", help="Authenticate every request, and authorise it by ACLs.")
]
SuperUsers = Annotated[
    list[str] | None,
    typer.Option(
        "--super-user",
        metavar="PRINCIPAL",
        help="A principal that may do everything, such as User:admin; repeatable.",
        show_default=False,
    ),
]

AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host",
        metavar="NAME",
        help="Name accepted in Host beside localhost: .name for all below it, * for all; repeatable.",
        show_default=False,
    ),
]


DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Directory for all data, rollway-data if absent; created if necessary.",
        parser=named_path,
        show_default=False,
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=0,
        max=65535,
        metavar="PORT",
        help="Port to listen on; 8080 if absent, 0: a free one.",
        show_default=False,
    ),
]


def serve_command(
    data_dir: DataDir = None,
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="HOST", help="Address to listen on; 127.0.0.1 if absent.", show_default=False),
    ] = None,
    port: Port = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    topic_default: TopicDefaults = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="TOML file with any of the settings.",
            show_default=False,
            parser=named_path,
        ),
    ] = None,
    authentication: Authentication = False,
    super_user: SuperUsers = None,
    allowed_host: AllowedHosts = None,
    insecure_no_authentication: Annotated[
        bool,
        typer.Option("--insecure-no-authentication", help="Allow a non-loopback host without authentication."),
    ] = False,
) -> None:
    """Run the service until SIGTERM, SIGHUP or Ctrl-C.

    It prints one line with its address when it is ready. Options win over the environment (ROLLWAY_DATA_DIR,
    ROLLWAY_PORT, ...), which wins over the settings file.

    \b
    Examples:
      rollway serve
      rollway serve --data-dir /var/lib/rollway --port 9080
      rollway serve --port 0 --topic-default retention.ms=86400000
    """
    # Imported late: no other command needs the service, and each would start more slowly with it.
    from app.server.server import serve
    from app.settings import SettingsError, load_settings

    given: dict[str, Any] = {
        "data_dir": data_dir,
        "host": host,
        "port": port,
        "log_level": log_level,
        "log_format": log_format,
        "topic_defaults": parse_config(topic_default, "--topic-default") or None,
        "config": config,
        "authentication": authentication or None,
        "super_users": super_user or None,
        "allowed_hosts": allowed_host or None,
        "insecure_no_authentication": insecure_no_authentication or None,
    }
    try:
        settings = load_settings(**{name: value for name, value in given.items() if value is not None})
    except SettingsError as error:
        raise UsageProblem(str(error)) from None
    status = serve(settings)
    # The reader of the ready line may have gone.
    standard_streams.flush_if_possible()
    raise typer.Exit(status)
