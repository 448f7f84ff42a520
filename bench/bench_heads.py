"""Heads as real clients send them: something in each is new, beside the same requests with equal heads.

What differs is a request id, a ``traceparent``, the partition, or which of several tokens a client has.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bench.closed_loop import Load, connect, take_answer
from bench.machine import choose_cores
from bench.processes import BenchError
from bench.requests import JSON, RAW, post, record_batch, records_path
from bench.rollway_server import HERE, RollwayServer
from bench.rounds import in_turns
from bench.rows import Goal, Plan, Row, row_of
from bench.scenes import measure_load

BENCH = "heads"
TOPIC = "heads"
PARTITIONS = 64
TOKENS = 16
HEADS = 4096
"""So many different requests are asked in turn: more than anything would keep."""
CONNECTIONS = (1, 16)
SECONDS_MAX = 0.4
KIB = 1024
PRINCIPAL = "User:bench"


class Asked(NamedTuple):
    """One kind of request: ``of(partition, more)`` has these further header lines."""

    name: str
    of: Callable[[int, str], bytes]


def _with(request: bytes, more: str) -> bytes:
    return request.replace(b"\r\n\r\n", f"\r\n{more}\r\n\r\n".encode(), 1) if more else request


def _get(partition: int, query: str, accept: str, more: str) -> bytes:
    head = f"GET {records_path(TOPIC, partition)}?{query} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {accept}\r\n\r\n"
    return _with(head.encode(), more)


def kinds() -> list[Asked]:
    """A batch of a kibibyte and ten records of JSON, in and out."""
    batch = record_batch(1, KIB - 100)
    document = json.dumps({"records": [{"value": "x" * 100}] * 10}).encode()
    return [
        Asked("raw produce, 1 KiB", lambda partition, more: _with(post(records_path(TOPIC, partition), batch), more)),
        Asked("raw fetch, 4 KiB", lambda partition, more: _get(partition, "offset=0&max_bytes=4096", RAW, more)),
        Asked(
            "JSON produce, 10 records",
            lambda partition, more: _with(post(records_path(TOPIC, partition), document, JSON), more),
        ),
        Asked("JSON fetch, 10 records", lambda partition, more: _get(partition, "offset=0&max_records=10", JSON, more)),
    ]


def _request_id(draw: random.Random) -> str:
    return f"X-Request-Id: {draw.getrandbits(64):016x}"


def _trace(draw: random.Random) -> str:
    return f"traceparent: 00-{draw.getrandbits(128):032x}-{draw.getrandbits(64):016x}-01"


def differing(asked: Asked, what: str, tokens: list[str]) -> tuple[list[bytes], list[bytes]]:
    """Requests that differ in ``what``, and those beside them that are equal."""
    draw = random.Random(7)
    if what == "partition":
        return [asked.of(number % PARTITIONS, "") for number in range(HEADS)], [asked.of(0, "")]
    if what == "token":
        lines = [f"Authorization: Bearer {token}" for token in tokens]
        return [asked.of(0, line) for line in lines], [asked.of(0, lines[0])]
    line = {"request id": _request_id, "traceparent": _trace}[what]
    return [asked.of(0, line(draw)) for _ in range(HEADS)], [asked.of(0, line(draw))]


def _prepare(server: RollwayServer) -> None:
    """Records in every partition, and each kind of request once: what the application has validated is quick."""
    server.create_topic(TOPIC, PARTITIONS, flush_policy="interval")
    buffer = memoryview(bytearray(256 * KIB))
    more = "" if server.authorization is None else f"Authorization: {server.authorization}"
    with connect(server.address) as connection:
        for partition in range(PARTITIONS):
            for asked in (*kinds()[::2], *kinds()[1::2]):
                connection.sendall(asked.of(partition, more))
                take_answer(connection, buffer)


def _new_key(server: RollwayServer) -> str:
    """A key of a principal who may do everything, made before the service starts."""
    command = [HERE.python, "-c", "from app.cli import main; main()", "keys", "create", "--principal", PRINCIPAL]
    answer = subprocess.run(
        [*command, "--data-dir", str(server.data_dir)],
        env=dict(server.environment),
        capture_output=True,
        check=False,
        text=True,
    )
    if answer.returncode:
        raise BenchError(f"No key could be made: {answer.stderr.strip()}")
    return answer.stdout.strip()


def _tokens(server: RollwayServer) -> list[str]:
    wanted = {
        "grants": [{"operations": ["READ", "WRITE"], "resource_name": TOPIC}],
        "expires_at": time.time_ns() // 1_000_000 + 86_400_000,
    }
    return [str(server.call("POST", "/v1/tokens", wanted)["token"]) for _ in range(TOKENS)]


def _rows(plan: Plan, server: RollwayServer, differences: tuple[str, ...], tokens: list[str]) -> Iterator[Row]:
    for asked in kinds():
        for outstanding in CONNECTIONS:
            for what in differences:
                fresh, equal = differing(asked, what, tokens)
                name = f"{asked.name}, another {what}, {outstanding} connection{'s' * (outstanding > 1)}"
                contestants = {
                    "differ": measure_load(server, Load(fresh, outstanding), "requests/s", None, SECONDS_MAX),
                    "equal": measure_load(server, Load(equal, outstanding), "requests/s", None, SECONDS_MAX),
                }
                samples = in_turns(plan, f"{BENCH}, {name}", contestants)
                yield row_of(
                    BENCH,
                    name,
                    "requests/s",
                    samples["differ"],
                    limit="equal heads",
                    limits=samples["equal"],
                    goal=Goal("ratio", ">=", 0.8),
                )


def measure(plan: Plan) -> Iterator[Row]:
    """Rows: each kind of request with heads that differ, beside equal ones, on 1 and on 16 connections."""
    cores = choose_cores()
    with RollwayServer(plan.data_dir / BENCH, cores.server) as server:
        _prepare(server)
        yield from _rows(plan, server, ("request id", "traceparent", "partition"), [])
    with contextlib.ExitStack() as stack:
        settings = {"authentication": "true", "super_users": PRINCIPAL}
        server = RollwayServer(plan.data_dir / f"{BENCH}-tokens", cores.server, settings=settings)
        server.authorization = f"Bearer {_new_key(server)}"
        stack.enter_context(server)
        _prepare(server)
        yield from _rows(plan, server, ("token",), _tokens(server))
