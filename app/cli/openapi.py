"""``rollway openapi``: the OpenAPI document of this version, for generators of clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli import options
from app.main import current_document


def print_document(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to FILE instead of stdout.", show_default=False),
    ] = None,
    as_json: options.AsJson = False,  # noqa: ARG001 - it is JSON
) -> None:
    """Print the OpenAPI document of this version. No service needs to run.

    It is the document that a service of this version returns at /openapi.json.

    \b
    Examples:
      rollway openapi > openapi.json
      rollway openapi --output openapi.json
    """
    document = current_document()
    if output is None:
        typer.echo(document, nl=False)
    else:
        output.write_text(document, encoding="utf-8")
