"""``rollway keys``: create, list, revoke."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli import options
from app.cli.http_session import open_session, path_of
from app.cli.rendering import note, print_entries, print_json, print_result
from app.cli.timestamps import format_timestamp

commands = typer.Typer(help="Create, list and revoke API keys.", rich_markup_mode=None)

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Use a data directory without a running service.",
        show_default=False,
        parser=options.named_path,
    ),
]
Expires = Annotated[
    str | None,
    typer.Option(
        "--expires", metavar="TIME", help="Time of expiry; ms or RFC 3339. Never if absent.", show_default=False
    ),
]
Description = Annotated[str, typer.Option("--description", metavar="TEXT", help="Its purpose, for people.")]


@commands.command("create")
def create_key(
    principal: Annotated[
        str,
        typer.Option(
            "--principal", metavar="User:NAME", help="The principal of requests with this key.", show_default=False
        ),
    ],
    description: Description = "",
    expires: Expires = None,
    data_dir: DataDir = None,
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Create an API key and print it to stdout. It is shown only this once.

    The first key is created in the data directory, before the service starts.

    \b
    Examples:
      umask 077; rollway keys create --data-dir rollway-data --principal User:admin > admin.key
      rollway keys create --principal User:orders --expires 2030-01-01T00:00:00Z
    """
    ends = None if expires is None else options.moment(expires)
    if data_dir is not None:
        # Imported late: no other command needs them.
        from app.access.access_documents import describe_key
        from app.cli.administration.offline_access import open_registry

        with open_registry(data_dir) as registry:
            key, text = registry.create_key(principal, description, ends)
        made: dict[str, Any] = {**describe_key(key).model_dump(), "api_key": text}
    else:
        body = {"principal": principal, "description": description, "expires_at": ends}
        with open_session(server, api_key) as session:
            made = session.send("POST", "/v1/keys", body)
    if as_json:
        print_json(made)
    else:
        note(f"Key {made['key_id']} of {made['principal']}. Keep what follows: it cannot be shown again.")
        typer.echo(made["api_key"])


@commands.command("list")
def list_keys(
    data_dir: DataDir = None,
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """List the API keys, without their secrets.

    \b
    Examples:
      rollway keys list
    """
    if data_dir is not None:
        from app.access.access_documents import describe_key
        from app.cli.administration.offline_access import open_registry

        with open_registry(data_dir, may_make=False) as registry:
            keys = [describe_key(key).model_dump() for key in registry.keys.values()]
    else:
        with open_session(server, api_key) as session:
            keys = session.get("/v1/keys")["data"]
    print_entries(
        "keys",
        keys,
        ["KEY ID", "PRINCIPAL", "EXPIRES", "DESCRIPTION"],
        ((key["key_id"], key["principal"], ending(key["expires_at"]), key["description"]) for key in keys),
        if_none="There are no keys.",
        as_json=as_json,
    )


@commands.command("revoke")
def revoke_key(
    key_id: Annotated[
        str, typer.Argument(metavar="KEY_ID", help="Id of the key, as in keys list.", show_default=False)
    ],
    data_dir: DataDir = None,
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Revoke an API key and the tokens that it created, at once.

    \b
    Examples:
      rollway keys revoke 3f9c1e6b5a7d8042
    """
    if data_dir is not None:
        from app.cli.administration.offline_access import open_registry
        from app.cli.command_errors import CommandError

        with open_registry(data_dir, may_make=False) as registry:
            if registry.revoke_key(key_id) is None:
                raise CommandError("There is no such key.")
    else:
        with open_session(server, api_key) as session:
            session.delete(path_of("keys", key_id))
    print_result({"revoked": key_id}, f"Revoked key {key_id}.", as_json=as_json)


def ending(expires_at: int | None) -> str:
    """Return the expiry of a key or token for people."""
    return "never" if expires_at is None else format_timestamp(expires_at)
