"""``rollway log``: dump and verify."""

from __future__ import annotations

import typer

from app.cli.log_files import log_dump, log_verify

commands = typer.Typer(help="Inspect a data directory, without a server.", rich_markup_mode=None)
commands.command("dump")(log_dump.dump_log)
commands.command("verify")(log_verify.verify_log)
