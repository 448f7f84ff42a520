"""``rollway jobs``: list, describe, abort."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli import options
from app.cli.http_session import open_session, path_of
from app.cli.rendering import print_entries, print_json, print_table, say
from app.cli.timestamps import format_timestamp

commands = typer.Typer(help="List, describe and abort load jobs.", rich_markup_mode=None)

JobId = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")]


@commands.command("list")
def list_jobs(
    state: Annotated[
        str, typer.Option("--state", metavar="STATE", help="all, open, committing, committed, aborting or aborted.")
    ] = "all",
    application: Annotated[
        str, typer.Option("--application", metavar="ID", help="Only jobs of this application.")
    ] = "",
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """List load jobs, the newest first.

    \b
    Examples:
      rollway jobs list
      rollway jobs list --state open --json
    """
    params = {"state": state, **({"application_id": application} if application else {})}
    with open_session(server, api_key) as session:
        found = session.pages("/v1/jobs", params)
    print_entries(
        "jobs",
        found,
        ["JOB", "APPLICATION", "VERSION", "STATE", "ROWS", "BYTES", "ROWS/S", "BEGUN"],
        (
            (
                each["job_id"],
                each["application_id"],
                each["version"],
                each["state"],
                each["rows"],
                each["size_bytes"],
                each["rows_per_second"],
                format_timestamp(each["begin_timestamp"]),
            )
            for each in found
        ),
        if_none="There is no such load job.",
        as_json=as_json,
    )


@commands.command("describe")
def describe_job(
    job_id: JobId,
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Show the progress of a load job, and the records it has written to each partition.

    \b
    Examples:
      rollway jobs describe 9f86d081884c7d65
    """
    with open_session(server, api_key) as session:
        found = session.get(path_of("jobs", job_id))
    if as_json:
        print_json(found)
        return
    reason = "" if found["reason"] is None else f" ({found['reason']})"
    say(
        f"{job_id} loads version {found['version']} of {found['application_id']} and is {found['state']}{reason}: "
        f"{found['task_count']} tasks, {found['rows']} rows, {found['size_bytes']} bytes, "
        f"{found['rows_per_second']} rows/s, {found['bytes_per_second']} bytes/s."
    )
    if found["partitions"]:
        rows = [(each["topic"], each["partition"], each["rows"], each["size_bytes"]) for each in found["partitions"]]
        print_table(["TOPIC", "PARTITION", "ROWS", "BYTES"], rows)


@commands.command("abort")
def abort_job(
    job_id: JobId,
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Abort an open load job. A committed one stays committed.

    \b
    Examples:
      rollway jobs abort 9f86d081884c7d65
    """
    with open_session(server, api_key) as session:
        ended = session.send("POST", path_of("jobs", job_id, "abort"))
    if as_json:
        print_json(ended)
    else:
        say(f"Load job {job_id} is {ended['state']}.")
