"""Records as JSON, 500 of 100 bytes in a request: the records per second of produce and of fetch."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

from bench.closed_loop import Load, connect, take_answer
from bench.machine import choose_cores
from bench.processes import ServerProcess, limit_server
from bench.requests import JSON, get, post, post_head, records_path
from bench.rollway_server import RollwayServer
from bench.rows import Goal, Plan, Row, row_of
from bench.scenes import Scene, fresh_topic, measure_load, once_per_server, run_scene

BENCH = "json"
RECORDS = 500
OUTSTANDING = 4
PRODUCE, FETCH = "JSON produce, 500 records of 100 B", "JSON fetch, 500 records of 100 B"
FETCH_TOPIC = "json-fetch"
FETCH_REQUESTS = 20
LIMIT = "FastAPI's own way"
SECONDS_MAX = 1.0


def document() -> bytes:
    """500 records with values of 100 characters."""
    records = [{"value": f"{number:010}" * 10} for number in range(RECORDS)]
    return json.dumps({"records": records}, separators=(",", ":")).encode("ascii")


def scenes(smoke: bool = False) -> list[Scene]:
    """Produce one document again and again; fetch 500 records at different places."""
    del smoke
    body = document()
    reset = fresh_topic("json-produce", flush_policy="interval")

    @once_per_server
    def prepare_fetch(server: RollwayServer) -> None:
        server.create_topic(FETCH_TOPIC, 1, flush_policy="interval")
        _send(server, post(records_path(FETCH_TOPIC), body, JSON), FETCH_REQUESTS)

    path = f"{records_path(FETCH_TOPIC)}?max_records={RECORDS}&offset="
    fetches = [get(f"{path}{number * RECORDS}", JSON) for number in range(FETCH_REQUESTS)]
    head = post_head(records_path("json-produce"), len(body), JSON)
    return [
        Scene(
            BENCH,
            PRODUCE,
            "M records/s",
            Load([head], OUTSTANDING, body, len(body), RECORDS),
            reset,
            reset,
            SECONDS_MAX,
        ),
        Scene(
            BENCH,
            FETCH,
            "M records/s",
            Load(fetches, OUTSTANDING, records=RECORDS, is_large_answer=True),
            prepare_fetch,
        ),
    ]


def _send(server: ServerProcess, request: bytes, count: int) -> None:
    buffer = memoryview(bytearray(1024 * 1024))
    with connect(server.address) as connection:
        for _ in range(count):
            connection.sendall(request)
            take_answer(connection, buffer)


def measure(plan: Plan) -> Iterator[Row]:
    """Rows: records per second, alone and beside pydantic models in and out."""
    cores = choose_cores()
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(RollwayServer(plan.data_dir / BENCH, cores.server))
        theirs = stack.enter_context(
            limit_server("fastapi_json", plan.data_dir / "limits.log", cores.server, str(plan.data_dir / "fastapi.log"))
        )
        body = document()
        _send(theirs, post("/records", body, JSON), 1)
        produce = Load([post_head("/records", len(body), JSON)], OUTSTANDING, body, len(body), RECORDS)
        fetch = Load([get("/records", JSON)], OUTSTANDING, records=RECORDS, is_large_answer=True)
        produces, fetches = scenes()
        for scene, load, value_goal, ratio_goal in ((produces, produce, 1.9, 3.0), (fetches, fetch, 2.2, 6.0)):
            measure_theirs = measure_load(theirs, load, scene.unit, seconds_max=scene.seconds_max)
            samples = run_scene(plan, scene, ours, [(LIMIT, measure_theirs)])
            mine = samples[ours.name]
            yield row_of(BENCH, scene.name, scene.unit, mine, goal=Goal("value", ">=", value_goal))
            yield row_of(
                BENCH,
                scene.name,
                scene.unit,
                mine,
                limit=LIMIT,
                limits=samples[LIMIT],
                goal=Goal("ratio", ">=", ratio_goal),
            )
