"""``rollway engine``: the engine of a service, and what it can do."""

from __future__ import annotations

from app.cli import options
from app.cli.http_session import open_session
from app.cli.rendering import print_json, print_table, say


def show_engine(
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Show the engine of a service and the table of its capabilities.

    A request that needs a missing capability is refused with unsupported_by_engine.

    \b
    Examples:
      rollway engine
      rollway engine --json | jq .capabilities.segments
    """
    with open_session(server, api_key) as session:
        engine = session.get("/v1/engine")
    if as_json:
        print_json(engine)
        return
    say(f"Engine {engine['engine']}, version {engine['version']}.")
    print_table(["CAPABILITY", "AVAILABLE"], list(engine["capabilities"].items()))
