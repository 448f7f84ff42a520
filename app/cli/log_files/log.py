"""``rollway log``: dump, verify, export and import."""

from __future__ import annotations

import typer

from app.cli.log_files import log_dump, log_export, log_import, log_verify

commands = typer.Typer(
    help="Inspect a data directory, or move it to or from Kafka, without a server.", rich_markup_mode=None
)
commands.command("dump")(log_dump.dump_log)
commands.command("verify")(log_verify.verify_log)
commands.command("export")(log_export.export_log)
commands.command("import")(log_import.import_log)
