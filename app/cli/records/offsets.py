"""``rollway offsets``: offsets of partitions by time."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli import options
from app.cli.command_errors import UsageProblem
from app.cli.http_session import Session, error_of_problem, open_session
from app.cli.rendering import print_json, print_table
from app.cli.timestamps import format_timestamp, parse_timestamp

SPECIAL_POINTS = ("earliest", "latest", "max_timestamp")


def show_offsets(
    topic: options.Topic,
    partition: options.Partition = None,
    timestamp: Annotated[
        list[str] | None,
        typer.Option(
            "--timestamp",
            "-t",
            metavar="TIME",
            help="Milliseconds, RFC 3339, earliest, latest or max_timestamp; repeatable.",
            show_default=False,
        ),
    ] = None,
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Show offsets by time: earliest, latest, latest timestamp, or the first record at or after a time.

    For a time it shows the first record by offset whose timestamp is not before the time, or a dash if there is none.

    \b
    Examples:
      rollway offsets flights
      rollway offsets flights --timestamp 2013-07-04T00:00:00-04:00
      rollway offsets flights -p 0 -t 1372910400000 -t latest --json
    """
    points = [_point(text) for text in timestamp or SPECIAL_POINTS]
    with open_session(server, api_key) as session:
        numbers = [partition] if partition is not None else session.partition_numbers(topic)
        queries = [(number, point) for number in numbers for point in points]
        results = _ask(session, topic, queries)
    if as_json:
        print_json({"topic": topic, "results": results})
        return
    print_table(
        ["PARTITION", "ASKED FOR", "OFFSET", "TIMESTAMP"],
        [
            (
                number,
                point if isinstance(point, str) else format_timestamp(point),
                result["offset"],
                format_timestamp(result["timestamp"]),
            )
            for (number, point), result in zip(queries, results, strict=True)
        ],
    )


def _point(text: str) -> str | int:
    if text in SPECIAL_POINTS:
        return text
    try:
        return parse_timestamp(text)
    except ValueError as error:
        raise UsageProblem(f"--timestamp: {error}; or earliest, latest, max_timestamp.") from None


def _ask(session: Session, topic: str, queries: list[tuple[int, str | int]]) -> list[dict[str, int | None]]:
    body = {"queries": [{"topic": topic, "partition": number, "timestamp": point} for number, point in queries]}
    answer = session.send("POST", "/v1/offsets", body)
    results: list[dict[str, int | None]] = []
    for (number, point), result in zip(queries, answer["results"], strict=True):
        if "error" in result and result["error"] is not None:
            raise error_of_problem(result["error"], 0)
        results.append(
            {
                "partition": number,
                "asked_for": point,  # type: ignore[dict-item]
                "offset": result.get("offset"),
                "timestamp": result.get("timestamp"),
                "leader_epoch": result.get("leader_epoch"),
            }
        )
    return results
