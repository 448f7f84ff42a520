"""``python -m bench.produce_memory``: how much memory a produce request takes, in multiples of its body.

The service runs in a thread of this process under ``tracemalloc``; the client's bytes were there before. A figure is
the most that was allocated at once from the request's first byte to its answer, over what was allocated before it. What
tracemalloc does not see is the buffer of a sink: mapped memory of one body's size, which the next request uses again.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bench.requests import RAW, batch_of_bytes
from bench.runs import run_program, work_directory
from tests.support.servers import ThreadedServer, http_client

KIB = 1024
MIB = 1024 * KIB
JSON, NDJSON = "application/json", "application/x-ndjson"
REQUESTS = 4
"""The first of a connection, and those behind it."""
_RECORDS = "/v1/topics/{}/partitions/0/records"
_SPREAD_PARTITIONS = 4


@dataclass(frozen=True)
class Case:
    """A request: where it goes, and what it has in it."""

    name: str
    path: str
    media_type: str
    body: bytes


def cases(share: float) -> Iterator[Case]:
    """Every case, of bodies of this share of their size."""

    def raw(size_bytes: int) -> bytes:
        # A batch has its limit; a body has several.
        count = max(1, size_bytes // (512 * KIB))
        return batch_of_bytes(size_bytes // count)[0] * count

    for name, size_bytes in (("64 KiB", 64 * KIB), ("190 KiB", 190 * KIB), ("1 MiB", MIB), ("8 MiB", 8 * MIB)):
        yield Case(f"raw, {name}", _RECORDS.format("plain"), RAW, raw(int(share * size_bytes)))
    size_bytes = int(share * MIB)
    yield Case("raw, 1 MiB, to a topic that compresses", _RECORDS.format("compressed"), RAW, raw(size_bytes))
    records = [{"value": os.urandom(375).hex()} for _ in range(max(1, size_bytes // 764))]
    listed = json.dumps({"records": records}).encode()
    lines = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    spread = [{**record, "partition": place % _SPREAD_PARTITIONS} for place, record in enumerate(records)]
    yield Case("JSON, 1 MiB", _RECORDS.format("plain"), JSON, listed)
    yield Case("NDJSON, 1 MiB", _RECORDS.format("plain"), NDJSON, lines)
    yield Case(
        "JSON, 1 MiB, over four partitions", "/v1/topics/plain/records", JSON, json.dumps({"records": spread}).encode()
    )
    text = base64.b64encode(raw(size_bytes // _SPREAD_PARTITIONS)).decode()
    parts = [{"topic": "plain", "partition": number, "record_batches": text} for number in range(_SPREAD_PARTITIONS)]
    yield Case("raw in JSON, four parts of 256 KiB", "/v1/produce", JSON, json.dumps({"partitions": parts}).encode())


def measure(server: ThreadedServer, case: Case) -> list[float]:
    """The peaks of some requests on one connection, one after the other, in multiples of the body."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    head = f"POST {case.path}?timeout_ms=60000 HTTP/1.1\r\nHost: {host}\r\nContent-Type: {case.media_type}\r\n"
    request = head.encode() + b"Content-Length: %d\r\n\r\n" % len(case.body) + case.body
    answer = bytearray(64 * KIB)
    peaks = []
    with socket.create_connection((host, int(port))) as connection:
        for _ in range(REQUESTS):
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            connection.sendall(request)
            _read_answer(connection, answer, case)
            peaks.append((tracemalloc.get_traced_memory()[1] - before) / len(case.body))
    return peaks


def _read_answer(connection: socket.socket, room: bytearray, case: Case) -> None:
    size = 0
    while not _is_whole(room, size):
        received = connection.recv_into(memoryview(room)[size:])
        if not received:
            break
        size += received
    if not room.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"{case.name}: {bytes(room[:size])!r}")


def _is_whole(room: bytearray, size: int) -> bool:
    end = room.find(b"\r\n\r\n", 0, size) + 4
    if end < 4:
        return False
    head = bytes(room[:end]).lower()
    if b"transfer-encoding: chunked" in head:
        return room.endswith(b"0\r\n\r\n", end, size)
    return size == end + int(head.partition(b"content-length:")[2].split(None, 1)[0])


def table_of(data: Path, share: float, say: Callable[[str], None]) -> None:
    """Say the rows of the table, each case on the connection and through the application alone."""
    found: dict[str, list[list[float]]] = {}
    tracemalloc.start()
    for has_fast_path in (True, False):
        with ThreadedServer(data / str(has_fast_path), has_fast_path=has_fast_path) as server:
            with http_client(server.url) as client:
                for name, codec in (("plain", "producer"), ("compressed", "gzip")):
                    topic = {"partitions": _SPREAD_PARTITIONS, "config": {"compression.type": codec}}
                    client.put(f"/v1/topics/{name}", json=topic).raise_for_status()
            for case in cases(share):
                found.setdefault(case.name, []).append(measure(server, case))
    tracemalloc.stop()
    say("| request | first | following | the application alone |")
    say("|---|---|---|---|")
    for name, (known, alone) in found.items():
        say(f"| {name} | {known[0]:.1f} | {max(known[1:]):.1f} | {max(alone[1:]):.1f} |")


def main(
    smoke: Annotated[bool, typer.Option(help="Bodies of a sixteenth, to see that it runs.")] = False,
    data_dir: Annotated[Path, typer.Option(help="Where the data of the run lies meanwhile.")] = Path("build/bench"),
) -> None:
    """Print the most memory each kind of produce request takes, as a Markdown table."""
    with work_directory(data_dir) as data:
        table_of(data, 1 / 16 if smoke else 1, typer.echo)


if __name__ == "__main__":
    run_program(main)
