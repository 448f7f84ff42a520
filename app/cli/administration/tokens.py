"""``rollway tokens``: create, list, revoke."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli import options
from app.cli.administration.acls import Operations, pattern_of
from app.cli.administration.keys import Description, ending
from app.cli.http_session import open_session, path_of
from app.cli.rendering import note, print_entries, print_json, print_result

commands = typer.Typer(
    help="Create, list and revoke tokens, which carry some of your rights for a time.", rich_markup_mode=None
)


@commands.command("create")
def create_token(
    operation: Operations,
    topic: Annotated[
        list[str],
        typer.Option("--topic", metavar="NAME", help="A topic; NAME* for a prefix; repeatable.", show_default=False),
    ],
    expires: Annotated[
        str, typer.Option("--expires", metavar="TIME", help="Time of expiry; ms or RFC 3339.", show_default=False)
    ],
    description: Description = "",
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Create a token and print it to stdout. It is shown only this once.

    It has the named rights, as long as its creator has them.

    \b
    Examples:
      rollway tokens create --operation READ --topic 'orders.*' --expires 2030-01-01T00:00:00Z
    """
    names = [name.upper().replace("-", "_") for name in operation]
    grants = [{"operations": names, **pattern_of(name, None, None, cluster=False)} for name in topic]
    body = {"grants": grants, "expires_at": options.moment(expires), "description": description}
    with open_session(server, api_key) as session:
        made: dict[str, Any] = session.send("POST", "/v1/tokens", body)
    if as_json:
        print_json(made)
    else:
        note(f"Token {made['token_id']} of {made['principal']}. Keep what follows: it cannot be shown again.")
        typer.echo(made["token"])


@commands.command("list")
def list_tokens(
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """List your tokens, without their secrets; with DESCRIBE on the cluster, all tokens.

    \b
    Examples:
      rollway tokens list
    """
    with open_session(server, api_key) as session:
        tokens = session.get("/v1/tokens")["data"]
    print_entries(
        "tokens",
        tokens,
        ["TOKEN ID", "PRINCIPAL", "EXPIRES", "DESCRIPTION"],
        ((each["token_id"], each["principal"], ending(each["expires_at"]), each["description"]) for each in tokens),
        if_none="There are no tokens.",
        as_json=as_json,
    )


@commands.command("revoke")
def revoke_token(
    token_id: Annotated[
        str, typer.Argument(metavar="TOKEN_ID", help="Id of the token, as in tokens list.", show_default=False)
    ],
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Revoke a token at once.

    \b
    Examples:
      rollway tokens revoke b07a4d2c91e35f68
    """
    with open_session(server, api_key) as session:
        session.delete(path_of("tokens", token_id))
    print_result({"revoked": token_id}, f"Revoked token {token_id}.", as_json=as_json)
