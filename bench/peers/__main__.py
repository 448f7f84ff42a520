"""``python -m bench.peers``: Rollway beside other logs that can be installed here; the others with the reason.

Everybody gets the same messages, 500 at a time on four connections, each waiting for its answer before the next;
servers on one core, the client on another. What a "message" is differs: see each row's note, and weigh the figures
with it.
"""

from __future__ import annotations

import json as json_format
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.machine import choose_cores, description, running_on, touch_memory
from bench.peers import report
from bench.peers.kafka import Kafka
from bench.peers.nats import Nats
from bench.peers.peer import CannotRunError, Peer, PeerRow, Surroundings, Way
from bench.peers.redis import Redis
from bench.peers.rollway import Rollway
from bench.peers.s2 import S2Lite
from bench.peers.strimzi import StrimziBridge
from bench.processes import BenchError
from bench.runs import revision, work_directory

PEERS: dict[str, Callable[[Surroundings], Peer]] = {
    "rollway": Rollway,
    "strimzi": StrimziBridge,
    "s2": S2Lite,
    "kafka": Kafka,
    "nats": Nats,
    "redis": Redis,
}
MESSAGE_BYTES = (100, 1024)
# A way is measured this long before it counts, for caches and just-in-time compilers.
WARM_UP_SHARE = 0.5


def measured(peer: Peer, way: Way, message_bytes: int, rounds: int, seconds: float, *, smoke: bool) -> PeerRow:
    """One line of the table.

    Raises:
        CannotRunError, OSError: the peer failed meanwhile.
    """
    way.measure(seconds * WARM_UP_SHARE)
    figures = []
    for _ in range(rounds):
        if way.operation == "append" and not smoke:
            touch_memory()
        figures.append(way.measure(seconds))
    return PeerRow(
        peer=peer.name,
        version=peer.version(),
        operation=way.operation,
        way=way.name,
        message_bytes=message_bytes,
        durability=way.durability,
        is_http=way.is_http,
        messages_per_second=statistics.median(each.messages_per_second for each in figures),
        server_cpu=statistics.median(each.server_cpu for each in figures),
        client_cpu=statistics.median(each.client_cpu for each in figures),
        rounds=[each.messages_per_second for each in figures],
        batching=peer.batching,
    )


def rows_of(name: str, surroundings: Surroundings, rounds: int, seconds: float) -> Iterator[PeerRow]:
    """All lines of one peer, or the one that says why there are none."""
    peer = PEERS[name](surroundings)
    try:
        with peer:
            for message_bytes in MESSAGE_BYTES:
                for way in peer.ways(message_bytes):
                    yield measured(peer, way, message_bytes, rounds, seconds, smoke=surroundings.scale < 1)
    except CannotRunError as error:
        yield PeerRow(peer=peer.name, reason=str(error))
    except (OSError, BenchError) as error:
        why = str(error) or "no answer came"
        yield PeerRow(peer=peer.name, reason=f"It failed while it was measured: {why}.")


def kept_rows(path: Path | None, measured_now: set[str]) -> list[PeerRow]:
    """Rows of an earlier run's file, of peers that are not measured now."""
    if path is None or not path.exists():
        return []
    rows = [PeerRow.from_json(row) for row in json_format.loads(path.read_text("utf-8"))["rows"]]
    return [row for row in rows if row.peer not in measured_now]


def main(
    only: Annotated[
        list[str] | None, typer.Option(help=f"Run this one only; repeatable. One of {', '.join(PEERS)}.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds; the median counts.", min=1)] = 3,
    seconds: Annotated[float, typer.Option(help="How long each is measured in a round.", min=0.01)] = 2.0,
    smoke: Annotated[bool, typer.Option(help="One short round, nothing is downloaded: whether it runs.")] = False,
    json: Annotated[
        Path | None, typer.Option(help="Write the rows to this file; those of peers not run now stay in it.")
    ] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the table to this file.")] = None,
    data_dir: Annotated[Path, typer.Option(help="Where data lie meanwhile: the disk that is measured.")] = Path(),
    cache: Annotated[
        Path, typer.Option(help="Where downloads and builds stay.", envvar="BENCH_PEERS_CACHE")
    ] = Path.home() / ".cache" / "rollway-bench-peers",
) -> None:
    """Measure Rollway beside its peers."""
    names = only or list(PEERS)
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        print(f"bench-peers: There is no peer {unknown[0]}; there are {', '.join(PEERS)}.", file=sys.stderr)
        raise typer.Exit(1)
    if smoke:
        rounds, seconds = 1, 0.05
    cores, machine = choose_cores(), description()
    rows: list[PeerRow] = []
    with work_directory(data_dir.resolve()) as directory, running_on(cores.generator):
        surroundings = Surroundings(cache.resolve(), directory, cores, not smoke, 0.02 if smoke else 1.0)
        for name in names:
            for row in rows_of(name, surroundings, rounds, seconds):
                rows.append(row)
                print(report.line(row), flush=True)
    about: dict[str, Any] = {**machine, "revision": revision(), "rounds": rounds, "seconds": seconds}
    rows += kept_rows(json, {row.peer for row in rows})
    if json is not None:
        document = {"about": about, "rows": [asdict(row) for row in rows]}
        json.write_text(json_format.dumps(document, indent=1) + "\n", "utf-8")
    text = report.markdown(rows, about)
    if markdown is not None:
        markdown.write_text(text, "utf-8")
    print(text)
    sys.stdout.flush()
    os.sync()


if __name__ == "__main__":
    application = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    application.command()(main)
    application()
