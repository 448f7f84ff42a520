"""``rollway acls``: add, list, remove."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli import options
from app.cli.administration.keys import DataDir
from app.cli.command_errors import CommandError, UsageProblem
from app.cli.http_session import document_of, open_session
from app.cli.rendering import plural, print_entries, print_result

commands = typer.Typer(help="Add, list and remove access control lists, as in Kafka.", rich_markup_mode=None)

_KINDS = ("topic", "group", "transactional_id")

Principal = Annotated[
    str,
    typer.Option(
        "--principal",
        metavar="PRINCIPAL",
        help="User:name, Jwt:subject, Certificate:name, Type:* or *.",
        show_default=False,
    ),
]
Operations = Annotated[
    list[str],
    typer.Option("--operation", metavar="OPERATION", help="READ, WRITE, ...; repeatable.", show_default=False),
]
TopicPattern = Annotated[
    str | None,
    typer.Option("--topic", metavar="NAME", help="A topic; NAME* for a prefix, * for all.", show_default=False),
]
Group = Annotated[
    str | None,
    typer.Option("--group", metavar="NAME", help="A group; NAME* for a prefix, * for all.", show_default=False),
]
TransactionalId = Annotated[
    str | None,
    typer.Option(
        "--transactional-id",
        metavar="NAME",
        help="A transactional id; NAME* for a prefix, * for all.",
        show_default=False,
    ),
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The service as a whole.")]
Deny = Annotated[bool, typer.Option("--deny", help="Deny instead of allowing; a deny wins over every allow.")]


def pattern_of(topic: str | None, group: str | None, transactional_id: str | None, cluster: bool) -> dict[str, str]:
    """Return the resource that the options name, as in the HTTP interface.

    Raises:
        UsageProblem: they name none or several.
    """
    named = [(kind, name) for kind, name in zip(_KINDS, (topic, group, transactional_id), strict=True) if name]
    if cluster:
        named.append(("cluster", "kafka-cluster"))
    if len(named) != 1:
        raise UsageProblem("Name one of --topic, --group, --transactional-id and --cluster.")
    kind, name = named[0]
    is_prefix = name.endswith("*") and name != "*"
    return {
        "resource_type": kind,
        "resource_name": name.removesuffix("*") if is_prefix else name,
        "pattern_type": "prefixed" if is_prefix else "literal",
    }


@commands.command("add")
def add_acls(
    principal: Principal,
    operation: Operations,
    topic: TopicPattern = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    deny: Deny = False,
    data_dir: DataDir = None,
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Allow or deny a principal operations on a resource.

    READ, WRITE, DELETE and ALTER also allow DESCRIBE; ALTER_CONFIGS also allows DESCRIBE_CONFIGS.

    \b
    Examples:
      rollway acls add --principal User:orders --operation WRITE --topic 'orders.*'
      rollway acls add --principal User:prometheus --operation DESCRIBE --cluster
    """
    pattern = pattern_of(topic, group, transactional_id, cluster)
    entries = [
        {
            "principal": principal,
            "permission": "deny" if deny else "allow",
            "operation": name.upper().replace("-", "_"),
            **pattern,
        }
        for name in operation
    ]
    if data_dir is not None:
        added = _add_offline(data_dir, entries)
    else:
        with open_session(server, api_key) as session:
            added = session.send("POST", "/v1/acls", {"acls": entries})["data"]
    print_result({"added": added}, f"Added {plural(len(added), 'ACL')}.", as_json=as_json)


def _add_offline(data_dir: Any, entries: list[dict[str, str]]) -> list[dict[str, Any]]:
    # Imported late: no other command needs them.
    from app.access.access_documents import acl_from, describe_acl
    from app.cli.administration.offline_access import open_registry

    try:
        acls = [acl_from(entry) for entry in entries]
    except ValueError:
        names = ", ".join(entry["operation"] for entry in entries)
        raise CommandError(f"{names}: one of these is no operation.") from None
    with open_registry(data_dir) as registry:
        return [describe_acl(acl).model_dump() for acl in registry.add_acls(acls)]


@commands.command("list")
def list_acls(
    principal: Annotated[
        str | None,
        typer.Option("--principal", metavar="PRINCIPAL", help="Only entries of this principal.", show_default=False),
    ] = None,
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """List the access control entries.

    \b
    Examples:
      rollway acls list --principal User:orders
    """
    with open_session(server, api_key) as session:
        entries = session.get("/v1/acls", {"principal": principal} if principal else None)["data"]
    print_entries(
        "acls",
        entries,
        ["PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE"],
        ((entry["principal"], entry["permission"], entry["operation"], _resource(entry)) for entry in entries),
        if_none="There are no entries.",
        as_json=as_json,
    )


@commands.command("remove")
def remove_acls(
    principal: Principal,
    operation: Operations,
    topic: TopicPattern = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    deny: Deny = False,
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Remove the entries that acls add with the same options would add.

    \b
    Examples:
      rollway acls remove --principal User:orders --operation WRITE --topic 'orders.*'
    """
    pattern = pattern_of(topic, group, transactional_id, cluster)
    wanted = {"principal": principal, "permission": "deny" if deny else "allow", **pattern}
    removed: list[dict[str, Any]] = []
    with open_session(server, api_key) as session:
        for name in operation:
            params = {**wanted, "operation": name.upper().replace("-", "_")}
            removed += document_of(session.request("DELETE", "/v1/acls", params=params))["data"]
    print_result({"removed": removed}, f"Removed {plural(len(removed), 'ACL')}.", as_json=as_json)


def _resource(entry: dict[str, Any]) -> str:
    star = "*" if entry["pattern_type"] == "prefixed" else ""
    return f"{entry['resource_type']} {entry['resource_name']}{star}"
