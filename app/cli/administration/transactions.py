"""``rollway transactions``: list, describe, abort."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli import options
from app.cli.command_errors import CommandError
from app.cli.http_session import open_session, path_of
from app.cli.rendering import print_entries, print_json, print_result, print_table, say
from app.cli.timestamps import format_timestamp

commands = typer.Typer(help="List, describe and abort transactions.", rich_markup_mode=None)

TransactionalId = Annotated[str, typer.Argument(metavar="ID", help="Transactional id of the producer.")]


@commands.command("list")
def list_transactions(
    state: Annotated[
        str, typer.Option("--state", metavar="STATE", help="open, all, or one state, such as ongoing.")
    ] = "open",
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """List open transactions, or transactions in another state.

    \b
    Examples:
      rollway transactions list
      rollway transactions list --state all --json
    """
    with open_session(server, api_key) as session:
        found = session.pages("/v1/transactions", {"state": state})
    print_entries(
        "transactions",
        found,
        ["TRANSACTIONAL ID", "STATE", "PRODUCER ID", "EPOCH", "PARTITIONS", "SINCE"],
        (
            (
                each["transactional_id"],
                each["state"],
                each["producer_id"],
                each["producer_epoch"],
                each["partition_count"],
                format_timestamp(each["last_update_timestamp"]),
            )
            for each in found
        ),
        if_none="No transaction is open." if state == "open" else f"There is no transaction: {state}.",
        as_json=as_json,
    )


@commands.command("describe")
def describe_transaction(
    transactional_id: TransactionalId,
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Show one transaction, its partitions, and the reason if it has not ended yet.

    \b
    Examples:
      rollway transactions describe orders-loader
    """
    with open_session(server, api_key) as session:
        found = session.get(path_of("transactions", transactional_id))
    if as_json:
        print_json(found)
        return
    say(
        f"{transactional_id} is {found['state']}: producer {found['producer_id']}, epoch {found['producer_epoch']}, "
        f"timeout {found['transaction_timeout_ms']} ms."
    )
    if found["partitions"]:
        rows = [(each["topic"], each["partition"], each.get("waits_for")) for each in found["partitions"]]
        print_table(["TOPIC", "PARTITION", "WAITS FOR"], rows)


@commands.command("abort")
def abort_transaction(
    transactional_id: TransactionalId,
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Abort an open transaction for its producer, and fence the producer.

    Readers of committed records never see the records of the transaction. If the producer still runs, its next request
    is refused, and it must begin again.

    \b
    Examples:
      rollway transactions abort orders-loader
    """
    with open_session(server, api_key) as session:
        found = session.get(path_of("transactions", transactional_id))
        state = found["state"]
        if state == "prepare_abort":
            raise CommandError(
                f"The transaction of {transactional_id} is being aborted already. "
                "See what it waits for: rollway transactions describe."
            )
        if state == "prepare_commit":
            raise CommandError(f"The transaction of {transactional_id} is being committed: it cannot be aborted.")
        if state != "ongoing":
            # The service would accept the abort, and fence a producer that is between two transactions.
            raise CommandError(f"{transactional_id} has no open transaction: it is {state}.")
        producer = {name: found[name] for name in ("producer_id", "producer_epoch")}
        ended = session.send("POST", path_of("transactions", transactional_id, "abort"), producer)
    print_result(ended, f"The transaction of {transactional_id} is aborted.", as_json=as_json)
