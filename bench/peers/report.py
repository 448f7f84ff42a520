"""The table of peers, and what it says in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.peers.peer import PeerRow

OURS = "Rollway"
HTTP_GOAL = 2.0
_APPEND_GOALS = {100: 4.0, 1024: 5.0}
_FAIR = (
    "A message is not the same to everybody: peers take single messages and store each by itself, Rollway's raw rows "
    "and Kafka's take one opaque batch of 500 that was made before. Rollway's JSON rows parse and encode every record."
)


def line(row: PeerRow) -> str:
    """One row, as it comes."""
    if row.messages_per_second is None:
        return f"{row.peer}: could not be run: {row.reason}"
    return f"{row.peer}, {row.operation} {row.message_bytes} B, {row.way}: {row.messages_per_second:,.0f} messages/s"


def markdown(rows: Sequence[PeerRow], about: dict[str, Any]) -> str:
    """The table, sorted by what is compared, fastest first; those that could not be run; and the goals."""
    said = ", ".join(f"{name} {value}" for name, value in about.items())
    lines = [f"Measured: {said}.", "", _FAIR, ""]
    lines += ["| operation | who | how | an answer means | messages/s | MB/s | server CPU | client CPU |"]
    lines += ["|---|---|---|---|---:|---:|---:|---:|"]
    run = [row for row in rows if row.messages_per_second is not None]
    run.sort(key=lambda row: (row.operation, row.message_bytes, -(row.messages_per_second or 0)))
    lines += [_cells(row) for row in run]
    lines += ["", *(f"- {row.peer} could not be run: {row.reason}" for row in rows if row.messages_per_second is None)]
    notes = dict.fromkeys((row.peer, row.version, row.batching) for row in run)
    lines += [f"- {peer} {version}: {batching}.".replace(" :", ":") for peer, version, batching in notes]
    lines += ["", *comparisons(run)]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def _cells(row: PeerRow) -> str:
    rate = row.messages_per_second or 0.0
    cells = [f"{row.operation} {row.message_bytes} B", f"{row.peer} {row.version}".strip(), row.way, row.durability]
    cells += [f"{rate:,.0f}", f"{rate * row.message_bytes / 1e6:,.0f}", _share(row.server_cpu), _share(row.client_cpu)]
    return f"| {' | '.join(cells)} |"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def comparisons(rows: Sequence[PeerRow]) -> list[str]:
    """Rollway's best against the best of the others, at the same durability, with the goal of each."""
    lines = []
    for operation in ("append", "fetch"):
        for size in sorted({row.message_bytes for row in rows}):
            ours = _best(rows, operation, size, lambda row: row.peer == OURS)
            http = _best(rows, operation, size, lambda row: row.peer != OURS and row.is_http)
            if ours is not None and http is not None:
                lines.append(_sentence(ours, http, "the best HTTP peer", HTTP_GOAL))
            single = _best(rows, operation, size, lambda row: row.peer != OURS and not row.way.startswith("raw"))
            if ours is not None and single is not None and operation == "append":
                lines.append(_sentence(ours, single, "the best that takes single messages", _APPEND_GOALS.get(size)))
            consumer = _best(rows, operation, size, lambda row: row.way == "its consumer tool")
            if ours is not None and consumer is not None:
                lines.append(_sentence(ours, consumer, "Kafka's own consumer", 1.0))
            raw = _best(rows, operation, size, lambda row: row.peer != OURS and row.way.startswith("raw"))
            if ours is not None and raw is not None:
                lines.append(_sentence(ours, raw, "the same batches to Kafka on a socket", None))
    return lines


def _best(rows: Sequence[PeerRow], operation: str, size: int, is_meant: Any) -> PeerRow | None:
    found = [row for row in rows if row.operation == operation and row.message_bytes == size and is_meant(row)]
    found = [row for row in found if row.durability != "fsynced"]
    return max(found, key=lambda row: row.messages_per_second or 0.0, default=None)


def _sentence(ours: PeerRow, theirs: PeerRow, what: str, goal: float | None) -> str:
    ratio = (ours.messages_per_second or 0.0) / (theirs.messages_per_second or 1.0)
    verdict = "" if goal is None else f"; goal {goal:g}: {'met' if ratio >= goal else 'not met'}"
    who = f"{theirs.peer}, {theirs.way}"
    return f"- {ours.operation} of {ours.message_bytes} B: {ratio:.1f} times {what} ({who}){verdict}."
