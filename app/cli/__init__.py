"""The ``rollway`` command: it runs a service, asks a running one, or reads a data directory without any service.

``main`` is the entry point. Commands print results to stdout and everything else to stderr. Exit status: 0 done, 1
refused or damaged (one sentence says why), 2 a wrong command line, 130 Ctrl-C, 141 a closed pipe, as in ``fetch |
head``, which is no error. With ``--json`` a refusal is one line of JSON: it has the sentence that says why and, if
the service refused, its problem document.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from itertools import takewhile
from typing import Annotated

import typer

from app.cli import standard_streams
from app.cli.command_errors import EXIT_BROKEN_PIPE, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, CommandError
from app.cli.json_text import json_text
from rollway.printable import escape_unprintable

_PLACES = {
    "serve": "serve:serve_command",
    "topics": "administration.topics:commands",
    "produce": "records.produce:produce_records",
    "fetch": "records.fetch:fetch_records",
    "tail": "records.fetch:tail_records",
    "offsets": "records.offsets:show_offsets",
    "retention": "administration.retention:commands",
    "keys": "administration.keys:commands",
    "acls": "administration.acls:commands",
    "tokens": "administration.tokens:commands",
    "transactions": "administration.transactions:commands",
    "jobs": "administration.jobs:commands",
    "positions": "administration.positions:commands",
    "log": "log_files.log:commands",
    "engine": "administration.engine:show_engine",
    "openapi": "openapi:print_document",
}
"""The module and the function of each command, in the order of the help."""


def make_application(names: Iterable[str] = _PLACES) -> typer.Typer:
    """Make the command line with these commands. Only their modules are imported: imports take most of the time."""
    application = typer.Typer(
        name="rollway",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    application.callback()(_root)
    for name in names:
        module, _, attribute = _PLACES[name].partition(":")
        command = getattr(import_module(f"app.cli.{module}"), attribute)
        if isinstance(command, typer.Typer):
            application.add_typer(command, name=name)
        else:
            application.command(name)(command)
    return application


def _names_for(arguments: Sequence[str]) -> Iterable[str]:
    """Return the command in the arguments, or all commands if there is none: to list them or to suggest one."""
    name = next((argument for argument in arguments if not argument.startswith("-")), None)
    return [name] if name in _PLACES else _PLACES


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rollway {version('rollway-server')}")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Kafka's log behind an HTTP API.

    Commands that call a service take its address from --server, or ROLLWAY_SERVER, and the key from --api-key, or
    ROLLWAY_API_KEY. Every command except serve has --json for programs.

    \b
    Examples:
      rollway serve --data-dir rollway-data
      rollway topics create orders --partitions 3
      rollway produce orders orders.txt
      rollway fetch orders --tail 10
      rollway log verify rollway-data
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status. Errors that a user can cause are printed, not raised."""
    as_json = "--json" in takewhile(lambda argument: argument != "--", arguments)
    try:
        application = make_application(_names_for(arguments))
        status = application(list(arguments) or ["--help"], prog_name="rollway", standalone_mode=False)
        sys.stdout.flush()
    except CommandError as error:
        return _fail(str(error), error.exit_status, as_json=as_json, problem=error.problem)
    except typer.TyperException as error:
        return _fail(error.format_message().replace("Value error, ", ""), error.exit_code, as_json=as_json)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except SystemExit as error:
        # Typer ends with status 1 if the reader of a pipe has gone.
        if not _is_broken_pipe(error.__context__):
            raise
        return _end_without_reader()
    except BrokenPipeError:
        return _end_without_reader()
    except OSError as error:
        if error.filename == standard_streams.STANDARD_OUTPUT:
            standard_streams.abandon_output()
        return _fail(f"{error.filename or 'A file'}: {error.strerror}.", EXIT_FAILED, as_json=as_json)
    except UnicodeEncodeError:
        # Python shows bytes that are not UTF-8 as lone surrogates, which no request can carry.
        odd = next((argument for argument in arguments if not _is_utf8(argument)), None)
        if odd is None:
            raise
        return _fail(f"The argument {odd!r} is not UTF-8.", EXIT_USAGE, as_json=as_json)
    return status if isinstance(status, int) else 0


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _is_broken_pipe(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def _end_without_reader() -> int:
    standard_streams.abandon_output()
    return EXIT_BROKEN_PIPE


def _fail(sentence: str, status: int, *, as_json: bool, problem: Mapping[str, object] | None = None) -> int:
    if as_json:
        typer.echo(json_text({"error": sentence, "exit_status": status, "problem": problem}), err=True)
    else:
        typer.echo(f"rollway: {escape_unprintable(sentence, keep_lines=True)}", err=True)
    return status


def main() -> None:
    """Run the console script ``rollway``."""
    standard_streams.prepare()
    sys.exit(run(sys.argv[1:]))
